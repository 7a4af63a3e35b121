"""Start a server in another folder than the agent's. Pure.

`npx`, `uvx`, `python -m` and relative paths look for their program in the current folder first, which an untrusted
project controls. No agent accepts a folder for each server, so a shell changes to the folder and then becomes the
server.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.mcp.model import McpEntry, Transport

_SHELL = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"')


def started_in(entry: McpEntry, folder: Path) -> McpEntry:
    """Return an entry of a program as one that goes to that folder before it starts."""
    if entry.transport is not Transport.STDIO:
        return entry
    return msgspec.structs.replace(with_variables(entry, folder), command=(*_SHELL, str(folder), *entry.command))


def with_variables(entry: McpEntry, folder: Path) -> McpEntry:
    """Return an entry of a program with the variables that it needs in that folder.

    Python leaves the current folder out of its path. A script needs the modules beside it, so it is left alone.
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
