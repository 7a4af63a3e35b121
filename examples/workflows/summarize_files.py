"""One agent for each file, four at once, then one that joins their answers: `atomic run summarize-files "src/*.py"`.

Each file is recorded separately: after a kill only unfinished files are read again.
"""

from __future__ import annotations

from pathlib import Path

from atomic.workflows import Node, State, WorkflowRuntime, WorkflowStateParams, agent_node, graph

name = "summarize-files"
description = "Summarise each file that a pattern names, then all of them together"
argument_hint = "PATTERN"
default_config = {"most": 20}
node_descriptions = {"summarize": "Reading the files", "join": "Joining the summaries"}


class FilesState(State):
    prompt: str = ""
    most: int = 20
    files: list[str] = []
    summary: str = ""


def create_state(params: WorkflowStateParams) -> FilesState:
    return FilesState(prompt=params.prompt or "*.md", most=params.config["most"])


def find_files(state: FilesState) -> list[str]:
    """List the files. A node records the list, so that it stays the same after a resume."""
    found = sorted(str(path) for path in Path().glob(state.prompt) if path.is_file())
    if not found:
        raise ValueError(f"no file is named by {state.prompt}")
    return found[: state.most]


# One agent for each file is this line. Its functions take the item of the map after the state.
summarize: Node[FilesState, WorkflowRuntime] = agent_node(
    "one",
    lambda state, file: f"Summarise the file {file} in one sentence.",
    output_mapper=lambda answer, state, file: {"outputs": {"one": f"{file}: {answer}"}},
)


def join_prompt(state: FilesState) -> str:
    return "Join these summaries into one paragraph:\n" + "\n".join(state.outputs["summarize"])


workflow = (
    graph(FilesState)
    .tool("find", find_files, output_mapper=lambda files, state: {"files": files})
    .map("summarize", lambda state: state.files, summarize, max_concurrency=4)
    .agent("join", join_prompt, output_mapper=lambda answer, state: {"summary": answer})
    .compile()
)
