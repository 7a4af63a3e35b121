"""Sub-agents that the user calls with `@name`, each in a session of its own, all at
once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from atomic.chat.agents import Agents
from atomic.chat.conversation import Conversation
from atomic.chat.protocol import Activity, ChatNotice, Level, RunKind, status_of
from atomic.chat.questions import Questions
from atomic.chat.runs import ChatRun, RunEnd
from atomic.commands import AgentTask, agent_prompt
from atomic.providers import (
    AgentEvent,
    AgentProvider,
    AgentSession,
    EndReason,
    SessionOptions,
    SubagentEnded,
    SubagentStarted,
    TurnEnded,
    Usage,
)
from atomic.providers.programs import NotStartedError, start_seconds
from atomic.workflows import Bridge, SubagentRequest, SubagentResult


class _CountedProvider:
    """A provider that reports each session that is open."""

    def __init__(self, provider: AgentProvider, on_open: Callable[[], None]) -> None:
        self._provider = provider
        self._on_open = on_open
        self.name = provider.name
        self.capabilities = provider.capabilities
        self.models = provider.models
        self.check = provider.check

    @asynccontextmanager
    async def open(self, options: SessionOptions) -> AsyncGenerator[AgentSession]:
        async with self._provider.open(options) as session:
            self._on_open()
            yield session


class NamedAgents:
    """Runs the agents of one call and reports their events as events of sub-agents."""

    _numbers = count(1)  # an agent may be called again while it works

    def __init__(self, run: ChatRun, conversation: Conversation, agents: Agents, questions: Questions) -> None:
        self._run = run
        self._conversation = conversation
        self._agents = agents
        self._questions = questions
        self._ends: dict[str, TurnEnded] = {}
        self._open_sessions = 0

    async def work(self, tasks: Sequence[AgentTask]) -> RunEnd:
        """Run the tasks to their ends."""
        conversation = self._conversation
        project = conversation.project
        self._run.start(RunKind.AGENTS, ", ".join(dict.fromkeys(task.agent for task in tasks)))
        name, provider = await conversation.models_provider()
        trusted = await asyncio.to_thread(project.is_trusted)
        await conversation.log.begin(self._run.prompt, conversation.config)
        mcp = await project.session_mcp(provider, trusted=trusted, tell=self._warn)

        def count_session() -> None:
            self._open_sessions += 1

        bridge = Bridge(
            _CountedProvider(provider, count_session),
            entities=project.entities,
            cwd=str(project.cwd),
            ask=self._questions.asker(lambda: self._run, conversation.unanswered(provider)),
            record=conversation.record,
            trusted=trusted,
            mcp_servers=mcp.servers,
            disabled_mcp_servers=mcp.disabled,
            watch=self._receive,
        )
        requests = [await self._request(task, name, provider) for task in tasks]
        for request in requests:
            self._emit(SubagentStarted(request.id, request.agent, request.task))
        work = asyncio.create_task(bridge.spawn_parallel(requests, max_concurrency=0))
        return self._end(requests, await self._wait_for_results(work, len(requests)))

    async def _request(self, task: AgentTask, name: str, provider: AgentProvider) -> SubagentRequest:
        conversation = self._conversation
        prompt = agent_prompt(conversation.project.entities.require("agent", task.agent), task.task)
        model = conversation.model or await self._agents.find_model(name, provider, prompt, self._warn)
        model = model or conversation.project.settings.model
        # "inherit" is the agent's own choice, in place of a model that this provider
        # may not have.
        id = f"{task.agent}-{next(self._numbers)}"
        return SubagentRequest(task.agent, task.task, id=id, model=model or "inherit")

    async def _wait_for_results(self, work: asyncio.Task[list[SubagentResult]], expected: int) -> list[SubagentResult]:
        """Return all results. The time limit is only for the start of the agents."""
        seconds = start_seconds()
        try:
            await asyncio.wait({work}, timeout=seconds)
            late = expected - self._open_sessions
            if late > 0 and not work.done():
                raise NotStartedError(f"{late} of the agents did not start within {seconds:g} s (atomic doctor)")
            return await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    def _receive(self, id: str, event: AgentEvent) -> None:
        if isinstance(event, TurnEnded):
            self._ends[id] = event
            error = None if event.reason is EndReason.DONE else event.error or event.reason.value
            self._emit(SubagentEnded(id, event.text, error))
        elif event.agent:
            self._emit(event)
        else:
            self._emit(msgspec.structs.replace(event, agent=id))

    def _emit(self, event: AgentEvent) -> None:
        self._run.emit(Activity(run=self._run.id, event=event, time=time.time()))

    def _warn(self, text: str) -> None:
        self._run.emit(ChatNotice(text=text, level=Level.WARNING, run=self._run.id))

    def _end(self, requests: Sequence[SubagentRequest], results: Sequence[SubagentResult]) -> RunEnd:
        for request, result in zip(requests, results, strict=True):
            if result.id not in self._ends:  # it had no turn
                self._emit(SubagentEnded(result.id, "", result.error))
            self._conversation.remember(f"@{request.agent} {request.task}", result.text)
        self._conversation.add_usage(sum((end.usage for end in self._ends.values()), Usage()))
        failed = [(request, result) for request, result in zip(requests, results, strict=True) if not result.success]
        if not failed:
            return RunEnd()
        why = "; ".join(f"{request.agent}: {result.error}" for request, result in failed)
        ended = self._ends.get(failed[0][1].id)
        return RunEnd("failed" if ended is None else status_of(ended.reason), why)
