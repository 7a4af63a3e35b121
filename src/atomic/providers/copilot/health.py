"""Check whether Copilot can be used; needs no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from atomic.config.known_agents import require_known_agent
from atomic.processes import ExecError, execute
from atomic.providers.base import Health
from atomic.providers.copilot.environment import LOGIN, has_login
from atomic.providers.logins import found_login

INSTALL = require_known_agent("copilot").install
OLDEST = (1, 0, 102)  # newer versions keep its protocol

_SECONDS = 60.0  # the program unpacks itself at its first start
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\b")


async def examine(program: Path, env: Mapping[str, str]) -> Health:
    """Check the version, and whether a login, a token or an own model exists."""
    try:
        result = await execute(program, "--version", cwd="/", env=env, timeout=_SECONDS)
    except ExecError as error:
        return Health(False, program=str(program), remedy=f"{error}; reinstall it: {INSTALL}")
    found = _VERSION.search(result.stdout)
    if found is None:
        output = (result.stdout or result.stderr).strip()[:200]
        remedy = f"it does not report a version but prints '{output}'; {INSTALL}"
        return Health(False, program=str(program), remedy=remedy)
    version = found[0]
    if tuple(int(part) for part in found.groups()) < OLDEST:
        remedy = f"it is older than {'.'.join(map(str, OLDEST))}: {INSTALL}"
        return Health(False, version, str(program), remedy)
    if not has_login(env):
        return Health(False, version, str(program), f"it has no login: {LOGIN}")
    return Health(True, version, str(program), login=found_login(require_known_agent("copilot"), env))
