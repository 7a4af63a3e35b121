"""What Ralph knows between two nodes; the journal can rebuild all of it.

Tasks may run at the same time, so whatever they write is kept by the task's id and merged.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from atomic.git import Picture
from atomic.workflows import State, reducers
from atomic.workflows.ralph.options import Options
from atomic.workflows.ralph.review import Finding, Review

MOST_ATTEMPTS = 3


class Span(msgspec.Struct, frozen=True):
    """The folder before and after one turn; `files`: only these were changed by it, None: all that differ."""

    before: Picture
    after: Picture
    files: tuple[str, ...] | None = None


class Try(msgspec.Struct, frozen=True):
    """An attempt at a task that was not enough; `kind` says what was missing, `trouble` goes into the next prompt."""

    kind: Literal["unchanged", "gate", "error", "git"]
    trouble: str
    reason: str = ""  # in one line, for people
    cut_off: bool = False  # the turn was interrupted by a limit
    said: str = ""  # the agent's last words, which prove nothing


class Halt(msgspec.Struct, frozen=True):
    """Why the run needs a person: one word of API §4, and the sentence."""

    code: str
    reason: str


class RalphState(State):
    """What Ralph knows."""

    options: Options
    cwd: str = ""
    session_dir: str = ""
    start: Picture | None = None  # the folder before the first change

    plan_problem: str = ""  # what was wrong with the last plan
    planned: bool = False

    spans: Annotated[dict[str, list[Span]], reducers.merge] = {}  # by task: its turns
    broken: Annotated[dict[str, str], reducers.merge] = {}  # by task: why its last turn did not end well
    cut_off: Annotated[dict[str, bool], reducers.merge] = {}  # by task: whether a limit interrupted its last turn
    misplaced: Annotated[dict[str, Try | None], reducers.merge] = {}  # by task: what its last turn did to the checkout
    said: Annotated[dict[str, str], reducers.merge] = {}  # by task: the last words of its last turn
    tries: Annotated[dict[str, list[Try]], reducers.merge] = {}
    forgiven: Annotated[dict[str, int], reducers.merge] = {}  # by task: how many of its tries do not count any more

    checked: Annotated[dict[str, Picture], reducers.merge] = {}  # by task: the folder behind green checks
    settled: Picture | None = None  # the folder that was checked, and is to be reviewed
    moves: int = 0  # how often it had changed when the reviews were over

    reviews: Annotated[list[Review], reducers.concat] = []  # of all rounds, each round's in the order of the reviewers
    asked_again: Annotated[dict[str, str], reducers.merge] = {}  # by round and reviewer: why the answer was no review
    unserved: Annotated[dict[str, bool], reducers.merge] = {}  # the same: whether the provider was why
    rounds: list[list[Finding]] = []  # what blocked in each round
    over: bool = False
    halt: Halt | None = None

    iteration: int = 0  # of yolo
    answer: str = ""
    last_error: str = ""
    errors_in_row: int = 0
    unchanged_in_row: int = 0
    denial: str = ""  # by which gates, and with which words, the last promise was denied
    denials_in_row: int = 0
    trouble: str = ""
