"""The journal of a run, indexed by scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.errors import JournalError, NodeError, QuestionError, StateError
from atomic.graph.engine.journal import (
    CALL_MARK,
    AnsweredBody,
    AskedBody,
    AttemptBody,
    EndedBody,
    ErrorBody,
    History,
    JoinedBody,
    Journal,
    LostBody,
    MigratedBody,
    OpenedBody,
    PartBody,
    Row,
    RowKind,
    StartedBody,
    StepBody,
    UpdatedBody,
    decode_body,
    error_from,
    hash_text,
    own_rows,
    step_id_of,
)
from atomic.graph.engine.run import unquote
from atomic.graph.engine.sent_signals import awaited_in, kept_parts, taken_signal
from atomic.graph.engine.state import Values, decode_changes, encode_value
from atomic.questions import Question, read_data

if TYPE_CHECKING:
    from atomic.graph.engine.context import Answer
    from atomic.graph.engine.token import Token

Visit = StepBody | OpenedBody | JoinedBody | AnsweredBody | UpdatedBody


class SnapshotBody(msgspec.Struct, frozen=True):
    """A folded state and the position after it, taken when no branch was open."""

    values: dict[str, Any]
    updated: float
    counts: dict[str, int]
    steps: int
    counted: int
    errors: list[ErrorBody]
    node_id: str
    goto: tuple[str, ...] | None
    loops: tuple[int, ...]
    last: str
    jumps: list[tuple[str, str]] | None = None  # edges that a goto took; None: unknown
    received: dict[str, int] = {}  # by name: the number of the last signal that a step received
    earlier: dict[str, int] = {}  # the counts when the run last began again


def encode_snapshot(token: Token, id: str, goto: tuple[str, ...] | None, loops: tuple[int, ...]) -> bytes | None:
    """Return a snapshot, or None if a value cannot be written: it is only a cache."""
    run = token.run
    used = run.max_steps - run.budget if run.budget >= 0 else 0
    errors = [ErrorBody(error.node_id, error.reason, error.kind, error.path) for error in token.errors]
    body = SnapshotBody(
        token.values, token.updated, run.counts, run.steps, used, errors, id, goto, loops, token.last,
        sorted(run.jumps), run.received, run.earlier,
    )  # fmt: skip
    try:
        return encode_value(body, "snapshot")
    except StateError:
        return None


class RecordedAnswer(NamedTuple):
    """An answer and its question."""

    question: Question
    text_hash: int
    answer: Any
    is_unnamed: bool  # the question's id is only its place in the node

    def is_text_of(self, question: Question) -> bool:
        """Return whether that question has the text that was answered."""
        # A text with a secret in it is kept redacted. In a resume its state is redacted
        # too, and so is the new text.
        return self.text_hash == hash_text(question.text) or self.question.text == question.text


class RunHistory:
    """The journal of a run, indexed by scope.

    Visits keep their recorded ids. Facts about a step that may still run (attempts,
    questions, parts) are kept under the current id of its node, which the function
    `current` returns.
    """

    def __init__(self, history: History, current: Callable[[str], str] | None = None) -> None:
        self.start = history.start
        self._current = current
        self.attempts: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.steps = 0
        self.counted = 0
        self.updated = 0.0
        self.ended: EndedBody | None = None
        self.passed: set[str] = set()  # visits before which the run has paused already
        self.earlier: dict[str, int] = {}  # the counts when the run last began again
        self.begins_again = False  # its last row lets the run begin again
        self._first_visit = 0  # the first visit of the root since then
        self.has_current_snapshot = history.snapshot is not None
        self.asked: dict[str, AskedBody] = {}
        self.migrated: MigratedBody | None = None
        self.snapshot = _read_snapshot(history.snapshot)
        self.answers: dict[str, RecordedAnswer] = {}  # the last answer to each question
        self._asked_by: dict[tuple[str, str], AskedBody] = {}  # the last question of each id in each step
        self._given: dict[str, list[RecordedAnswer]] = {}  # answers to unfinished steps
        self._agent_answers: dict[str, dict[str, Answer]] = {}
        self._parts: dict[str, dict[str, bytes]] = {}  # of unfinished steps, by step id
        self.received: dict[str, int] = {}  # by name: the number of the last signal that a step received
        self._scopes: dict[str, list[Visit]] = {}
        self._errors: dict[str, list[NodeError]] = {}
        self._open: dict[tuple[str, str], OpenedBody] = {}
        self._lost: dict[tuple[str, str], dict[str, NodeError]] = {}
        # By scope: the failure and the nodes that ran after it.
        self._failing: dict[str, tuple[NodeError, list[str]]] = {}
        self.raw = False  # read updates as plain data: older code may have had other types
        self._asking: dict[str, str] = {}  # finished steps that asked a question, with their scope
        if self.snapshot is not None:
            self._begin_with(self.snapshot)
        for row in own_rows(history.start, history.rows):
            self.read(row)

    @property
    def reducers(self) -> Mapping[str, str]:
        """Return the identities of the reducers that folded the newest rows."""
        return self.migrated.reducers if self.migrated is not None else self.start.reducers

    @property
    def state_version(self) -> int:
        return self.migrated.state_version if self.migrated is not None else self.start.state_version

    def _begin_with(self, snapshot: SnapshotBody) -> None:
        for node_id, count in snapshot.counts.items():
            self._count(node_id, count)
        self.steps = snapshot.steps
        self.counted = snapshot.counted
        self.updated = snapshot.updated
        self.earlier = snapshot.earlier
        self._errors[""] = [error_from(body) for body in snapshot.errors]
        self.received.update(snapshot.received)

    def read(self, row: Row) -> None:
        self.begins_again = False
        match row.kind:
            case RowKind.STEP:
                self._read_step(row)
            case RowKind.OPENED:
                opened = decode_body(row, OpenedBody)
                if opened.scope.endswith(CALL_MARK):
                    self._forget_below(opened.scope.removesuffix(CALL_MARK))
                self._scopes.setdefault(opened.scope, []).append(opened)
                self._open[opened.scope, opened.fork] = opened
                node_id, _, n = opened.fork.rpartition("#")
                self._count(node_id, int(n))
            case RowKind.JOINED:
                joined = decode_body(row, JoinedBody)
                self._scopes.setdefault(joined.scope, []).append(joined)
                self._open.pop((joined.scope, joined.fork), None)
                self._lost.pop((joined.scope, joined.fork), None)
                # Close the questions of branches that lost a race.
                inside = (f"{joined.scope}|{joined.fork}:", f"{joined.scope}|{joined.fork}@")
                self.asked = {key: asked for key, asked in self.asked.items() if not asked.scope.startswith(inside)}
            case RowKind.LOST:
                lost = decode_body(row, LostBody)
                if lost.is_last:
                    self._lost.pop((lost.scope, lost.fork), None)
                else:
                    self._lost.setdefault((lost.scope, lost.fork), {})[lost.branch] = error_from(lost.error)
            case RowKind.STARTED:
                started = decode_body(row, StartedBody)
                self._attempt(self.current_step(started.step_id), started.attempt)
            case RowKind.ATTEMPT:
                failed = decode_body(row, AttemptBody)
                step_id = self.current_step(failed.step_id)
                self._attempt(step_id, failed.attempt)
                self.forget_failed_parts(step_id)
                self.forget_answers(step_id)
                self.forget_calls(failed.scope, step_id)
                self._errors.setdefault(failed.scope, []).append(error_from(failed.error))
            case RowKind.ASKED:
                asked = self._current_question(decode_body(row, AskedBody))
                self.asked[asked.question.id] = self._asked_by[asked.step_id, asked.question.id] = asked
            case RowKind.ANSWERED:
                self.answered(self._current_answer(decode_body(row, AnsweredBody)))
            case RowKind.PART:
                self._read_part(decode_body(row, PartBody))
            case RowKind.ENDED:
                self.ended = decode_body(row, EndedBody)
                self.passed.update(map(self.current_step, self.ended.breakpoints))
            case RowKind.UPDATED:
                self._read_update(decode_body(row, UpdatedBody))
            case RowKind.RESUMED:
                if self.ended is not None:
                    self._failing.clear()  # failed nodes run again
                self.ended = None
            case RowKind.MIGRATED:
                self.migrated = decode_body(row, MigratedBody)
                self.snapshot = _read_snapshot(self.migrated.snapshot)
                # Continue with the migrated root state. Scopes below it stay open.
                self._scopes[""] = [opened for (scope, _), opened in self._open.items() if not scope]
            case _:
                raise JournalError(f"A journal row has the unknown kind {row.kind}; a newer version of Atomic wrote it")

    def _read_part(self, part: PartBody) -> None:
        value = bytes(part.value)
        self._parts.setdefault(self.current_step(part.step_id), {})[part.key] = value
        taken = taken_signal(part.key, value)
        if taken is not None:
            name, number = taken
            self.received[name] = max(number, self.received.get(name, 0))

    def _read_update(self, body: UpdatedBody) -> None:
        visits = self._scopes.setdefault("", [])
        visits.append(body)
        if self.ended is not None and self.ended.folded is not None:
            changed = decode_changes(body.update)
            kept = {name: value for name, value in self.ended.folded.items() if name not in changed}
            self.ended = msgspec.structs.replace(self.ended, folded=kept)
        if body.again:
            self.ended = None
            self.begins_again = True
            self.earlier = dict(self.counts)
            self.counted = 0
            self._first_visit = len(visits)
            self.has_current_snapshot = False
            self._failing.clear()
            self._errors.pop("", None)
            self.asked.clear()

    def _read_step(self, row: Row) -> None:
        body = decode_body(row, StepBody)
        node_id = body.node_id if self._current is None else self._current(body.node_id)
        self.updated = max(self.updated, body.started + body.seconds)
        if self._parts:
            forget = self.forget_parts if body.status == "completed" else self.forget_failed_parts
            forget(step_id_of(self.start.execution_id, node_id, body.n))
        if self._given and body.status == "completed":
            self.forget_answers(step_id_of(self.start.execution_id, node_id, body.n))
        if body.error is not None:
            self._errors.setdefault(body.scope, []).append(error_from(body.error))
        if body.status != "completed":
            self._attempt(step_id_of(self.start.execution_id, node_id, body.n), body.attempt)
            if body.error is not None:
                self._failing[body.scope] = (error_from(body.error), [])
            return
        if body.scope in self._failing:
            self._failing[body.scope][1].append(node_id)
        self._scopes.setdefault(body.scope, []).append(body)
        if self._open:
            self._open.pop((body.scope, f"{body.node_id}#{body.n}"), None)
            if body.kept and body.goto is not None:  # the run continued elsewhere, so open forks are over
                self._open = {key: opened for key, opened in self._open.items() if key[0] != body.scope}
        self.counts[node_id] = max(self.counts.get(node_id, 0), body.n)
        self.steps = row.step or self.steps
        self.counted += "@" not in body.scope
        if self.asked:
            step_id = step_id_of(self.start.execution_id, node_id, body.n)
            self.asked = {key: asked for key, asked in self.asked.items() if asked.step_id != step_id}
        if body.asks is not None:
            self._asking[step_id_of(self.start.execution_id, node_id, body.n)] = body.scope

    def _count(self, recorded_id: str, n: int) -> None:
        node_id = self.current_id(recorded_id)
        self.counts[node_id] = max(self.counts.get(node_id, 0), n)

    def _attempt(self, step_id: str, attempt: int) -> None:
        self.attempts[step_id] = max(self.attempts.get(step_id, 0), attempt)

    def current_id(self, recorded_id: str) -> str:
        """Return the current public id of a recorded node."""
        return recorded_id if self._current is None else self._current(recorded_id)

    def current_step(self, recorded: str) -> str:
        """Return a step's id or key with the current id of its node."""
        if self._current is None:
            return recorded
        run_id, colon, key = recorded.rpartition(":")
        node_id, sign, n = key.rpartition("#")
        return f"{run_id}{colon}{self._current(node_id)}{sign}{n}"

    def _current_question(self, asked: AskedBody) -> AskedBody:
        """Return a question with current ids.

        If the question's id is made from the id of a renamed node, it changes too.
        """
        if self._current is None:
            return asked
        step_id = self.current_step(asked.step_id)
        node_id = self._current(asked.node_id)
        question_id = self._current_question_id(asked.question.id, asked.step_id)
        question = msgspec.structs.replace(asked.question, id=question_id)
        return msgspec.structs.replace(asked, step_id=step_id, node_id=node_id, question=question)

    def _current_answer(self, body: AnsweredBody) -> AnsweredBody:
        if self._current is None:
            return body
        question_id = self._current_question_id(body.question_id, body.step_id)
        return msgspec.structs.replace(body, step_id=self.current_step(body.step_id), question_id=question_id)

    def _current_question_id(self, recorded: str, step_id: str) -> str:
        node_id = step_id.rpartition(":")[2].rpartition("#")[0]
        of_node = recorded == node_id or recorded.startswith(f"{node_id}-")
        return f"{self.current_id(node_id)}{recorded[len(node_id) :]}" if of_node else recorded

    def answered(self, body: AnsweredBody) -> None:
        open_one = self.asked.get(body.question_id)
        asked = self._asked_by.pop((body.step_id, body.question_id), open_one)
        if open_one is asked:
            self.asked.pop(body.question_id, None)
        if asked is not None:
            start, _, number = asked.question.id.rpartition("-")
            is_unnamed = start == asked.node_id and number.isdigit()
            given = RecordedAnswer(asked.question, asked.text_hash, body.answer, is_unnamed)
            self.answers[body.question_id] = given
            if asked.by_agent:
                self._agent_answers.setdefault(body.step_id, {})[asked.question.text] = body.answer
            elif body.scope is None:
                self._given.setdefault(body.step_id, []).append(given)
        if body.scope is not None:
            self._scopes.setdefault(body.scope, []).append(body)

    def new_answers(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers that are not recorded yet, as the journal stores them.

        Raise QuestionError if a question is unknown or has another answer, and
        AnswerError if an answer does not fit the type of its question.
        """
        new: dict[str, Any] = {}
        unknown: list[str] = []
        other: dict[str, Any] = {}
        for name, answer in answers.items():
            asked = self.asked.get(name)
            known = self.answers.get(name)
            answered = known if asked is None else asked
            if answered is not None and answered.question.returns is not None:
                given = read_data(answered.question, answer)
            else:
                given = _plain_answer(name, answer)
                if answered is not None and answered.question.multi_select and isinstance(given, str):
                    given = [given]
            if asked is not None:
                new[name] = given
            elif known is None:
                unknown.append(name)
            elif known.answer != given:
                other[name] = known.answer
        if unknown or other:
            raise QuestionError(unknown, self.asked, other)
        return new

    def scope_of_question(self, asked: AskedBody) -> str | None:
        """Return the scope that the answer changes, if the step that asked is finished."""
        return self._asking.get(asked.step_id)

    def agent_answers(self, step_id: str) -> Mapping[str, Answer]:
        """Return answers to agents of a step, by the question's text."""
        return self._agent_answers.get(step_id, {})

    def answers_of(self, step_id: str) -> Sequence[RecordedAnswer]:
        """Return the answers of an interrupted step, in the order of the answers."""
        return self._given.get(step_id, ())

    def forget_answers(self, step_id: str) -> None:
        """Drop the answers of a step that is over or starts again."""
        self._given.pop(step_id, None)

    def parts_of(self, step_id: str) -> Mapping[str, bytes]:
        """Return the data that an interrupted step remembered, still encoded."""
        return self._parts.get(step_id, {})

    def forget_parts(self, step_id: str) -> None:
        """Drop the data that a step remembered, because it is over."""
        self._parts.pop(step_id, None)

    def forget_failed_parts(self, step_id: str) -> None:
        """Drop the data that a failed attempt remembered, except the signals that it
        received.
        """
        parts = self._parts.pop(step_id, None)
        kept = None if parts is None else kept_parts(parts)
        if kept:
            self._parts[step_id] = kept

    @property
    def awaited(self) -> list[str]:
        """Return the names of the signals that unfinished steps wait for."""
        return list(dict.fromkeys(name for parts in self._parts.values() for name in awaited_in(parts)))

    def called_graph(self, path: str) -> OpenedBody | None:
        """Return how a graph that a step has called began, by the path of its scope."""
        found = self._scopes.get(f"{path}{CALL_MARK}", ())
        return next((visit for visit in reversed(found) if isinstance(visit, OpenedBody)), None)

    def forget_calls(self, path: str, step_id: str) -> None:
        """Drop what the graphs that a step has called did, because the step starts again."""
        self._forget_below(f"{path}|{step_id.removeprefix(f'{self.start.execution_id}:')}{CALL_MARK}")

    def _forget_below(self, prefix: str) -> None:
        for known in (self._scopes, self._errors, self._failing):
            for path in [path for path in known if path.startswith(prefix)]:
                del known[path]
        self._open = {key: opened for key, opened in self._open.items() if not key[0].startswith(prefix)}
        self.asked = {key: asked for key, asked in self.asked.items() if not asked.scope.startswith(prefix)}

    def knows(self, path: str) -> bool:
        return path in self._scopes or path in self._errors

    def errors_of(self, path: str) -> Sequence[NodeError]:
        """Return the failures of a scope so far."""
        return self._errors.get(path, ())

    def failing(self, path: str) -> tuple[NodeError, list[str]] | None:
        """Return the last failure of a scope and the nodes that ran after it."""
        return self._failing.get(path) if self.ended is None else None

    def open_fork(self, path: str, node_id: str) -> OpenedBody | None:
        """Return and forget the fork of that node that was open when the run stopped."""
        for (scope, fork), body in self._open.items():
            if scope == path and self.current_id(fork.rpartition("#")[0]) == node_id:
                del self._open[scope, fork]
                return body
        return None

    def has_open_fork(self, path: str, node_id: str) -> bool:
        """Return whether the fork of that node was open when the run stopped."""
        opened = (fork for scope, fork in self._open if scope == path)
        return any(self.current_id(fork.rpartition("#")[0]) == node_id for fork in opened)

    def lost_branches(self, path: str, fork: str) -> Mapping[str, NodeError]:
        """Return the failed branches of an open fork, by their recorded names."""
        return self._lost.get((path, fork), {})

    def first_values(self) -> Values:
        """Return the plain data that the root's rows start with."""
        return self.start.values if self.snapshot is None else self.snapshot.values

    def branches_of(self, prefix: str) -> list[str]:
        """Return the branches of a fork that have rows, in the order in which they
        began.
        """
        found = (path[len(prefix) :] for path in (*self._scopes, *self._errors) if path.startswith(prefix))
        return [unquote(name) for name in dict.fromkeys(name.partition("|")[0] for name in found)]

    def visits(self, path: str) -> Sequence[Visit]:
        return self._scopes.get(path, ())

    def recent_visits(self, path: str) -> Sequence[Visit]:
        """Return the visits since the run last began again."""
        return self.visits(path)[self._first_visit :] if not path else self.visits(path)

    def finished_before(self) -> Sequence[str]:
        """Return the nodes that the snapshot has as finished since the run last began again."""
        if self.snapshot is None or self.snapshot.jumps is None or not self.has_current_snapshot:
            return ()
        earlier = self.snapshot.earlier
        return [node_id for node_id, count in self.snapshot.counts.items() if count > earlier.get(node_id, 0)]


def ready_signals(journal: Journal, execution_id: str) -> list[str]:
    """Return the names of the signals that unfinished steps of a run wait for and that
    were sent.

    Raise RunNotFoundError, JournalError.
    """
    history = RunHistory(journal.history(execution_id))
    awaited = set(history.awaited)
    if not awaited:
        return []
    sent = [one.name for one in journal.signals(execution_id) if one.number > history.received.get(one.name, 0)]
    return [name for name in dict.fromkeys(sent) if name in awaited]


def jumps_of(history: RunHistory) -> set[tuple[str, str]]:
    """Return the edges of the graph's own nodes that a goto took, as far as recorded."""
    jumps = set(history.snapshot.jumps or ()) if history.snapshot is not None else set[tuple[str, str]]()
    for visit in history.visits(""):
        if isinstance(visit, StepBody) and visit.goto is not None:
            jumps.update((visit.node_id, target) for target in visit.goto)
        elif isinstance(visit, JoinedBody) and visit.goto is not None:
            jumps.update((visit.fork.rpartition("#")[0], target) for target in visit.goto)
    return jumps


def _read_snapshot(data: bytes | None) -> SnapshotBody | None:
    return None if data is None else msgspec.msgpack.decode(data, type=SnapshotBody)


def _plain_answer(name: str, answer: Any) -> str | list[str]:
    """Return the answer to a question without a type. Raise AtomicError."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, (list, tuple, set, frozenset)):
        given = list(cast("Iterable[Any]", answer))
        if all(isinstance(part, str) for part in given):
            return given
    raise AtomicError(f'The answer to "{name}" is {answer!r:.60}; give a text, or a list of texts')
