"""The plain interpreter: runs a plan in sequence without engine, tasks or journal."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from tests.graph.engine.law_plans import (
    REDUCERS,
    If,
    LawState,
    Loop,
    Map,
    Parallel,
    Part,
    Plan,
    Sub,
    Work,
    branch_name,
    digest,
    input_of,
    items_of,
    merge_of,
    output_of,
    update_of,
    values_of,
)

Values = dict[str, Any]


class Ran(NamedTuple):
    """One expected step: its scope, its public id, and the state there afterwards."""

    scope: str
    node_id: str
    base_id: str
    state_after: int


class Entry(NamedTuple):
    key: str
    update: Values


class TooLongError(Exception):
    """The drawn graph takes too many steps for a test."""


class Scope(NamedTuple):
    name: str = ""
    prefix: str = ""
    suffix: str = ""
    item: Any = None


def first_values() -> Values:
    return values_of(LawState())


class Reference:
    """Runs a plan and records each execution and what it saw."""

    def __init__(self, plan: Plan, *, most: int = 150) -> None:
        self.ran: list[Ran] = []
        self.seen: list[tuple[str, int]] = []  # ids of nodes, and what they saw
        self._most = most
        self.values = first_values()
        self.plan(plan, self.values, Scope())

    def plan(self, plan: Plan, values: Values, scope: Scope) -> list[Entry]:
        return [entry for part in plan for entry in self.part(part, values, scope)]

    def part(self, part: Part, values: Values, scope: Scope) -> list[Entry]:
        """Run a part on these values, change them, and return its updates."""
        match part:
            case Work():
                return self.work(part, values, scope)
            case If():
                state = LawState(**values)
                ways = [(part.test, part.then), *part.else_if]
                return self.plan(next((way for test, way in ways if test(state)), part.else_), values, scope)
            case Loop():
                entries: list[Entry] = []
                for _ in range(part.bound):
                    entries += self.plan(part.body, values, scope)
                    if part.until(LawState(**values)):
                        break
                return entries
            case Parallel():
                return self.parallel(part, values, scope)
            case Map():
                return self.map(part, values, scope)
            case Sub():
                return self.sub(part, values, scope)

    def work(self, work: Work, values: Values, scope: Scope) -> list[Entry]:
        seen = digest(scope.item) if work.kind == "item" else digest(values)
        self.seen.append((work.id, seen))
        update = update_of(work, seen)
        if work.kind != "plain" and not work.writes:
            update = {"outputs": {work.id: {"saw": seen}}}
        self._finish(work.id, Entry(work.id, update), values, scope)
        return [Entry(work.id, update)]

    def parallel(self, part: Parallel, values: Values, scope: Scope) -> list[Entry]:
        ends: dict[str, Values] = {}
        entries: list[Entry] = []
        for place, branch in enumerate(part.branches):
            if part.strategy != "all" and place != part.winner:
                continue
            name = branch_name(part, place)
            ends[name] = dict(values)
            entries += self.plan(branch, ends[name], scope._replace(name=f"{scope.name}|{name}"))
        if part.merges:
            states = {name: digest(end) for name, end in ends.items()}
            entries = [Entry(part.id, merge_of(states, digest(values)))]
        _apply(values, entries)
        return entries

    def map(self, part: Map, values: Values, scope: Scope) -> list[Entry]:
        entries: list[Entry] = []
        outputs: list[Any] = []
        inner = _ids_in(part.body)
        for place, item in enumerate(items_of(part, digest(values))):
            suffix = f"{scope.suffix}[{place}]"
            inside = Scope(f"{scope.name}|{part.id}[{place}]", scope.prefix, suffix, item)
            made = self.plan(part.body, dict(values), inside)
            own = [e.update["outputs"][e.key] for e in made if e.key in e.update.get("outputs", {})]
            outputs.append(own[-1] if own else None)
            entries += [_without_outputs(entry, inner) for entry in made]
        entries.append(Entry(part.id, {"outputs": {part.id: outputs}}))
        _apply(values, entries)
        return entries

    def sub(self, part: Sub, values: Values, scope: Scope) -> list[Entry]:
        public = f"{scope.prefix}{part.id}{scope.suffix}"
        child = first_values()
        child.update(input_of(digest(values)) if part.mapped else {k: v for k, v in values.items() if k != "outputs"})
        entries = self.plan(part.body, child, Scope(f"{scope.name}|{part.id}/", f"{public}/", "", scope.item))
        if part.mapped:
            update = output_of(digest(child), digest(values))
        else:
            update = {"outputs": {part.id: dict(child)}}
            _apply(values, [Entry("", _without_all_outputs(entry)) for entry in entries])
        self._finish(part.id, Entry(part.id, update), values, scope)
        back = [] if part.mapped else [Entry(e.key, _without_all_outputs(e)) for e in entries]
        return [*back, Entry(part.id, update)]

    def _finish(self, base_id: str, entry: Entry, values: Values, scope: Scope) -> None:
        _apply(values, [entry])
        self.ran.append(Ran(scope.name, f"{scope.prefix}{base_id}{scope.suffix}", base_id, digest(values)))
        if len(self.ran) > self._most:
            raise TooLongError


def _apply(values: Values, entries: list[Entry]) -> None:
    for entry in entries:
        for name, value in entry.update.items():
            values[name] = REDUCERS[name](values[name], value)


def _without_all_outputs(entry: Entry) -> Values:
    return {name: value for name, value in entry.update.items() if name != "outputs"}


def _without_outputs(entry: Entry, ids: set[str]) -> Entry:
    """Return an item's update without the outputs of its nodes, which the map lists."""
    outputs = cast("Values", entry.update.get("outputs", {}))
    kept = {key: value for key, value in outputs.items() if key not in ids}
    return Entry(entry.key, _without_all_outputs(entry) | ({"outputs": kept} if kept else {}))


def _ids_in(plan: Plan) -> set[str]:
    """Return the nodes of an item at any depth; a subgraph counts as one node."""
    ids: set[str] = set()
    for part in plan:
        match part:
            case Work() | Sub():
                ids.add(part.id)
            case If():
                for way in (part.then, part.else_, *(way for _, way in part.else_if)):
                    ids |= _ids_in(way)
            case Loop():
                ids |= _ids_in(part.body)
            case Parallel():
                for branch in part.branches:
                    ids |= _ids_in(branch)
            case Map():
                ids |= {part.id} | _ids_in(part.body)
    return ids
