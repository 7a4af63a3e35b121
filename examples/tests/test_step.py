import asyncio

from atomic.workflows import MemoryJournal, NodeContext, State, graph


class Words(State):
    text: str = ""
    count: int = 0


async def count(ctx: NodeContext[Words]) -> dict[str, int]:
    return {"count": len(ctx.state.text.split())}


def test_words_are_counted() -> None:
    workflow = graph(Words).node("count", count).compile("count")
    result = asyncio.run(workflow.run({"text": "one two three"}, journal=MemoryJournal(), execution_id="test"))
    assert result.status == "completed"
    assert result.state.count == 3
