"""Workflow authors import one package, and it loads quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

import atomic.workflows
from atomic.runs import events

SLOW = ["sqlite3", "_sqlite3", "textual", "claude_agent_sdk", "opencode_ai", "copilot", "acp", "pydantic"]
NAMES = [
    "State",
    "reducers",
    "node",
    "tool_node",
    "agent_node",
    "subagent_node",
    "parallel_subagent_node",
    "merge_node",
    "skill_node",
    "command_node",
    "decision_node",
    "ask_user_node",
    "wait_node",
    "parallel_node",
    "map_node",
    "subgraph_node",
    "clear_context_node",
    "context_monitor_node",
    "custom_tool_node",
    "task_loop_node",
    "criteria_loop_node",
    "graph",
    "GraphBuilder",
    "GraphConfig",
    "Edge",
    "END",
    "compile_graph",
    "CompiledGraph",
    "sequential",
    "map_reduce",
    "review_cycle",
    "task_loop",
    "Node",
    "NodeContext",
    "NodeResult",
    "Signal",
    "Retry",
    "Skip",
    "Abort",
    "Goto",
    "Question",
    "Option",
    "RunEnd",
    "RunResult",
    "RunStatus",
    "Step",
    "StreamEvent",
    "MemoryJournal",
    "SqliteJournal",
    "Journal",
    "RunInfo",
    "RunOwnedError",
    "RunNotFoundError",
    "JournalError",
    "StateError",
    "GraphError",
    "AtomicError",
    "WorkflowTask",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert hasattr(atomic.workflows, name)
    assert name in atomic.workflows.__all__


def test_importing_the_package_loads_no_database_screen_or_agent() -> None:
    """Importing it, building, compiling and running a graph in memory needs none of them."""
    code = f"""
import sys, asyncio
from atomic.workflows import *
compiled = graph(State).tool("a", run=lambda: 1).compile()
asyncio.run(compiled.run(journal=MemoryJournal()))
print([name for name in {SLOW!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"


def test_a_database_is_loaded_when_a_journal_is_opened(tmp_path: object) -> None:
    code = """
import sys
from atomic.workflows import SqliteJournal
with SqliteJournal(sys.argv[1]) as journal:
    print(journal.list(), "sqlite3" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, f"{tmp_path}/runs.db"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout.strip(), done.stderr) == ("[] True", "")


EVENTS = (
    "RunStarted", "NodeStarted", "NodeEnded", "AgentActivity", "TasksChanged", "QuestionAsked", "LimitReached",
    "Warning", "RunEnded", "WorkflowEvent",
)  # fmt: skip


def test_events_have_public_names_that_hide_none_of_pythons() -> None:
    assert [getattr(atomic.workflows, name) for name in EVENTS] == [getattr(events, name) for name in EVENTS]
    assert not set(EVENTS) & set(atomic.workflows.__all__)
