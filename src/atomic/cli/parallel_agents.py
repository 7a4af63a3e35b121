"""Run several agents at once: `atomic -p "@planner one @reviewer two"`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import msgspec

from atomic.base.terminal import one_line
from atomic.cli.signals import Stop
from atomic.cli.streams import STDERR
from atomic.cli.turn import INTERRUPTED, Host, TurnRequest, recordable
from atomic.commands import AgentTask, TurnPrompt
from atomic.config import Settings, current_folder
from atomic.providers import (
    AgentEvent,
    EndReason,
    SubagentEnded,
    SubagentStarted,
    TurnEnded,
    Usage,
)
from atomic.providers.selection import ModelFinder, choose_provider
from atomic.wiring import Project
from atomic.workflows import Bridge, SubagentRequest, SubagentResult


class ParallelHost(Host):
    """Runs the agents as sub-agents, and shows their answers at the end."""

    def __init__(
        self,
        request: TurnRequest,
        stop: Stop,
        project: Project,
        tasks: Sequence[AgentTask],
        prompts: Sequence[TurnPrompt],
    ) -> None:
        super().__init__(request, stop, project)
        self._tasks = tasks
        self._prompts = prompts
        self._ends: dict[str, TurnEnded] = {}
        self._work: asyncio.Task[list[SubagentResult]] | None = None

    async def _turn(self) -> int:
        settings = self._settings()
        record = None if self._request.record is None else recordable(self._request.record)
        folder = str(current_folder())
        provider = await choose_provider(self._request.agent, settings)
        mcp = await self._mcp(provider)
        bridge = Bridge(
            provider,
            entities=self._project.entities,
            cwd=folder,
            ask=self._asker.ask,
            record=record,
            trusted=self._project.is_trusted(),
            mcp_servers=mcp.servers,
            disabled_mcp_servers=mcp.disabled,
            watch=self._watch,
        )
        models = ModelFinder(provider, self._out.tell)
        requests = [await self._subagent(index, models, settings) for index in range(len(self._tasks))]
        self._work = asyncio.create_task(bridge.spawn_parallel(requests))
        self._stop.act = self._interrupt
        self._show_start(requests)
        try:
            return self._show_results(await self._work)
        except asyncio.CancelledError:
            if self._stop.number is None and self._asker.unanswered is None:
                raise
            answers = self._answers([request.id for request in requests])
            ended = TurnEnded(EndReason.INTERRUPTED, answers, self._usage())
            return self._end(ended, self._unanswered_message() or INTERRUPTED)

    async def _subagent(self, index: int, models: ModelFinder, settings: Settings) -> SubagentRequest:
        task = self._tasks[index]
        model = self._request.model or await models.find(self._prompts[index]) or settings.model
        # "inherit" is the agent's default, not a model of the file that this agent does
        # not have.
        return SubagentRequest(task.agent, task.task, id=f"{task.agent}-{index + 1}", model=model or "inherit")

    def _interrupt(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _show_start(self, requests: Sequence[SubagentRequest]) -> None:
        for request in requests:
            self._report.tell(SubagentStarted(request.id, request.agent, request.task))
            if os.isatty(STDERR):
                self._out.show(f"[{one_line(request.agent)}] {one_line(request.task)[:100]}\n")

    def _watch(self, id: str, event: AgentEvent) -> None:
        if isinstance(event, TurnEnded):
            self._ends[id] = event
            error = None if event.reason is EndReason.DONE else event.error or event.reason.value
            self._report.tell(SubagentEnded(id, event.text, error))
        else:
            self._report.tell(event if event.agent else msgspec.structs.replace(event, agent=id))

    def _show_results(self, results: Sequence[SubagentResult]) -> int:
        failed = [(task.agent, one) for task, one in zip(self._tasks, results, strict=True) if not one.success]
        why = "; ".join(f"{agent}: {result.error}" for agent, result in failed)
        reason = self._reason(failed[0][1].id) if failed else EndReason.DONE
        answers = self._answers([result.id for result in results])
        return self._end(TurnEnded(reason, answers, self._usage()), why)

    def _answers(self, ids: Sequence[str]) -> str:
        """Return the last text of each agent below its name."""
        ends = [(task.agent, self._ends.get(id)) for task, id in zip(self._tasks, ids, strict=True)]
        return "\n\n".join(f"## @{agent}\n\n{end.text if end and end.text else '(no answer)'}" for agent, end in ends)

    def _usage(self) -> Usage:
        return sum((end.usage for end in self._ends.values()), Usage())

    def _reason(self, id: str) -> EndReason:
        end = self._ends.get(id)
        return EndReason.ERROR if end is None or end.reason is EndReason.DONE else end.reason
