"""Take up a run where its journal ends.

The rows of a scope tell which nodes were visited and what they did; the position behind the last visit follows
from them. User code is asked only for what was not decided yet: conditions behind the last record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.graph.errors import JournalError, NodeError, StateError
from atomic.graph.forks import map_entries, quote, unquote
from atomic.graph.groups import Group, GroupBranching, united_entries
from atomic.graph.journal import (
    AnsweredBody,
    AskedBody,
    AttemptBody,
    EndedBody,
    ErrorBody,
    History,
    JoinedBody,
    MigratedBody,
    OpenedBody,
    Row,
    RowKind,
    StartedBody,
    StepBody,
    decode_body,
    encode_row,
    error_from,
    step_id_of,
)
from atomic.graph.node import MapBody, ParallelBody, SubgraphBody
from atomic.graph.program import END_PC, ForkOp, Op, Program, RouteOp
from atomic.graph.reducers import find_reducer, name_of
from atomic.graph.run import Entry, Place, Run
from atomic.graph.state import StateSpec, Values, describe_error, encode_value
from atomic.graph.token import Resumed, Token

if TYPE_CHECKING:
    from atomic.graph.builder import MigrateState
    from atomic.graph.context import Answer

Visit = StepBody | OpenedBody | JoinedBody | AnsweredBody


class SnapshotBody(msgspec.Struct, frozen=True):
    """A folded state with the position behind it, at a moment when nothing was open."""

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


def encode_snapshot(token: Token, id: str, goto: tuple[str, ...] | None, loops: tuple[int, ...]) -> bytes | None:
    """The snapshot, or None where a value has become something that cannot be written: it is only a cache."""
    run = token.run
    used = run.max_steps - run.budget if run.budget >= 0 else 0
    errors = [ErrorBody(error.node_id, error.reason, error.kind, error.path) for error in token.errors]
    body = SnapshotBody(
        token.values, token.updated, run.counts, run.steps, used, errors, id, goto, loops, token.last
    )  # fmt: skip
    try:
        return encode_value(body, "snapshot")
    except StateError:
        return None


class Past:
    """What a journal tells about a run, sorted by scope."""

    def __init__(self, history: History) -> None:
        self.start = history.start
        self.attempts: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.steps = 0
        self.counted = 0
        self.updated = 0.0
        self.ended: EndedBody | None = None
        self.asked: dict[str, AskedBody] = {}
        self.migrated: MigratedBody | None = None
        self.snapshot = _read_snapshot(history.snapshot)
        self._answers: dict[str, list[Answer]] = {}
        self._scopes: dict[str, list[Visit]] = {}
        self._errors: dict[str, list[NodeError]] = {}
        self._open: dict[tuple[str, str], OpenedBody] = {}
        self._failing: dict[str, tuple[NodeError, list[str]]] = {}  # by scope, and what was done about it
        self.raw = False  # read updates as plain data: their types may be those of older code
        self._asking: dict[str, str] = {}  # finished steps with a question of their own: their scope
        if self.snapshot is not None:
            self._begin_with(self.snapshot)
        for row in history.rows:
            self.read(row)

    @property
    def state_version(self) -> int:
        return self.migrated.state_version if self.migrated is not None else self.start.state_version

    def _begin_with(self, snapshot: SnapshotBody) -> None:
        self.counts = dict(snapshot.counts)
        self.steps, self.counted, self.updated = snapshot.steps, snapshot.counted, snapshot.updated
        self._errors[""] = [error_from(body) for body in snapshot.errors]

    def read(self, row: Row) -> None:
        match row.kind:
            case RowKind.STEP:
                self._read_step(row)
            case RowKind.OPENED:
                opened = decode_body(row, OpenedBody)
                self._scopes.setdefault(opened.scope, []).append(opened)
                self._open[opened.scope, opened.fork] = opened
                self._count(opened.fork)
            case RowKind.JOINED:
                joined = decode_body(row, JoinedBody)
                self._scopes.setdefault(joined.scope, []).append(joined)
                self._open.pop((joined.scope, joined.fork), None)
                self._drop_questions(f"{joined.scope}|{joined.fork}")
            case RowKind.STARTED:
                started = decode_body(row, StartedBody)
                self._attempt(started.step_id, started.attempt)
            case RowKind.ATTEMPT:
                failed = decode_body(row, AttemptBody)
                self._attempt(failed.step_id, failed.attempt)
                self._errors.setdefault(failed.scope, []).append(error_from(failed.error))
            case RowKind.ASKED:
                asked = decode_body(row, AskedBody)
                self.asked[asked.question.id] = asked
            case RowKind.ANSWERED:
                self.answered(decode_body(row, AnsweredBody))
            case RowKind.ENDED:
                self.ended = decode_body(row, EndedBody)
            case RowKind.RESUMED:
                if self.ended is not None:
                    self._failing.clear()  # what failed is tried again
                self.ended = None
            case RowKind.MIGRATED:
                self._read_migration(decode_body(row, MigratedBody))
            case _:
                raise JournalError(f"A journal row of kind {row.kind} is not known here; a newer version wrote it")

    def _read_step(self, row: Row) -> None:
        body = decode_body(row, StepBody)
        self.updated = max(self.updated, body.started + body.seconds)
        if body.error is not None:
            self._errors.setdefault(body.scope, []).append(error_from(body.error))
        if body.status != "completed":
            self._attempt(step_id_of(self.start.execution_id, body.node_id, body.n), body.attempt)
            if body.error is not None:
                self._failing[body.scope] = (error_from(body.error), [])
            return
        if body.scope in self._failing:
            self._failing[body.scope][1].append(body.node_id)
        self._scopes.setdefault(body.scope, []).append(body)
        if self._open:
            self._open.pop((body.scope, f"{body.node_id}#{body.n}"), None)
        self.counts[body.node_id] = max(self.counts.get(body.node_id, 0), body.n)
        self.steps = row.step or self.steps
        self.counted += "@" not in body.scope
        self.asked = (
            {key: asked for key, asked in self.asked.items() if not self._was_of(asked, body)} if self.asked else {}
        )
        if body.asks is not None:
            self._asking[step_id_of(self.start.execution_id, body.node_id, body.n)] = body.scope

    def _drop_questions(self, fork: str) -> None:
        """What a branch asked that lost a race is not open any more."""
        inside = (f"{fork}:", f"{fork}@")
        self.asked = {key: asked for key, asked in self.asked.items() if not asked.scope.startswith(inside)}

    def _read_migration(self, body: MigratedBody) -> None:
        """From here on the root's state is the migrated one; what is open below it stays open."""
        self.migrated, self.snapshot = body, _read_snapshot(body.snapshot)
        self._scopes[""] = [opened for (scope, _), opened in self._open.items() if not scope]

    def _was_of(self, asked: AskedBody, body: StepBody) -> bool:
        return asked.step_id == step_id_of(self.start.execution_id, body.node_id, body.n)

    def _count(self, key: str) -> None:
        node_id, _, n = key.rpartition("#")
        self.counts[node_id] = max(self.counts.get(node_id, 0), int(n))

    def _attempt(self, step_id: str, attempt: int) -> None:
        self.attempts[step_id] = max(self.attempts.get(step_id, 0), attempt)

    # answers -----------------------------------------------------------------------------------------------

    def answered(self, body: AnsweredBody) -> None:
        self.asked.pop(body.question_id, None)
        if body.scope is None:
            self._answers.setdefault(body.step_id, []).append(body.answer)
        else:
            self._scopes.setdefault(body.scope, []).append(body)

    def scope_of_question(self, asked: AskedBody) -> str | None:
        """The scope whose state the answer changes, if the step that asked is finished."""
        return self._asking.get(asked.step_id)

    def answer(self, step_id: str, place: int) -> Answer | None:
        answers = self._answers.get(step_id, ())
        return answers[place] if place < len(answers) else None

    # scopes ------------------------------------------------------------------------------------------------

    def knows(self, path: str) -> bool:
        return path in self._scopes or path in self._errors

    def open_fork(self, path: str, node_id: str) -> OpenedBody | None:
        """The fork of that node which was open when the run was cut; told once, for the next one is a new one."""
        for (scope, fork), body in self._open.items():
            if scope == path and fork.rpartition("#")[0] == node_id:
                del self._open[scope, fork]
                return body
        return None

    def token(
        self,
        run: Run,
        place: Place,
        program: Program,
        values: Values,
        *,
        trail: list[Entry] | None,
        errors: Sequence[NodeError] = (),
    ) -> Token:
        """The token of a scope, where its rows end. Raises JournalError where the graph has no such node any more."""
        token = Token(run, place, program, values, pc=program.entry, trail=trail)
        token.errors = (*errors, *self._errors.get(place.path, ()))
        token.updated = self.updated
        token.resumed = Resumed.WRITTEN if place.path else Resumed.IMPLIED
        snapshot = None if place.path else self.snapshot
        if snapshot is not None:
            token.last = snapshot.last
        replay = _Replay(self, place, program, first=self.first_tip(place, program))
        token.take(replay.trunk)
        token.caught = replay.caught
        tips = list(replay.tips.values())
        if len(tips) == 1 and tips[0].remaining is None:
            tips[0].position(token)
        else:
            _restore_group(token, tips)
        self._restore_failure(token)
        return token

    def _restore_failure(self, token: Token) -> None:
        """A node had failed for good, and the run was cut while the catching node looked after that."""
        failing = self._failing.get(token.place.path)
        catcher = token.program.catcher
        if failing is None or self.ended is not None or catcher < 0:
            return
        error, done = failing
        caught = token.place.public_id(token.program.ops[catcher].id)
        if token.caught or (done and done != [caught]):
            return
        token.failure, token.caught, token.branching = error, True, None
        token.pc = END_PC if done else catcher
        token.resumed = Resumed.IMPLIED

    def first_tip(self, place: Place, program: Program) -> Tip:
        snapshot = None if place.path else self.snapshot
        if snapshot is None or not snapshot.node_id:
            return Tip("", None)
        return Tip(snapshot.last, _op_of(program, snapshot.node_id), goto=snapshot.goto, loops=snapshot.loops)

    def first_values(self) -> Values:
        """The plain data that the root's rows begin with."""
        return self.start.values if self.snapshot is None else self.snapshot.values

    def branches_of(self, prefix: str) -> list[str]:
        """The branches of a fork that have rows, in the order in which they began."""
        found = (path[len(prefix) :] for path in (*self._scopes, *self._errors) if path.startswith(prefix))
        return [unquote(name) for name in dict.fromkeys(name.partition("|")[0] for name in found)]

    def visits(self, path: str) -> Sequence[Visit]:
        return self._scopes.get(path, ())

    def look(self, program: Program, values: Values) -> Any:
        """The state with all that is recorded, also in branches that are open."""
        entries = _Replay(self, Place(), program, first=self.first_tip(Place(), program)).all_entries()
        for entry in entries:
            program.spec.apply(values, entry.update)
        return program.spec.build(values, self.updated)

    def entries_of(self, place: Place, program: Program) -> list[Entry]:
        """All that a scope did, in order; for branches that are merged already."""
        return _Replay(self, place, program, first=Tip("", None)).all_entries()


def _read_snapshot(data: bytes | None) -> SnapshotBody | None:
    return None if data is None else msgspec.msgpack.decode(data, type=SnapshotBody)


def _op_of(program: Program, id: str) -> Op:
    pc = program.by_id.get(id)
    if pc is None:
        raise JournalError(f"The journal names node '{id}', which the graph does not have (any more)")
    return program.ops[pc]


class Tip(msgspec.Struct):
    """The end of a line of visits: where a token stands."""

    key: str
    op: Op | None  # None: before the first node
    goto: tuple[str, ...] | None = None
    loops: tuple[int, ...] = ()
    entries: list[Entry] = []
    order: tuple[int, ...] = ()
    opened: OpenedBody | None = None
    asks: StepBody | None = None
    remaining: list[tuple[int, int]] | None = None  # of several ways at once: order and target of those not yet taken

    def begin(self, token: Token, pc: int) -> None:
        """Put a token on one of several ways that begin here."""
        token.last, token.pc = self.key, pc
        if self.op is not None:
            self._set_counters(token, self.op)
            token.take_way(self.op, pc)

    def _set_counters(self, token: Token, op: Op) -> None:
        for slot, count in zip(op.loops, self.loops, strict=False):
            token.counters[slot] = count

    def position(self, token: Token) -> None:
        """Put a token where this line ends."""
        token.last = self.key or token.last
        if self.op is None:
            return
        if token.place.path:
            token.resumed = Resumed.IMPLIED  # it has a record: what follows began with it
        self._set_counters(token, self.op)
        if self.opened is not None:
            token.pc = self.op.pc
            return
        if self.asks is not None and self.asks.asks is not None:
            body = self.asks
            token.pending = (self.asks.asks, token.run.step_id(body.node_id, body.n))
        token.go_behind(self.op, self.goto)


class _Replay:
    """The visits of one scope, as lines: a trunk, and the tips that live at its end."""

    def __init__(self, past: Past, place: Place, program: Program, *, first: Tip) -> None:
        self.past, self.place, self.program = past, place, program
        self.trunk: list[Entry] = []
        self.tips: dict[str, Tip] = {first.key: first}
        self._last = first.key
        self._line: StepBody | None = None  # the last of the plain steps that follow each other
        for visit in past.visits(place.path):
            if self._line is not None or self._one_line():
                if self._goes_straight_on(visit):
                    continue
                self._end_line()
            self._visit(visit)
        self._end_line()

    def _one_line(self) -> bool:
        """Whether there is one tip only, with nothing open: what follows needs no sorting."""
        tip = next(iter(self.tips.values()))
        return len(self.tips) == 1 and tip.opened is None and tip.remaining is None

    def _goes_straight_on(self, visit: Visit) -> bool:
        """Take a step that simply follows the one before; most of a run is made of these."""
        if type(visit) is not StepBody or visit.after is not None or visit.asks is not None or visit.more:
            return False
        id = self.place.local_id(visit.node_id) if self.place.qualified else visit.node_id
        if id not in self.program.by_id or self.program.by_id[id] == self.program.catcher:
            return False
        self.trunk.append(Entry(visit.node_id, id, self._read_update(visit.update)))
        self._line = visit
        return True

    def _end_line(self) -> None:
        """What was a line becomes a tip again."""
        body, self._line = self._line, None
        if body is not None:
            key = f"{body.node_id}#{body.n}"
            self.tips = {key: Tip(key, self._op(body.node_id), goto=body.goto, loops=body.loops)}
            self._last = key

    def all_entries(self) -> list[Entry]:
        tips = sorted(self.tips.values(), key=lambda tip: tip.order)
        done = [*self.trunk, *united_entries(tip.entries for tip in tips)]
        return [*done, *(entry for tip in tips for entry in self._open_entries(tip))]

    def _open_entries(self, tip: Tip) -> list[Entry]:
        """What was done in a fork that is not joined yet."""
        op = tip.op
        if tip.opened is None or not isinstance(op, ForkOp) or isinstance(op.body, SubgraphBody):
            return []
        if isinstance(op.body, ParallelBody):
            if op.body.merge is not None or op.body.strategy != "all":
                return []  # what counts is known only when they have met
            begun = set(self.past.branches_of(f"{self.place.path}|{tip.key}:"))
            names = [name for name in op.branches if name in begun]
        else:
            names = self.past.branches_of(f"{self.place.path}|{tip.key}@")
        if isinstance(op.body, MapBody):
            names = sorted(names, key=int)
        trails = [self.past.entries_of(*self._branch(op, tip.key, name)) for name in names]
        if isinstance(op.body, MapBody):
            return map_entries(self.place.public_id(op.id), op, trails)[:-1]
        return [entry for trail in trails for entry in trail]

    def _visit(self, visit: Visit) -> None:
        match visit:
            case StepBody(node_id=node_id, n=n):
                self._step(visit, f"{node_id}#{n}")
            case OpenedBody(fork=fork):
                op = self._op(fork.rpartition("#")[0])
                self._grow(Tip(fork, op, loops=visit.loops, opened=visit), visit.after)
            case JoinedBody(fork=fork):
                tip = self.tips[fork]
                tip.opened, tip.goto = None, visit.goto
                self._add(tip, self._joined(visit))
            case AnsweredBody(question_id=key, answer=answer):
                tip = self.tips[self._key_of(visit)]
                tip.asks = None
                self._add(tip, [Entry(key, key, {"outputs": {key: answer}})])

    def _read_update(self, update: msgspec.Raw | bytes) -> Values:
        return msgspec.msgpack.decode(update) if self.past.raw else self.program.spec.decode_update(update)

    def _key_of(self, visit: AnsweredBody) -> str:
        return visit.step_id[len(self.past.start.execution_id) + 1 :]

    def _op(self, public_id: str) -> Op:
        return _op_of(self.program, self.place.local_id(public_id))

    def _step(self, body: StepBody, key: str) -> None:
        op = self._op(body.node_id)
        entry = Entry(body.node_id, op.id, self._read_update(body.update))
        asks = body if body.asks is not None else None
        if op.pc == self.program.catcher and body.goto is None:
            self.trunk.append(entry)  # it only looked after a failure: the failed step is still to be done
        elif key in self.tips:  # a subgraph has ended
            self.tips[key].opened = None
            more = [Entry(body.node_id, op.id, self._read_update(update)) for update in body.more]
            self._add(self.tips[key], [entry, *more])
        else:
            tip = Tip(key, op, goto=body.goto, loops=body.loops, asks=asks)
            self._grow(tip, body.after)
            self._add(tip, [entry])

    def _add(self, tip: Tip, entries: list[Entry]) -> None:
        (self.trunk if len(self.tips) == 1 and tip.remaining is None else tip.entries).extend(entries)

    @property
    def caught(self) -> bool:
        """Whether the scope's catching node has had its turn."""
        pc = self.program.catcher
        return pc >= 0 and any(
            isinstance(visit, StepBody)
            and visit.goto is not None  # else the failed step is still to be done, and it may look after that again
            and self.place.local_id(visit.node_id) == self.program.ops[pc].id
            for visit in self.past.visits(self.place.path)
        )

    def _grow(self, tip: Tip, after: tuple[str, ...] | None) -> None:
        """A visit follows others; where it is the only line left, all before it is trunk."""
        parents = sorted((self._take(key, tip) for key in after or (self._last,)), key=lambda parent: parent[0])
        tip.order = parents[0][0]
        tip.entries = united_entries(entries for _, entries in parents)
        if not self.tips:
            self.trunk += tip.entries
            tip.entries, tip.order = [], ()
        self.tips[tip.key] = tip
        self._last = tip.key

    def _take(self, key: str, follower: Tip) -> tuple[tuple[int, ...], list[Entry]]:
        tip = self.tips.get(key)
        if tip is None:
            raise JournalError(f"The journal is inconsistent: '{follower.key}' follows '{key}', which is over")
        ways = self._ways(tip)
        target = follower.op.pc if follower.op is not None else -1
        if tip.remaining is None and len(ways) > 1 and target in ways:
            tip.remaining = list(enumerate(ways))
        if tip.remaining is None:
            del self.tips[key]
            return tip.order, tip.entries
        order = next((order for order, pc in tip.remaining if pc == target), 0)
        tip.remaining = [way for way in tip.remaining if way[0] != order]
        if not tip.remaining:
            del self.tips[key]
        return (*tip.order, order), tip.entries

    def _ways(self, tip: Tip) -> list[int]:
        """The targets that a tip leads to at once, if it does."""
        if tip.goto is not None:
            return list(dict.fromkeys(self.program.by_id.get(target, -1) for target in tip.goto))
        if tip.op is None or tip.op.next < 0:
            return []
        following = self.program.ops[tip.op.next]
        return list(dict.fromkeys(following.always)) if isinstance(following, RouteOp) else []

    def _joined(self, body: JoinedBody) -> list[Entry]:
        node_id = body.fork.rpartition("#")[0]
        op = self._op(node_id)
        if body.update is not None:
            return [Entry(node_id, op.id, self._read_update(body.update))]
        if not isinstance(op, ForkOp) or isinstance(op.body, SubgraphBody):
            raise JournalError(f"The journal says that '{node_id}' was joined, but it does not fork in this graph")
        trails = [self.past.entries_of(*self._branch(op, body.fork, name)) for name in body.branches]
        if isinstance(op.body, MapBody):
            return map_entries(node_id, op, trails)
        return [entry for trail in trails for entry in trail]

    def _branch(self, op: ForkOp, fork: str, name: str) -> tuple[Place, Program]:
        place = self.place
        named = op.branches.get(name)
        if named is not None and "" not in op.branches:
            return place.inner(f"{place.path}|{fork}:{quote(name)}"), named
        if "" not in op.branches:
            raise JournalError(
                f"The journal names branch '{name}' of '{op.id}', which the graph does not have (any more)"
            )
        path = f"{place.path}|{fork}@{quote(name)}"
        return Place(path=path, prefix=place.prefix, suffix=f"{place.suffix}[{name}]"), op.branches[""]


def _restore_group(token: Token, tips: Sequence[Tip]) -> None:
    """Several lines were open: they become the branches of a group again."""
    restored: list[Token] = []
    group = Group(token, [])
    for tip in sorted(tips, key=lambda tip: tip.order):
        for order, pc in _ways_of(token, tip):
            branch = Token(token.run, token.place, token.program, dict(token.values), pc=token.pc, trail=[])
            branch.take(tip.entries)
            branch.order, branch.group, branch.updated = order, group, token.updated
            branch.resumed = Resumed.IMPLIED
            if pc is None:
                tip.position(branch)
            else:
                tip.begin(branch, pc)
            restored.append(branch)
    group.adopt(restored)
    token.branching = GroupBranching(group)


def _ways_of(token: Token, tip: Tip) -> list[tuple[tuple[int, ...], int | None]]:
    """The branches that a tip stands for: one behind its node, or one for each target that is still to be taken."""
    if tip.remaining is not None:
        return [((*tip.order, order), pc) for order, pc in tip.remaining]
    if tip.goto is not None and len(tip.goto) > 1:
        targets = [token.program.by_id.get(target, -1) for target in tip.goto]
        return [((*tip.order, order), pc) for order, pc in enumerate(dict.fromkeys(targets))]
    return [(tip.order, None)]


def migrated_row(past: Past, place: Place, program: Program, migrate_state: MigrateState | None, version: int) -> Row:
    """Fold the old data by the reducers that the journal names, and let the author's function carry it over.

    Raises StateError where that cannot be done.
    """
    old_version = past.state_version
    if old_version > version:
        reason = f"the run was recorded with state version {old_version}, this code has {version}; use newer code"
        raise StateError("state_version", reason)
    if migrate_state is None:
        reason = f"the run has version {old_version}, the code {version}; give migrate_state(old, from_version)"
        raise StateError("state_version", reason)
    past.raw = True
    replay = _Replay(past, place, program, first=past.first_tip(place, program))
    past.raw = False
    tips = list(replay.tips.values())
    if len(tips) != 1 or tips[0].remaining is not None or tips[0].opened is not None:
        reason = f"branches of the run are open; let them meet with the code of version {old_version} first"
        raise StateError("state_version", reason)
    names = past.migrated.reducers if past.migrated is not None else past.start.reducers
    old = _fold_plain(past.first_values(), replay.trunk, names, program.spec)
    spec = program.spec
    values = spec.start(_migrated(migrate_state, old, old_version, version), past.start.execution_id)
    tip = tips[0]
    snapshot = SnapshotBody(
        values, past.updated, past.counts, past.steps, past.counted, [], tip.op.id if tip.op else "",
        tip.goto, tip.loops, tip.key,
    )  # fmt: skip
    body = MigratedBody(time.time(), version, spec.reducer_names(), msgspec.msgpack.encode(snapshot))
    return encode_row(RowKind.MIGRATED, body)


def _migrated(migrate_state: MigrateState, old: Values, old_version: int, version: int) -> Values:
    try:
        new: Any = migrate_state(old, old_version)
    except Exception as error:  # a user's function: whatever it raises is why the run cannot be carried over
        reason = f"migrate_state from version {old_version} to {version} raised {describe_error(error)}"
        raise StateError("state_version", reason) from error
    if not isinstance(new, dict):
        raise StateError("state_version", f"migrate_state returned {new!r:.60}; it returns a dict")
    return cast("Values", new)


def _fold_plain(values: Values, entries: Sequence[Entry], names: dict[str, str], spec: StateSpec[Any]) -> Values:
    values = dict(values)
    for entry in entries:
        for name, update in entry.update.items():
            reducer = find_reducer(names.get(name, "replace"))
            if reducer is None:
                own = spec.fields.get(name)
                if own is None or name_of(own.reducer) != names[name]:
                    reason = f"its reducer {names[name]} is not in this code any more, so the old run cannot be folded"
                    raise StateError(name, reason)
                values[name] = own.reducer(values[name], update)
            else:
                values[name] = reducer(values[name], update)
    return values
