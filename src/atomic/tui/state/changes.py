"""Parts of the screen that a change affects."""

from __future__ import annotations

from enum import Flag, auto


class Changes(Flag):
    """Parts that must be repainted, as a set of flags."""

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


PANELS = Changes.TASKS | Changes.AGENTS | Changes.GRAPH | Changes.QUESTIONS
DURATIONS = Changes.TRANSCRIPT | Changes.STATUS | PANELS  # the parts that show how long something takes
EVERYTHING = DURATIONS | Changes.QUEUE
