"""Configure `opencode acp` before its start, because the protocol cannot.

It forwards no questions, and a sub-agent's permission request would hang the turn. It
also opens a port on loopback.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.providers.base import SessionOptions
from atomic.providers.opencode.configuration import (
    CONTENT,
    disabled_as_configuration,
    encoded,
    find_settings,
    literally,
    merge,
    read_user_configuration,
    tool_server_as_configuration,
    without_asking,
)
from atomic.providers.opencode.launch import environment
from atomic.providers.opencode.tool_permissions import TOOL_SERVER
from atomic.providers.tool_server import ToolServer

PERMISSION = "OPENCODE_PERMISSION"
_SETTINGS = ("opencode.json", "opencode.jsonc")
_NO_TITLES = {"agent": {"title": {"disable": True}}}  # not shown, and each needs a model call
_PROHIBITIONS = ('"deny"', '"tools"', "\\")  # or a backslash, which may hide one


def opencode_environment(
    settings: Settings, options: SessionOptions, cwd: Path, tools: ToolServer | None
) -> dict[str, str]:
    """Return the environment. Raise ProviderError for unreadable or invalid settings."""
    user = read_user_configuration({**os.environ, **settings.provider("opencode").env, **(options.env or {})})
    content = merge(without_asking(user.content), _NO_TITLES)
    if not options.trusted:
        # Both run programs of the project, such as node_modules/.bin/prettier.
        content = merge(content, {"formatter": False, "lsp": False})
    replaced = [server.name for server in options.mcp_servers if server.takes_place]  # replaced over the protocol
    if disabled := [*options.disabled_mcp_servers, *replaced]:
        content = merge(content, {"mcp": literally(disabled_as_configuration(disabled))})
    if tools is not None:
        content = merge(content, {"mcp": {TOOL_SERVER: tool_server_as_configuration(tools.url, tools.token)}})
    env = environment(settings, user, options)
    rules = env.get(PERMISSION, "")
    env |= {
        CONTENT: encoded(content),
        "OPENCODE_CLIENT": "acp",
        "OPENCODE_ENABLE_QUESTION_TOOL": "0",
        "OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS": "0",  # they would outlive their turn
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_SERVER_PASSWORD": secrets.token_urlsafe(
            32
        ),  # without it all users of this machine could use the port
    }
    if not options.trusted:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    texts = [msgspec.json.encode(user.merged).decode(), rules, *_other_settings(cwd, trusted=options.trusted)]
    if not any(word in text for text in texts for word in _PROHIBITIONS):
        env[PERMISSION] = _allowing_all(rules)
    return env


def _allowing_all(rules: str) -> str:
    """Allow everything that the user's rules do not cover.

    The last rule that matches counts, so the pattern for all comes last. It is not
    added if the user denies anything, because it would override the denial.
    """
    own: dict[str, Any] = msgspec.json.decode(rules, type=dict[str, Any]) if rules else {}
    return msgspec.json.encode({**own, "**": "allow"}).decode()


def _other_settings(cwd: Path, *, trusted: bool) -> Iterator[str]:
    """Yield the settings of the machine, and of the project if it is trusted.

    Raise ProviderError.
    """
    folders = [Path("/etc/opencode")]
    if trusted:
        folders += [place for one in (cwd, *cwd.parents) for place in (one, one / ".opencode")]
    for file in (folder / name for folder in folders for name in _SETTINGS):
        if (text := find_settings(file)) is not None:
            yield text
