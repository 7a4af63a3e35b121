"""`atomic doctor`: report the agents that work here, remedies for the others, and
problems of this machine.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atomic import __version__
from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.redaction import is_secret
from atomic.base.terminal import one_line
from atomic.base.untrusted_files import read_start
from atomic.cli import signals
from atomic.cli.doctor_workspaces import describe_workspaces
from atomic.cli.signals import Stop
from atomic.cli.streams import json_line, put
from atomic.config import ConfigError, Settings, atomic_home, config_files, config_home, load_settings
from atomic.config.known_agents import ACP_NAMES, find_known_agent
from atomic.loading.trust_store import TrustStore
from atomic.processes import ExecError, execute
from atomic.providers import Health
from atomic.providers.logins import describe_payment
from atomic.providers.selection import CHECK_SECONDS, agent_names, check_agent, neutral_folder
from atomic.sessions.errors import SessionDamagedError
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import SessionStore, read_record
from atomic.workflows.errors import TrustError

_AGENT_PREFIXES = ("ANTHROPIC_", "CLAUDE_", "COPILOT_", "GH_", "GITHUB_", "OPENCODE_")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_SQLITE_HEADER = b"SQLite format 3\0"


class ProviderRow(msgspec.Struct, frozen=True):
    """An agent, and whether it works.

    `login` is the variable or file that shows its login, `pays` who pays for its work,
    `install` the command of its vendor.
    """

    name: str
    ok: bool
    version: str
    program: str
    remedy: str
    login: str = ""
    pays: str = ""
    install: str = ""


class Check(msgspec.Struct, frozen=True):
    """A requirement of Atomic other than an agent."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def run_doctor(arguments: Arguments) -> int:
    """Check everything and print it. Return 0 if an agent works."""

    async def work(stop: Stop) -> int:
        settings, config_checks = _check_config()
        here = _find_here()
        with neutral_folder():
            providers, workspaces = await asyncio.gather(_check_providers(settings), _check_workspaces(here))
            checks = [
                await _check_git(),
                Check("python", True, f"{platform.python_version()} ({sys.executable})"),
                Check("atomic", True, __version__),
                *config_checks,
                _check_home(),
                _check_keys(settings),
                _check_sandbox(),
                workspaces,
                _check_integrity(),
            ]
        if arguments.has("--json"):
            put(json_line({"providers": providers, "checks": checks}))
        else:
            _print(providers, checks)
        return ExitCode.DONE if any(row.ok and row.name != "replay" for row in providers) else ExitCode.FAILED

    return signals.run(work)


def _print(providers: list[ProviderRow], checks: list[Check]) -> None:
    rows: list[tuple[bool, str, str]] = []
    for provider in providers:
        program = f"({provider.program})" if provider.program else ""
        found = f"{provider.version} {program}".strip()
        notes = (found, provider.remedy or _login_and_payment(provider))
        rows.append((provider.ok, provider.name, ": ".join(part for part in notes if part)))
    for one in checks:
        rows.append((one.ok, one.name, f"{one.detail} ({one.remedy})" if one.remedy else one.detail))
    width = max(len(name) for _, name, _ in rows)
    put("".join(f"{'ok' if ok else '--':4}{name:{width}}  {one_line(text)}\n" for ok, name, text in rows))


def _login_and_payment(row: ProviderRow) -> str:
    """Return how an agent that works is logged in, if it is known, and who pays."""
    if not row.login or not row.pays or os.sep not in row.login:
        return row.pays
    return f"logged in, {row.pays}"


async def _check_providers(settings: Settings) -> list[ProviderRow]:
    """Check all agents at the same time, each with its own time limit."""
    names = agent_names(settings)
    found = await asyncio.gather(*(check_agent(name, settings) for name in names))
    rows = [_row(name, health, settings) for name, health in zip(names, found, strict=True)]
    if all(find_known_agent(name) is not None and name not in ACP_NAMES for name in names):
        remedy = f"others can be installed: {', '.join(ACP_NAMES)}; atomic login NAME says how"
        rows.append(ProviderRow("acp", False, "", "", remedy))
    rows.append(ProviderRow("replay", True, __version__, "", ""))
    return rows


def _row(name: str, health: Health, settings: Settings) -> ProviderRow:
    agent = find_known_agent(name)
    if agent is None or name.removeprefix("acp:") in settings.acp:
        return ProviderRow(name, health.ok, health.version, health.program, health.remedy)
    return ProviderRow(
        name,
        health.ok,
        health.version,
        health.program,
        health.remedy,
        health.login,
        describe_payment(agent, health.login) if health.ok else "",
        agent.install,
    )


async def _check_git() -> Check:
    remedy = "install git: workflows need it"
    try:
        done = await execute("git", "--version", timeout=CHECK_SECONDS)
    except ExecError as error:
        return Check("git", False, str(error), remedy)
    version = one_line(done.stdout or done.stderr).removeprefix("git version ")
    is_ok = done.exit_code == 0
    return Check("git", is_ok, version, "" if is_ok else remedy)


def _check_config() -> tuple[Settings, list[Check]]:
    """Return the settings, or the defaults if they are invalid, and a check for each
    file or problem.
    """
    try:
        settings = load_settings()
        problems = list(settings.warnings)
    except ConfigError as error:
        settings = Settings()
        problems = [str(error)]
    checks: list[Check] = []
    for file in config_files():
        if file is None:
            continue
        own = [problem for problem in problems if problem.startswith(f"{file}:")]
        checks += [Check("config", False, problem, "correct that line, or remove it") for problem in own]
        if not own:
            checks.append(Check("config", True, str(file) if file.is_file() else f"{file} (does not exist)"))
    return settings, checks


def _check_home() -> Check:
    """Check that Atomic's folders are writable, without creating them."""
    config = config_home()
    state = atomic_home()
    for home in (config, state):
        folder = next(folder for folder in (home, *home.parents) if folder.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            return Check("home", False, f"{home} is not writable", "change its permissions, or set ATOMIC_HOME")
    return Check("home", True, str(state) if config == state else f"{config} (settings), {state} (runs)")


def _check_keys(settings: Settings) -> Check:
    """List the names of the keys that agents get, and check that keys in a file are
    private.
    """
    file, _ = config_files()
    has_keys = any(is_secret(name) for provider in settings.providers.values() for name in provider.env)
    if has_keys and file.is_file() and file.stat().st_mode & 0o077:
        return Check("keys", False, f"{file} contains keys, and other users can read it", f"chmod 600 {file}")
    names: list[str] = []
    for name in sorted(os.environ):
        if name in settings.env.pass_ or (name.startswith(_AGENT_PREFIXES) and is_secret(name)):
            names.append(name)
    return Check("keys", True, ", ".join(names) or "none in the environment: each agent has its own login")


def _check_sandbox() -> Check:
    """Describe the rights of agents, which run all tools without asking."""
    if os.geteuid() == 0:
        rights = "as root"
    else:
        try:
            rights = f"with the rights of {getpass.getuser()}"
        except (KeyError, OSError):  # the number has no name
            rights = f"with the rights of user {os.geteuid()}"
    is_container = any(map(os.path.exists, _CONTAINER_FILES)) or "container" in os.environ
    where = "in this container" if is_container else "not in a container"
    return Check("sandbox", True, f"agents run all tools without asking, {rights}; {where}")


def _find_here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None


async def _check_workspaces(here: Path | None) -> Check:
    """Describe where workers work here, and what runs have left on the disk."""
    return Check("workspaces", True, *(await describe_workspaces(atomic_home(), here)))


def _check_integrity() -> Check:
    """Check that sessions, their journals and the approvals can be read."""
    store = SessionStore(atomic_home())
    ids = sorted(store.ids())
    problems = [problem for id in ids for problem in _session_problems(store.place_of(id))]
    try:
        TrustStore().find("/")
    except TrustError as error:
        problems.append(str(error))
    if not problems:
        return Check("integrity", True, f"{len(ids)} session{'' if len(ids) == 1 else 's'}, all readable")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Check("integrity", False, f"{problems[0]}{more}", "docs/sessions.md explains how to recover")


def _session_problems(folder: Path) -> Iterator[str]:
    is_running = False
    try:
        is_running = read_record(folder).status is SessionStatus.RUNNING
    except SessionDamagedError as error:
        yield str(error)
    if folder.stat().st_mode & 0o077:
        yield f"{folder}: other users can read it"
    try:
        header = read_start(folder / "journal.db", len(_SQLITE_HEADER))
        if header not in (_SQLITE_HEADER, b""):  # empty: the run was killed before its first step
            yield f"{folder}/journal.db is damaged"
    except OSError as error:
        if not is_running:  # a new run may not have its journal yet
            yield f"{folder}/journal.db: {error.strerror}"
