"""A resume follows the edges that the run has taken, and no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atomic.graph.engine.journal import Row, RowKind
from atomic.graph.engine.nodes import loop_node
from atomic.workflows import CompiledGraph, Edge, GraphConfig, Node, RunStatus, ask_user_node, compile_graph, graph
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, say, within


def web(*edges: Edge, nodes: list[Node[S]] | None = None) -> CompiledGraph[S]:
    made = nodes or []
    known = {node.id for node in made}
    ids = dict.fromkeys(id for edge in edges for id in (edge.from_, edge.to) if id not in known)
    return compile_graph(
        GraphConfig(start_node=edges[0].from_, nodes=[*map(say, ids), *made], edges=list(edges), state=S)
    )


def yes(state: Any) -> bool:
    return True


# In a branch, `b` goes over its conditional edge to `x`, which is also one of its two unconditional targets.
CONDITIONAL = [
    Edge("a", "b"), Edge("a", "c"), Edge("b", "x", condition=yes), Edge("b", "x"), Edge("b", "y"),
    Edge("x", "end"), Edge("y", "end"), Edge("c", "q"), Edge("q", "end"),
]  # fmt: skip


async def test_a_resume_does_not_take_edges_that_a_condition_skipped() -> None:
    compiled = web(*CONDITIONAL, nodes=[ask_user_node("q", "?")])
    journal = KeptJournal()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, sorted(result.state.log)) == (RunStatus.PAUSED, ["a", "b", "c", "x"])
    assert compiled.load(journal, RUN) == result.state
    result = await within(compiled.resume(journal, RUN, answers={"q": "yes"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["a", "b", "x", "c", "end"])


GRAPHS: dict[str, CompiledGraph[S]] = {
    "a condition": web(*CONDITIONAL),
    "several at once": web(
        Edge("a", "b"), Edge("a", "c"), Edge("b", "x"), Edge("b", "y"), Edge("x", "end"), Edge("y", "end"),
        Edge("c", "end"),
    ),
    "a short and a long way": web(
        Edge("a", "b"), Edge("a", "c"), Edge("b", "end"), Edge("b", "x"), Edge("x", "end"), Edge("c", "end")
    ),
    "a condition at the root": web(
        Edge("a", "x", condition=yes), Edge("a", "x"), Edge("a", "y"), Edge("x", "end"), Edge("y", "end")
    ),
    "to a loop": web(
        Edge("a", "b"), Edge("a", "c"), Edge("b", "loop"), Edge("b", "y"), Edge("loop", "end"), Edge("y", "end"),
        Edge("c", "end"), nodes=[loop_node("loop", [say("in")], until=yes)],
    ),
    "to a parallel": web(
        Edge("a", "p", condition=yes), Edge("a", "p"), Edge("a", "y"), Edge("p", "end"), Edge("y", "end"),
        nodes=[*graph(S).parallel([say("l"), say("r")], id="p").items],
    ),
    "a condition to a parallel": web(
        *CONDITIONAL[:2], Edge("b", "p", condition=yes), Edge("b", "p"), Edge("b", "y"), Edge("p", "end"),
        Edge("y", "end"), Edge("c", "end"), nodes=[*graph(S).parallel([say("l"), say("r")], id="p").items],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
async def test_cut_anywhere_a_run_ends_as_if_it_had_not_been_cut(name: str) -> None:
    compiled = GRAPHS[name]
    journal = KeptJournal()
    whole = await within(compiled.run(journal=journal, execution_id=RUN))
    assert whole.status is RunStatus.COMPLETED
    for rows in range(len(journal.rows(RUN))):
        cut = journal.cut(RUN, rows)
        result = await within(compiled.resume(cut, RUN))
        assert result.state == whole.state, rows
        ran = [record.node_id for record in cut.records(RUN)]
        assert sorted(ran) == sorted(record.node_id for record in journal.records(RUN)), rows
        assert compiled.load(cut, RUN) == whole.state, rows


@pytest.mark.parametrize("name", ["several at once", "a short and a long way"])
async def test_rows_without_edges_are_read_as_before(name: str) -> None:
    """Rows of older versions end before this field."""
    compiled = GRAPHS[name]
    journal = KeptJournal()
    whole = await within(compiled.run(journal=journal, execution_id=RUN))

    def older(row: Row) -> Row:
        fields = {RowKind.STEP: 16, RowKind.OPENED: 8}.get(RowKind(row.kind))
        return (
            row
            if fields is None
            else row._replace(body=msgspec.msgpack.encode(msgspec.msgpack.decode(row.body)[:fields]))
        )

    for rows in range(len(journal.rows(RUN))):
        cut = journal.cut(RUN, rows)
        cut._runs[RUN] = [older(row) for row in cut._runs[RUN]]  # pyright: ignore[reportPrivateUsage]
        result = await within(compiled.resume(cut, RUN))
        assert result.state == whole.state, rows
