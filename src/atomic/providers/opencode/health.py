"""Check whether OpenCode can be used; needs no network and only runs `--version`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.config.known_agents import require_known_agent
from atomic.processes import ExecError, execute
from atomic.providers.base import Health, SessionOptions
from atomic.providers.environment import base_environment
from atomic.providers.errors import ProviderError
from atomic.providers.opencode.configuration import UserConfiguration, data_folder, read_user_configuration
from atomic.providers.opencode.environment import USUAL, environment, variables_of

INSTALL = require_known_agent("opencode").install
_LOGIN = "run: opencode auth login, or set the key of a model provider, such as ANTHROPIC_API_KEY"
_OLDEST = (1, 18)
_LIMIT = 30.0


async def examine(program: Path, settings: Settings) -> Health:
    """Return the version and login; a problem is reported, not raised."""
    try:
        user = read_user_configuration({**base_environment(settings), **settings.provider("opencode").env})
        env = environment(settings, user, SessionOptions())
        result = await execute(program, "--version", cwd="/", env=env, timeout=_LIMIT)
    except (ExecError, ProviderError) as error:
        return Health(False, program=str(program), remedy=str(error))
    version = result.stdout.strip()
    if result.exit_code != 0 or not version:
        output = (result.stderr or result.stdout).strip()[-300:]
        return Health(False, program=str(program), remedy=f"opencode --version failed: {output}; {INSTALL}")
    number = tuple(int(part) for part in version.lstrip("v").split(".")[:2] if part.isdigit())
    if number < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        return Health(False, version, str(program), f"Atomic needs OpenCode {wanted} or newer: {INSTALL}")
    if not _has_credentials(env, user):
        return Health(False, version, str(program), _LOGIN)
    return Health(True, version, str(program))


def _has_credentials(env: Mapping[str, str], user: UserConfiguration) -> bool:
    """Return whether a login, a key or a custom provider exists.

    Validity is not checked.
    """
    keys = {*variables_of({*USUAL, *user.providers()}), "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT"}
    if user.merged.get("provider") or any(env.get(name) for name in keys):
        return True
    try:
        return bool(msgspec.json.decode((data_folder(env) / "auth.json").read_bytes(), type=dict[str, msgspec.Raw]))
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
