"""`atomic -p`: read the prompt, run one turn of an agent, and return its exit code."""

from __future__ import annotations

import asyncio
import os
import select
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from atomic.base.arguments import UsageError
from atomic.base.errors import AtomicError, ExitCode, is_debugging, message_of
from atomic.cli import signals
from atomic.cli.errors import exit_code_of
from atomic.cli.output import Output
from atomic.cli.signals import Stop
from atomic.cli.streams import STDIN, readable, tell
from atomic.cli.terminal_questions import Asker
from atomic.cli.turn_output import report_for
from atomic.config import Settings, current_folder
from atomic.providers import AgentProvider, AgentSession, EndReason, Notice, SessionOptions, TurnEnded
from atomic.providers.selection import ModelFinder, choose_provider, remedy_for
from atomic.wiring import Project

if TYPE_CHECKING:
    from atomic.commands import TurnPrompt
    from atomic.providers.mcp_servers import SessionMcp

INPUT_NOTICE_SECONDS = 3.0  # of silence on standard input, before we print what we wait for
INTERRUPTED = "interrupted"
_READER_SECONDS = 2.0  # that a reader of the output has after Ctrl+C
_EXIT_CODES = {
    EndReason.DONE: ExitCode.DONE,
    EndReason.ERROR: ExitCode.FAILED,
    EndReason.REFUSED: ExitCode.FAILED,
    EndReason.MAX_TURNS: ExitCode.FAILED,
    EndReason.LIMIT: ExitCode.LIMITED,
}
_REASONS = {
    EndReason.ERROR: "the turn failed",
    EndReason.REFUSED: "the agent refused",
    EndReason.MAX_TURNS: "the agent reached its limit of turns before it was done",
    EndReason.LIMIT: "the agent's usage limit is reached: try again later",
}


class Prompt(msgspec.Struct, frozen=True):
    """A prompt. Only `typed` may be a command: `piped` text comes from elsewhere."""

    typed: str
    piped: str = ""

    @property
    def text(self) -> str:
        """Return both parts, for an agent."""
        return "\n\n".join(part for part in (self.typed, self.piped) if part)


def read_prompt(words: Sequence[str]) -> Prompt:
    """Return the typed words, with standard input if it is not a terminal or the last
    word is `-`.

    Raise UsageError if both are empty.
    """
    wants_input = bool(words) and words[-1] == "-"
    typed = readable(" ".join(words[:-1] if wants_input else words))
    piped = _read_input() if wants_input or not os.isatty(STDIN) else ""
    prompt = Prompt(*(part if part.strip() else "" for part in (typed, piped)))
    if not prompt.text:
        raise UsageError('No prompt: give it as in atomic -p "PROMPT", or pipe it in')
    return prompt


def read_words(words: Sequence[str]) -> str:
    """Return the prompt of a run, with standard input if the last word is `-`."""
    if not words or words[-1] != "-":
        return readable(" ".join(words))
    return Prompt(readable(" ".join(words[:-1])), _read_input()).text


def _read_input() -> str:
    if not os.isatty(STDIN) and not select.select([STDIN], [], [], INPUT_NOTICE_SECONDS)[0]:
        tell("waiting for the end of standard input (to leave it out: </dev/null)")
    pieces: list[bytes] = []
    while piece := os.read(STDIN, 1024 * 1024):
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace").rstrip("\n")


class TurnRequest(msgspec.Struct, frozen=True):
    """The prompt and the flags of `atomic -p`."""

    prompt: str
    agent: str | None = None
    model: str | None = None
    output: str = "text"
    record: str | None = None
    entity: TurnPrompt | None = None  # the skill, command or agent whose turn it is


def run_turn(request: TurnRequest) -> int:
    """Run the turn, print it, and return its exit code."""
    return signals.run(lambda stop: TurnHost(request, stop).run())


class Host(ABC):
    """Runs `atomic -p` and reports the answer, an error or a signal.

    `_turn` does the work.
    """

    def __init__(self, request: TurnRequest, stop: Stop, project: Project | None = None) -> None:
        self._request = request
        self._stop = stop
        self._project = project or Project()
        self._out = Output()
        self._report = report_for(request.output, self._out, self._project.redactor)
        self._asker = Asker(self._out, self._interrupt)
        self._session: AgentSession | None = None

    async def run(self) -> int:
        """Run it and return the exit code."""
        cancel = self._stop.act
        code = await self._attempt()
        self._stop.act = cancel  # the reader of the output may have stopped reading
        try:
            async with asyncio.timeout(None if self._stop.number is None else _READER_SECONDS):
                await self._out.drain()
        except TimeoutError:
            return code
        if self._out.failure is None:
            return code
        tell(f"standard output could not take all of it: {self._out.failure.strerror}")
        return code or ExitCode.FAILED

    async def _attempt(self) -> int:
        try:
            return await self._turn()
        except Exception as error:  # a program that reads JSON gets internal errors too
            if is_debugging() and not isinstance(error, AtomicError):
                raise
            self._report.refuse(message_of(error), exit_code_of(error))
            return exit_code_of(error)
        except asyncio.CancelledError:
            if self._stop.number is None:
                raise
            return self._end(TurnEnded(EndReason.INTERRUPTED), INTERRUPTED)  # a signal came before the turn

    @abstractmethod
    async def _turn(self) -> int:
        """Do the work, report its end, and return the exit code."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Interrupt the work; its end is still reported."""

    def _settings(self) -> Settings:
        settings = self._project.settings
        for warning in settings.warnings:
            self._out.tell(f"warning: {warning}")
        return settings

    async def _mcp(self, provider: AgentProvider) -> SessionMcp:
        """Return the MCP servers that the user's configuration adds, and print a notice
        for a broken one.
        """
        trusted = self._project.is_trusted()
        found = await self._project.configured_servers(trusted=trusted).for_provider(provider)
        for notice in found.notices:
            self._report.tell(Notice(notice))
        return found

    def _end(self, ended: TurnEnded, why: str) -> int:
        self._report.end(ended, None if self._session is None else self._session.id, why)
        if self._asker.unanswered is not None:
            return ExitCode.WAITING
        return self._stop.exit_code if ended.reason is EndReason.INTERRUPTED else _EXIT_CODES[ended.reason]

    def _unanswered_message(self) -> str:
        """Return the message for a question without an answer.

        Empty if there is no such question.
        """
        if self._asker.unanswered is None:
            return ""
        question = self._asker.unanswered.text
        return (
            f'the agent asks "{question}" and there is no one to answer (say it in the prompt, or run it in a terminal)'
        )


class TurnHost(Host):
    """Runs one turn: shows its events, asks its questions, and handles signals."""

    def __init__(self, request: TurnRequest, stop: Stop, project: Project | None = None) -> None:
        super().__init__(request, stop, project)
        self._interrupting: asyncio.Task[None] | None = None

    async def _turn(self) -> int:
        settings = self._settings()
        options = self._options(settings)
        provider = await choose_provider(self._request.agent, settings)
        options = (await self._mcp(provider)).added_to(options)
        if self._request.entity is not None and self._request.model is None:
            model = await ModelFinder(provider, self._out.tell).find(self._request.entity)
            if model is not None:
                options = msgspec.structs.replace(options, model=model)
        async with provider.open(options) as session:
            self._session = session
            self._stop.act = self._interrupt
            ended = await self._watch(session)
            self._stop.act = lambda: None  # nothing is left to stop; closing has its own time limit
            if self._interrupting is not None:
                await self._interrupting
        # Reported after closing, so that a reader of the end need not wait for
        # anything.
        return self._end(ended, await self._why(ended, provider))

    def _options(self, settings: Settings) -> SessionOptions:
        options = SessionOptions(
            cwd=str(current_folder()),
            model=self._request.model or settings.model,
            record=None if self._request.record is None else recordable(self._request.record),
            ask=self._asker.ask,
            trusted=self._project.is_trusted(),
        )
        entity = self._request.entity
        if entity is None:
            return options
        return msgspec.structs.replace(
            options,
            system_prompt=entity.system_prompt,
            tools=entity.tools,
            denied_tools=entity.denied_tools,
            agents=entity.agents,
        )

    async def _watch(self, session: AgentSession) -> TurnEnded:
        async for event in session.send(self._request.prompt):
            if isinstance(event, TurnEnded):
                return event
            self._report.tell(event)
        return TurnEnded(EndReason.ERROR, error="the agent's stream ended before its turn did")

    def _interrupt(self) -> None:
        if self._session is not None and self._interrupting is None:
            self._interrupting = asyncio.create_task(self._session.interrupt())

    async def _why(self, ended: TurnEnded, provider: AgentProvider) -> str:
        """Return the message about the end, with a remedy.

        Empty for a turn that is done.
        """
        if self._asker.unanswered is not None:
            return self._unanswered_message()
        if ended.reason is EndReason.DONE:
            return ""
        if ended.reason is EndReason.INTERRUPTED:
            return INTERRUPTED
        why = ended.error or _REASONS[ended.reason]
        if not why.startswith(provider.name):
            why = f"{provider.name}: {why}"
        remedy = await remedy_for(provider, why) if ended.reason is EndReason.ERROR else ""
        return f"{why} ({remedy})" if remedy and remedy not in why else why


def recordable(file: str) -> str:
    """Return the full path of a recording.

    Raise UsageError before the turn if it is not writable.
    """
    path = os.path.abspath(file)
    is_new = not os.path.exists(path)
    is_possible = is_new or os.path.isfile(path)
    if not is_possible or not os.access(os.path.dirname(path) if is_new else path, os.W_OK):
        raise UsageError(f"--record cannot write to {path} (choose a file in a folder that exists)")
    return path
