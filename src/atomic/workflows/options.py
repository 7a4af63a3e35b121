"""Optional arguments of the methods that `WorkflowBuilder` adds.

The factories in `nodes.py` and `task_loop.py` hold the defaults. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypedDict

from atomic.graph.engine.builder import Labels, NodeOptions
from atomic.graph.engine.node import Condition
from atomic.graph.engine.nodes import OutputMapper, Text
from atomic.graph.engine.state import StateT
from atomic.workflows.nodes import ContextAction, MergeResults
from atomic.workflows.task_loop import TaskSelector


class AgentOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs a turn of an agent."""

    agent: str | None
    provider: str | None
    session: str | None
    tools: Sequence[str] | None
    output_mapper: OutputMapper[StateT] | None
    output_schema: Any


class SubagentOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs a sub-agent."""

    system_prompt: Text[StateT] | None
    tools: Sequence[str] | None
    output_mapper: OutputMapper[StateT] | None
    output_schema: Any


class ParallelSubagentOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs several sub-agents at the same time."""

    merge: MergeResults[StateT] | None
    max_concurrency: int | None


class PromptOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs the prompt of a skill or a command."""

    args: Text[StateT]
    id: str | None
    session: str | None
    output_mapper: OutputMapper[StateT] | None


class ContextMonitorOptions(Labels, total=False):
    """Options of a node that watches how full the context of a session is."""

    threshold: float
    action: ContextAction


class TaskLoopOptions(Labels, Generic[StateT], total=False):
    """Options of a node that works on a list of tasks."""

    tasks_path: Text[StateT]
    until: Condition[StateT] | None
    max_iterations: int
    task_selector: TaskSelector[StateT] | None
    max_concurrency: int | Callable[[StateT], int]
    model: str | None


class CriteriaLoopOptions(TypedDict, Generic[StateT], total=False):
    """Options of a node that repeats nodes until a criterion holds."""

    completion_signal: str | None
    criteria: Condition[StateT] | None
    max_iterations: int
