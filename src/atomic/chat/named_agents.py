"""Agents that the person calls by name, each in a session of its own, all at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from atomic.chat.agents import Agents
from atomic.chat.conversation import Conversation
from atomic.chat.protocol import Activity, ChatNotice, Level, RunKind
from atomic.chat.questions import Questions
from atomic.chat.runs import INTERRUPTED, End, Run
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

_STATUS = {EndReason.LIMIT: "limit", EndReason.INTERRUPTED: INTERRUPTED}


class _Counted:
    """A provider that says when a session is open."""

    def __init__(self, provider: AgentProvider, opened: Callable[[], None]) -> None:
        self._provider, self._opened = provider, opened
        self.name, self.capabilities = provider.name, provider.capabilities
        self.models, self.check = provider.models, provider.check

    @asynccontextmanager
    async def open(self, options: SessionOptions) -> AsyncGenerator[AgentSession]:
        async with self._provider.open(options) as session:
            self._opened()
            yield session


class Crew:
    """Runs the agents of one call and tells their events as those of sub-agents."""

    _numbers = count(1)  # an agent may be called again while it is at work

    def __init__(self, run: Run, conversation: Conversation, agents: Agents, questions: Questions) -> None:
        self._run, self._conversation, self._agents, self._questions = run, conversation, agents, questions
        self._ends: dict[str, TurnEnded] = {}
        self._opened = 0  # sessions

    async def work(self, tasks: Sequence[AgentTask]) -> End:
        """Run them to their ends."""
        self._run.start(RunKind.AGENTS, ", ".join(dict.fromkeys(task.agent for task in tasks)))
        name, provider = await self._conversation.models_provider()
        project = self._conversation.project
        trusted = await asyncio.to_thread(project.is_trusted)
        await self._conversation.log.begin(self._run.prompt, self._conversation.config)
        mcp = await project.session_mcp(provider, trusted=trusted, tell=self._warn)
        bridge = Bridge(
            _Counted(provider, self._note_opened),
            entities=project.entities,
            cwd=str(project.cwd),
            ask=self._questions.asker(lambda: self._run, self._conversation.unanswered(provider)),
            record=self._conversation.record,
            trusted=trusted,
            mcp_servers=mcp.servers,
            disabled_mcp_servers=mcp.disabled,
            watch=self._hear,
        )
        requests = [await self._request(task, name) for task in tasks]
        for request in requests:
            self._tell(SubagentStarted(request.id, request.agent, request.task))
        work = asyncio.create_task(bridge.spawn_parallel(requests, max_concurrency=0))
        return self._end(requests, await self._to_the_end(work, requests))

    async def _request(self, task: AgentTask, name: str) -> SubagentRequest:
        conversation = self._conversation
        _, provider = await conversation.models_provider()
        entity = conversation.project.entities.require("agent", task.agent)
        prompt = agent_prompt(entity, task.task)
        model = conversation.model or await self._agents.fitting_model(name, provider, prompt, self._warn)
        model = model or conversation.project.settings.model
        # "inherit": the agent's own choice, not what its file says and this provider does not have.
        id = f"{task.agent}-{next(self._numbers)}"
        return SubagentRequest(task.agent, task.task, id=id, model=model or "inherit")

    async def _to_the_end(
        self, work: asyncio.Task[list[SubagentResult]], requests: Sequence[SubagentRequest]
    ) -> list[SubagentResult]:
        """All results; one that has not started in time is an error, one that has may take as long as it likes."""
        seconds = start_seconds()
        try:
            await asyncio.wait({work}, timeout=seconds)
            late = len(requests) - self._opened
            if late > 0 and not work.done():
                raise NotStartedError(f"{late} of the agents did not start within {seconds:g} s (atomic doctor)")
            return await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    def _hear(self, id: str, event: AgentEvent) -> None:
        if isinstance(event, TurnEnded):
            self._ends[id] = event
            error = None if event.reason is EndReason.DONE else event.error or event.reason.value
            self._tell(SubagentEnded(id, event.text, error))
        else:
            self._tell(event if event.agent else msgspec.structs.replace(event, agent=id))

    def _note_opened(self) -> None:
        self._opened += 1

    def _tell(self, event: AgentEvent) -> None:
        self._run.tell(Activity(run=self._run.id, event=event, time=time.time()))

    def _warn(self, text: str) -> None:
        self._run.tell(ChatNotice(text=text, level=Level.WARNING, run=self._run.id))

    def _end(self, requests: Sequence[SubagentRequest], results: Sequence[SubagentResult]) -> End:
        for request, result in zip(requests, results, strict=True):
            if result.id not in self._ends:  # it never came to a turn
                self._tell(SubagentEnded(result.id, "", result.error))
            self._conversation.remember(f"@{request.agent} {request.task}", result.text)
        self._conversation.spend(sum((end.usage for end in self._ends.values()), Usage()))
        failed = [(request, one) for request, one in zip(requests, results, strict=True) if not one.success]
        if not failed:
            return End()
        why = "; ".join(f"{request.agent}: {result.error}" for request, result in failed)
        ended = self._ends.get(failed[0][1].id)
        return End(_STATUS.get(ended.reason, "failed") if ended else "failed", why)
