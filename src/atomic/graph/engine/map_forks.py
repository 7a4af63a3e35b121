"""The items of a map: one scope for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from atomic.graph.engine.attempts import FAILURES, error_raised_by
from atomic.graph.engine.author_functions import call
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.forks import Fork, conflict_error, conflict_in
from atomic.graph.engine.node import MapBody
from atomic.graph.engine.program import ForkOp
from atomic.graph.engine.run import Entry
from atomic.graph.engine.state import Overwrite
from atomic.graph.engine.token import Token


class MapFork(Fork):
    """One branch for each item, all with the same program."""

    sign = "@"
    decides_early = False

    def __init__(self, token: Token, op: ForkOp, body: MapBody) -> None:
        super().__init__(token, op, limit=op.limit)
        self.set_limit(body.max_concurrency)
        self.body = body
        self.program = op.branches[""]
        self.items = self._items()

    def _items(self) -> list[Any]:
        recorded = None if self.opened is None else self.opened.items
        if recorded is not None and self.opened is not None and self.opened.plain:
            return recorded
        try:
            items = list(call(self.body.over, self.token.state, item=self.scope.item))
            data: list[Any] = msgspec.to_builtins(items) if self.run.writer is not None else []
        except FAILURES as error:  # the author's function; anything it raises fails the node
            raise error_raised_by("over", self.node_id, error) from error
        if recorded is not None and data != recorded:
            reason = "over returned other items than before the run stopped; it must depend on the state only"
            raise NodeError(self.node_id, reason)
        self.note_opened(items=data, plain=is_plain(items))
        return items

    def names(self) -> Iterable[str]:
        return map(str, range(len(self.items)))

    def make(self, name: str) -> Token:
        index = int(name)
        suffix = f"{self.scope.suffix}[{name}]"
        return self.child(name, self.program, self.token.values, item=self.items[index], index=index, suffix=suffix)

    def entries(self, *, kept: bool = False) -> list[Entry]:
        done = [self.children[name].entries(kept=kept) if name in self.children else [] for name in self.names()]
        entries = map_entries(self.node_id, self.op.id, self.program.all_ids, done)
        return entries if kept else entries[:-1]

    def merge(self) -> None:
        names = list(self.names())
        trails = [self.children[name].trail or () for name in names]
        if (conflict := conflict_in(trails, self.token.spec)) is not None:
            raise conflict_error(self.node_id, conflict, self.token.spec)
        self.note_joined(names)
        self.merge_entries(map_entries(self.node_id, self.op.id, self.program.all_ids, trails))


def is_plain(value: Any) -> bool:
    """Return whether a value reads back from the journal unchanged."""
    if isinstance(value, list):
        return all(is_plain(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in cast("dict[Any, Any]", value).items())
    return value is None or type(value) in (str, int, float, bool)


def map_entries(node_id: str, key: str, inner: frozenset[str], trails: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Return the updates of the items of a map, in item order.

    The last entry holds the list of outputs of the nodes inside, under `key`.
    """
    entries: list[Entry] = []
    outputs: list[Any] = []
    for trail in trails:
        output = None
        for entry in trail:
            kept = entry.update.get("outputs")
            if not kept:
                entries.append(entry)
                continue
            if isinstance(kept, Overwrite):
                output = kept.value.get(entry.key, output)
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
