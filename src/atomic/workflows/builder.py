"""`graph()` for workflow authors: the engine's builder and the nodes that need agents, entities and tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from atomic.graph import GraphBuilder, State
from atomic.graph.control import Duration, RetryLike
from atomic.graph.node import Condition, OnError, Sequel
from atomic.graph.nodes import Args, OutputMapper, Text
from atomic.graph.state import StateT
from atomic.workflows import nodes
from atomic.workflows.nodes import ContextAction, MergeResults
from atomic.workflows.runtime import SubagentRequest
from atomic.workflows.task_loop import TASKS_PATH, TaskSelector, criteria_loop_node, task_loop_node


class WorkflowBuilder(GraphBuilder[StateT]):
    """A workflow in the making; every factory `x_node(…)` is a method `.x(…)` with the same arguments."""

    def agent(
        self,
        id: str = "",
        prompt: Text[StateT] = "",
        *,
        agent: str | None = None,
        provider: str | None = None,
        session: str | None = None,
        tools: Sequence[str] | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        output_schema: Any = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
        recovery: bool = False,
    ) -> Self:
        """One turn of an agent."""
        return self._add(
            nodes.agent_node(
                id, prompt, agent=agent, provider=provider, session=session, tools=tools,
                output_mapper=output_mapper, output_schema=output_schema, name=name, description=description,
                retry=retry, timeout=timeout, on_error=on_error, model=model, recovery=recovery,
            )
        )  # fmt: skip

    def subagent(
        self,
        id: str,
        *,
        agent: str,
        task: Text[StateT],
        system_prompt: Text[StateT] | None = None,
        tools: Sequence[str] | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        output_schema: Any = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
        recovery: bool = False,
    ) -> Self:
        """Spawn an agent by name."""
        return self._add(
            nodes.subagent_node(
                id, agent=agent, task=task, system_prompt=system_prompt, tools=tools, output_mapper=output_mapper,
                output_schema=output_schema, name=name, description=description, retry=retry, timeout=timeout,
                on_error=on_error, model=model, recovery=recovery,
            )
        )  # fmt: skip

    def parallel_subagent(
        self,
        id: str,
        *,
        agents: Sequence[SubagentRequest] | Callable[[StateT], Sequence[SubagentRequest]],
        merge: MergeResults[StateT] | None = None,
        max_concurrency: int | None = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
        recovery: bool = False,
    ) -> Self:
        """Spawn several agents at once."""
        return self._add(
            nodes.parallel_subagent_node(
                id, agents=agents, merge=merge, max_concurrency=max_concurrency, name=name,
                description=description, retry=retry, timeout=timeout, on_error=on_error, model=model,
                recovery=recovery,
            )
        )  # fmt: skip

    def skill(
        self,
        skill: str,
        *,
        args: Text[StateT] = "",
        id: str | None = None,
        session: str | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
        recovery: bool = False,
    ) -> Self:
        """Run a skill."""
        return self._add(
            nodes.skill_node(
                skill, args=args, id=id, session=session, output_mapper=output_mapper, name=name,
                description=description, retry=retry, timeout=timeout, on_error=on_error, model=model,
                recovery=recovery,
            )
        )  # fmt: skip

    def command(
        self,
        command: str,
        *,
        args: Text[StateT] = "",
        id: str | None = None,
        session: str | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
        recovery: bool = False,
    ) -> Self:
        """Run a command."""
        return self._add(
            nodes.command_node(
                command, args=args, id=id, session=session, output_mapper=output_mapper, name=name,
                description=description, retry=retry, timeout=timeout, on_error=on_error, model=model,
                recovery=recovery,
            )
        )  # fmt: skip

    def clear_context(
        self,
        id: str,
        *,
        session: str,
        name: str = "",
        description: str = "",
    ) -> Self:
        """End a named session."""
        return self._add(
            nodes.clear_context_node(
                id, session=session, name=name, description=description,
            )
        )  # fmt: skip

    def context_monitor(
        self,
        id: str,
        *,
        session: str,
        threshold: float = 45,
        action: ContextAction = "summarize",
        name: str = "",
        description: str = "",
    ) -> Self:
        """Look after a named session's context."""
        return self._add(
            nodes.context_monitor_node(
                id, session=session, threshold=threshold, action=action, name=name, description=description,
            )
        )  # fmt: skip

    def custom_tool(
        self,
        id: str,
        *,
        tool: str,
        args: Args[StateT] | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        input_schema: Any = None,
        output_schema: Any = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        recovery: bool = False,
    ) -> Self:
        """Call a tool by name."""
        return self._add(
            nodes.custom_tool_node(
                id, tool=tool, args=args, output_mapper=output_mapper, input_schema=input_schema,
                output_schema=output_schema, name=name, description=description, retry=retry, timeout=timeout,
                on_error=on_error, recovery=recovery,
            )
        )  # fmt: skip

    def task_loop(
        self,
        id: str,
        *,
        tasks_path: Text[StateT] = TASKS_PATH,
        task_nodes: Sequel[StateT],
        until: Condition[StateT] | None = None,
        max_iterations: int = 100,
        task_selector: TaskSelector[StateT] | None = None,
        max_concurrency: int | Callable[[StateT], int] = 1,
        name: str = "",
        description: str = "",
        model: str | None = None,
    ) -> Self:
        """Work on the tasks of a file."""
        return self._add(
            task_loop_node(
                id, tasks_path=tasks_path, task_nodes=task_nodes, until=until, max_iterations=max_iterations,
                task_selector=task_selector, max_concurrency=max_concurrency, name=name, description=description,
                model=model,
            )
        )  # fmt: skip

    def criteria_loop(
        self,
        id: str,
        *,
        task_nodes: Sequel[StateT],
        completion_signal: str | None = None,
        criteria: Condition[StateT] | None = None,
        max_iterations: int = 100,
    ) -> Self:
        """Repeat until a criterion holds."""
        return self._add(
            criteria_loop_node(
                id, task_nodes=task_nodes, completion_signal=completion_signal, criteria=criteria,
                max_iterations=max_iterations,
            )
        )  # fmt: skip


def graph(state: type[StateT] = State) -> WorkflowBuilder[StateT]:
    """Begin a graph over that state."""
    return WorkflowBuilder(state)
