"""Commands, skills and agents in one form, and their precedence."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.entities.placeholders import fill_in


class EntityKind(StrEnum):
    """The kind of an entity."""

    COMMAND = "command"
    SKILL = "skill"
    AGENT = "agent"

    @property
    def label(self) -> str:
        """Return the word at the start of a message."""
        return self.value.capitalize()

    @property
    def article(self) -> str:
        """Return the word with its article."""
        return f"{'an' if self is EntityKind.AGENT else 'a'} {self.value}"


class Provider(StrEnum):
    """The owner of a format and its folders.

    At the same location the first one wins.
    """

    ATOMIC = "atomic"
    CLAUDE = "claude"
    OPENCODE = "opencode"
    COPILOT = "copilot"


class Location(StrEnum):
    """The owner of a definition; the first one wins."""

    PROJECT = "project"
    USER = "user"
    BUILTIN = "builtin"


_PROVIDER_RANK = {provider: index for index, provider in enumerate(Provider)}
_LOCATION_RANK = {location: index for index, location in enumerate(Location)}
_JSON = (".json", ".jsonc")

Rank = tuple[int, int, bool, str]


class Source(msgspec.Struct, frozen=True):
    """Where an entity is defined.

    Of two definitions of a name the lower `rank` wins.
    """

    provider: Provider = Provider.ATOMIC
    location: Location = Location.PROJECT
    path: Path = Path()

    def __post_init__(self) -> None:
        """Convert plain strings."""
        if type(self.provider) is not Provider:
            msgspec.structs.force_setattr(self, "provider", Provider(self.provider))
        if type(self.location) is not Location:
            msgspec.structs.force_setattr(self, "location", Location(self.location))
        if not isinstance(self.path, Path):  # pyright: ignore[reportUnnecessaryIsInstance]  # a Struct checks nothing
            msgspec.structs.force_setattr(self, "path", Path(self.path))

    @property
    def rank(self) -> Rank:
        """Sort by location, then provider, then Markdown before JSON, then path."""
        path = str(self.path)
        return _LOCATION_RANK[self.location], _PROVIDER_RANK[self.provider], path.endswith(_JSON), path

    def __lt__(self, other: Source) -> bool:
        return self.rank < other.rank


class Diagnostic(msgspec.Struct, frozen=True):
    """A problem in a file that defines no entity because of it."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class EntityNotFoundError(AtomicError):
    """No file defines the command, skill or agent of this name."""

    def __init__(self, kind: EntityKind, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f'{kind.label} not found: "{name}"{did_you_mean(name, known)}')


class BodyError(AtomicError):
    """The file with a prompt cannot be read, or has changed since it was found."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"Cannot read the prompt in {path}: {reason}")


class FormatError(AtomicError):
    """A text that cannot be parsed; it becomes a diagnostic with the file's name."""

    def __init__(self, reason: str, line: int = 1) -> None:
        self.reason = reason
        self.line = line
        super().__init__(f"line {line}: {reason}")


class Body(Protocol):
    """A prompt that is read when it is needed."""

    def read(self) -> str:
        """Return the text of the prompt. Raises BodyError."""
        ...

    def base_directory(self) -> str | None:
        """Return the folder of a skill that has other files; None if it has none."""
        ...


class Entity:
    """A command, skill or agent. Do not change it. Its prompt is read on first use.

    tools: None: all; []: none
    model: opus, sonnet, haiku or inherit; None: the file names none
    original_model: the model as the file spells it
    hidden: found by its name, but not offered in lists
    agent: the sub-agent that does the work; None: the one that the user talks to
    subtask: it runs in a conversation of its own
    """

    __slots__ = (
        "_body",
        "_text",
        "agent",
        "aliases",
        "argument_hint",
        "denied_tools",
        "description",
        "hidden",
        "kind",
        "model",
        "name",
        "original_model",
        "source",
        "subtask",
        "tools",
    )

    def __init__(
        self,
        kind: EntityKind | str,
        name: str,
        description: str = "",
        aliases: Iterable[str] = (),
        prompt: str | Body = "",
        tools: Iterable[str] | None = None,
        denied_tools: Iterable[str] = (),
        model: str | None = None,
        original_model: str | None = None,
        argument_hint: str = "",
        hidden: bool = False,
        source: Source | None = None,
        agent: str | None = None,
        subtask: bool = False,
    ) -> None:
        self.kind = EntityKind(kind)
        self.name = name
        self.description = description or f"{self.kind.label}: {name}"
        self.aliases = list(aliases)
        self._body = prompt
        self._text = prompt if isinstance(prompt, str) else None
        self.tools = None if tools is None else list(tools)
        self.denied_tools = list(denied_tools)
        self.model = model
        self.original_model = original_model
        self.argument_hint = argument_hint
        self.hidden = hidden
        self.source = source or Source()
        self.agent = agent
        self.subtask = subtask

    @property
    def prompt(self) -> str:
        """Return the text with its placeholders. Raises BodyError."""
        if self._text is None:
            assert not isinstance(self._body, str)
            self._text = self._body.read()
        return self._text

    def expand(self, arguments: str) -> str:
        """Return the prompt with these arguments. Raises BodyError."""
        first = 0 if self.source.provider is Provider.CLAUDE else 1
        text = fill_in(self.prompt, arguments, first=first)
        folder = None if isinstance(self._body, str) else self._body.base_directory()
        return text if folder is None else f"Base directory for this skill: {folder}\n\n{text}"

    def __eq__(self, other: object) -> bool:
        return self.facts() == other.facts() if isinstance(other, Entity) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.source))

    def __repr__(self) -> str:
        source = self.source
        return f"Entity({self.kind.value} {self.name!r}, {source.provider}, {source.location}, {str(source.path)!r})"

    def facts(self) -> tuple[object, ...]:
        """Return the values that equality compares; the prompt is not read for that."""
        return tuple(getattr(self, slot) for slot in self.__slots__ if slot != "_text")
