"""Texts to data: `atomic run triage "inbox/*.txt"` reads each message and writes `triage.json`.

The answer of each agent is checked against a schema. One that does not fit is tried again, twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from atomic.workflows import AtomicError, NodeContext, Retry, State, WorkflowRuntime, graph, node

name = "triage"
description = "Classify each message, and write the result as JSON"
argument_hint = "PATTERN"
node_descriptions = {"find": "Finding the messages", "each": "Reading the messages", "write": "Writing triage.json"}


class Ticket(msgspec.Struct):
    """The agent's answer."""

    kind: Literal["bug", "question", "wish"]
    urgent: bool
    summary: str


class TriageState(State):
    prompt: str = ""
    files: list[str] = []


def find(state: TriageState) -> list[str]:
    return sorted(str(path) for path in Path().glob(state.prompt))


async def classify(ctx: NodeContext[TriageState, WorkflowRuntime]) -> dict[str, Any]:
    text = Path(str(ctx.item)).read_text(encoding="utf-8")
    wanted = '{"kind": "bug" or "question" or "wish", "urgent": false, "summary": "…"}'
    prompt = f"Classify this message. Answer only with JSON like {wanted}.\n\n{text}"
    answer = await ctx.deps.turn(prompt, tools=[], strict=False)
    try:
        ticket = msgspec.json.decode(answer, type=Ticket)
    except msgspec.DecodeError as error:
        raise AtomicError(f"{ctx.item}: {error}") from error
    return {"outputs": {"one": {"file": ctx.item, "ticket": ticket}}}


def write(state: TriageState) -> None:
    found = msgspec.json.format(msgspec.json.encode(state.outputs["each"]))
    Path("triage.json").write_bytes(found + b"\n")


workflow = (
    graph(TriageState)
    .tool("find", find, output_mapper=lambda files, state: {"files": files})
    .map("each", lambda state: state.files, node("one", classify, retry=Retry(1, attempts=3)), max_concurrency=4)
    .tool("write", write)
    .compile()
)
