"""One scope for each item of a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from atomic.graph.errors import NodeError
from atomic.graph.failures import FAILURES
from atomic.graph.forks import Fork, conflict_error, conflict_in
from atomic.graph.node import MapBody
from atomic.graph.program import ForkOp
from atomic.graph.run import Entry
from atomic.graph.state import describe_error
from atomic.graph.token import Token


class MapFork(Fork):
    """One branch for each item, all with the same program."""

    sign = "@"

    def __init__(self, token: Token, op: ForkOp, body: MapBody) -> None:
        super().__init__(token, op, limit=op.limit)
        self.body = body
        self.program = op.branches[""]
        self._inside.qualified, self._inside.counted = True, False
        self.items = self._items()

    def _items(self) -> list[Any]:
        recorded = None if self.opened is None else self.opened.items
        if recorded is not None and self.opened is not None and self.opened.plain:
            return recorded
        try:
            items = list(self.body.over(self.token.state))
            data: list[Any] = msgspec.to_builtins(items) if self.run.pen is not None else []
        except FAILURES as error:  # an author's function: whatever it raises is this node's failure
            raise NodeError(self.node_id, f"over raised {describe_error(error)}", kind=type(error).__name__) from error
        if recorded is not None and data != recorded:
            reason = "over gives other items than before the run was cut; it must depend on the state only"
            raise NodeError(self.node_id, reason)
        self.note_opened(items=data, plain=is_plain(items))
        return items

    def count(self) -> int:
        return len(self.items)

    def names(self) -> Iterator[str]:
        return map(str, range(len(self.items)))

    def make(self, name: str) -> Token:
        index, outer = int(name), self.token
        suffix, item = f"{self.place.suffix}[{name}]", self.items[index]
        if self._recorded:
            return self.child(name, self.program, dict(outer.values), item=item, index=index, suffix=suffix)
        place = self._inside.inner("|")
        place.item, place.index, place.suffix = item, index, suffix
        token = Token(self.run, place, self.program, outer.values, pc=self.program.entry, trail=[])
        token.updated, token.errors, token.borrowed = outer.updated, outer.errors, True
        self.children[name] = token
        return token

    def done_so_far(self) -> list[Entry]:
        done = [self.children[name].done_so_far() for name in self.names() if name in self.children]
        return map_entries(self.node_id, self.op.id, self.program.all_ids, done)[:-1]

    def kept(self) -> list[Entry]:
        done = [self.children[name].all_done() if name in self.children else [] for name in self.names()]
        return map_entries(self.node_id, self.op.id, self.program.all_ids, done)

    def merge(self) -> None:
        names = [str(index) for index in range(len(self.items))]
        trails = [self.children[name].trail or () for name in names]
        if (conflict := conflict_in(trails, self.token.spec.replaced)) is not None:
            raise conflict_error(self.node_id, conflict)
        self.note_joined(names)
        self.merge_entries(map_entries(self.node_id, self.op.id, self.program.all_ids, trails))


def is_plain(value: Any) -> bool:
    """Whether a value reads back from the journal as it is."""
    if isinstance(value, list):
        return all(is_plain(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in cast("dict[Any, Any]", value).items())
    return value is None or type(value) in (str, int, float, bool)


def map_entries(node_id: str, key: str, inner: frozenset[str], trails: Sequence[Sequence[Entry]]) -> list[Entry]:
    """What the items of a map did, in item order, and under `key` the list of outputs of the nodes inside."""
    entries: list[Entry] = []
    outputs: list[Any] = []
    for trail in trails:
        output = None
        for entry in trail:
            kept = entry.update.get("outputs")
            if not kept:
                entries.append(entry)
                continue
            output = kept.get(entry.key, output)
            others = {id: value for id, value in kept.items() if id not in inner}
            update = {name: value for name, value in entry.update.items() if name != "outputs"}
            if others:
                update["outputs"] = others
            if update:
                entries.append(Entry(entry.node_id, entry.key, update))
        outputs.append(output)
    entries.append(Entry(node_id, key, {"outputs": {key: outputs}}))
    return entries
