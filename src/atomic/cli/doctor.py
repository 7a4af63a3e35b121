"""`atomic doctor`: which agents can be used here, and what is missing for the others."""

from __future__ import annotations

import asyncio
import os
import platform
import sys

import msgspec

from atomic import __version__
from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.cli import signals
from atomic.cli.doctor_checks import Check, check_integrity, check_keys, check_sandbox
from atomic.cli.signals import Stop
from atomic.cli.streams import json_line, put
from atomic.config import ConfigError, Settings, atomic_home, config_files, load_settings
from atomic.processes import ExecError, execute
from atomic.providers import Health
from atomic.providers.selection import BY_PREFERENCE, CHECK_SECONDS, check_agent, neutral_folder


class ProviderRow(msgspec.Struct, frozen=True):
    """An agent, and whether it can be used."""

    name: str
    ok: bool
    version: str
    program: str
    remedy: str


class Findings(msgspec.Struct, frozen=True):
    """All that the doctor has seen."""

    providers: list[ProviderRow]
    checks: list[Check]


def run_doctor(arguments: Arguments) -> int:
    """Look at everything and print it; 0 if there is an agent that can be used."""

    as_json = arguments.has("--json")

    async def work(stop: Stop) -> int:
        settings, configuration = _configuration()
        with neutral_folder():
            providers = await _providers(settings)
            checks = [await _git(), *_versions(), *configuration, _home()]
            checks += [check_keys(settings), check_sandbox(), check_integrity()]
        found = Findings(providers, checks)
        put(json_line(found) if as_json else _text(found))
        return ExitCode.DONE if any(row.ok and row.name != "replay" for row in providers) else ExitCode.FAILED

    return signals.run(work)


async def _providers(settings: Settings) -> list[ProviderRow]:
    """All at once; one that hangs costs its own limit and nothing more."""
    names = [*BY_PREFERENCE, *(f"acp:{name}" for name in settings.acp)]
    found = await asyncio.gather(*(check_agent(name, settings) for name in names))
    rows = [_row(name, health) for name, health in zip(names, found, strict=True)]
    if not settings.acp:
        remedy = 'none is set up: [acp.NAME] command = ["PROGRAM", "--acp"] in your configuration adds one'
        rows.append(_row("acp", Health(False, remedy=remedy)))
    return [*rows, _row("replay", Health(True, version=__version__))]


def _row(name: str, health: Health) -> ProviderRow:
    return ProviderRow(name, health.ok, health.version, health.program, health.remedy)


async def _git() -> Check:
    remedy = "install git: workflows keep their work in it"
    try:
        done = await execute("git", "--version", timeout=CHECK_SECONDS)
    except ExecError as error:
        return Check("git", False, str(error), remedy)
    said = one_line(done.stdout or done.stderr)
    return Check("git", done.exit_code == 0, said.removeprefix("git version "), "" if done.exit_code == 0 else remedy)


def _versions() -> list[Check]:
    return [
        Check("python", True, f"{platform.python_version()} ({sys.executable})"),
        Check("atomic", True, __version__),
    ]


def _configuration() -> tuple[Settings, list[Check]]:
    """The settings, as far as they can be read, and a line for each file or for each problem in it."""
    try:
        settings = load_settings()
        problems = list(settings.warnings)
    except ConfigError as error:
        settings, problems = Settings(), [str(error)]
    checks: list[Check] = []
    for file in config_files():
        if file is not None:
            own = [problem for problem in problems if problem.startswith(f"{file}:")]
            checks += [Check("config", False, problem, "correct that line, or remove it") for problem in own]
            checks += [] if own else [Check("config", True, str(file) if file.is_file() else f"{file} (not there)")]
    return settings, checks


def _home() -> Check:
    """Whether we may write where sessions are kept; without making the folder just for that."""
    home = atomic_home()
    folder = next(folder for folder in (home, *home.parents) if folder.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Check("home", True, str(home))
    return Check("home", False, f"{home} cannot be written", "give yourself the right to, or set ATOMIC_HOME")


def _text(found: Findings) -> str:
    rows = [(row.ok, row.name, _said(row)) for row in found.providers]
    rows += [(row.ok, row.name, f"{row.detail} ({row.remedy})" if row.remedy else row.detail) for row in found.checks]
    width = max(len(name) for _, name, _ in rows)
    return "".join(f"{'ok' if ok else '--':4}{name:{width}}  {one_line(text)}\n" for ok, name, text in rows)


def _said(row: ProviderRow) -> str:
    seen = " ".join(part for part in (row.version, f"({row.program})" if row.program else "") if part)
    return ": ".join(part for part in (seen, row.remedy) if part)
