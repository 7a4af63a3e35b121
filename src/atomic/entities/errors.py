"""Errors of commands, skills and agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from atomic.base.errors import AtomicError, did_you_mean
from atomic.base.lazy_types import deferred

if TYPE_CHECKING:
    from atomic.entities.model import EntityKind
else:
    EntityKind = deferred("atomic.entities.model", "EntityKind")


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
