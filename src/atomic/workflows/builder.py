"""`graph()` for workflow authors: the engine's builder, with nodes for agents and tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, Unpack

from atomic.graph import GraphBuilder, State
from atomic.graph.engine.builder import Labels, ToolOptions
from atomic.graph.engine.node import Sequel
from atomic.graph.engine.nodes import Text
from atomic.graph.engine.state import StateT
from atomic.workflows import nodes
from atomic.workflows.options import (
    AgentOptions,
    ContextMonitorOptions,
    CriteriaLoopOptions,
    ParallelSubagentOptions,
    PromptOptions,
    SubagentOptions,
    TaskLoopOptions,
)
from atomic.workflows.runtime import SubagentRequest
from atomic.workflows.task_loop import criteria_loop_node, task_loop_node


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
        agents: Sequence[SubagentRequest] | Callable[[StateT], Sequence[SubagentRequest]],
        **options: Unpack[ParallelSubagentOptions[StateT]],
    ) -> Self:
        """Add a node that runs several sub-agents at the same time."""
        return self._add(nodes.parallel_subagent_node(id, agents=agents, **options))

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
        """Add a node that compacts, recreates or reports a session whose context is nearly full."""
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
