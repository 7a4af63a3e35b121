"""What `opencode acp` must be told before it starts; over the protocol it cannot be told.

It puts no question to anybody, and what a sub-agent asks leave for reaches nobody: a turn would hang for ever. And it
opens a port on loopback besides.
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
from atomic.providers.opencode.plan import environment
from atomic.providers.opencode.toolmap import TOOL_SERVER
from atomic.providers.tool_server import ToolServer

PERMISSION = "OPENCODE_PERMISSION"
_SETTINGS = ("opencode.json", "opencode.jsonc")
_NO_TITLES = {"agent": {"title": {"disable": True}}}  # nobody looks at them, and each is a call of a model
_PROHIBITIONS = ('"deny"', '"tools"', "\\")  # and what may hide one


def opencode_environment(
    settings: Settings, options: SessionOptions, cwd: Path, tools: ToolServer | None
) -> dict[str, str]:
    """The environment. Raises ProviderError where settings cannot be read, or the user's own are no JSON."""
    user = read_user_configuration({**os.environ, **settings.provider("opencode").env, **(options.env or {})})
    content = merge(without_asking(user.content), _NO_TITLES)
    if not options.trusted:
        # Both run programs that they find in the project, such as node_modules/.bin/prettier.
        content = merge(content, {"formatter": False, "lsp": False})
    replaced = [server.name for server in options.mcp_servers if server.takes_place]  # it is told of ours later
    if off := [*options.disabled_mcp_servers, *replaced]:
        content = merge(content, {"mcp": literally(disabled_as_configuration(off))})
    if tools is not None:
        content = merge(content, {"mcp": {TOOL_SERVER: tool_server_as_configuration(tools.url, tools.token)}})
    env = environment(settings, user, options)
    rules = env.get(PERMISSION, "")
    env |= {
        CONTENT: encoded(content),
        "OPENCODE_CLIENT": "acp",
        "OPENCODE_ENABLE_QUESTION_TOOL": "0",
        "OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS": "0",  # they would outlive the turn that began them
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_SERVER_PASSWORD": secrets.token_urlsafe(32),  # without it anybody on this machine could use the port
    }
    if not options.trusted:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    said = [msgspec.json.encode(user.merged).decode(), rules, *_other_settings(cwd, trusted=options.trusted)]
    if not any(word in text for text in said for word in _PROHIBITIONS):
        env[PERMISSION] = _allowing_all(rules)
    return env


def _allowing_all(rules: str) -> str:
    """The user's rules, with all that is left to ask about allowed.

    The last rule that fits counts, and a name that nobody else uses comes last. Where the user has prohibited anything
    this is not done: it would lift the prohibition.
    """
    own: dict[str, Any] = msgspec.json.decode(rules, type=dict[str, Any]) if rules else {}
    return msgspec.json.encode({**own, "**": "allow"}).decode()


def _other_settings(cwd: Path, *, trusted: bool) -> Iterator[str]:
    """The files with permissions that are not the user's own: the machine's, and those of a project that is trusted.

    Raises ProviderError.
    """
    folders = [Path("/etc/opencode")]
    if trusted:
        folders += [place for one in (cwd, *cwd.parents) for place in (one, one / ".opencode")]
    for file in (folder / name for folder in folders for name in _SETTINGS):
        if (text := find_settings(file)) is not None:
            yield text
