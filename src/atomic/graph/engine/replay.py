"""Rebuild the visits of one scope as lines: the updates, and the positions of its
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from atomic.base.step_names import local_node
from atomic.graph.engine.control import END
from atomic.graph.engine.edge_forks import united_entries
from atomic.graph.engine.errors import JournalError, StateError
from atomic.graph.engine.history import RunHistory, Visit
from atomic.graph.engine.journal import ALONE, UNSAID, AnsweredBody, JoinedBody, OpenedBody, StepBody, UpdatedBody
from atomic.graph.engine.map_forks import map_entries
from atomic.graph.engine.node import MapBody, ParallelBody, SubgraphBody
from atomic.graph.engine.program import ForkOp, Op, Program, RouteOp
from atomic.graph.engine.run import Entry, Scope, quote
from atomic.graph.engine.state import Overwrite, Values, decode_changes


def _op_of(program: Program, id: str) -> Op:
    pc = program.find(id)
    if pc is None:
        raise JournalError(_gone(program, id))
    return program.ops[pc]


def _gone(program: Program, id: str) -> str:
    """Return why a run cannot continue without a finished node, and what to do."""
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
    """Return the current ids of a node's recorded targets. Raise JournalError."""
    for target in goto:
        if target != END and program.find(target) is None:
            raise JournalError(
                f"The run continues at node '{target}', which the graph no longer has; put it back, or compile the "
                f'graph with renamed={{"{target}": "its new id"}}'
            )
    return tuple(END if target == END else program.ops[program.find(target) or 0].id for target in goto)


def renamed_outputs(program: Program, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return outputs under the current ids of their nodes."""
    return {program.renamed.get(key, key): value for key, value in outputs.items()}


def first_values(history: RunHistory, program: Program) -> Values:
    """Return the plain data that the root's rows start with, with current ids."""
    values = dict(history.first_values())
    if program.renamed and "outputs" in values:
        values["outputs"] = renamed_outputs(program, values["outputs"])
    return values


class Tip(msgspec.Struct):
    """The end of a line of visits, where a token is."""

    key: str
    op: Op | None  # None: before the first node
    goto: tuple[str, ...] | None = None
    loops: tuple[int, ...] = ()
    entries: list[Entry] = []
    order: tuple[int, ...] = ()
    opened: OpenedBody | None = None
    asks: StepBody | None = None
    # Of several edges taken at once: order and target of those not yet followed.
    remaining: list[tuple[int, int]] | None = None


class Replay:
    """The visits of one scope as lines: a shared trunk, and the tips at its end."""

    def __init__(self, history: RunHistory, scope: Scope, program: Program, *, first: Tip | None = None) -> None:
        self.history = history
        self.scope = scope
        self.program = program
        snapshot = None if scope.path else history.snapshot
        if first is None and snapshot is not None and snapshot.node_id:
            op = _op_of(program, snapshot.node_id)
            first = Tip(snapshot.last, op, goto=snapshot.goto, loops=snapshot.loops)
        first = first or Tip("", None)
        self.trunk: list[Entry] = []
        self.tips: dict[str, Tip] = {first.key: first}
        self._last = first.key
        self._line: StepBody | None = None  # the last of a sequence of plain steps
        self._caught: tuple[int, bool] | None = None  # index of the last catch node's entry, and `kept`
        self._removed: dict[str, str] = {}  # visits of removed nodes, each with the visit that replaces it
        self._removed_forks: dict[str, OpenedBody] = {}  # forks of removed nodes that are still open
        for visit in history.visits(scope.path):
            if self._line is not None or self._one_line():
                if self._goes_straight_on(visit):
                    continue
                self._end_line()
            self._visit(visit)
        self._end_line()
        for fork in self._removed_forks:
            node_id = fork.rpartition("#")[0]
            raise JournalError(f"'{node_id}' has begun and is not finished, so it cannot be in removed; put it back")

    def _one_line(self) -> bool:
        """Return whether there is one tip with nothing open, so that visits need no
        sorting.
        """
        tip = next(iter(self.tips.values()))
        return len(self.tips) == 1 and tip.opened is None and tip.remaining is None

    def _goes_straight_on(self, visit: Visit) -> bool:
        """Accept a step that simply follows the one before, as most of a run does."""
        if type(visit) is not StepBody or visit.after is not None or visit.asks is not None or visit.more:
            return False
        id = self.scope.local_id(visit.node_id) if self.scope.qualified else visit.node_id
        if id not in self.program.by_id or self.program.by_id[id] == self.program.catcher:
            return False  # also a renamed or removed node
        self.trunk.append(Entry(visit.node_id, id, self._read_update(visit.update)))
        self._line = visit
        return True

    def _end_line(self) -> None:
        """Turn a sequence of plain steps back into a tip."""
        body, self._line = self._line, None
        if body is not None:
            key = f"{body.node_id}#{body.n}"
            self.tips = {key: Tip(key, self._op(body.node_id), goto=body.goto, loops=body.loops)}
            self._last = key

    def all_entries(self, *, kept: bool = False) -> list[Entry]:
        """Return everything that was done.

        With `kept`, include what counts only for a node that catches a failure.
        """
        index = len(self.trunk)
        if self._caught is not None and (self.scope.path or self.history.ended is not None):
            index, is_kept = self._caught  # it ran after the entries of the open branches
            kept = kept or is_kept
        return [*self.trunk[:index], *self._entries_of_tips(kept=kept), *self.trunk[index:]]

    def _entries_of_tips(self, *, kept: bool) -> list[Entry]:
        tips = sorted(self.tips.values(), key=lambda tip: tip.order)
        done = united_entries(tip.entries for tip in tips)
        return [*done, *(entry for tip in tips for entry in self._open_entries(tip, kept=kept))]

    def _open_entries(self, tip: Tip, *, kept: bool) -> list[Entry]:
        """Return the updates in a fork that is not joined yet."""
        op = tip.op
        if tip.opened is None or not isinstance(op, ForkOp) or isinstance(op.body, SubgraphBody):
            return []
        if isinstance(op.body, ParallelBody):
            if not kept and (op.body.merge is not None or op.body.strategy != "all"):
                return []  # known only after the join
            begun = self.history.branches_of(f"{self.scope.path}|{tip.key}:")
            order = list(op.branches)
            known = {name: now for name in begun if (now := self.program.branch_name(op, name)) is not None}
            names = sorted(known, key=lambda name: order.index(known[name]))
        else:
            names = self.history.branches_of(f"{self.scope.path}|{tip.key}@")
        if isinstance(op.body, MapBody):
            names = sorted(names, key=int)
            if kept:
                names = [str(index) for index in range(len(tip.opened.items or ()))]
        trails = [self._entries_of(op, tip.key, name, kept=kept) for name in names]
        if isinstance(op.body, MapBody):
            entries = map_entries(self.scope.public_id(op.id), op.id, op.branches[""].all_ids, trails)
            return entries if kept else entries[:-1]
        return [entry for trail in trails for entry in trail]

    def _visit(self, visit: Visit) -> None:
        if isinstance(visit, UpdatedBody):
            self._updated(visit)
            return
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
                tip.opened = None
                tip.goto = visit.goto
                self._add(tip, self._joined(visit))
            case AnsweredBody(question_id=key, answer=answer):
                # The line whose last step asked, which may be recorded under an older name.
                asked = visit.step_id.rpartition(":")[2]
                lines = self.tips.values()
                tip = next(tip for tip in lines if asked in (tip.key, self.history.current_step(tip.key)))
                tip.asks = None
                self._add(tip, [Entry(key, key, {"outputs": {key: answer}})])

    def _updated(self, body: UpdatedBody) -> None:
        """Merge a change of the state from outside: before everything that open branches have done."""
        if body.again:
            self.trunk += self._entries_of_tips(kept=False)
            self.tips = {"": Tip("", None)}
            self._last = ""
            self._caught = None
        try:
            update = self._read_update(body.update)
        except StateError as error:
            raise JournalError(f"The update that the run was given does not fit its state: {error}") from error
        self.trunk.append(Entry("", "", update))

    def _read_update(self, update: msgspec.Raw | bytes) -> Values:
        values = decode_changes(update) if self.history.raw else self.program.spec.decode_update(update)
        if self.program.renamed and "outputs" in values:
            outputs = values["outputs"]
            if isinstance(outputs, Overwrite):
                values["outputs"] = Overwrite(renamed_outputs(self.program, outputs.value))
            else:
                values["outputs"] = renamed_outputs(self.program, outputs)
        return values

    def _pass_removed(self, visit: StepBody | OpenedBody | JoinedBody | AnsweredBody) -> bool:
        """Accept a visit of a removed node: the visit before it takes its place."""
        if isinstance(visit, AnsweredBody):
            return False
        key = f"{visit.node_id}#{visit.n}" if isinstance(visit, StepBody) else visit.fork
        id = self.scope.local_id(key.rpartition("#")[0])
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
        self._add(tip, self._entries_without_op(visit, self.scope.path, opened))
        return True

    def _stand_in(self, key: str, after: tuple[str, ...] | None) -> None:
        parents = list(dict.fromkeys(self._standing(parent) for parent in after or (self._last,)))
        if len(parents) > 1:
            node_id = key.rpartition("#")[0]
            raise JournalError(f"Branches have joined at '{node_id}', so it cannot be in removed; put it back")
        self._removed[key] = self._last = parents[0]

    def _standing(self, key: str) -> str:
        while key in self._removed:
            key = self._removed[key]
        return key

    def _entries_without_op(self, visit: StepBody | JoinedBody, path: str, opened: OpenedBody | None) -> list[Entry]:
        """Return the updates of a removed node, or of its branches."""
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
        """Return everything that a removed branch, or a branch of a removed fork, did."""
        inside = next((p for sign in ":@" if self.history.knows(p := f"{path}|{fork}{sign}{quote(name)}")), "")
        entries: list[Entry] = []
        opened: dict[str, OpenedBody] = {}
        for visit in self.history.visits(inside) if inside else ():
            match visit:
                case OpenedBody(fork=key):
                    opened[key] = visit
                case AnsweredBody(question_id=key, answer=answer):
                    entries.append(Entry(key, key, {"outputs": {key: answer}}))
                case StepBody():
                    entries += self._entries_without_op(visit, inside, None)
                case JoinedBody(fork=key):
                    entries += self._entries_without_op(visit, inside, opened.get(key))
                case UpdatedBody():
                    pass  # only the root's state is changed from outside
        return entries

    def _op(self, public_id: str) -> Op:
        return _op_of(self.program, self.scope.local_id(public_id))

    def _step(self, body: StepBody, key: str) -> None:
        op = self._op(body.node_id)
        entry = Entry(body.node_id, op.id, self._read_update(body.update))
        asks = body if body.asks is not None else None
        if op.pc == self.program.catcher and body.goto is None:
            self._caught = (len(self.trunk), body.kept)
            self.trunk.append(entry)  # it only handled a failure: the failed step still has to run
        elif key in self.tips:
            self.tips[key].opened = None
            more = [Entry(body.node_id, op.id, self._read_update(update)) for update in body.more]
            self._add(self.tips[key], [entry, *more])
        else:
            tip = Tip(key, op, goto=body.goto, loops=body.loops, asks=asks)
            if body.kept:  # the run continued elsewhere, so open forks are over
                self.trunk += self._entries_of_tips(kept=True)
                self.tips = {key: tip}
                self._last = key
            else:
                self._grow(tip, body.after, body.ways)
            self._add(tip, [entry])

    def _add(self, tip: Tip, entries: list[Entry]) -> None:
        (self.trunk if len(self.tips) == 1 and tip.remaining is None else tip.entries).extend(entries)

    @property
    def caught(self) -> bool:
        """Return whether the scope's catch node has run."""
        pc = self.program.catcher
        return pc >= 0 and any(
            isinstance(visit, StepBody)
            and visit.goto is not None  # else the failed step runs again, and may be caught again
            and self.program.find(self.scope.local_id(visit.node_id)) == pc
            for visit in self.history.recent_visits(self.scope.path)
        )

    def _grow(self, tip: Tip, after: tuple[str, ...] | None, ways: tuple[int, ...] | None) -> None:
        """Add a visit after others.

        If it is the only line left, everything before it is trunk.
        """
        before = after or (self._last,)
        keys = dict(zip(map(self._standing, before), ways or (UNSAID,) * len(before), strict=False))
        if self._removed and len(keys) > 1:
            # A visit that replaces a removed branch may be over.
            keys = {key: way for key, way in keys.items() if key in self.tips}
        parents = sorted((self._take(key, tip, way) for key, way in keys.items()), key=lambda parent: parent[0])
        tip.order = parents[0][0]
        tip.entries = united_entries(entries for _, entries in parents)
        if not self.tips:
            self.trunk += tip.entries
            tip.entries = []
            tip.order = ()
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
        """Return the targets that a tip leads to at the same time, if it does."""
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
        """Return everything that one branch did, in order."""
        if "" not in op.branches and self.program.branch_name(op, name) is None:
            if name in self.program.removed or f"{op.id}:{name}" in self.program.removed:
                return self._trail_without_op(self.scope.path, fork, name)
            raise JournalError(
                f"The run has finished branch '{name}' of '{op.id}', which the graph no longer has. If it was renamed, "
                f'compile the graph with renamed={{"{op.id}:{name}": "{op.id}:its new name"}}; '
                f'if it was removed, with removed={{"{op.id}:{name}"}}'
            )
        return Replay(self.history, *self._branch(op, fork, name), first=Tip("", None)).all_entries(kept=kept)

    def _branch(self, op: ForkOp, fork: str, name: str) -> tuple[Scope, Program]:
        scope = self.scope
        if "" not in op.branches:
            current = self.program.branch_name(op, name)
            return scope.inner(f"{scope.path}|{fork}:{quote(name)}"), op.branches[cast("str", current)]
        path = f"{scope.path}|{fork}@{quote(name)}"
        return Scope(path=path, prefix=scope.prefix, suffix=f"{scope.suffix}[{name}]"), op.branches[""]
