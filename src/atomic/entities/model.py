"""What a command, skill or agent is, wherever it came from, and which of two with one name comes first."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Protocol

import msgspec

from atomic.entities.placeholders import fill_in


class EntityKind(StrEnum):
    """What an entity is for."""

    COMMAND = "command"
    SKILL = "skill"
    AGENT = "agent"

    @property
    def label(self) -> str:
        """The word for people."""
        return self.value.capitalize()

    @property
    def article(self) -> str:
        """The word in the middle of a sentence."""
        return f"{'an' if self is EntityKind.AGENT else 'a'} {self.value}"


class Provider(StrEnum):
    """Whose format and folder it is; of two on one level the first here wins."""

    ATOMIC = "atomic"
    CLAUDE = "claude"
    OPENCODE = "opencode"
    COPILOT = "copilot"


class Location(StrEnum):
    """Whose it is; the first here wins."""

    PROJECT = "project"
    USER = "user"
    BUILTIN = "builtin"


_PROVIDER_RANK = {provider: index for index, provider in enumerate(Provider)}
_LOCATION_RANK = {location: index for index, location in enumerate(Location)}
_JSON = (".json", ".jsonc")

Rank = tuple[int, int, bool, str]


class Source(msgspec.Struct, frozen=True):
    """Where an entity is defined. Of two definitions of a name the one with the lesser `rank` wins."""

    provider: Provider = Provider.ATOMIC
    location: Location = Location.PROJECT
    path: Path = Path()

    def __post_init__(self) -> None:
        """Take plain words and paths, too."""
        if type(self.provider) is not Provider:
            msgspec.structs.force_setattr(self, "provider", Provider(self.provider))
        if type(self.location) is not Location:
            msgspec.structs.force_setattr(self, "location", Location(self.location))
        if not isinstance(self.path, Path):  # pyright: ignore[reportUnnecessaryIsInstance]  # a Struct checks nothing
            msgspec.structs.force_setattr(self, "path", Path(self.path))

    @property
    def rank(self) -> Rank:
        """Project, user, built-in; then the provider; then Markdown before JSON; then the path."""
        path = str(self.path)
        return _LOCATION_RANK[self.location], _PROVIDER_RANK[self.provider], path.endswith(_JSON), path

    def __lt__(self, other: Source) -> bool:
        return self.rank < other.rank


class Diagnostic(msgspec.Struct, frozen=True):
    """Why a file gave no entity."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class Body(Protocol):
    """A prompt that is read when somebody needs it."""

    def read(self) -> str:
        """The text of the prompt. Raises BodyError if it cannot be read any more."""
        ...

    def base_directory(self) -> str | None:
        """The folder with the other files of a skill; None if there are none."""
        ...


class Entity:
    """A command, skill or agent; a value, not to be changed. Its prompt is read from the disk on first use."""

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
        self.tools = None if tools is None else list(tools)  # None: all; []: none
        self.denied_tools = list(denied_tools)
        self.model = model  # opus, sonnet, haiku, inherit; None: the file says nothing
        self.original_model = original_model  # as the file spells it
        self.argument_hint = argument_hint
        self.hidden = hidden  # found by its name, but not offered
        self.source = source or Source()
        self.agent = agent  # who is to do it; None: the one that the user talks to
        self.subtask = subtask  # in a session of its own

    @property
    def prompt(self) -> str:
        """The text with its placeholders. Raises BodyError if the file cannot be read any more."""
        if self._text is None:
            assert not isinstance(self._body, str)
            self._text = self._body.read()
        return self._text

    def expand(self, arguments: str) -> str:
        """The prompt with the placeholders filled in. Raises BodyError if the file cannot be read any more."""
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
        """All that makes two of them equal; a prompt on the disk is not read for that."""
        return tuple(getattr(self, slot) for slot in self.__slots__ if slot != "_text")


def fold(name: str) -> str:
    """A name as it is compared: without case, and é is é however a file system spells it."""
    return name.casefold() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


AnyPath = str | PathLike[str]
