"""`graph()` for workflow authors: the engine's builder, with nodes for agents and
tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Self, TypedDict, Unpack

from atomic.graph import GraphBuilder, State
from atomic.graph.engine.builder import Labels, NodeOptions, ToolOptions
from atomic.graph.engine.control import Duration
from atomic.graph.engine.node import Condition, Limit, OutputMapper, Sequel
from atomic.graph.engine.nodes import Text
from atomic.graph.engine.state import StateT
from atomic.workflows import nodes
from atomic.workflows.merging import Commands, OnConflict, Results, merge_node
from atomic.workflows.nodes import ContextAction, Isolate, MergeResults, Requests
from atomic.workflows.task_loop import TaskSelector, criteria_loop_node, task_loop_node

# Optional arguments of the methods below. The factories hold the defaults; a test
# compares both.


class AgentOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs a turn of an agent."""

    agent: str | None
    provider: str | None
    session: str | None
    tools: Sequence[str] | None
    output_mapper: OutputMapper[StateT] | None
    output_schema: Any
    isolate: bool


class SubagentOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs a sub-agent."""

    system_prompt: Text[StateT] | None
    tools: Sequence[str] | None
    output_mapper: OutputMapper[StateT] | None
    output_schema: Any
    isolate: Isolate[StateT]


class ParallelSubagentOptions(NodeOptions[StateT], total=False):
    """Options of a node that runs several sub-agents at the same time."""

    merge: MergeResults[StateT] | None
    max_concurrency: int | None
    isolate: bool


class MergeOptions(NodeOptions[StateT], total=False):
    """Options of a node that merges the results of isolated nodes."""

    check: Commands[StateT]
    check_timeout: Duration
    on_conflict: OnConflict
    fixer: str
    fixes: int


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
    max_concurrency: Limit[StateT]
    model: str | None


class CriteriaLoopOptions(TypedDict, Generic[StateT], total=False):
    """Options of a node that repeats nodes until a criterion holds."""

    completion_signal: str | None
    criteria: Condition[StateT] | None
    max_iterations: int


class WorkflowBuilder(GraphBuilder[StateT]):
    """A workflow under construction.

    Every factory `x_node(…)` is a method `.x(…)` with the same arguments.
    """

    def agent(self, id: str = "", prompt: Text[StateT] = "", **options: Unpack[AgentOptions[StateT]]) -> Self:
        """Add a node that runs one turn of an agent."""
        return self._add(nodes.agent_node(id, prompt, **options))

    def subagent(self, id: str, *, agent: str, task: Text[StateT], **options: Unpack[SubagentOptions[StateT]]) -> Self:
        """Add a node that runs a sub-agent."""
        return self._add(nodes.subagent_node(id, agent=agent, task=task, **options))

    def parallel_subagent(
        self,
        id: str,
        *,
        agents: Requests[StateT],
        **options: Unpack[ParallelSubagentOptions[StateT]],
    ) -> Self:
        """Add a node that runs several sub-agents at the same time."""
        return self._add(nodes.parallel_subagent_node(id, agents=agents, **options))

    def merge(self, id: str, *, results: Results[StateT], **options: Unpack[MergeOptions[StateT]]) -> Self:
        """Add a node that puts the results of isolated nodes on the run's branch."""
        return self._add(merge_node(id, results=results, **options))

    def skill(self, skill: str, **options: Unpack[PromptOptions[StateT]]) -> Self:
        """Add a node that runs a skill."""
        return self._add(nodes.skill_node(skill, **options))

    def command(self, command: str, **options: Unpack[PromptOptions[StateT]]) -> Self:
        """Add a node that runs a command."""
        return self._add(nodes.command_node(command, **options))

    def clear_context(self, id: str, *, session: str, **options: Unpack[Labels]) -> Self:
        """Add a node that ends a named session."""
        return self._add(nodes.clear_context_node(id, session=session, **options))

    def context_monitor(self, id: str, *, session: str, **options: Unpack[ContextMonitorOptions]) -> Self:
        """Add a node that compacts, recreates or reports a session whose context is
        nearly full.
        """
        return self._add(nodes.context_monitor_node(id, session=session, **options))

    def custom_tool(self, id: str, *, tool: str, **options: Unpack[ToolOptions[StateT]]) -> Self:
        """Add a node that calls a tool by its name."""
        return self._add(nodes.custom_tool_node(id, tool=tool, **options))

    def task_loop(self, id: str, *, task_nodes: Sequel[StateT], **options: Unpack[TaskLoopOptions[StateT]]) -> Self:
        """Add a node that works on the tasks of a file."""
        return self._add(task_loop_node(id, task_nodes=task_nodes, **options))

    def criteria_loop(
        self, id: str, *, task_nodes: Sequel[StateT], **options: Unpack[CriteriaLoopOptions[StateT]]
    ) -> Self:
        """Add nodes that repeat until a criterion holds."""
        return self._add(criteria_loop_node(id, task_nodes=task_nodes, **options))


def graph(state: type[StateT] = State) -> WorkflowBuilder[StateT]:
    """Start a workflow whose nodes share this state."""
    return WorkflowBuilder(state)
