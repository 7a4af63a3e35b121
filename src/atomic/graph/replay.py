"""The visits of one scope as lines: what was done, and where its tokens stand."""

from __future__ import annotations

import msgspec

from atomic.graph.errors import JournalError
from atomic.graph.groups import united_entries
from atomic.graph.journal import AnsweredBody, JoinedBody, OpenedBody, StepBody
from atomic.graph.map_forks import map_entries
from atomic.graph.node import MapBody, ParallelBody, SubgraphBody
from atomic.graph.past import Past, Visit
from atomic.graph.program import ForkOp, Op, Program, RouteOp
from atomic.graph.run import Entry, Place, quote
from atomic.graph.state import Values
from atomic.graph.token import Resumed, Token


def _first_tip(past: Past, place: Place, program: Program) -> Tip:
    snapshot = None if place.path else past.snapshot
    if snapshot is None or not snapshot.node_id:
        return Tip("", None)
    return Tip(snapshot.last, _op_of(program, snapshot.node_id), goto=snapshot.goto, loops=snapshot.loops)


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


class Replay:
    """The visits of one scope, as lines: a trunk, and the tips that live at its end."""

    def __init__(self, past: Past, place: Place, program: Program, *, first: Tip | None = None) -> None:
        self.past, self.place, self.program = past, place, program
        first = first or _first_tip(past, place, program)
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
        trails = [self._entries_of(op, tip.key, name) for name in names]
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
        trails = [self._entries_of(op, body.fork, name) for name in body.branches]
        if isinstance(op.body, MapBody):
            return map_entries(node_id, op, trails)
        return [entry for trail in trails for entry in trail]

    def _entries_of(self, op: ForkOp, fork: str, name: str) -> list[Entry]:
        """All that one branch did, in order."""
        return Replay(self.past, *self._branch(op, fork, name), first=Tip("", None)).all_entries()

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
