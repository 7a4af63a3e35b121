"""The visits of one scope as lines: what was done, and where its tokens stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from atomic.graph.control import END
from atomic.graph.errors import JournalError
from atomic.graph.groups import united_entries
from atomic.graph.journal import ALONE, UNSAID, AnsweredBody, JoinedBody, OpenedBody, StepBody
from atomic.graph.map_forks import map_entries
from atomic.graph.node import MapBody, ParallelBody, SubgraphBody
from atomic.graph.past import Past, Visit
from atomic.graph.program import END_PC, ForkOp, Op, Program, RouteOp
from atomic.graph.run import Entry, Place, quote
from atomic.graph.state import Values
from atomic.graph.token import Resumed, Token
from atomic.step_names import local_node


def _first_tip(past: Past, place: Place, program: Program) -> Tip:
    snapshot = None if place.path else past.snapshot
    if snapshot is None or not snapshot.node_id:
        return Tip("", None)
    return Tip(snapshot.last, _op_of(program, snapshot.node_id), goto=snapshot.goto, loops=snapshot.loops)


def _op_of(program: Program, id: str) -> Op:
    pc = program.find(id)
    if pc is None:
        raise JournalError(_gone(program, id))
    return program.ops[pc]


def _gone(program: Program, id: str) -> str:
    """Why a run cannot continue whose finished node is not where it was, and what to do."""
    if id in program.graph_ids:
        return (
            f"Node '{id}' was finished in another place of the graph: it was moved into or out of a branch or map. "
            f'Move it back, or give it another id there and compile the graph with removed={{"{id}"}}'
        )
    return (
        f"The run has finished node '{id}', which the graph no longer has. If it was renamed, compile the graph with "
        f'renamed={{"{id}": "its new id"}}; if it was removed, with removed={{"{id}"}}'
    )


def targets_of(program: Program, goto: Sequence[str]) -> tuple[str, ...]:
    """The ids that the recorded targets of a node have now. Raises JournalError where one is gone."""
    for target in goto:
        if target != END and program.find(target) is None:
            raise JournalError(
                f"The run goes on at node '{target}', which the graph no longer has; put it back, or compile the "
                f'graph with renamed={{"{target}": "its new id"}}'
            )
    return tuple(END if target == END else program.ops[program.find(target) or 0].id for target in goto)


def renamed_outputs(program: Program, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of nodes under the ids that these have now."""
    return {program.renamed.get(key, key): value for key, value in outputs.items()}


def first_values(past: Past, program: Program) -> Values:
    """The plain data that the root's rows begin with."""
    values = dict(past.first_values())
    if program.renamed and "outputs" in values:
        values["outputs"] = renamed_outputs(program, values["outputs"])
    return values


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
            if self.goto is not None:  # of a first node that was removed
                target = targets_of(token.program, self.goto)[0]
                token.pc = END_PC if target == END else token.program.by_id[target]
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
        token.go_behind(self.op, None if self.goto is None else targets_of(token.program, self.goto))


class Replay:
    """The visits of one scope, as lines: a trunk, and the tips that live at its end."""

    def __init__(self, past: Past, place: Place, program: Program, *, first: Tip | None = None) -> None:
        self.past, self.place, self.program = past, place, program
        first = first or _first_tip(past, place, program)
        self.trunk: list[Entry] = []
        self.tips: dict[str, Tip] = {first.key: first}
        self._last = first.key
        self._line: StepBody | None = None  # the last of the plain steps that follow each other
        self._caught: tuple[int, bool] | None = None  # where the entry of a catching node is that came last, and `kept`
        self._removed: dict[str, str] = {}  # visits of removed nodes, each with the one that stands for it now
        self._removed_forks: dict[str, OpenedBody] = {}  # those of them that are not over
        for visit in past.visits(place.path):
            if self._line is not None or self._one_line():
                if self._goes_straight_on(visit):
                    continue
                self._end_line()
            self._visit(visit)
        self._end_line()
        for fork in self._removed_forks:
            node_id = fork.rpartition("#")[0]
            raise JournalError(f"'{node_id}' has begun and is not over, so it cannot be in removed: put it back")

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
            return False  # also one that was renamed or removed since
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

    def all_entries(self, *, kept: bool = False) -> list[Entry]:
        """All that was done; `kept`: also what counts only for a node that catches a failure."""
        place = len(self.trunk)
        if self._caught is not None and (self.place.path or self.past.ended is not None):
            place, is_kept = self._caught  # it came after what the open branches did
            kept = kept or is_kept
        return [*self.trunk[:place], *self._entries_of_tips(kept=kept), *self.trunk[place:]]

    def _entries_of_tips(self, *, kept: bool) -> list[Entry]:
        tips = sorted(self.tips.values(), key=lambda tip: tip.order)
        done = united_entries(tip.entries for tip in tips)
        return [*done, *(entry for tip in tips for entry in self._open_entries(tip, kept=kept))]

    def _open_entries(self, tip: Tip, *, kept: bool) -> list[Entry]:
        """What was done in a fork that is not joined yet."""
        op = tip.op
        if tip.opened is None or not isinstance(op, ForkOp) or isinstance(op.body, SubgraphBody):
            return []
        if isinstance(op.body, ParallelBody):
            if not kept and (op.body.merge is not None or op.body.strategy != "all"):
                return []  # what counts is known only when they have met
            begun = self.past.branches_of(f"{self.place.path}|{tip.key}:")
            order = list(op.branches)
            known = {name: now for name in begun if (now := self.program.branch_name(op, name)) is not None}
            names = sorted(known, key=lambda name: order.index(known[name]))
        else:
            names = self.past.branches_of(f"{self.place.path}|{tip.key}@")
        if isinstance(op.body, MapBody):
            names = sorted(names, key=int)
            if kept:
                names = [str(index) for index in range(len(tip.opened.items or ()))]
        trails = [self._entries_of(op, tip.key, name, kept=kept) for name in names]
        if isinstance(op.body, MapBody):
            entries = map_entries(self.place.public_id(op.id), op.id, op.branches[""].all_ids, trails)
            return entries if kept else entries[:-1]
        return [entry for trail in trails for entry in trail]

    def _visit(self, visit: Visit) -> None:
        self._caught = None
        if self.program.removed and self._pass_removed(visit):
            return
        match visit:
            case StepBody(node_id=node_id, n=n):
                self._step(visit, f"{node_id}#{n}")
            case OpenedBody(fork=fork):
                op = self._op(fork.rpartition("#")[0])
                self._grow(Tip(fork, op, loops=visit.loops, opened=visit), visit.after, visit.ways)
            case JoinedBody(fork=fork):
                tip = self.tips[fork]
                tip.opened, tip.goto = None, visit.goto
                self._add(tip, self._joined(visit))
            case AnsweredBody(question_id=key, answer=answer):
                tip = self._tip_of(visit)
                tip.asks = None
                self._add(tip, [Entry(key, key, {"outputs": {key: answer}})])

    def _read_update(self, update: msgspec.Raw | bytes) -> Values:
        values = msgspec.msgpack.decode(update) if self.past.raw else self.program.spec.decode_update(update)
        if self.program.renamed and "outputs" in values:
            values["outputs"] = renamed_outputs(self.program, values["outputs"])
        return values

    def _tip_of(self, visit: AnsweredBody) -> Tip:
        """The line whose last step asked; it may have been recorded under an older name than the answer."""
        key = visit.step_id.rpartition(":")[2]
        return next(tip for tip in self.tips.values() if key in (tip.key, self.past.current_step(tip.key)))

    # removed nodes -----------------------------------------------------------------------------------------

    def _pass_removed(self, visit: Visit) -> bool:
        """Take what a node did that the graph no longer has: the visit before it stands for it."""
        if isinstance(visit, AnsweredBody):
            return False
        key = f"{visit.node_id}#{visit.n}" if isinstance(visit, StepBody) else visit.fork
        id = self.place.local_id(key.rpartition("#")[0])
        if id not in self.program.removed or self.program.find(id) is not None:
            return False
        if isinstance(visit, OpenedBody):
            self._removed_forks[key] = visit
            self._stand_in(key, visit.after)
            return True
        opened = self._removed_forks.pop(key, None)
        if opened is None and isinstance(visit, StepBody):
            self._stand_in(key, visit.after)
        tip = self.tips[self._standing(key)]
        if visit.goto is not None:
            tip.goto = visit.goto
        self._add(tip, self._entries_without_op(visit, self.place.path, opened))
        return True

    def _stand_in(self, key: str, after: tuple[str, ...] | None) -> None:
        parents = list(dict.fromkeys(self._standing(parent) for parent in after or (self._last,)))
        if len(parents) > 1:
            node_id = key.rpartition("#")[0]
            raise JournalError(f"Branches have met at '{node_id}', so it cannot be in removed: put it back")
        self._removed[key] = self._last = parents[0]

    def _standing(self, key: str) -> str:
        while key in self._removed:
            key = self._removed[key]
        return key

    def _entries_without_op(self, visit: StepBody | JoinedBody, path: str, opened: OpenedBody | None) -> list[Entry]:
        """What a removed node did: by itself, or in its branches, which are in no program either."""
        if isinstance(visit, StepBody):
            updates = (visit.update, *visit.more)
            return [Entry(visit.node_id, local_node(visit.node_id), self._read_update(update)) for update in updates]
        node_id = visit.fork.rpartition("#")[0]
        id = local_node(node_id)
        if visit.update is not None:
            return [Entry(node_id, id, self._read_update(visit.update))]
        is_map = opened is not None and opened.items is not None
        trails = [self._trail_without_op(path, visit.fork, name) for name in visit.branches]
        if is_map:
            inner = frozenset(entry.key for trail in trails for entry in trail)
            return map_entries(node_id, id, inner, trails)
        return [entry for trail in trails for entry in trail]

    def _trail_without_op(self, path: str, fork: str, name: str) -> list[Entry]:
        """All that a branch did whose fork, or which itself, was removed."""
        inside = next((p for sign in ":@" if self.past.knows(p := f"{path}|{fork}{sign}{quote(name)}")), "")
        entries: list[Entry] = []
        opened: dict[str, OpenedBody] = {}
        for visit in self.past.visits(inside) if inside else ():
            match visit:
                case OpenedBody(fork=key):
                    opened[key] = visit
                case AnsweredBody(question_id=key, answer=answer):
                    entries.append(Entry(key, key, {"outputs": {key: answer}}))
                case StepBody():
                    entries += self._entries_without_op(visit, inside, None)
                case JoinedBody(fork=key):
                    entries += self._entries_without_op(visit, inside, opened.get(key))
        return entries

    def _op(self, public_id: str) -> Op:
        return _op_of(self.program, self.place.local_id(public_id))

    def _step(self, body: StepBody, key: str) -> None:
        op = self._op(body.node_id)
        entry = Entry(body.node_id, op.id, self._read_update(body.update))
        asks = body if body.asks is not None else None
        if op.pc == self.program.catcher and body.goto is None:
            self._caught = (len(self.trunk), body.kept)
            self.trunk.append(entry)  # it only looked after a failure: the failed step is still to be done
        elif key in self.tips:  # a subgraph has ended
            self.tips[key].opened = None
            more = [Entry(body.node_id, op.id, self._read_update(update)) for update in body.more]
            self._add(self.tips[key], [entry, *more])
        else:
            tip = Tip(key, op, goto=body.goto, loops=body.loops, asks=asks)
            if body.kept:  # the run went on elsewhere: what was open is over
                self.trunk += self._entries_of_tips(kept=True)
                self.tips, self._last = {key: tip}, key
            else:
                self._grow(tip, body.after, body.ways)
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
            and self.program.find(self.place.local_id(visit.node_id)) == pc
            for visit in self.past.visits(self.place.path)
        )

    def _grow(self, tip: Tip, after: tuple[str, ...] | None, ways: tuple[int, ...] | None) -> None:
        """A visit follows others; where it is the only line left, all before it is trunk."""
        before = after or (self._last,)
        keys = dict(zip(map(self._standing, before), ways or (UNSAID,) * len(before), strict=False))
        if self._removed and len(keys) > 1:
            # One that stands for a removed branch may be over.
            keys = {key: way for key, way in keys.items() if key in self.tips}
        parents = sorted((self._take(key, tip, way) for key, way in keys.items()), key=lambda parent: parent[0])
        tip.order = parents[0][0]
        tip.entries = united_entries(entries for _, entries in parents)
        if not self.tips:
            self.trunk += tip.entries
            tip.entries, tip.order = [], ()
        self.tips[tip.key] = tip
        self._last = tip.key

    def _take(self, key: str, follower: Tip, way: int) -> tuple[tuple[int, ...], list[Entry]]:
        tip = self.tips.get(key)
        if tip is None:
            raise JournalError(f"The journal is inconsistent: '{follower.key}' follows '{key}', which is over")
        ways = self._ways(tip)
        target = follower.op.pc if follower.op is not None else -1
        if tip.remaining is None and way != ALONE and (0 < way <= len(ways) or (len(ways) > 1 and target in ways)):
            tip.remaining = list(enumerate(ways))
        if tip.remaining is None:
            del self.tips[key]
            return tip.order, tip.entries
        order = next((order for order, pc in tip.remaining if (order + 1 == way if way > 0 else pc == target)), 0)
        tip.remaining = [way for way in tip.remaining if way[0] != order]
        if not tip.remaining:
            del self.tips[key]
        return (*tip.order, order), tip.entries

    def _ways(self, tip: Tip) -> list[int]:
        """The targets that a tip leads to at once, if it does."""
        if tip.goto is not None:
            return list(dict.fromkeys(self.program.by_id.get(id, -1) for id in targets_of(self.program, tip.goto)))
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
            return map_entries(node_id, op.id, op.branches[""].all_ids, trails)
        return [entry for trail in trails for entry in trail]

    def _entries_of(self, op: ForkOp, fork: str, name: str, *, kept: bool = False) -> list[Entry]:
        """All that one branch did, in order."""
        if "" not in op.branches and self.program.branch_name(op, name) is None:
            if name in self.program.removed or f"{op.id}:{name}" in self.program.removed:
                return self._trail_without_op(self.place.path, fork, name)
            raise JournalError(
                f"The run has finished branch '{name}' of '{op.id}', which the graph no longer has. If it was renamed, "
                f'compile the graph with renamed={{"{op.id}:{name}": "{op.id}:its new name"}}; '
                f'if it was removed, with removed={{"{op.id}:{name}"}}'
            )
        return Replay(self.past, *self._branch(op, fork, name), first=Tip("", None)).all_entries(kept=kept)

    def _branch(self, op: ForkOp, fork: str, name: str) -> tuple[Place, Program]:
        place = self.place
        if "" not in op.branches:
            current = self.program.branch_name(op, name)
            return place.inner(f"{place.path}|{fork}:{quote(name)}"), op.branches[cast("str", current)]
        path = f"{place.path}|{fork}@{quote(name)}"
        return Place(path=path, prefix=place.prefix, suffix=f"{place.suffix}[{name}]"), op.branches[""]
