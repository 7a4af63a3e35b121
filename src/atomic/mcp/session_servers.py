"""Choose the servers of a session and the folder they start in. Pure.

An agent reads its own tool's files itself, as it does without Atomic. Atomic adds its
own servers, and servers of other tools that the user switched on. Others would cost
time and tokens that the user did not ask for.

`npx`, `uvx`, `python -m` and relative paths look for their program in the current
folder first, which an untrusted project controls. No agent accepts a folder for each
server, so a shell changes to the folder and then becomes the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from atomic.mcp.model import McpEntry, McpList, Origin, Transport

_SHELL = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"')


class ForSession(msgspec.Struct, frozen=True):
    """The servers of a session.

    passed: servers that Atomic hands over
    off: names that the session must not have
    own_off: names in `off` that the agent would load by itself
    own: programs of the user that the agent starts by itself, in its working folder
    """

    passed: Sequence[McpEntry]
    off: Sequence[str]
    own_off: Sequence[str]
    own: Sequence[McpEntry] = ()


def for_session(found: McpList, agent: str, *, trusted: bool) -> ForSession:
    """Return the servers for a session of an agent (`claude`, `acp:claude`, ...)."""
    passed: list[McpEntry] = []
    own: list[McpEntry] = []
    for entry in found.usable(trusted=trusted):
        loads = _loads(agent, entry)
        if entry.origin is Origin.ATOMIC or (entry.chosen is True and not loads):
            passed.append(entry)
        if loads and not entry.needs_trust and entry.transport is Transport.STDIO:
            own.append(entry)
    off = [entry for entry in found.entries if entry.chosen is False]
    own_off = [entry for entry in off if _loads(agent, entry) and (trusted or not entry.needs_trust)]
    return ForSession(passed, _names(off), _names(own_off), own)


def _loads(agent: str, entry: McpEntry) -> bool:
    """Return whether the agent would load the server by itself."""
    return entry.origin == agent.removeprefix("acp:") and entry.on_in_file


def _names(entries: Sequence[McpEntry]) -> list[str]:
    return list(dict.fromkeys(entry.name for entry in entries))


def started_in(entry: McpEntry, folder: Path) -> McpEntry:
    """Return an entry whose program starts in the folder."""
    if entry.transport is not Transport.STDIO:
        return entry
    return msgspec.structs.replace(with_variables(entry, folder), command=(*_SHELL, str(folder), *entry.command))


def with_variables(entry: McpEntry, folder: Path) -> McpEntry:
    """Return an entry with the variables that its program needs in the folder.

    They make Python ignore modules in the current folder, except for a script, which
    may need the modules of its own folder.
    """
    if entry.transport is not Transport.STDIO:
        return entry
    is_script = any(word.endswith(".py") for word in entry.command)
    safe = {} if is_script else {"PYTHONSAFEPATH": "1"}
    return msgspec.structs.replace(entry, env={"PWD": str(folder), **safe, **entry.env})


def names_current_folder(entry: McpEntry) -> bool:
    """Return whether the command line depends on the current folder."""
    if entry.transport is not Transport.STDIO:
        return False
    program, *arguments = entry.command
    is_relative = "/" in program and not program.startswith(("/", "~"))
    return is_relative or any(word in (".", "..") or word.startswith(("./", "../")) for word in arguments)
