"""The command line of Claude Code, from what a session wants of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.claude.schemas import understood

_ALWAYS = (
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",  # or it does not stream
    "--include-partial-messages",
    "--permission-mode=bypassPermissions",
    "--permission-prompt-tool=stdio",  # a user's `ask` rule would be a refusal if nobody could be asked
)


class Origin(msgspec.Struct, frozen=True):
    """Where a conversation begins: anew under `id`, as the session of that id, or as a copy (`fork_of`) under it."""

    id: str
    known: bool = False  # the program has it on its disk
    fork_of: str | None = None

    def words(self) -> list[str]:
        if self.known:
            return [f"--resume={self.id}"]
        if self.fork_of is not None:
            return [f"--resume={self.fork_of}", "--fork-session", f"--session-id={self.id}"]
        return [f"--session-id={self.id}"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What the program is started with; None is the program's own choice."""

    program: str
    origin: Origin
    tools: Sequence[str] | None = None  # only these
    denied_tools: Sequence[str] = ()
    setting_sources: Sequence[str] | None = None
    settings: str | None = None
    servers: str | None = None  # a file
    only_these_servers: bool = False
    system_prompt: str | None = None  # a file; its text follows the program's own
    model: str | None = None
    max_turns: int | None = None
    schema: Mapping[str, Any] | None = None  # of the answer
    more: Sequence[str] = ()  # the user's own words

    def words(self) -> list[str]:
        """The words of the command. A value stands in one word with its flag, and so is never taken for a flag."""
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
