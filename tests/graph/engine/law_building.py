"""Build a plan as a graph of the public API; its nodes report what they saw."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from atomic.graph import (
    CompiledGraph,
    GraphBuilder,
    Node,
    NodeContext,
    NodeResult,
    Retry,
    Signal,
    Skip,
    graph,
    node,
    tool_node,
)
from atomic.questions import Question
from tests.graph.engine.law_plans import (
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

Builder = GraphBuilder[LawState]


class TroubleError(Exception):
    """A failure that the test injects into a node."""


class Outside:
    """The world outside of the engine: reports of the nodes, and injected trouble."""

    def __init__(
        self, pauses: int = 0, *, threads: bool = True, flaky: bool = False, asks: bool = False, skips: bool = False
    ) -> None:
        self.seen: list[tuple[str, int]] = []
        self.step_ids: list[str] = []  # of plain nodes
        self.attempts: dict[str, list[int]] = {}
        self.fails_in = -1  # executions until one fails; -1: none
        self.luck = 0  # changes the order of nodes
        self._pauses = pauses  # how often a node yields to others, at most
        self._asks = asks
        # Plain nodes fail, and on_error answers with the update they would have returned.
        self.skips = skips
        # Without threads, nothing of a cancelled run is still running.
        self.threads = threads
        self._failures: dict[str, int] = {}
        self.retry = Retry(0, jitter=False) if flaky else None

    def clear(self) -> None:
        self.seen.clear()
        self.step_ids.clear()

    async def enter(self, work: Work, ctx: NodeContext[LawState]) -> None:
        """Ask and fail before a plain node works, as the test demands."""
        self.attempts.setdefault(ctx.step_id, []).append(ctx.attempt)
        if self._asks and digest(work.id) % 2:
            assert await ctx.ask(Question("go on?")) == "yes"
        if self.retry and self._failures.setdefault(ctx.step_id, digest(work.id) % self.retry.attempts):
            self._failures[ctx.step_id] -= 1
            raise TroubleError

    def did(self, work_id: str, seen: int) -> None:
        """Record that a node works, or fail if it is the chosen one."""
        self.fails_in -= 1
        if self.fails_in == 0:
            raise TroubleError
        self.seen.append((work_id, seen))

    async def let_others_go_first(self, seen: int) -> None:
        for _ in range((seen + self.luck) % (self._pauses + 1)):
            await asyncio.sleep(0)


def compiled(plan: Plan, outside: Outside, name: str = "law") -> CompiledGraph[LawState]:
    return _chain(plan, outside).compile(name=name, max_steps=0)


def _chain(plan: Plan, outside: Outside) -> Builder:
    builder = graph(LawState)
    for part in plan:
        builder = _add(builder, part, outside)
    return builder


def _add(builder: Builder, part: Part, outside: Outside) -> Builder:
    match part:
        case Work():
            return builder.then(work_node(part, outside))
        case If():
            ways = [(test, _chain(way, outside)) for test, way in part.else_if]
            otherwise = _chain(part.else_, outside) if part.else_ else None
            return builder.if_(part.test, then=_chain(part.then, outside), else_if=ways, else_=otherwise)
        case Loop():
            return builder.loop(_chain(part.body, outside), until=part.until, max_iterations=part.bound)
        case Parallel():
            branches = {branch_name(part, place): _chain(way, outside) for place, way in enumerate(part.branches)}
            merge = _merge if part.merges else None
            return builder.parallel(
                branches, id=part.id, merge=merge, max_concurrency=part.limit, strategy=part.strategy
            )
        case Map():
            return builder.map(
                part.id,
                over=lambda s: items_of(part, digest(values_of(s))),
                node=_chain(part.body, outside),
                max_concurrency=part.limit,
            )
        case Sub():
            child = compiled(part.body, outside, name=part.id)
            if not part.mapped:
                return builder.subgraph(part.id, child)
            return builder.subgraph(
                part.id,
                child,
                input_mapper=lambda s: input_of(digest(values_of(s))),
                output_mapper=lambda end, s: output_of(digest(values_of(end)), digest(values_of(s))),
            )


def _merge(branches: Mapping[str, LawState], before: LawState) -> dict[str, Any]:
    seen = {name: digest(values_of(state)) for name, state in branches.items()}
    return merge_of(seen, digest(values_of(before)))


def work_node(work: Work, outside: Outside) -> Node[LawState]:
    signals = (Signal("checkpoint"),) if work.checkpoint else ()

    async def run(ctx: NodeContext[LawState]) -> NodeResult | dict[str, Any] | None:
        seen = digest(values_of(ctx.state))
        await outside.enter(work, ctx)
        if work.kind == "fails":
            raise TroubleError
        if work.kind == "hangs":
            await asyncio.Event().wait()
        outside.did(work.id, seen)
        outside.step_ids.append(ctx.step_id)
        await outside.let_others_go_first(seen)
        if outside.skips:
            raise TroubleError
        update = update_of(work, seen) or None
        return NodeResult(update, signals=signals) if signals else update

    def skip(error: Exception, ctx: NodeContext[LawState]) -> Skip:
        return Skip(update_of(work, digest(values_of(ctx.state))))

    def tool(saw: int) -> dict[str, int]:
        outside.did(work.id, saw)
        return {"saw": saw}

    async def async_tool(saw: int) -> dict[str, int]:
        await outside.let_others_go_first(saw)
        return tool(saw)

    async def item_tool(item: Any) -> dict[str, int]:
        return await async_tool(digest(item))

    if work.kind in ("plain", "hangs", "fails"):
        return node(work.id, run, retry=outside.retry, on_error=skip if outside.skips else None)

    def write(result: dict[str, int], state: LawState) -> dict[str, Any]:
        return update_of(work, result["saw"])

    mapper = write if work.writes else None
    if work.kind == "item":
        return tool_node(work.id, item_tool, output_mapper=mapper)
    function = tool if work.kind == "sync" and outside.threads else async_tool
    return tool_node(work.id, function, args=lambda s: {"saw": digest(values_of(s))}, output_mapper=mapper)
