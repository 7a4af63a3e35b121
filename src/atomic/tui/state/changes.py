"""Which parts of the screen a piece of news touches."""

from __future__ import annotations

from enum import Flag, auto


class Changes(Flag):
    """What must be painted anew; several can be set."""

    NONE = 0
    TRANSCRIPT = auto()
    TASKS = auto()
    AGENTS = auto()
    GRAPH = auto()
    QUESTIONS = auto()
    STATUS = auto()
    COMMANDS = auto()
    PICK = auto()
    QUEUE = auto()
    THEME = auto()
    LEFT = auto()
