"""The record of a run: its rows, their order, and who may write them.

A run is a sequence of rows. The rows of finished steps are its history. The others let
a resume continue without calling user code again: the items of a map, the winner of a
race, an answer. State is the fold of the rows. A snapshot is a cache and may be lost
without harm.

Bodies are msgpack and hold only data: nothing in them can name code to import.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import IntEnum
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast
from uuid import uuid4

import msgspec

from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import JournalError, NodeError, RunNotFoundError, RunOwnedError
from atomic.graph.engine.state import Overwrite, decode_changes, encode_changes
from atomic.questions import Question

# The facts of a run (sessions/facts.py) and its signals (sessions/signals.py) are logs of
# their own beside it.
FACTS = "facts"
FACTS_SUFFIX = "/facts"
SIGNALS = "signals"
SIGNALS_SUFFIX = "/signals"


class RowKind(IntEnum):
    """The kind of a row. The numbers are part of the file format."""

    START = 1
    STEP = 2
    ATTEMPT = 3  # an attempt failed and the step will be tried again
    STARTED = 4  # a step began, where the row before does not imply that
    OPENED = 5  # branches, items or a subgraph began
    JOINED = 6  # they were merged
    ASKED = 7
    ANSWERED = 8
    RESUMED = 9
    ENDED = 10
    MIGRATED = 11
    PART = 12  # a finished part of an unfinished step
    LOST = 13  # a branch of a parallel failed, and the parallel may still succeed
    UPDATED = 14  # the state was changed from outside
    SIGNAL = 20  # in the log of a run's signals, which has nothing else


class Row(NamedTuple):
    """One row as the journal stores it.

    `step` is the number of the finished step, in STEP rows only.
    """

    kind: int
    step: int | None
    body: bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """The body of a row. Positional, to save bytes.

    New fields go to the end, with a default.
    """


class ErrorBody(_Body, frozen=True):
    node_id: str
    reason: str
    kind: str = ""
    path: str = ""
    traceback: str = ""


class StartBody(_Body, frozen=True):
    execution_id: str
    graph: str
    time: float
    state_version: int
    reducers: dict[str, str]
    values: dict[str, Any]
    model: str | None = None
    forked_from: str | None = None
    shape: int = 0  # a checksum of the graph; 0: unknown
    input: dict[str, Any] | None = None  # of a function workflow: its arguments


class CallBody(_Body, frozen=True):
    """The call of a step in a function workflow.

    A resume matches calls by name and arguments, and hands results over in the recorded
    order.
    """

    arguments: int  # a hash
    text: str  # the start of the arguments, for messages
    begun: int  # how many steps had begun when this row was written
    raised: list[Any] | None = None  # of a failure: the arguments of the exception
    nth: int = 1  # of the calls with this name and these arguments, in the order in which they began
    was_cancelled: bool = False  # the step has finished although the function had cancelled it
    cancellations: int = 0  # of the call by the function, before the step was over; 0 in old rows: one, if any


# In the path of a scope, before the number of a graph that a step has called. At its end:
# the place of the row that has the first state of that graph.
CALL_MARK = "!"

# How a step came from the one before it. From 1: the number of one of several edges
# taken at once.
ALONE = -1  # over one edge, although the node has several that are taken at once
UNSAID = 0  # there was only one edge, or an older version wrote the row


class StepBody(_Body, frozen=True):
    scope: str
    node_id: str
    n: int  # run number of this node, from 1
    status: str
    update: msgspec.Raw
    attempt: int
    started: float
    seconds: float
    loops: tuple[int, ...] = ()
    goto: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None  # the previous steps, if not just the last one of its scope
    model: str | None = None
    error: ErrorBody | None = None
    usage: dict[str, float] | None = None
    asks: Question | None = None
    more: tuple[bytes, ...] = ()  # further updates of a subgraph that cannot be joined to one
    ways: tuple[int, ...] | None = None  # for each previous step, over which of several edges: see `ALONE`
    kept: bool = False  # of a catch node: the updates of open branches were merged before it
    call: CallBody | None = None  # in a function workflow


class AttemptBody(_Body, frozen=True):
    step_id: str
    attempt: int
    time: float
    error: ErrorBody
    scope: str = ""


class StartedBody(_Body, frozen=True):
    step_id: str
    attempt: int
    time: float
    call: CallBody | None = None  # in a function workflow


class OpenedBody(_Body, frozen=True):
    scope: str
    fork: str
    loops: tuple[int, ...]
    after: tuple[str, ...] | None = None
    items: list[Any] | None = None  # of a map
    plain: bool = True  # whether the items were plain data, so that `over` need not run again
    values: dict[str, Any] | None = None  # of a subgraph: its first state
    reducers: dict[str, str] | None = None  # of a subgraph's state
    ways: tuple[int, ...] | None = None  # as in StepBody


class JoinedBody(_Body, frozen=True):
    scope: str
    fork: str
    branches: tuple[str, ...]  # the merged branches, in order
    update: bytes | None = None  # of a merge function or a handled failure; replaces the branches' updates
    goto: tuple[str, ...] | None = None


class LostBody(_Body, frozen=True):
    scope: str
    fork: str
    branch: str
    error: ErrorBody
    is_last: bool = False  # all branches failed: a resume runs all of them again


class AskedBody(_Body, frozen=True):
    step_id: str
    node_id: str
    time: float
    question: Question
    scope: str = ""
    by_agent: bool = False  # asked by an agent of the step
    text_hash: int = 0  # of the question's text, which may be redacted here; 0: unknown


class AnsweredBody(_Body, frozen=True):
    step_id: str
    question_id: str
    time: float
    answer: Any  # a text or several; plain data if the question has `returns`
    scope: str | None = None  # set if the step is finished and the answer itself changes the state


class PartBody(_Body, frozen=True):
    step_id: str
    key: str
    time: float
    value: msgspec.Raw


class SignalBody(_Body, frozen=True):
    """A signal. The numbers of a run's signals grow in the order of sending."""

    number: int
    name: str
    time: float
    data: msgspec.Raw


class ResumedBody(_Body, frozen=True):
    time: float
    model: str | None = None


class UpdatedBody(_Body, frozen=True):
    time: float
    update: msgspec.Raw
    again: bool = False  # the run was completed and begins again at its first node


class EndedBody(_Body, frozen=True):
    status: str
    time: float
    reason: str = ""
    error: ErrorBody | None = None
    folded: dict[str, Any] | None = None  # the fields that only the author's reducers can fold
    result: Any = None  # what the run has returned
    is_over: bool = False  # a resume only reports this end again
    wake_at: float | None = None  # of a paused run: when it can continue by itself
    breakpoints: tuple[str, ...] = ()  # the visits before which the run has paused
    again: list[str] | None = None  # in a function workflow: failed and cancelled steps that a resume runs again


class MigratedBody(_Body, frozen=True):
    time: float
    state_version: int
    reducers: dict[str, str]
    snapshot: bytes  # the new state and its position


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step for readers. `step` is its number, None if it failed."""

    step: int | None
    node_id: str
    step_id: str
    update: dict[str, Any]
    status: RunStatus
    attempt: int
    started: float
    seconds: float
    model: str | None = None
    error: str | None = None
    usage: dict[str, float] | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list of runs. Times are Unix times.

    A run that has not ended is "running". One that waits for a time has it as `wake_at`.
    """

    execution_id: str
    graph: str
    status: str
    started: float
    updated: float
    steps: int
    wake_at: float | None = None


# A journal has a method `list`, which hides the type inside its class.
Rows = list[Row]
Records = list[Record]
Runs = list[RunInfo]
Signals = list[SignalBody]


class History(NamedTuple):
    """Data for a resume: the first row, the newest usable snapshot and the rows after
    it.
    """

    start: StartBody
    snapshot: bytes | None
    rows: list[Row]


class RunLog(Protocol):
    """Appends rows to a run.

    Only its owner has one, and only one process can be the owner.
    """

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        """Write rows as one transaction and sync them to disk.

        Without `sync` they survive the death of this process, but not of the machine.

        Raises:
            RunOwnedError: Another process took over the run. Nothing was written.
        """
        ...

    def snapshot(self, step: int, body: bytes) -> None:
        """Store a folded state that is valid after the last row.

        `step` is the number of finished steps.
        """
        ...

    def redacted(self, packed: bytes) -> bytes:
        """Return a msgpack value without the secrets that the journal removes."""
        ...

    def new_signals(self) -> Signals:
        """Return the signals of the run that this has not returned yet, in the order of
        sending.

        Cheap if no process has sent one.
        """
        ...

    def release(self) -> None:
        """Give up ownership."""
        ...


class Journal(Protocol):
    """A place where runs are recorded."""

    def create(self, execution_id: str, start: Row) -> RunLog:
        """Start a run and own it. Raise JournalError if the id is taken."""
        ...

    def acquire(self, execution_id: str) -> RunLog:
        """Own an existing run. Raise RunNotFoundError, RunOwnedError."""
        ...

    def history(self, execution_id: str, *, at: int | None = None) -> History:
        """Read a run up to finished step number `at`. Needs no ownership."""
        ...

    def list(self) -> Runs: ...

    def records(self, execution_id: str) -> Records: ...

    def fork(self, execution_id: str, *, at: int | None = None, update: Mapping[str, Any] | None = None) -> str:
        """Copy a run up to finished step number `at` under a new id, and return that
        id.

        The copy begins with `update` merged into the state of that step. Whether it fits
        is checked when the copy is loaded or continued.
        Signals belong to one run, so the copy has only those that its steps received.
        """
        ...

    def signal(self, execution_id: str, name: str, data: Any = None) -> None:
        """Send a signal to a run, which may belong to another process.

        It is on disk when this returns. The run receives it with `ctx.wait_for(name)`,
        also if it waits later. Raises RunNotFoundError, SignalError.
        """
        ...

    def signals(self, execution_id: str) -> Signals:
        """Return all signals that were sent to a run, in order."""
        ...

    def delete(self, execution_id: str) -> None: ...

    def redacted(self, packed: bytes) -> bytes:
        """Return a msgpack value without the secrets that the journal removes."""
        ...

    def close(self) -> None: ...


class PathLike(Protocol):
    """A path that is not text, such as `pathlib.Path`."""

    def __fspath__(self) -> str: ...


JournalLike = Journal | str | PathLike


def open_journal(journal: JournalLike, closing: ExitStack, *, is_new: bool = False) -> Journal:
    """Return a journal. A path is opened as an SQLite journal, which `closing` closes.

    Only with `is_new` may this create a file. Raises JournalError.
    """
    if hasattr(journal, "history"):
        return cast("Journal", journal)
    if not isinstance(journal, str) and not hasattr(journal, "__fspath__"):
        raise JournalError(f"{journal!r:.60} is not a journal; give SqliteJournal(path), MemoryJournal() or a path")
    # Imported by name, because the engine is below the sessions: only a caller who
    # gives a path pays for SQLite.
    made: Journal = import_module("atomic.sessions.journal").open_journal(journal, is_new=is_new)
    closing.callback(made.close)
    return made


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[_Body], msgspec.msgpack.Decoder[Any]] = {}
BodyT = TypeVar("BodyT", bound=_Body)


def encode_row(kind: RowKind, body: _Body, *, step: int | None = None) -> Row:
    return Row(int(kind), step, _encoder.encode(body))


def decode_body(row: Row, body_type: type[BodyT]) -> BodyT:
    """Read a row's body. Raise JournalError if it does not match the row's kind."""
    decoder = _decoders.get(body_type)
    if decoder is None:
        decoder = _decoders[body_type] = msgspec.msgpack.Decoder(body_type)
    try:
        return decoder.decode(row.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"A journal row of kind {row.kind} cannot be read: {error}") from error


def step_id_of(execution_id: str, node_id: str, n: int) -> str:
    """Return the id of a step, which stays the same in every attempt and resume."""
    return f"{execution_id}:{node_id}#{n}"


def hash_text(text: str) -> int:
    """Return a checksum of a text, never 0.

    It distinguishes the questions of a step.
    """
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) or 1


def is_run(start: StartBody) -> bool:
    """Return whether these are the rows of a run, and not the facts or signals of one."""
    of_run = {FACTS: FACTS_SUFFIX, SIGNALS: SIGNALS_SUFFIX}.get(start.graph)
    return of_run is None or not start.execution_id.endswith(of_run)


def describe_run(start: StartBody, newest_first: Iterable[Row]) -> RunInfo:
    """Return a run's entry in a list, from its first row and its last ones.

    Reads backwards up to the last finished step.
    """
    status = "running"
    updated = start.time
    steps = 0
    wake_at = None
    is_last = True
    for row in newest_first:
        if row.kind == RowKind.ENDED and is_last:
            ended = decode_body(row, EndedBody)
            status = ended.status
            updated = ended.time
            wake_at = ended.wake_at
        if row.kind == RowKind.STEP and row.step is not None:
            body = decode_body(row, StepBody)
            steps, updated = row.step, max(updated, body.started + body.seconds)
            break
        is_last = is_last and row.kind == RowKind.UPDATED  # a fork begins with an update after its copied rows
    return RunInfo(
        execution_id=start.execution_id, graph=start.graph, status=status,
        started=start.time, updated=updated, steps=steps, wake_at=wake_at,
    )  # fmt: skip


def records_of(start: StartBody, rows: Iterable[Row]) -> list[Record]:
    """Return the finished steps among the rows."""
    return [_record(start, row) for row in rows if row.kind == RowKind.STEP]


def _record(start: StartBody, row: Row) -> Record:
    body = decode_body(row, StepBody)
    return Record(
        step=row.step,
        node_id=body.node_id,
        step_id=step_id_of(start.execution_id, body.node_id, body.n),
        update=_plain_update(body.update),
        status=RunStatus(body.status),
        attempt=body.attempt,
        started=body.started,
        seconds=body.seconds,
        model=body.model,
        error=str(error_from(body.error)) if body.error else None,
        usage=body.usage,
    )


def _plain_update(update: msgspec.Raw) -> dict[str, Any]:
    values = decode_changes(update)
    return {name: value.value if isinstance(value, Overwrite) else value for name, value in values.items()}


def error_from(body: ErrorBody) -> NodeError:
    return NodeError(body.node_id, body.reason, kind=body.kind, path=body.path)


def forked_rows(
    start: StartBody, rows: Iterable[Row], execution_id: str, update: Mapping[str, Any] | None = None
) -> list[Row]:
    """Return the rows of a copy, and an update of its state.

    Its steps get new ids, so that no id is used twice. Raise JournalError, StateError.
    """
    body = msgspec.structs.replace(start, execution_id=execution_id, forked_from=start.execution_id, time=time.time())
    own = [_in_run(row, start.execution_id, execution_id) for row in own_rows(start, rows)]
    if update is not None:
        own.append(_update_of_fork(start, own, update))
    return [encode_row(RowKind.START, body), *own]


def _update_of_fork(start: StartBody, rows: Sequence[Row], update: Mapping[str, Any]) -> Row:
    """Return the row of an update that a fork begins with. Raise JournalError, StateError."""
    if not isinstance(update, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
        raise JournalError(f"update is {update!r:.60}; give a mapping of fields to values")
    if rows and rows[-1].kind == RowKind.ENDED and decode_body(rows[-1], EndedBody).status == RunStatus.COMPLETED:
        raise JournalError(
            f'Run "{start.execution_id}" is completed, so no node would see the update; fork it at an earlier step'
        )
    return encode_row(RowKind.UPDATED, UpdatedBody(time.time(), msgspec.Raw(encode_changes(dict(update)))))


def own_rows(start: StartBody, rows: Iterable[Row]) -> Iterable[Row]:
    """Return the rows of a run with its own step ids.

    Earlier versions left the ids of the original run in a fork.
    """
    if start.forked_from is None:
        return rows
    return [_in_run(row, start.forked_from, start.execution_id) for row in rows]


# The kinds of rows whose body starts with a step id.
_NAME_A_STEP = frozenset({RowKind.ATTEMPT, RowKind.STARTED, RowKind.ASKED, RowKind.ANSWERED, RowKind.PART})
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:")


def _in_run(row: Row, old_id: str, new_id: str) -> Row:
    """Return a row about a step of one run as a row about the same step of another."""
    if row.kind not in _NAME_A_STEP:
        return row
    try:
        parts = msgspec.msgpack.decode(row.body, type=list[Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return row  # reported when it is needed
    step_id = parts[0] if parts else None
    if not isinstance(step_id, str) or step_id.startswith(f"{new_id}:"):
        return row
    if step_id.startswith(f"{old_id}:"):
        key = step_id[len(old_id) + 1 :]
    elif (older := _UUID.match(step_id)) is not None:  # the copied run was a copy itself
        key = step_id[older.end() :]
    else:
        return row
    parts[0] = f"{new_id}:{key}"
    return row._replace(body=_encoder.encode(parts))


def rows_until(rows: Iterable[Row], at: int | None) -> list[Row]:
    """Return the rows up to and including finished step number `at`."""
    if at is None:
        return list(rows)
    kept: list[Row] = []
    if at <= 0:
        return kept
    for row in rows:
        kept.append(row)
        if row.step == at:
            return kept
    last = max((row.step for row in kept if row.step is not None), default=0)
    raise JournalError(f"There is no step {at}; the run has {last} steps")


class MemoryJournal:
    """A journal in memory, for tests and for runs that need not survive the process."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Row]] = {}
        self._signals: dict[str, list[SignalBody]] = {}
        self._last_signals: dict[str, int] = {}  # by run: the number of its last signal, or of its original's
        self._owners: dict[str, _MemoryLog] = {}

    def create(self, execution_id: str, start: Row) -> RunLog:
        if execution_id in self._runs:
            raise JournalError(f'Run "{execution_id}" exists already; resume it, or give another id')
        self._runs[execution_id] = [start]
        return self.acquire(execution_id)

    def acquire(self, execution_id: str) -> RunLog:
        rows = self._require(execution_id)
        if execution_id in self._owners:
            raise RunOwnedError(execution_id, None)
        sent = self._signals.setdefault(execution_id, [])
        log = self._owners[execution_id] = _MemoryLog(self._owners, execution_id, rows, sent)
        return log

    def history(self, execution_id: str, *, at: int | None = None) -> History:
        start, *rows = self._require(execution_id)
        return History(decode_body(start, StartBody), None, rows_until(rows, at))

    def list(self) -> Runs:
        starts = [(decode_body(rows[0], StartBody), rows) for rows in self._runs.values()]
        return [describe_run(start, reversed(rows)) for start, rows in starts if is_run(start)]

    def records(self, execution_id: str) -> Records:
        rows = self._require(execution_id)
        return records_of(decode_body(rows[0], StartBody), rows)

    def fork(self, execution_id: str, *, at: int | None = None, update: Mapping[str, Any] | None = None) -> str:
        history = self.history(execution_id, at=at)
        new_id = str(uuid4())
        self._runs[new_id] = forked_rows(history.start, history.rows, new_id, update)
        self._last_signals[new_id] = self._last_signals.get(execution_id, 0)
        return new_id

    def signal(self, execution_id: str, name: str, data: Any = None) -> None:
        from atomic.graph.engine.sent_signals import check_can_receive, packed_signal, signal_body

        packed = packed_signal(name, data)
        check_can_receive(execution_id, self._require(execution_id)[-1])
        body = signal_body(name, packed, after=self._last_signals.get(execution_id, 0))
        self._last_signals[execution_id] = body.number
        self._signals.setdefault(execution_id, []).append(body)

    def signals(self, execution_id: str) -> Signals:
        self._require(execution_id)
        return list(self._signals.get(execution_id, ()))

    def delete(self, execution_id: str) -> None:
        self._require(execution_id)
        if execution_id in self._owners:
            raise RunOwnedError(execution_id, None)
        del self._runs[execution_id]
        self._runs.pop(f"{execution_id}{FACTS_SUFFIX}", None)
        self._signals.pop(execution_id, None)
        self._last_signals.pop(execution_id, None)

    def redacted(self, packed: bytes) -> bytes:
        return packed

    def close(self) -> None:
        self._owners.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require(self, execution_id: str) -> Rows:
        if execution_id not in self._runs:
            known = [name for name in self._runs if not name.endswith(FACTS_SUFFIX)]
            raise RunNotFoundError(execution_id, known)
        return self._runs[execution_id]


class _MemoryLog:
    def __init__(
        self, owners: dict[str, _MemoryLog], execution_id: str, rows: list[Row], sent: list[SignalBody]
    ) -> None:
        self._owners = owners
        self._id = execution_id
        self._rows = rows
        self._sent = sent
        self._seen = 0

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        if self._owners.get(self._id) is not self:
            raise RunOwnedError(self._id, None, taken_over=True)
        self._rows.extend(rows)

    def snapshot(self, step: int, body: bytes) -> None:
        """Do nothing: the rows are in memory."""

    def redacted(self, packed: bytes) -> bytes:
        return packed

    def new_signals(self) -> Signals:
        fresh = self._sent[self._seen :]
        self._seen = len(self._sent)
        return fresh

    def release(self) -> None:
        if self._owners.get(self._id) is self:
            del self._owners[self._id]
