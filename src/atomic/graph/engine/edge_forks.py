"""Branches that edges make, and the nodes where they meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from atomic.graph.engine.attempts import as_node_error
from atomic.graph.engine.control import Suspend
from atomic.graph.engine.edges_taken import take_way
from atomic.graph.engine.errors import NodeError, StateError
from atomic.graph.engine.forks import NodeConflict, OpenBranches, conflict_error
from atomic.graph.engine.journal import UNSAID
from atomic.graph.engine.program import Op
from atomic.graph.engine.run import Entry, Step
from atomic.graph.engine.state import StateSpec
from atomic.graph.engine.token import Token


class Group(OpenBranches):
    """The branches that edges made from one token, until they are one again.

    Each branch keeps its entries since the fork. Where several meet, their entries are
    merged in the order of the branches, each once, and folded again. So a node after
    nested diamonds sees no update twice.
    """

    counts_each = True  # each arrival may be the last one that others wait for

    def __init__(self, parent: Token, targets: Sequence[int], source: Op | None = None) -> None:
        super().__init__(parent.run.writer)
        self.parent = parent
        self.program = parent.program
        self.base = dict(parent.values)
        self._steps_before = parent.run.steps
        self.meets = self._meets(targets)
        self.live: dict[Token, None] = {}  # an ordered set
        self._awaited: dict[tuple[int, int], Token] = {}
        self.waiting: list[Token] = []
        self.stopped: list[Token] = []  # suspended
        self.over: list[Token] = []  # at the end of the graph
        self.error: NodeError | None = None
        self.regions = 0  # operations that any branch may reach, as bits
        limit = parent.program.limit
        self._slots = asyncio.Semaphore(limit) if limit else None
        self._queued = 0  # members that wait for a slot
        self._fresh = [] if source is None else self._branches(parent, targets, source)

    def _meets(self, targets: Sequence[int]) -> frozenset[int]:
        """Return where branches may meet, from the graph and from these targets."""
        reach = [self.program.reaches_around[pc] | 1 << pc for pc in targets if pc >= 0]
        several: set[int] = set()
        for pc in range(len(self.program.ops)):
            if sum(bits >> pc & 1 for bits in reach) > 1:
                several.add(pc)
        return self.program.meets | several

    def _branches(self, parent: Token, targets: Sequence[int], source: Op) -> list[Token]:
        """Return one branch for each target.

        Raise NodeError if a cycle is over its limit.
        """
        branches = [self._branch(parent, order) for order in range(len(targets))]
        for token, pc in zip(branches, targets, strict=True):
            take_way(token, source, pc)
            token.ways = (token.order[-1] + 1,)
            self._enter_region(token)
        return branches

    def _enter_region(self, token: Token) -> None:
        token.region = 0 if token.pc < 0 else self.program.reaches_around[token.pc] | 1 << token.pc
        self.regions |= token.region

    def _branch(self, parent: Token, order: int) -> Token:
        trail = [] if parent is self.parent else list(parent.trail or ())
        token = Token(parent.run, parent.scope, parent.program, dict(parent.values), pc=parent.pc, trail=trail)
        token.counters = list(parent.counters)
        token.updated = parent.updated
        token.order = (*parent.order, order)
        token.last = parent.last
        token.group = self
        token.after = parent.after
        token.resumed = parent.resumed
        return token

    def adopt(self, tokens: Sequence[Token]) -> None:
        """Continue with branches that a journal has as open."""
        self._fresh = list(tokens)
        for token in tokens:
            self._enter_region(token)
        self.meets |= self._meets([token.pc for token in tokens])

    def begin(self) -> None:
        fresh, self._fresh = self._fresh, []
        for token in fresh:
            self._start(token)

    def _start(self, token: Token) -> None:
        if token.pc < 0:
            self.over.append(token)
            return
        self.live[token] = None
        self.spawn(self._walk(token), self.program.ops[token.pc].id)

    @property
    def at_work(self) -> int:
        return self._working - self._queued

    def members(self) -> Iterable[Token]:
        return self.live

    async def _walk(self, token: Token) -> None:
        with self:
            try:
                async with nullcontext() if self._slots is None else self._slot(self._slots):
                    await self._walk_one(token)
            except asyncio.CancelledError as error:
                await token.cancel()
                if self.ending:
                    raise
                self.error = self.error or token.cancellation_error(error)
                self.decide()

    @asynccontextmanager
    async def _slot(self, slots: asyncio.Semaphore) -> AsyncGenerator[None]:
        """Wait for a slot: the graph limits how many members run at once."""
        self._queued += 1
        try:
            await slots.acquire()
        finally:
            self._queued -= 1
        try:
            yield
        finally:
            slots.release()

    async def _walk_one(self, token: Token) -> None:
        try:
            while (step := await token.advance()) is not None:
                self.put(step)
        except NodeError as error:
            self.error = self.error or error
            self.decide()
        if token in self.live:  # else it was split
            del self.live[token]
            if token.suspended:
                self.stopped.append(token)
            elif token.pc < 0:
                self.over.append(token)
            else:
                self.waiting.append(token)

    def holds(self, token: Token) -> bool:
        """Return whether a token must wait because another may still arrive at its next
        node.
        """
        return token.pc in self.meets and token.cleared != token.pc

    def is_elsewhere(self, token: Token, pc: int) -> bool:
        """Return whether only other branches can reach an operation."""
        return bool(self.regions & ~token.region & 1 << pc)

    def split(self, token: Token, targets: Sequence[int], source: Op) -> None:
        """Replace a branch by several."""
        branches = self._branches(token, targets, source)
        del self.live[token]
        self.meets |= self._meets(targets)
        for branch in branches:
            self._start(branch)
        token.pc = -1

    def _settled(self) -> None:
        """Start the tokens for which no other token can arrive."""
        while self.error is None and (met := self._next_meeting()):
            gone = set(met)
            self.waiting = [token for token in self.waiting if token not in gone]
            if not (self.live or self.waiting or self.stopped or self.over):
                self.waiting = met  # all tokens are here: they become one, and the group is over
                return
            try:
                merged = self._united(met)
            except NodeError as error:
                self.error = error
                return
            self._start(merged)

    def _next_meeting(self) -> list[Token]:
        """Return tokens at one node, in one round of its cycles, that wait for no
        other.

        A token that came forward waits for tokens of the same round that are still on
        their way. A token that came over a back edge waits for all of the previous
        round that may still come, over any edge: they start the next round together.
        """
        # One token for each node and round; first the tokens that came forward.
        kinds = {(t.came_back >= 0, t.pc, self._round_of(t, t.pc)): t for t in reversed(self.waiting)}
        for token in (kinds[kind] for kind in sorted(kinds)):
            if not self._may_arrive(token):
                return [other for other in self.waiting if self._belong_together(token, other)]
        if self.waiting and not self.live and not self.stopped:  # each waits for another: let the first one continue
            first = min(self.waiting, key=lambda token: token.order)
            return [other for other in self.waiting if self._belong_together(first, other)]
        return []

    def _belong_together(self, token: Token, other: Token) -> bool:
        return token.pc == other.pc and self._round_of(token, token.pc) == self._round_of(other, token.pc)

    def _round_of(self, token: Token, pc: int) -> tuple[int, ...]:
        return tuple(token.counters[slot] for slot in self.program.cycles_around[pc])

    def _may_arrive(self, token: Token) -> bool:
        """Return whether another token is on its way to where this one waits."""
        known = self._awaited.get((token.pc, token.came_back))
        if known is not None and known in self.live and self._is_on_the_way(known, token):
            return True  # most arrivals change nothing: the awaited token is not here yet
        for other in (*self.live, *self.stopped, *(other for other in self.waiting if other.pc != token.pc)):
            if self._is_on_the_way(other, token):
                self._awaited[token.pc, token.came_back] = other
                return True
        return False

    def _is_on_the_way(self, other: Token, token: Token) -> bool:
        pc = token.pc
        if other is token or other.pc < 0:
            return False
        program = self.program
        back = token.came_back
        ahead = {slot: token.counters[slot] - other.counters[slot] for slot in program.cycles_around[pc]}
        if not any(ahead.values()):
            return other.pc == pc or bool(program.reaches_in_round(pc)[other.pc] >> pc & 1)
        if back < 0 or ahead.pop(back, 0) <= 0 or any(ahead.values()):
            return False
        return bool(program.reaches_in_round(pc, but=back)[other.pc] >> pc & 1)

    def _united(self, met: Sequence[Token]) -> Token:
        met = sorted(met, key=lambda token: token.order)
        first = met[0]
        if len(met) > 1:
            trail = self._entries(first.scope.public_id(self.program.ops[first.pc].id) if first.pc >= 0 else "", met)
            values = dict(self.base)
            for entry in trail:
                first.spec.apply(values, entry.update)
            merged = Token(first.run, first.scope, first.program, values, pc=first.pc, trail=trail)
            merged.order = first.order
            merged.group = self
            merged.last = first.last
            _come_from(merged, met)
            merged.resumed = first.resumed
            merged.came_back = first.came_back
            for token in met:
                merged.region |= token.region
            first = merged
        first.cleared = first.pc
        return first

    def _entries(self, node_id: str, met: Sequence[Token]) -> list[Entry]:
        trails = [token.trail or () for token in met]
        if (conflict := conflict_on_lines(trails, self.parent.spec)) is not None:
            raise conflict_error(node_id or self.parent.scope.public_id("end"), conflict, self.parent.spec)
        return united_entries(trails)

    def suspended(self) -> list[Suspend]:
        return [] if self.error else [suspend for token in self.stopped for suspend in token.suspended]

    def close_questions(self) -> None:
        self.parent.run.close_suspended(self.stopped)

    async def join(self) -> Step[Any] | None:
        """Merge the branches into the parent.

        All are at one node, or all are at the end.
        """
        if self.error is not None:
            raise self.error
        parent = self.parent
        met = sorted([*self.waiting, *self.over], key=lambda token: token.order)
        pc = self.waiting[0].pc if self.waiting else -1
        node_id = parent.scope.public_id(self.program.ops[pc].id) if pc >= 0 else ""
        entries = self._entries(node_id, met)
        try:
            parent.take(entries)
        except StateError as error:
            raise as_node_error(node_id or parent.scope.public_id("end"), error) from error
        parent.pc = pc
        _come_from(parent, met)
        if parent.run.steps > self._steps_before:
            parent.resumed = None  # they met in this process: the next step had not begun before

    def entries(self, *, kept: bool = False) -> list[Entry]:
        tokens = [*self._fresh, *self.live, *self.waiting, *self.stopped, *self.over]
        tokens.sort(key=lambda token: token.order)
        return united_entries(token.entries(kept=kept) for token in tokens)

    async def cancel(self) -> None:
        try:
            await super().cancel()
        finally:
            for token in [*self.live, *self.stopped]:
                await token.cancel()


def _come_from(token: Token, met: Sequence[Token]) -> None:
    """Set the previous visits and the counters of a token that replaces these."""
    ways = tuple(UNSAID if other.ways is None else other.ways[0] for other in met)
    token.after = tuple(other.last for other in met)
    token.ways = ways if any(ways) else None
    token.counters = [max(counts) for counts in zip(*(other.counters for other in met), strict=True)]
    token.updated = max(other.updated for other in met)


def conflict_on_lines(trails: Sequence[Sequence[Entry]], spec: StateSpec[Any]) -> NodeConflict | None:
    """Return a conflict like `conflict_in`, for lines that share entries.

    There is no conflict if one writer is on every line of the other.
    """
    replaced = spec.unreduced(trails)
    lines: dict[int, tuple[Entry, set[int]]] = {}
    for line, trail in enumerate(trails):
        for entry in trail:
            if not replaced.isdisjoint(entry.update):
                lines.setdefault(id(entry), (entry, set()))[1].add(line)
    writers: dict[str, list[tuple[Entry, set[int]]]] = {}
    for entry, on in lines.values():
        for name in replaced.intersection(entry.update):
            for other, others_on in writers.setdefault(name, []):
                if not (on <= others_on or others_on <= on):
                    return name, other.node_id, entry.node_id
            writers[name].append((entry, on))
    return None


def united_entries(trails: Iterable[Sequence[Entry]]) -> list[Entry]:
    """Return all entries, each once, in the order of the branches."""
    seen: set[int] = set()
    result: list[Entry] = []
    for trail in trails:
        for entry in trail:
            if id(entry) not in seen:
                seen.add(id(entry))
                result.append(entry)
    return result
