"""Convert the data of each tool's file to servers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.mcp.model import Location, McpEntry, Origin, Transport

Data = Mapping[str, Any]

_TRANSPORTS = {
    "stdio": Transport.STDIO,
    "local": Transport.STDIO,
    "http": Transport.HTTP,
    "remote": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamablehttp": Transport.HTTP,
    "sse": Transport.SSE,
}
# Options that Atomic cannot hand to an agent.
_NOT_PASSED_ON = ("cwd", "envFile", "headersHelper")
_MAX_NAME = 100


class Source(msgspec.Struct, frozen=True):
    """The file that is read, with its tool and location."""

    origin: Origin
    location: Location
    path: Path


class Finding(msgspec.Struct, frozen=True):
    """A problem with one server, or with the file if it has no name."""

    name: str
    reason: str


class Off(msgspec.Struct, frozen=True):
    """A server that this file switches off and another file of the same tool describes."""

    name: str


Read = Iterator["McpEntry | Finding | Off"]


def read_servers(data: Data, source: Source, project: Path | None) -> Read:
    """Return all servers in the data of one file, in order of precedence."""
    match source.origin, source.location:
        case Origin.OPENCODE, _:
            yield from _opencode(data, source)
        case Origin.VSCODE, _:
            yield from _table(data, "servers", source)
        case Origin.CLAUDE, Location.USER:
            yield from _claude_of_project(data, source, project)
            yield from _table(data, "mcpServers", source)
        case _:
            yield from _table(data, "mcpServers", source)


def _opencode(data: Data, source: Source) -> Read:
    """Read the servers of one file of OpenCode, of both versions of its configuration."""
    given = data.get("mcp")
    if not isinstance(given, dict):
        yield from _table(data, "mcp", source)
        return
    older, newer = opencode_servers(cast("Data", given))
    if newer is not None:
        yield from _table({"servers": newer}, "servers", source)
    taken = _mapping(newer)
    for name, server in older.items():
        # OpenCode takes the newer description of a server, but the older form may
        # switch it off.
        if name not in taken or _mapping(server).keys() <= {"enabled"}:
            yield from _server(name, server, source)


def opencode_servers(mcp: Data) -> tuple[Data, Any]:
    """Return the servers in the older and in the newer form, which one file may mix.

    The older form has servers by name in `mcp`. The newer one has them in
    `mcp.servers`, and a time limit in `mcp.timeout`. A server of the older form may
    have one of these names; OpenCode recognizes it by its fields.
    """
    newer = None
    older: dict[str, Any] = {}
    for name, value in mcp.items():
        if name not in ("servers", "timeout") or _is_server(value):
            older[name] = value
        elif name == "servers":
            newer = value
    return older, newer


def _is_server(value: Any) -> bool:
    """Return whether the value of `servers` or `timeout` is a server of the older form."""
    fields = _mapping(value)
    if "type" in fields:
        return fields["type"] in ("local", "remote")
    return isinstance(fields.get("enabled"), bool)


def _claude_of_project(data: Data, source: Source, project: Path | None) -> Read:
    """Read the servers of one project in the user's file, and the names that are off."""
    own = _mapping(_mapping(data.get("projects")).get(str(project)))
    yield from _table(own, "mcpServers", source)
    for key in ("disabledMcpServers", "disabledMcpjsonServers"):
        names = own.get(key)
        if isinstance(names, list):
            for name in cast("list[Any]", names):
                if isinstance(name, str):
                    yield Off(name)


def _table(data: Data, key: str, source: Source) -> Read:
    servers = data.get(key)
    if servers is None:
        return
    if not isinstance(servers, dict):
        yield Finding(key, f'"{key}" must be an object')
        return
    for name, server in cast("dict[str, Any]", servers).items():
        yield from _server(name, server, source)


def _server(name: str, server: Any, source: Source) -> Read:
    try:
        if not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
            raise ValueError(f"a server must have a printable name of at most {_MAX_NAME} characters")
        if not isinstance(server, dict):
            raise ValueError("a server must be an object")
        given = cast("dict[str, Any]", server)
        if source.origin is Origin.OPENCODE and given.keys() <= {"enabled"}:
            if given.get("enabled") is False:
                yield Off(name)
            return
        yield _entry(name, given, source)
        # The server may need options that a session will not have.
        for key in _NOT_PASSED_ON:
            if key in given:
                yield Finding(name, f'MCP server "{name}": "{key}" is not passed on to the agents')
    except ValueError as error:
        shown = f'"{name}"' if name.isprintable() else ascii(name)[: _MAX_NAME * 2]
        yield Finding(name, f"MCP server {shown}: {error}")


def _entry(name: str, given: Data, source: Source) -> McpEntry:
    transport = _transport(given)
    return McpEntry(
        name=name,
        transport=transport,
        command=_command(given) if transport is Transport.STDIO else (),
        url=None if transport is Transport.STDIO else _url(given),
        env=_texts(given, "environment" if source.origin is Origin.OPENCODE else "env"),
        headers=_texts(given, "headers"),
        origin=source.origin,
        location=source.location,
        path=source.path,
        enabled=given.get("enabled") is not False and given.get("disabled") is not True,
    )


def _transport(given: Data) -> Transport:
    kind = given.get("type", given.get("transport"))
    if kind is None:
        if "command" not in given and "url" not in given:
            raise ValueError('it has neither a "command" nor a "url"')
        return Transport.STDIO if "command" in given else Transport.HTTP
    if not isinstance(kind, str) or kind.lower() not in _TRANSPORTS:
        raise ValueError(f'"type" must be one of {", ".join(_TRANSPORTS)}')
    return _TRANSPORTS[kind.lower()]


def _command(given: Data) -> tuple[str, ...]:
    command = given.get("command")
    args = given.get("args", [])
    words = [command] if isinstance(command, str) else command
    if not _are_texts(words) or not words or not words[0].strip():
        raise ValueError('"command" must be a program, or a list that begins with one')
    if not _are_texts(args):
        raise ValueError('"args" must be a list of texts')
    if any("\0" in word for word in (*words, *args)):
        raise ValueError("a command cannot hold a NUL")
    return (*words, *args)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[Any]", value))


def _url(given: Data) -> str:
    url = given.get("url")
    if not isinstance(url, str) or not url.strip() or not url.isprintable():
        raise ValueError('"url" must be an address')
    return url


def _texts(given: Data, key: str) -> dict[str, str]:
    """Return a table of texts.

    Numbers and booleans are written as in the file, null is left out.
    """
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f'"{key}" must be an object')
    return {name: _text(key, item) for name, item in cast("dict[str, Any]", value).items() if item is not None}


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f'"{key}" must hold texts')
    return str(value)


def _mapping(value: Any) -> Data:
    return cast("Data", value) if isinstance(value, dict) else {}
