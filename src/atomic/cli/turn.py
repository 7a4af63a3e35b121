"""`atomic -p`: one turn of an agent, and its exit code."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from atomic.base.arguments import UsageError
from atomic.base.errors import AtomicError, ExitCode, is_debugging, message_of
from atomic.cli import signals
from atomic.cli.errors import exit_code_of
from atomic.cli.output import Output
from atomic.cli.signals import Stop
from atomic.cli.streams import tell
from atomic.cli.terminal_questions import Asker
from atomic.cli.turn_output import report_for
from atomic.config import Settings, current_folder
from atomic.providers import AgentProvider, AgentSession, EndReason, Notice, SessionOptions, TurnEnded
from atomic.providers.selection import ModelFinder, choose_provider, remedy_for
from atomic.wiring import Project

if TYPE_CHECKING:
    from atomic.commands import TurnPrompt
    from atomic.providers.mcp_servers import SessionMcp

_EXITS = {
    EndReason.DONE: ExitCode.DONE,
    EndReason.ERROR: ExitCode.FAILED,
    EndReason.REFUSED: ExitCode.FAILED,
    EndReason.MAX_TURNS: ExitCode.FAILED,
    EndReason.LIMIT: ExitCode.LIMITED,
}
_WHY = {
    EndReason.ERROR: "the turn failed",
    EndReason.REFUSED: "the agent refused",
    EndReason.MAX_TURNS: "the agent took as many turns as it may and was not done",
    EndReason.LIMIT: "the provider does not serve now: try again later",
}
INTERRUPTED = "interrupted"


class TurnRequest(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    prompt: str
    agent: str | None = None
    model: str | None = None
    output: str = "text"
    record: str | None = None
    entity: TurnPrompt | None = None  # the skill, command or agent whose turn it is


def run_turn(request: TurnRequest) -> int:
    """Run the turn and tell it; its exit code."""
    return signals.run(lambda stop: TurnHost(request, stop).run())


class Host(ABC):
    """Carries out what follows `-p` and tells it: the answer, a refusal, an end by a signal. `_turn` does the work."""

    def __init__(self, request: TurnRequest, stop: Stop, project: Project | None = None) -> None:
        self._request, self._stop = request, stop
        self._out = Output()
        self._report = report_for(request.output, self._out)
        self._asker = Asker(self._out, self._interrupt)
        self._session: AgentSession | None = None
        self._project = project or Project()

    async def run(self) -> int:
        """Carry it out; its exit code."""
        cancel = self._stop.act
        code = await self._attempt()
        self._stop.act = cancel  # whoever reads our output may not read on
        await self._out.drain()
        if self._out.failure is not None:
            tell(f"standard output could not take all of it: {self._out.failure.strerror}")
        return code or (ExitCode.DONE if self._out.failure is None else ExitCode.FAILED)

    async def _attempt(self) -> int:
        try:
            return await self._turn()
        except Exception as error:  # who reads JSON is told of a mistake of ours too
            if is_debugging() and not isinstance(error, AtomicError):
                raise
            self._report.refuse(message_of(error), exit_code_of(error))
            return exit_code_of(error)
        except asyncio.CancelledError:
            if self._stop.number is None:
                raise
            return self._end(TurnEnded(EndReason.INTERRUPTED), INTERRUPTED)  # by a signal, before the turn began

    @abstractmethod
    async def _turn(self) -> int:
        """Do it and tell its end; the exit code."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Stop what runs; its end is told all the same."""

    def _settings(self) -> Settings:
        settings = self._project.settings
        for warning in settings.warnings:
            self._out.tell(f"warning: {warning}")
        return settings

    async def _mcp(self, provider: AgentProvider) -> SessionMcp:
        """The MCP servers that the user's configuration adds; what is wrong with one is told, and no more."""
        trusted = self._project.is_trusted()
        found = await self._project.configured_servers(trusted=trusted).for_provider(provider)
        for notice in found.notices:
            self._report.tell(Notice(notice))
        return found

    def _end(self, ended: TurnEnded, why: str) -> int:
        self._report.end(ended, None if self._session is None else self._session.id, why)
        if self._asker.unanswered is not None:
            return ExitCode.WAITING
        return self._stop.exit_code if ended.reason is EndReason.INTERRUPTED else _EXITS[ended.reason]

    def _nobody_answers(self) -> str:
        """What to tell the person about a question without an answer; empty if there is none."""
        if self._asker.unanswered is None:
            return ""
        question = self._asker.unanswered.text
        return (
            f'the agent asks "{question}" and there is no one to answer (say it in the prompt, or run it in a terminal)'
        )


class TurnHost(Host):
    """The one who reads a turn's events, answers its questions and hears the signals."""

    def __init__(self, request: TurnRequest, stop: Stop, project: Project | None = None) -> None:
        super().__init__(request, stop, project)
        self._interrupting: asyncio.Task[None] | None = None

    async def _turn(self) -> int:
        settings = self._settings()
        options = self._options(settings)
        provider = await choose_provider(self._request.agent, settings)
        options = (await self._mcp(provider)).added_to(options)
        async with provider.open(await self._fitted(options, provider)) as session:
            self._session, self._stop.act = session, self._interrupt
            ended = await self._watch(session)
            self._stop.act = _nothing  # there is nothing left to stop, and closing takes no longer than it must
            if self._interrupting is not None:
                await self._interrupting
        # Said when all is closed: who hears it need not wait for anything else.
        return self._end(ended, await self._why(ended, provider))

    def _options(self, settings: Settings) -> SessionOptions:
        entity = self._request.entity
        return SessionOptions(
            cwd=str(current_folder()),
            model=self._request.model or settings.model,
            record=None if self._request.record is None else recordable(self._request.record),
            ask=self._asker.ask,
            system_prompt=None if entity is None else entity.system_prompt,
            tools=None if entity is None else entity.tools,
            denied_tools=() if entity is None else entity.denied_tools,
            agents=() if entity is None else entity.agents,
            trusted=self._project.is_trusted(),
        )

    async def _fitted(self, options: SessionOptions, provider: AgentProvider) -> SessionOptions:
        """With the model that the entity names, unless the person named one."""
        if self._request.entity is None or self._request.model is not None:
            return options
        model = await ModelFinder(provider, self._out.tell).find(self._request.entity)
        return options if model is None else msgspec.structs.replace(options, model=model)

    async def _watch(self, session: AgentSession) -> TurnEnded:
        async for event in session.send(self._request.prompt):
            if isinstance(event, TurnEnded):
                return event
            self._report.tell(event)
        return TurnEnded(EndReason.ERROR, error="the stream ended without saying that the turn is over")

    def _interrupt(self) -> None:
        if self._session is not None and self._interrupting is None:
            self._interrupting = asyncio.create_task(self._session.interrupt())

    async def _why(self, ended: TurnEnded, provider: AgentProvider) -> str:
        """What to tell the person about the end, with a way out; empty if all is well."""
        if said := self._nobody_answers():
            return said
        if ended.reason in (EndReason.DONE, EndReason.INTERRUPTED):
            return INTERRUPTED if ended.reason is EndReason.INTERRUPTED else ""
        why = ended.error or _WHY[ended.reason]
        why = why if why.startswith(provider.name) else f"{provider.name}: {why}"
        remedy = await remedy_for(provider, why) if ended.reason is EndReason.ERROR else ""
        return f"{why} ({remedy})" if remedy and remedy not in why else why


def _nothing() -> None:
    pass


def recordable(file: str) -> str:
    """Where to record to. A turn that cannot be recorded is not worth its tokens: that is said before it."""
    path = os.path.abspath(file)
    folder = os.path.dirname(path)
    writable = os.path.isfile(path) or not os.path.exists(path)
    if not writable or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise UsageError(f"--record cannot write to {path} (choose a file in a folder that exists)")
    return path
