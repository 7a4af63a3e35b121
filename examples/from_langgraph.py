"""A loop with a question, as in LangGraph: `python from_langgraph.py`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from atomic.workflows import MemoryJournal, NodeContext, Question, State, graph, reducers


class Essay(State):  # class Essay(TypedDict):
    topic: str = ""
    drafts: Annotated[list[str], reducers.concat] = []  # drafts: Annotated[list[str], operator.add]
    approved: bool = False


async def write(ctx: NodeContext[Essay]) -> dict[str, Any]:  # def write(state: Essay):
    return {"drafts": [f"{ctx.state.topic}, draft {len(ctx.state.drafts) + 1}"]}


async def review(ctx: NodeContext[Essay]) -> dict[str, Any]:
    answer = await ctx.ask(Question(f"Is it good? {ctx.state.drafts[-1]}"))  # answer = interrupt("Is it good? …")
    return {"approved": answer == "yes"}


essay = (
    graph(Essay)  # builder = StateGraph(Essay)
    .loop(  # builder.add_conditional_edges("review", …)
        graph(Essay).node("write", write).node("review", review),
        until=lambda state: state.approved,
        max_iterations=5,
    )
    .compile("essay")  # builder.compile(checkpointer=…)
)


async def main() -> None:
    journal = MemoryJournal()  # SqliteJournal("essay.db") keeps it on the disk
    result = await essay.run({"topic": "Tea"}, journal=journal, execution_id="tea")  # thread_id
    for answer in ("no", "yes"):
        (question,) = result.questions
        print(question.text)
        result = await essay.resume(journal, "tea", answers={question.id: answer})  # Command(resume=answer)
    print(result.status, result.state.drafts)


asyncio.run(main())
