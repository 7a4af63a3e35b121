"""Whether a recorded run can continue with this code, or its history would silently become another one.

What differs is refused before anything is written: another graph, a changed reducer, a finished node that would run
again. Where the graph is the same as when the run began (`Program.shape`), only the reducers have to be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atomic.graph.control import END
from atomic.graph.errors import JournalError, StateError
from atomic.graph.journal import JoinedBody, OpenedBody, StepBody
from atomic.graph.node import ParallelBody, SubgraphBody
from atomic.graph.past import Past
from atomic.graph.program import ForkOp, Op, Program
from atomic.graph.reducers import is_same
from atomic.graph.replay import Replay, Tip, targets_of
from atomic.graph.run import Place, quote
from atomic.graph.state import StateSpec


def check_name(past: Past, name: str, renamed: Mapping[str, str]) -> None:
    """Refuse the run of another graph. Raises JournalError."""
    recorded = past.start.graph
    if not recorded or not name or recorded == name or renamed.get(recorded) == name:
        return
    raise JournalError(
        f'Run "{past.start.execution_id}" was recorded by graph "{recorded}", and this is "{name}". Use that graph; '
        f'if it was renamed, compile it with renamed={{"{recorded}": "{name}"}}'
    )


def check_reducers(past: Past, spec: StateSpec[Any]) -> None:
    """Refuse reducers that would fold the recorded steps to another state. Raises StateError."""
    field = changed_reducer(past.reducers, spec)
    if field is not None:
        raise StateError(
            field,
            f"{_difference(past.reducers[field], spec, field)}: the recorded steps would give another value. "
            "Put the old reducer back, or raise state_version and give migrate_state(old, from_version)",
        )


def changed_reducer(recorded: Mapping[str, str], spec: StateSpec[Any]) -> str | None:
    """The first field whose reducer is another one than when the run was recorded."""
    current = spec.reducer_identities()
    if recorded == current:
        return None
    names = (name for name in recorded if name in current)
    return next((name for name in names if not is_same(recorded[name], current[name])), None)


def check_subgraph_reducers(recorded: Mapping[str, str] | None, spec: StateSpec[Any]) -> None:
    """Refuse other reducers than those with which an open subgraph began. Raises StateError."""
    field = None if recorded is None else changed_reducer(recorded, spec)
    if recorded is not None and field is not None:
        raise StateError(
            field,
            f"{_difference(recorded[field], spec, field)}: the recorded steps of the open subgraph would give another "
            "value. Put the old reducer back until the subgraph has ended",
        )


def _difference(recorded: str, spec: StateSpec[Any], field: str) -> str:
    old, new = (name.partition("@")[0].removeprefix("custom:") for name in (recorded, spec.reducer_identities()[field]))
    return f"the code of its reducer {new} was changed" if old == new else f"its reducer was {old} and is {new} now"


def check_order(past: Past, place: Place, program: Program, replay: Replay | None = None) -> None:
    """Refuse an order in which finished nodes would run again, here and in what is open below.

    Raises JournalError, StateError.
    """
    replay = replay or Replay(past, place, program)
    for tip in replay.tips.values():
        if tip.op is not None:
            _check_tip(past, place, program, replay, tip, tip.op)
            if tip.opened is not None and isinstance(tip.op, ForkOp):
                _check_open(past, place, program, tip.op, tip.opened)


def _check_tip(past: Past, place: Place, program: Program, replay: Replay, tip: Tip, last: Op) -> None:
    """A node that was finished before the last one, and in this code comes only after it, would run again."""
    ways = _ways(past, place, program)
    before = _reached(last.pc, _turned(ways))
    after: set[int] = set()
    for start in _starts(program, tip, last):
        after |= {start} | _reached(start, ways)
    alone = len(replay.tips) == 1
    finished = _finished(past, place, program) if alone else _on_the_line(program, replay, tip)
    again = sorted(finished & after - before - {last.pc, program.catcher})
    if again:
        names = ", ".join(f"'{place.public_id(program.ops[pc].id)}'" for pc in again)
        verb, them = ("is", "it") if len(again) == 1 else ("are", "them")
        raise JournalError(
            f"{names} {verb} finished in this run and would run again, because the graph now has {them} after "
            f"'{place.public_id(last.id)}'. Put the nodes back in their old order, or give new ids to those that are "
            "to run again and list the old ids in compile(removed={…})"
        )


def _starts(program: Program, tip: Tip, last: Op) -> list[int]:
    """Where a line of visits goes on."""
    if tip.remaining is not None:
        return [pc for _, pc in tip.remaining if pc >= 0]
    if tip.goto is not None:
        return [program.by_id[id] for id in targets_of(program, tip.goto) if id != END]
    if last.pc == program.catcher:
        return []
    return [pc for pc in last.successors() if pc >= 0]


def _ways(past: Past, place: Place, program: Program) -> dict[int, set[int]]:
    """Which operations follow which: those of the graph, and the jumps that nodes have made by a goto."""
    ways = {op.pc: set(program.ways_from(op)) for op in program.ops}
    jumps = list(past.snapshot.jumps or ()) if past.snapshot is not None and not place.path else []
    for visit in past.visits(place.path):
        if isinstance(visit, (StepBody, JoinedBody)) and visit.goto is not None:
            source = visit.node_id if isinstance(visit, StepBody) else visit.fork.rpartition("#")[0]
            jumps += [(place.local_id(source), target) for target in visit.goto]
    for source, target in jumps:
        from_pc, to_pc = program.find(source), program.find(target)
        if from_pc is not None and to_pc is not None:
            ways[from_pc].add(to_pc)
    if program.catcher >= 0:
        for following in ways.values():
            following.add(program.catcher)
    return ways


def _turned(ways: dict[int, set[int]]) -> dict[int, set[int]]:
    turned: dict[int, set[int]] = {}
    for source, targets in ways.items():
        for target in targets:
            turned.setdefault(target, set()).add(source)
    return turned


def _reached(start: int, ways: Mapping[int, Iterable[int]]) -> set[int]:
    """All that comes after an operation; itself only if a way leads back to it."""
    found: set[int] = set()
    open_ends = [start]
    while open_ends:
        for pc in ways.get(open_ends.pop(), ()):
            if pc not in found:
                found.add(pc)
                open_ends.append(pc)
    return found


def _finished(past: Past, place: Place, program: Program) -> set[int]:
    """The nodes of a scope that have finished."""
    ids: list[str] = []
    if past.snapshot is not None and past.snapshot.jumps is not None and not place.path:
        ids += past.snapshot.counts
    for visit in past.visits(place.path):
        if isinstance(visit, StepBody):
            ids.append(place.local_id(visit.node_id))
        elif isinstance(visit, (OpenedBody, JoinedBody)):
            ids.append(place.local_id(visit.fork.rpartition("#")[0]))
    return {pc for id in ids if (pc := program.find(id)) is not None}


def _on_the_line(program: Program, replay: Replay, tip: Tip) -> set[int]:
    """The nodes that came before the end of one of several lines."""
    entries = [*replay.trunk, *tip.entries]
    return {pc for entry in entries if (pc := program.by_id.get(entry.key)) is not None}


def _check_open(past: Past, place: Place, program: Program, op: ForkOp, opened: OpenedBody) -> None:
    """The branches, items or the subgraph that were open."""
    path = f"{place.path}|{opened.fork}"
    node_id = place.public_id(op.id)
    if isinstance(op.body, SubgraphBody):
        graph = op.body.graph
        if not isinstance(graph, str):  # one by its name is found when the node runs, and checked then
            check_subgraph_reducers(opened.reducers, graph.program.spec)
            check_order(past, Place(path=f"{path}:", prefix=f"{node_id}/"), graph.program)
        return
    sign = ":" if isinstance(op.body, ParallelBody) else "@"
    for name in past.branches_of(f"{path}{sign}"):
        current = program.branch_name(op, name) if sign == ":" else ""
        if current is None:
            raise JournalError(
                f"Branch '{name}' of '{node_id}' has begun, and the graph no longer has it: what it has finished "
                f"would be lost or run again. Put it back until '{node_id}' is over, or, if it was renamed, compile "
                f'the graph with renamed={{"{op.id}:{name}": "{op.id}:its new name"}}'
            )
        inner = place.inner(f"{path}{sign}{quote(name)}")
        if sign == "@":
            inner.suffix, inner.qualified = f"{place.suffix}[{name}]", True
        check_order(past, inner, op.branches[current])
