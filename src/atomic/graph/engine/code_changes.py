"""Changes of the code since a run was recorded: refused, renamed or migrated.

* `Edits`: the author declares new names (`renamed`) and gone nodes (`removed`). This is
  checked when the graph is compiled and used when a run resumes.
* `check_…`: a resume refuses, before anything is written, another graph, a changed
  reducer, and a finished node that would run again. If the graph has not changed since
  the run began (`Program.shape`), only the reducers are compared.
* `migrated_row`: a newer `state_version` migrates the recorded state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import did_you_mean
from atomic.base.step_names import split_first
from atomic.graph.engine.control import END
from atomic.graph.engine.errors import JournalError, StateError
from atomic.graph.engine.history import RunHistory, SnapshotBody, jumps_of
from atomic.graph.engine.journal import JoinedBody, MigratedBody, OpenedBody, Row, RowKind, StepBody, encode_row
from atomic.graph.engine.node import ParallelBody, SubgraphBody
from atomic.graph.engine.program import ForkOp, Op, Program, everything_after
from atomic.graph.engine.reducers import ReducerFunction, find_reducer, identity_of, is_same
from atomic.graph.engine.replay import Replay, Tip, first_values, targets_of
from atomic.graph.engine.run import Entry, Scope, quote
from atomic.graph.engine.state import Overwrite, StateSpec, Values, describe_error

if TYPE_CHECKING:
    from atomic.graph.engine.builder import GraphOptions, MigrateState

Report = Callable[[str, str], None]


class Edits(msgspec.Struct, frozen=True):
    """Old names with their new ones, and the names of removed nodes."""

    renamed: Mapping[str, str] = {}
    removed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, options: GraphOptions, report: Report) -> Edits:
        """Read the options. Report values of a wrong type and ignore them."""
        renamed = cast("Any", options.renamed)
        removed = cast("Any", options.removed)
        if not isinstance(renamed, Mapping) or not _are_texts([*renamed, *cast("Any", renamed).values()]):
            report("", f'renamed is {renamed!r:.60}; give a mapping from old to new ids: renamed={{"old": "new"}}')
            renamed = {}
        if isinstance(removed, str) or not isinstance(removed, Collection) or not _are_texts(removed):
            report("", f'removed is {removed!r:.60}; give a set of ids: removed={{"x"}}')
            removed = ()
        return cls(dict(cast("Mapping[str, str]", renamed)), frozenset(cast("Collection[str]", removed)))

    def check(self, program: Program, ids: Collection[str], name: str, report: Report) -> None:
        """Report old names that are still in use and new names that do not exist."""
        if not self.renamed and not self.removed:
            return
        known = {*ids, *_branches(program)}
        for old, new in self.renamed.items():
            if new == name:
                continue  # the graph itself
            if old in known:
                report("", f"renamed: '{old}' is still in the graph; only an id that it no longer has can be renamed")
            elif new not in known:
                hint = did_you_mean(new, known)
                report("", f"renamed: '{old}' became '{new}', which the graph does not have{hint}")
        for old in sorted(self.removed):
            if old in known:
                report("", f"removed: '{old}' is still in the graph; give the new node another id")
            if old in self.renamed:
                report("", f"'{old}' is in renamed and in removed; give one of them")

    def apply(self, program: Program, ids: frozenset[str]) -> None:
        """Make a graph and its scopes find records under old names."""
        program.graph_ids = ids
        program.renamed = self.renamed
        program.removed = self.removed
        for op in program.ops:
            if isinstance(op, ForkOp):
                for branch in op.branches.values():
                    self.apply(branch, ids)


def current_names(program: Program) -> Callable[[str], str] | None:
    """Return a function from a recorded public id to the node's current id.

    Return None if nothing was renamed.
    """
    children = dict(_subgraphs(program))
    inner = {id: names for id, child in children.items() if (names := current_names(child)) is not None}
    if not program.renamed and not inner:
        return None

    def current(recorded: str) -> str:
        id, items, rest = split_first(recorded)
        if id not in program.graph_ids:
            id = program.renamed.get(id, id)
        if not rest:
            return f"{id}{items}"
        if id in inner:
            rest = inner[id](rest)
        return f"{id}{items}/{rest}"

    return current


def _subgraphs(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield the graphs that nodes of this one run, except those given by name."""
    for op in program.ops:
        if isinstance(op, ForkOp):
            if isinstance(op.body, SubgraphBody) and not isinstance(op.body.graph, str):
                yield op.id, op.body.graph.program
            for branch in op.branches.values():
                yield from _subgraphs(branch)


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _branches(program: Program) -> set[str]:
    """Return the branches of all parallels below, as `fork:branch`."""
    found: set[str] = set()
    for op in program.ops:
        if isinstance(op, ForkOp):
            found.update(f"{op.id}:{name}" for name in op.branches if name)
            for branch in op.branches.values():
                found |= _branches(branch)
    return found


def check_name(history: RunHistory, name: str, renamed: Mapping[str, str]) -> None:
    """Raise JournalError if the run belongs to another graph."""
    recorded = history.start.graph
    if not recorded or not name or recorded == name or renamed.get(recorded) == name:
        return
    raise JournalError(
        f'Run "{history.start.execution_id}" was recorded by graph "{recorded}", and this is "{name}". Use that graph; '
        f'if it was renamed, compile it with renamed={{"{recorded}": "{name}"}}'
    )


def check_reducers(recorded: Mapping[str, str], spec: StateSpec[Any], *, in_subgraph: bool = False) -> None:
    """Raise StateError if a reducer would fold the recorded steps to another value."""
    current = spec.reducer_identities()
    changed = (name for name in recorded if name in current and not is_same(recorded[name], current[name]))
    field = None if recorded == current else next(changed, None)
    if field is None:
        return
    old, new = (name.partition("@")[0].removeprefix("custom:") for name in (recorded[field], current[field]))
    what = f"the code of its reducer {new} was changed" if old == new else f"its reducer was {old} and is {new} now"
    where = " of the open subgraph" if in_subgraph else ""
    until = " until the subgraph has ended"
    if not in_subgraph:
        until = ", or raise state_version and give migrate_state(old, from_version)"
    reason = f"{what}: the recorded steps{where} would give another value. Put the old reducer back{until}"
    raise StateError(field, reason)


def check_order(history: RunHistory, scope: Scope, program: Program, replay: Replay | None = None) -> None:
    """Raise JournalError if finished nodes would run again, here or in an open scope
    below.

    Also raises StateError for changed reducers of open subgraphs.
    """
    replay = replay or Replay(history, scope, program)
    for tip in replay.tips.values():
        if tip.op is not None:
            _check_tip(history, scope, program, replay, tip, tip.op)
            if tip.opened is not None and isinstance(tip.op, ForkOp):
                _check_open(history, scope, program, tip.op, tip.opened)


def _check_tip(history: RunHistory, scope: Scope, program: Program, replay: Replay, tip: Tip, last: Op) -> None:
    """Raise JournalError if a finished node now comes only after the last one."""
    ways = _ways(history, scope, program)
    sources: dict[int, set[int]] = {}
    for source, targets in ways.items():
        for target in targets:
            sources.setdefault(target, set()).add(source)
    before = everything_after([last.pc], lambda pc: sources.get(pc, ()))
    starts = _starts(program, tip, last)
    after = {*starts, *everything_after(starts, lambda pc: ways.get(pc, ()))}
    if len(replay.tips) == 1:
        finished = _finished(history, scope, program)
    else:  # only the nodes before the end of this line
        entries = [*replay.trunk, *tip.entries]
        finished = {pc for entry in entries if (pc := program.by_id.get(entry.key)) is not None}
    again = sorted(finished & after - before - {last.pc, program.catcher})
    if again:
        names = ", ".join(f"'{scope.public_id(program.ops[pc].id)}'" for pc in again)
        verb, them = ("is", "it") if len(again) == 1 else ("are", "them")
        raise JournalError(
            f"{names} {verb} finished in this run and would run again, because the graph now has {them} after "
            f"'{scope.public_id(last.id)}'. Put the nodes back in their old order, or give new ids to those that are "
            "to run again and list the old ids in compile(removed={…})"
        )


def _starts(program: Program, tip: Tip, last: Op) -> list[int]:
    """Return where a line of visits continues."""
    if tip.remaining is not None:
        return [pc for _, pc in tip.remaining if pc >= 0]
    if tip.goto is not None:
        return [program.by_id[id] for id in targets_of(program, tip.goto) if id != END]
    if last.pc == program.catcher:
        return []
    return [pc for pc in last.successors() if pc >= 0]


def _ways(history: RunHistory, scope: Scope, program: Program) -> dict[int, set[int]]:
    """Return which operations follow which: in the graph, and by recorded jumps."""
    ways = {op.pc: set(program.ways_from(op)) for op in program.ops}
    jumps = list(history.snapshot.jumps or ()) if history.snapshot is not None and not scope.path else []
    for visit in history.visits(scope.path):
        if isinstance(visit, (StepBody, JoinedBody)) and visit.goto is not None:
            source = visit.node_id if isinstance(visit, StepBody) else visit.fork.rpartition("#")[0]
            jumps += [(scope.local_id(source), target) for target in visit.goto]
    for source, target in jumps:
        from_pc = program.find(source)
        to_pc = program.find(target)
        if from_pc is not None and to_pc is not None:
            ways[from_pc].add(to_pc)
    if program.catcher >= 0:
        for following in ways.values():
            following.add(program.catcher)
    return ways


def _finished(history: RunHistory, scope: Scope, program: Program) -> set[int]:
    """Return the finished nodes of a scope."""
    ids: list[str] = []
    if not scope.path:
        ids += history.finished_before()
    for visit in history.recent_visits(scope.path):
        if isinstance(visit, StepBody):
            ids.append(scope.local_id(visit.node_id))
        elif isinstance(visit, (OpenedBody, JoinedBody)):
            ids.append(scope.local_id(visit.fork.rpartition("#")[0]))
    return {pc for id in ids if (pc := program.find(id)) is not None}


def _check_open(history: RunHistory, scope: Scope, program: Program, op: ForkOp, opened: OpenedBody) -> None:
    """Check the open branches, items or subgraph of a fork."""
    path = f"{scope.path}|{opened.fork}"
    node_id = scope.public_id(op.id)
    if isinstance(op.body, SubgraphBody):
        graph = op.body.graph
        if not isinstance(graph, str):  # a subgraph given by name is resolved and checked when the node runs
            check_reducers(opened.reducers or {}, graph.program.spec, in_subgraph=True)
            check_order(history, Scope(path=f"{path}:", prefix=f"{node_id}/"), graph.program)
        return
    sign = ":" if isinstance(op.body, ParallelBody) else "@"
    for name in history.branches_of(f"{path}{sign}"):
        current = program.branch_name(op, name) if sign == ":" else ""
        if current is None:
            raise JournalError(
                f"Branch '{name}' of '{node_id}' has begun, and the graph no longer has it: what it has finished "
                f"would be lost or run again. Put it back until '{node_id}' is over, or, if it was renamed, compile "
                f'the graph with renamed={{"{op.id}:{name}": "{op.id}:its new name"}}'
            )
        inner = scope.inner(f"{path}{sign}{quote(name)}")
        if sign == "@":
            inner.suffix = f"{scope.suffix}[{name}]"
            inner.qualified = True
        check_order(history, inner, op.branches[current])


def migrated_row(
    history: RunHistory, scope: Scope, program: Program, migrate_state: MigrateState | None, version: int
) -> Row:
    """Fold the old data with the recorded reducers and migrate it with the author's
    function.

    Raise StateError if that is not possible.
    """
    old_version = history.state_version
    if old_version > version:
        reason = f"the run was recorded with state version {old_version}, this code has {version}; use newer code"
        raise StateError("state_version", reason)
    if migrate_state is None:
        reason = f"the run has version {old_version}, the code {version}; give migrate_state(old, from_version)"
        raise StateError("state_version", reason)
    history.raw = True
    try:
        replay = Replay(history, scope, program)
    finally:
        history.raw = False
    tips = list(replay.tips.values())
    if len(tips) != 1 or tips[0].remaining is not None or tips[0].opened is not None:
        reason = (
            f"branches of the run are open; resume it with the code of version {old_version} until they have joined"
        )
        raise StateError("state_version", reason)
    old = _fold_plain(history, replay.trunk, program)
    spec = program.spec
    values = spec.start(_migrated(migrate_state, old, old_version, version), history.start.execution_id)
    tip = tips[0]
    snapshot = SnapshotBody(
        values, history.updated, history.counts, history.steps, history.counted, [], tip.op.id if tip.op else "",
        tip.goto, tip.loops, tip.key, sorted(jumps_of(history)), history.received, history.earlier,
    )  # fmt: skip
    body = MigratedBody(time.time(), version, spec.reducer_identities(), msgspec.msgpack.encode(snapshot))
    return encode_row(RowKind.MIGRATED, body)


def _migrated(migrate_state: MigrateState, old: Values, old_version: int, version: int) -> Values:
    try:
        new: Any = migrate_state(old, old_version)
    except Exception as error:  # the author's function; anything it raises refuses the migration
        reason = f"migrate_state from version {old_version} to {version} raised {describe_error(error)}"
        raise StateError("state_version", reason) from error
    if not isinstance(new, dict):
        raise StateError("state_version", f"migrate_state returned {new!r:.60}; it returns a dict")
    return cast("Values", new)


def _fold_plain(history: RunHistory, entries: Sequence[Entry], program: Program) -> Values:
    values = first_values(history, program)
    names = history.reducers
    spec = program.spec
    # A run that stopped recorded the values of the fields that only the author's
    # reducers can fold.
    known = (history.ended.folded if history.ended is not None else None) or {}
    for entry in entries:
        for name, update in entry.update.items():
            reducer = find_reducer(names.get(name, "replace"))
            if isinstance(update, Overwrite):
                values[name] = update.value
            elif reducer is not None:
                values[name] = reducer(values[name], update)
            elif name not in known:
                values[name] = _own_reducer(names[name], spec, name)(values[name], update)
    return {**values, **known}


def _own_reducer(recorded: str, spec: StateSpec[Any], name: str) -> ReducerFunction:
    """Return an author's reducer that has not changed since the run.

    Raise StateError.
    """
    field = spec.fields.get(name)
    if field is not None and is_same(recorded, identity_of(field.reducer)):
        return field.reducer
    old = recorded.partition("@")[0].removeprefix("custom:")
    reason = (
        f"its reducer {old} was changed or removed, and the run was killed before it recorded a value. "
        "Resume it once with the old code until it pauses or fails, then with this code"
    )
    raise StateError(name, reason)
