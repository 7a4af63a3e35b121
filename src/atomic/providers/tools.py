"""Make a tool for agents from a typed Python function."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from atomic.providers.base import CustomTool
from atomic.providers.errors import ProviderError

SERVER = "atomic"  # name of the MCP server of custom tools
_PREFIXES = (f"mcp__{SERVER}__", f"{SERVER}_", f"{SERVER}-")  # Claude Code, OpenCode, Copilot
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # accepted by all models


def tool(function: Callable[..., Any], *, name: str = "", description: str = "") -> CustomTool:
    """Make a tool from a function: parameter types become the schema, the docstring the
    description.

    A plain function runs in a thread. A result that is not text becomes JSON. Raise
    ProviderError if a parameter has no type, or one that JSON cannot represent.
    """
    name = name or getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise ProviderError(f"'{name}' is not a valid tool name", remedy="pass another one as name=")
    arguments = _arguments_of(name, function)

    async def run(given: Mapping[str, Any]) -> str:
        values = msgspec.structs.asdict(msgspec.convert(dict(given), arguments))
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return _as_text(await function(**values))
        return _as_text(await asyncio.to_thread(function, **values))

    return CustomTool(
        name=name,
        description=description or inspect.getdoc(function) or name,
        schema=_schema_of(name, arguments),
        run=run,
    )


def given_name(tool: str) -> str:
    """Return the name of a custom tool without the agent's prefix for its server."""
    return tool.removeprefix(next((prefix for prefix in _PREFIXES if tool.startswith(prefix)), ""))


def as_tools(tools: Sequence[CustomTool | Callable[..., Any]]) -> list[CustomTool]:
    """Convert all to tools. Raise ProviderError if two have the same name."""
    result = [given if isinstance(given, CustomTool) else tool(given) for given in tools]
    names = [one.name for one in result]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ProviderError(f"Two custom tools have the name '{twice.pop()}'", remedy="rename one of them")
    return result


def _arguments_of(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    hints = _hints_of(name, function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ProviderError(f"Tool '{name}': parameter '{parameter.name}' cannot be given by name")
        if parameter.name not in hints:
            raise ProviderError(f"Tool '{name}': parameter '{parameter.name}' has no type", remedy="annotate it")
        field = (parameter.name, hints[parameter.name])
        fields.append(field if parameter.default is parameter.empty else (*field, parameter.default))
    try:
        return msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except TypeError as error:
        raise ProviderError(f"Tool '{name}': {error}") from error


def _hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameter types, also of `functools.partial` and objects with
    `__call__`.
    """
    plain = function
    while isinstance(plain, functools.partial):
        plain = cast("functools.partial[Any]", plain).func
    if not inspect.isroutine(plain) and not inspect.isclass(plain):
        plain = type(plain).__call__
    try:
        return typing.get_type_hints(plain, include_extras=True)
    except NameError as error:
        raise ProviderError(
            f"Tool '{name}': a parameter has an unknown type: {error}", remedy="import it in the tool's module"
        ) from error


def _schema_of(name: str, arguments: type[msgspec.Struct]) -> Mapping[str, Any]:
    try:
        schema = msgspec.json.schema(arguments)
    except (TypeError, ValueError) as error:
        raise ProviderError(f"Tool '{name}': a parameter's type has no JSON Schema: {error}") from error
    definitions = schema.pop("$defs")
    own = definitions.pop(str(schema["$ref"]).rpartition("/")[2])
    own.pop("title", None)
    return {**own, "$defs": definitions} if definitions else own


def _as_text(result: Any) -> str:
    if result is None:
        return "done"
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()
