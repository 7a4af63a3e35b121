"""Check Claude Code's version and login, by asking the program; needs no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from shutil import which

import msgspec

from atomic.config.known_agents import require_known_agent
from atomic.processes import ExecError, execute
from atomic.providers.base import Health
from atomic.providers.logins import found_login

OLDEST = (2, 1)  # older versions do not report the end of a turn
_UPDATE = "run `claude update`"
_SECONDS = 30


class _Login(msgspec.Struct, frozen=True, rename="camel"):
    logged_in: bool


async def health_of(program: Path, env: dict[str, str]) -> Health:
    """Return the version and login of the program.

    A problem is reported, not raised.
    """
    env = {**env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    output = await _run(program, env, "--version")
    number = re.match(r"(\d+)\.(\d+)[\w.+-]*", output)
    if number is None:
        return Health(False, "", str(program), f"it does not report a version but prints {output[:200]!r}: {_UPDATE}")
    version = number[0]
    if (int(number[1]), int(number[2])) < OLDEST:
        return Health(False, version, str(program), f"it is older than {OLDEST[0]}.{OLDEST[1]}: {_UPDATE}")
    try:
        is_logged_in = msgspec.json.decode(await _run(program, env, "auth", "status"), type=_Login).logged_in
    except msgspec.MsgspecError:  # this version does not report it; the first turn will
        is_logged_in = True
    if is_logged_in:
        return Health(True, version, str(program), login=found_login(require_known_agent("claude"), env))
    return Health(False, version, str(program), login_remedy(program, env))


def login_remedy(program: Path, env: Mapping[str, str]) -> str:
    """Return how to log in. A program that an extra installed is not on PATH."""
    command = "claude" if which("claude", path=env.get("PATH")) else quote(str(program))
    return f"run `{command}` once and log in, or set ANTHROPIC_API_KEY"


async def _run(program: Path, env: dict[str, str], *words: str) -> str:
    try:
        # Not in a project: its untrusted settings could name a program that creates
        # keys.
        result = await execute(program, *words, cwd="/", env=env, timeout=_SECONDS)
    except ExecError as error:
        return str(error)
    return result.stdout.strip() or result.stderr.strip()
