"""The state of Ralph between two nodes; the journal can rebuild it.

Tasks may run at the same time, so their fields are mappings by task id, which are
merged.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from atomic.git import FolderSnapshot
from atomic.ralph.options import Options
from atomic.ralph.review import Finding, Review
from atomic.workflows import State, reducers

MAX_ATTEMPTS = 3


class Span(msgspec.Struct, frozen=True):
    """The folder before and after one turn.

    The turn changed `files`, or if None all files that differ.
    """

    before: FolderSnapshot
    after: FolderSnapshot
    files: tuple[str, ...] | None = None


class Try(msgspec.Struct, frozen=True):
    """A failed attempt at a task.

    `kind` is the reason, `trouble` goes into the next prompt.
    """

    kind: Literal["unchanged", "gate", "error", "git", "merge"]
    trouble: str
    reason: str = ""  # in one line, for the user
    cut_off: bool = False  # the turn was interrupted by a limit
    said: str = ""  # the agent's last message, which proves nothing
    shown: str = ""  # why it could not be merged, in full, for the report


class Halt(msgspec.Struct, frozen=True):
    """Why the run needs the user: the reason code, and a sentence."""

    code: str
    reason: str


class RalphState(State):
    """The state of a run of Ralph."""

    options: Options
    cwd: str = ""
    session_dir: str = ""
    start: FolderSnapshot | None = None  # the folder before the first change
    isolated: bool = False  # each worker has its own workspace
    starts: Annotated[dict[str, str], reducers.merge] = {}  # by task: the commit at which its workspace began
    merges: Annotated[dict[str, int], reducers.merge] = {}  # by task: how often it could not be merged
    turns: Annotated[dict[str, int], reducers.merge] = {}  # by task: its turns that have ended
    returned: Annotated[dict[str, Try | None], reducers.merge] = {}  # by task: why its last merge failed

    plan_problem: str = ""  # why the last plan was refused
    planned: bool = False
    came_back: Annotated[dict[str, list[str]], reducers.merge] = {}  # by task: why its merges failed

    spans: Annotated[dict[str, list[Span]], reducers.merge] = {}  # by task: its turns
    broken: Annotated[dict[str, str], reducers.merge] = {}  # by task: why its last turn failed
    cut_off: Annotated[dict[str, bool], reducers.merge] = {}  # by task: whether a limit interrupted its last turn
    misplaced: Annotated[dict[str, Try | None], reducers.merge] = {}  # by task: what its last turn did to the checkout
    said: Annotated[dict[str, str], reducers.merge] = {}  # by task: the last message of its last turn
    tries: Annotated[dict[str, list[Try]], reducers.merge] = {}
    forgiven: Annotated[dict[str, int], reducers.merge] = {}  # by task: how many of its tries no longer count

    checked: Annotated[
        dict[str, FolderSnapshot], reducers.merge
    ] = {}  # by task: the folder on which the checks were green
    settled: FolderSnapshot | None = None  # the folder that was checked, and is to be reviewed
    moves: int = 0  # how often it had changed after the reviews

    reviews: Annotated[list[Review], reducers.concat] = []  # of all rounds, in the order of the reviewers
    asked_again: Annotated[
        dict[str, str], reducers.merge
    ] = {}  # by round and reviewer: why the answer was not a review
    unserved: Annotated[
        dict[str, bool], reducers.merge
    ] = {}  # by round and reviewer: whether the agent could not be called
    rounds: list[list[Finding]] = []  # what blocked in each round
    over: bool = False
    halt: Halt | None = None

    iteration: int = 0  # of yolo
    answer: str = ""
    last_error: str = ""
    errors_in_row: int = 0
    unchanged_in_row: int = 0
    denial: str = ""  # the output of the checks that denied the last promise
    denials_in_row: int = 0
    trouble: str = ""


def workers_of(state: RalphState) -> int:
    """Return how many tasks are worked on at once."""
    options = state.options
    if state.isolated:
        return options.workers
    return options.shared_workers or options.workers
