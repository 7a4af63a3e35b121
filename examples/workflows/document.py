"""A workflow that calls another by its name: `atomic run document "docs/*.md"` summarises files, then writes a page.

`summarize-files` is looked up when the node runs, so the two files can change on their own. Its steps are recorded
in the same run, as `files/find`, `files/summarize` and so on. Two that call each other are refused: `a -> b -> a`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atomic.workflows import State, graph

name = "document"
description = "Summarise files with summarize-files, then write OVERVIEW.md"
argument_hint = "PATTERN"
node_descriptions = {"write": "Writing OVERVIEW.md"}


class DocumentState(State):
    prompt: str = ""
    summary: str = ""


def hand_down(state: DocumentState) -> dict[str, Any]:
    """Return the first state of the other workflow. Its `create_state` is only for its own runs."""
    return {"prompt": state.prompt, "most": 5}


def take_over(child: Any, state: DocumentState) -> dict[str, Any]:
    return {"summary": child.summary}


def write_page(state: DocumentState) -> str:
    Path("OVERVIEW.md").write_text(f"# Overview\n\n{state.summary}\n", encoding="utf-8")
    return "OVERVIEW.md"


workflow = (
    graph(DocumentState)
    .subgraph("files", "summarize-files", input_mapper=hand_down, output_mapper=take_over)
    .tool("write", write_page)
    .compile()
)
