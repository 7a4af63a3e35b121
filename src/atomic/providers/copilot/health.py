"""Whether Copilot can be used here, without asking anybody on the network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from atomic.processes import ExecError, execute
from atomic.providers.base import Health
from atomic.providers.copilot.login import LOGIN, has_login

INSTALL = "npm install -g @github/copilot"
OLDEST = (1, 0, 102)  # the SDK is made for this one; newer ones keep to its protocol

_ANSWERING = 60.0  # seconds; at its first start the program unpacks itself
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\b")


async def examine(program: Path, env: Mapping[str, str]) -> Health:
    """Does it run? Is it new enough? Has it a login, a token or a model of the user's own?"""
    try:
        result = await execute(program, "--version", cwd="/", env=env, timeout=_ANSWERING)
    except ExecError as error:
        return Health(False, program=str(program), remedy=f"{error}; reinstall it: {INSTALL}")
    found = _VERSION.search(result.stdout)
    if found is None:
        said = (result.stdout or result.stderr).strip()[:200]
        return Health(False, program=str(program), remedy=f"it does not say its version but '{said}'; {INSTALL}")
    version = found[0]
    if tuple(int(part) for part in found.groups()) < OLDEST:
        remedy = f"it is older than {'.'.join(map(str, OLDEST))}: {INSTALL}"
        return Health(False, version, str(program), remedy)
    if not has_login(env):
        return Health(False, version, str(program), f"it has no login: {LOGIN}")
    return Health(True, version, str(program))
