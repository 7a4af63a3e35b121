"""Build the command line of Claude Code, with a JSON Schema that it accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

_ALWAYS = (
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",  # required for streaming
    "--include-partial-messages",
    "--permission-mode=bypassPermissions",
    "--permission-prompt-tool=stdio",  # otherwise a user's `ask` rule would be a refusal
)
_NAMED = frozenset({"properties", "$defs"})  # a schema per name
_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_INNER = frozenset({"items", "additionalProperties"})


class Origin(msgspec.Struct, frozen=True):
    """Where a conversation starts: new with `id`, resumed (`known`), or a copy
    (`fork_of`).
    """

    id: str
    known: bool = False  # the program has stored it
    fork_of: str | None = None

    def words(self) -> list[str]:
        if self.known:
            return [f"--resume={self.id}"]
        if self.fork_of is not None:
            return [f"--resume={self.fork_of}", "--fork-session", f"--session-id={self.id}"]
        return [f"--session-id={self.id}"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line; None keeps the program's default."""

    program: str
    origin: Origin
    tools: Sequence[str] | None = None  # None: all
    denied_tools: Sequence[str] = ()
    setting_sources: Sequence[str] | None = None
    settings: str | None = None
    servers: str | None = None  # a file
    only_these_servers: bool = False
    system_prompt: str | None = None  # a file, appended to the program's own prompt
    model: str | None = None
    max_turns: int | None = None
    schema: Mapping[str, Any] | None = None  # of the answer
    more: Sequence[str] = ()  # the user's own arguments

    def words(self) -> list[str]:
        """Return the command line; `--flag=value` prevents a value from being read as a
        flag.
        """
        valued = [f"--{name}={value}" for name, value in self._values().items() if value is not None]
        strict = ["--strict-mcp-config"] if self.only_these_servers else []
        return [self.program, *_ALWAYS, *self.origin.words(), *valued, *strict, *self.more]

    def _values(self) -> dict[str, str | None]:
        return {
            "tools": _list(self.tools),
            "disallowedTools": _list(self.denied_tools or None),
            "setting-sources": _list(self.setting_sources),
            "settings": self.settings,
            "mcp-config": self.servers,
            "append-system-prompt-file": self.system_prompt,
            "model": self.model or None,
            "max-turns": None if self.max_turns is None else str(self.max_turns),
            "json-schema": None if self.schema is None else msgspec.json.encode(understood(self.schema)).decode(),
        }


def _list(names: Sequence[str] | None) -> str | None:
    return None if names is None else ",".join(names)


def understood(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same schema, or a wider one: the program refuses unknown keywords.

    It does not know `discriminator`, which is OpenAPI's, nor `prefixItems`, and the
    service does not know the older form of that. So a tuple becomes a list whose items
    may be of any of its types. The value is checked against its own type in any case.
    """
    result = {key: _inner(key, value) for key, value in schema.items() if key != "discriminator"}
    if "prefixItems" in result:
        places = cast("list[Any]", result.pop("prefixItems"))
        result["items"] = {"anyOf": places} if places else {}
    return result


def _inner(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _schema(one) for name, one in cast("Mapping[str, Any]", value).items()}
    if key in _LISTS and isinstance(value, list):
        return [_schema(one) for one in cast("list[Any]", value)]
    return _schema(value) if key in _INNER else value


def _schema(value: Any) -> Any:
    return understood(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
