"""One sub-agent for each part, each in its own copy: `atomic run parallel-parts "a login page; a search page"`.

The parts are merged one after the other, each after a check of the result. Your checkout is not touched: the work is
on a branch of its own (`atomic accept`).
"""

from __future__ import annotations

from atomic.workflows import State, SubagentRequest, WorkflowStateParams, graph

name = "parallel-parts"
description = "Write several parts at the same time, then merge them"
argument_hint = "PART; PART; …"
default_config = {"check": "", "isolate": "auto"}  # also the flags --check and --isolate
config_descriptions = {"check": "a command that must pass after each merge", "isolate": "auto, overlay or clone"}
node_descriptions = {"parts": "Writing the parts", "merge": "Merging them"}


class PartsState(State):
    parts: list[str] = []
    check: str = ""


def create_state(params: WorkflowStateParams) -> PartsState:
    parts = [part.strip() for part in params.prompt.split(";") if part.strip()]
    return PartsState(parts=parts, check=params.config["check"])


def requests_of(state: PartsState) -> list[SubagentRequest]:
    return [SubagentRequest("worker", f"Write {part}, and commit it.") for part in state.parts]


def checks_of(state: PartsState) -> list[str]:
    return [state.check] if state.check else []


workflow = (
    graph(PartsState)
    .parallel_subagent("parts", agents=requests_of, isolate=True)
    .merge("merge", results=["parts"], check=checks_of, fixer="worker")
    .compile()
)
