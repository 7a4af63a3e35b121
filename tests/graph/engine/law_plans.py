"""Random descriptions of graphs, and the effect of each of their steps.

A step's update is a pure function of its input. A different state, a second execution or
another order of merges leads to a different final state.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, Literal, cast

import msgspec
from hypothesis import strategies as st

from atomic.graph import State
from atomic.graph.engine import reducers
from atomic.graph.engine.node import Strategy


class Card(msgspec.Struct, frozen=True):
    id: str
    value: int


def mix(current: int, update: int) -> int:
    """Combine two numbers so that the order and number of updates matter."""
    return (current * 31 + update) % 1_000_003


def add_counts(current: dict[str, int], update: dict[str, int]) -> dict[str, int]:
    return {key: current.get(key, 0) + update.get(key, 0) for key in {**current, **update}}


class LawState(State):
    total: Annotated[int, reducers.sum] = 0
    best: Annotated[int, reducers.max] = 0
    log: Annotated[list[str], reducers.concat] = []
    table: Annotated[dict[str, int], reducers.merge] = {}
    cards: Annotated[list[Card], reducers.merge_by_id("id")] = []
    notes: Annotated[list[dict[str, Any]], reducers.merge_by_id("id")] = []
    maybe: Annotated[str, reducers.if_defined] = ""
    visits: Annotated[dict[str, int], add_counts] = {}
    mixed: Annotated[int, mix] = 0
    note: str = ""


REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "total": lambda current, update: current + update,
    "best": max,
    "log": lambda current, update: current + update,
    "table": lambda current, update: {**current, **update},
    "cards": lambda current, update: merged_by_id(current, update),
    "notes": lambda current, update: merged_by_id(current, update),
    "maybe": lambda current, update: current if update is None else update,
    "visits": add_counts,
    "mixed": mix,
    "note": lambda current, update: update,
    "outputs": lambda current, update: {**current, **update},
}
FIELDS = ("total", "best", "log", "table", "cards", "notes", "maybe", "visits", "mixed")


def merged_by_id(current: list[Any], update: list[Any]) -> list[Any]:
    """Merge dicts and replace Structs in place; append new ones."""
    result = list(current)
    for item in update:
        ids = [_id_of(known) for known in result]
        if _id_of(item) not in ids:
            result.append(item)
            continue
        place = ids.index(_id_of(item))
        result[place] = {**result[place], **item} if isinstance(item, dict) else item
    return result


def _id_of(item: Any) -> str:
    return cast("dict[str, str]", item)["id"] if isinstance(item, dict) else item.id


# Parts of a graph


@dataclass(frozen=True)
class Work:
    """One step. `plain` is a node, `sync` and `async` are tools; `item` is a tool without args inside a map.

    `hangs` and `fails` are how a branch loses; all ids in such a branch contain an `l`.
    """

    id: str
    kind: Literal["plain", "sync", "async", "item", "hangs", "fails"]
    writes: tuple[str, ...]
    checkpoint: bool = False


@dataclass(frozen=True)
class Test:
    """A condition over the state."""

    modulus: int
    rest: int

    def __call__(self, state: Any) -> bool:
        return (state.total + state.best + len(state.log)) % self.modulus == self.rest

    __test__ = False


@dataclass(frozen=True)
class If:
    test: Test
    then: Plan
    else_if: tuple[tuple[Test, Plan], ...]
    else_: Plan


@dataclass(frozen=True)
class Loop:
    body: Plan
    until: Callable[[Any], bool]
    bound: int


@dataclass(frozen=True)
class Parallel:
    """Branches. With a strategy other than `all`, only the winner can succeed."""

    id: str
    branches: tuple[Plan, ...]
    merges: bool
    limit: int | None
    strategy: Strategy = "all"
    winner: int = 0


@dataclass(frozen=True)
class Map:
    id: str
    items: int
    body: Plan
    limit: int | None


@dataclass(frozen=True)
class Sub:
    """A subgraph over the same state; if `mapped`, mappers translate its input and output."""

    id: str
    body: Plan
    mapped: bool


Part = Work | If | Loop | Parallel | Map | Sub
Plan = tuple[Part, ...]


# Updates of steps


def canonical(value: Any) -> Any:
    """Return data without values that differ from run to run."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        items = cast("dict[str, Any]", plain).items()
        return {str(key): canonical(item) for key, item in items if key not in ("execution_id", "last_updated")}
    if isinstance(plain, (list, tuple)):
        return [canonical(item) for item in cast("list[Any]", plain)]
    return plain


def digest(*seen: Any) -> int:
    return zlib.crc32(json.dumps(canonical(seen), sort_keys=True).encode())


def values_of(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in state.__struct_fields__}


def update_of(work: Work, seen: int) -> dict[str, Any]:
    """Return the update of a step, which depends on the digest of its input."""
    letter = "abc"[seen % 3]
    written: dict[str, Any] = {
        "total": seen % 7,
        "best": seen % 100,
        "log": [f"{work.id}:{seen}"],
        "table": {letter: seen},
        "cards": [Card(letter, seen)],
        "notes": [{"id": letter, work.id: seen}],
        "maybe": None if seen % 2 else work.id,
        "visits": {work.id: 1},
        "mixed": seen % 1000,
        "note": f"{work.id}:{seen}",
    }
    return {name: written[name] for name in work.writes}


def items_of(part: Map, seen: int) -> list[Any]:
    """Return plain data or typed objects for a map."""
    if seen % 2:
        return [Card(f"item {place}", seen) for place in range(part.items)]
    return [{"place": place, "of": seen} for place in range(part.items)]


def branch_name(part: Parallel, place: int) -> str:
    """Return an unusual name for a branch: any text is allowed."""
    return f"{part.id}:{place} é/|@#%[0]"


def merge_of(branches: Mapping[str, int], before: int) -> dict[str, Any]:
    """Return the update of a merge function from the digests of the branches."""
    return {"total": digest(dict(branches), before) % 5, "log": [f"{name}={seen}" for name, seen in branches.items()]}


def input_of(seen: int) -> dict[str, Any]:
    return {"total": seen % 11, "log": [f"in:{seen}"]}


def output_of(child: int, parent: int) -> dict[str, Any]:
    return {"total": child % 13, "table": {"sub": digest(child, parent)}}


# Drawing


def _test(modulus: int, rest: int) -> Test:
    return Test(modulus, rest % modulus)


TESTS = st.builds(_test, st.integers(1, 3), st.integers(0, 2))
LIMITS = st.sampled_from([None, 0, 1, 2])


@dataclass(frozen=True)
class Where:
    """The parts that are allowed at one place of the graph."""

    depth: int
    replaces: bool = True  # whether a step may write the field without a reducer
    in_map: bool = False
    in_sub: bool = False
    size: int = 3
    loses: bool = False


class Drawing:
    """Draws one plan and numbers its ids."""

    def __init__(self, draw: st.DrawFn, *, contests: bool = False) -> None:
        self._draw = draw
        self._contests = contests
        self._numbers = count(1)

    def id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def plan(self, where: Where, *, least: int = 1) -> Plan:
        length = self._draw(st.integers(least, where.size))
        return tuple(self.part(where) for _ in range(length))

    def part(self, where: Where) -> Part:
        kinds = ["work", "work"] + (["if", "loop", "parallel", "map", "sub"] if where.depth else [])
        inner = Where(where.depth - 1, where.replaces, where.in_map, where.in_sub, 2)
        match self._draw(st.sampled_from(kinds)):
            case "if":
                else_if = ((self._draw(TESTS), self.plan(inner)),) if self._draw(st.booleans()) else ()
                return If(self._draw(TESTS), self.plan(inner), else_if, self.plan(inner, least=0))
            case "loop":
                return Loop(self.plan(inner), self._draw(TESTS), self._draw(st.integers(1, 3)))
            case "parallel":
                return self._contest(inner) if self._contests else self._parallel(inner)
            case "map":
                inside = Where(inner.depth, False, True, where.in_sub, 2)
                items = self._draw(st.integers(0, 3))
                return Map(self.id("m"), items, self.plan(inside), self._draw(LIMITS))
            case "sub":
                inside = Where(inner.depth, where.replaces, where.in_map, True, 2)
                return Sub(self.id("g"), self.plan(inside), self._draw(st.booleans()))
            case _:
                return self.work(where)

    def _parallel(self, inner: Where) -> Parallel:
        number = self._draw(st.integers(1, 3))
        writer = self._draw(st.integers(0, number - 1))
        branches = [
            self.plan(Where(inner.depth, inner.replaces and place == writer, inner.in_map, inner.in_sub, 2))
            for place in range(number)
        ]
        return Parallel(self.id("p"), tuple(branches), self._draw(st.booleans()), self._draw(LIMITS))

    def _contest(self, inner: Where) -> Parallel:
        """Draw a race or `any` that only one branch can win, however fast the others are."""
        number = self._draw(st.integers(1, 3))
        winner = self._draw(st.integers(0, number - 1))
        strategies: list[Strategy] = ["race", "any"]
        strategy = self._draw(st.sampled_from(strategies))
        branches = [self.plan(inner) if place == winner else self._losing(inner, strategy) for place in range(number)]
        return Parallel(self.id("p"), tuple(branches), self._draw(st.booleans()), 0, strategy, winner)

    def _losing(self, inner: Where, strategy: str) -> Plan:
        ends = ["hangs"] if strategy == "race" else ["hangs", "fails"]
        end = Work(self.id("l"), cast("Any", self._draw(st.sampled_from(ends))), ())
        works = [self.work(Where(0, in_sub=inner.in_sub, loses=True)) for _ in range(self._draw(st.integers(0, 2)))]
        return (*works, end)

    def work(self, where: Where) -> Work:
        fields = [*FIELDS, *(("note",) if where.replaces else ())]
        kinds = ["plain", "plain", "async", "sync", *(["item"] if where.in_map and not where.in_sub else [])]
        kind = self._draw(st.sampled_from(kinds))
        writes = self._draw(st.sets(st.sampled_from(fields), max_size=4))
        return Work(
            self.id("l" if where.loses else "n"),
            cast("Any", kind),
            tuple(sorted(writes)),
            self._draw(st.integers(0, 3)) == 0,
        )


@st.composite
def plans(draw: st.DrawFn, depth: int = 4, *, contests: bool = False) -> Plan:
    """Draw nested graphs; with `contests`, their parallels have a winner."""
    return Drawing(draw, contests=contests).plan(Where(depth))
