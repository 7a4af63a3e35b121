"""The engine: hears what the person wants, sees to it, and tells what happens. It never waits for one thing alone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from atomic.base.errors import AtomicError, message_of
from atomic.chat.agents import Agents
from atomic.chat.background_tasks import Asides
from atomic.chat.command_context import ChatHost, Then
from atomic.chat.connection import Wire
from atomic.chat.conversation import BUSY, Conversation
from atomic.chat.files import ProjectFiles
from atomic.chat.log import ChatLog, open_again, past_news
from atomic.chat.project import current_branch, list_commands, shown_folder
from atomic.chat.protocol import (
    Answer,
    ChatEvent,
    ChatNotice,
    Cleared,
    FilesFound,
    FindFiles,
    History,
    Intent,
    Interrupt,
    Leave,
    Left,
    Level,
    Picked,
    PickKind,
    PickOpened,
    PickRow,
    RunKind,
    ScreenSize,
    Shell,
    StatusChanged,
    Submit,
    Watch,
)
from atomic.chat.questions import Questions
from atomic.chat.runs import End, Run, Runs
from atomic.chat.shell import ShellRun
from atomic.chat.workflows import WorkflowRuns
from atomic.commands import Category, CommandError, TurnPrompt, parse
from atomic.commands.dispatch import call_agents
from atomic.config import ConfigError
from atomic.sessions.model import SessionRecord
from atomic.sessions.store import Session, shown
from atomic.wiring import Project

_GONE = 4.5  # seconds from the end of the screen to ours, whatever still runs
_PAUSING = 8.0  # for workflows that are to be paused when the person leaves
_POLITE = 2.5
_OPENS = ("sessions", "resume")
_CHOOSING = {"sessions": ChatHost.pick_session, "resume": ChatHost.pick_session, "mcp": ChatHost.pick_mcp}

_log = logging.getLogger(__name__)


class Start(msgspec.Struct, frozen=True):
    """What the engine is started with."""

    agent: str | None = None
    model: str | None = None
    resume: str | None = None
    record: str | None = None


class Engine:
    """One conversation at a time, and all that runs beside it."""

    def __init__(self, wire: Wire, cwd: Path, start: Start) -> None:
        self.width, self.theme = 100, ""
        self.project = Project(cwd=cwd)
        self._refreshing = asyncio.Lock()
        self.agents = Agents(lambda: self.project.settings)
        self.questions = Questions()
        self.workflows = WorkflowRuns(lambda: self.project.store, self.questions, wire.room)
        self._wire, self._start = wire, start
        self._runs = Runs(self._tell, self.questions.close_all)
        self._files = ProjectFiles(cwd)
        self._picks: dict[str, Then] = {}
        self._asides = Asides(self._tell_failure)
        self._is_over = asyncio.Event()
        self._pause = self._is_told = False
        self._status = StatusChanged()
        log = ChatLog(self.project.store, project=str(self.project.folder), cwd=str(cwd))
        self.conversation = self._conversation(log)

    # its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the screen has gone, the person leaves or a signal comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._is_over.set)
        self._tell_status()
        self._asides.start(self._list_commands())
        hearing = asyncio.create_task(self._hear())
        await self._is_over.wait()
        hearing.cancel()
        await self._end()

    def leave(self, *, pause: bool) -> None:
        """End the conversation; `pause`: the workflows too."""
        self._pause, self._is_told = pause, True
        self._is_over.set()

    async def _hear(self) -> None:
        try:
            await self._begin()  # what was sent already is meant for the conversation that is to be opened
            async for intent in self._wire.intents():
                try:
                    self._take(intent)
                except Exception as error:  # one intent that we cannot follow does not end the conversation
                    _log.exception("an intent failed")
                    self._say(message_of(error), Level.ERROR)
        finally:
            self._is_over.set()

    async def _end(self) -> None:
        """Stop what runs here, leave alone what runs elsewhere, keep what is to be kept."""
        limit = _GONE + (_PAUSING if self._pause else 0.0)
        asyncio.get_running_loop().call_later(limit, os._exit, 1)  # guards end what is left
        self.conversation.log.close()  # first of all: whoever waits for us may not wait for long
        flows = self._runs.active(RunKind.WORKFLOW)
        await self._stop(flows)
        message = self._last_words(flows)
        self._let_go()
        self.conversation.log.close()
        if self._is_told:
            self._wire.tell(Left(message=message))
        await self._runs.settled(1.0)
        await self.conversation.close()
        await self._wire.close(1.0)

    async def _stop(self, flows: Sequence[Run]) -> None:
        """Interrupt what runs; workflows only if they are to be paused."""
        others = [run for run in self._runs.active() if run not in flows]
        for run in [*others, *(flows if self._pause else ())]:
            self._runs.interrupt(run)
        await self._runs.over(others, _POLITE)
        if self._pause:
            await self._runs.over(flows, _PAUSING)

    def _let_go(self) -> None:
        """End what does not want to end; what runs elsewhere goes on there."""
        for run in self._runs.active():
            if run.session and run.is_stopping:
                self._runs.let_go(run, End("running", "it is about to pause", f"atomic resume {run.session}"))
            elif run.session:
                self._runs.let_go(
                    run, End("running", "it keeps running without a screen", f"atomic attach {run.session}")
                )
            elif run.task is not None:
                run.task.cancel()

    def _last_words(self, flows: Sequence[Run]) -> str:
        """How to go on, for the terminal behind the screen."""
        lines = (
            [f"Resume with: atomic chat --resume {self.conversation.log.id}"] if self.conversation.log.exists else []
        )
        for run in flows:
            if not run.session:
                continue
            if run.is_over or run.is_stopping:
                lines.append(f"The workflow is paused. Resume with: atomic resume {run.session}")
            else:
                lines.append(f"The workflow keeps running: atomic attach {run.session}")
        return "\n".join(lines)

    async def _begin(self) -> None:
        with suppress(ConfigError):  # told where an agent is looked for
            for warning in self.project.settings.warnings:
                self._say(warning, Level.WARNING)
        if self._start.resume is None:
            self.conversation.warm_up()
            return
        try:
            await self._open(self._start.resume)
        except Exception as error:  # whatever it is, a new conversation can be held
            if not isinstance(error, AtomicError):
                _log.exception("%s cannot be opened", self._start.resume)
            self._say(message_of(error), Level.ERROR)
            self.conversation.warm_up()

    # what the person wants ------------------------------------------------------------------------------------------

    def _take(self, intent: Intent) -> None:
        match intent:
            case Submit():
                self._submit(intent)
            case Shell():
                self._runs.begin(
                    intent.run,
                    lambda run: ShellRun(run, self.conversation).work(intent.command),
                    prompt=intent.command,
                )
            case Interrupt():
                if (run := self._runs.find(intent.run)) is not None:
                    (self._runs.break_off if intent.force else self._runs.interrupt)(run)
            case Answer():
                self.questions.answer(intent.question, intent.answers)
            case Picked():
                self._picked(intent)
            case FindFiles():
                self._asides.start(self._find_files(intent))
            case Watch():
                self._asides.start(self._watch(intent.session))
            case ScreenSize():
                self.width = max(20, intent.width)
            case Leave():
                self.leave(pause=intent.pause)

    def _submit(self, intent: Submit) -> None:
        if self._runs.find(intent.run) is None:
            self._runs.begin(intent.run, lambda run: self._carry_out(run, intent.text), prompt=intent.text)

    async def _carry_out(self, run: Run, text: str) -> End:
        """A slash command, agents, or a prompt for the agent."""
        host = ChatHost(self, run)
        if not text.strip():
            return host.end
        if not text.lstrip().startswith(("/", "@")):  # nothing of it is for us: it need not wait for our files
            self._asides.start(self._list_commands())
            await host.turn(TurnPrompt(text=text))
            return host.end
        await self._list_commands()
        call = parse(text)
        if call is None:
            if not await call_agents(text, host):
                await host.turn(TurnPrompt(text=text))
            return host.end
        command = self.project.commands.require(call.name)
        if command.category is Category.BUILTIN:
            if not (command.name in _OPENS and call.text):
                run.start(RunKind.COMMAND, f"/{command.name}")
            if not call.text and (choose := _CHOOSING.get(command.name)) is not None:
                await choose(host)
                return host.end
        await command.run(call, host)
        return host.end

    async def _list_commands(self) -> None:
        try:
            async with self._refreshing:
                changed = await asyncio.to_thread(self.project.refresh)
            if changed:
                self._wire.tell(list_commands(self.project))
        except ConfigError as error:
            self._say(message_of(error), Level.ERROR)

    async def _find_files(self, intent: FindFiles) -> None:
        paths = await self._files.find(intent.text, intent.limit)
        self._wire.tell(FilesFound(request=intent.request, paths=paths))

    # choosing -------------------------------------------------------------------------------------------------------

    def pick(self, run: Run, kind: PickKind, title: str, rows: Sequence[PickRow], then: Then) -> None:
        """Let the person choose; the command is over meanwhile, what is chosen is another."""
        request = uuid4().hex
        self._picks = {request: then}  # there is one dialog
        run.tell(PickOpened(request=request, kind=kind, title=title, rows=tuple(rows)))

    def _picked(self, intent: Picked) -> None:
        then, value = self._picks.pop(intent.request, None), intent.value
        if then is None or value is None:
            return

        async def work(run: Run) -> End:
            host = ChatHost(self, run)
            if then is not ChatHost.open_session:
                run.start(RunKind.COMMAND)
            await then(host, value)
            return host.end

        self._runs.begin(uuid4().hex, work)

    # conversations ---------------------------------------------------------------------------------------------------

    async def new_conversation(self) -> None:
        """Begin again. Raises CommandError while the agent answers."""
        project = self.project
        log = ChatLog(project.store, project=str(project.folder), cwd=str(project.cwd))
        await self._replace(self._conversation(log, like=self.conversation))
        self._wire.tell(Cleared(session=log.id))
        self._tell_status()
        self.conversation.warm_up()

    async def open_conversation(self, session: Session) -> None:
        """Go on with a conversation of the past. Raises CommandError, SessionError."""
        if session.id == self.conversation.log.id:
            raise CommandError("This is that conversation")
        if self.conversation.is_busy:
            raise CommandError(BUSY)
        record = session.record
        cwd = _folder_of(record)
        log = open_again(session, project=record.project, cwd=str(cwd), store=self.project.store)
        if cwd != self.project.cwd:
            self._move(cwd)
        config = {name: value for name, value in record.config.items() if isinstance(value, str)}
        await self._replace(
            self._conversation(
                log,
                agent=config.get("provider"),
                model=config.get("model"),
                resume=config.get("provider_session"),
            )
        )
        self.conversation.know(session)
        self._wire.tell(Cleared(session=session.id))
        for news, is_last in past_news(session):
            self._wire.tell(History(events=news, last=is_last))
            await self._wire.room()
        self._tell_status()
        self.conversation.warm_up()

    def _move(self, cwd: Path) -> None:
        """Work in another folder."""
        self.project = Project(cwd=cwd)
        self._files = ProjectFiles(cwd)
        self._asides.start(self._list_commands())

    async def _replace(self, conversation: Conversation) -> None:
        if self.conversation.is_busy:
            raise CommandError(BUSY)
        before, self.conversation = self.conversation, conversation
        self._asides.start(before.close())

    def _conversation(
        self,
        log: ChatLog,
        *,
        like: Conversation | None = None,
        agent: str | None = None,
        model: str | None = None,
        resume: str | None = None,
    ) -> Conversation:
        start = self._start
        return Conversation(
            self.project,
            self.agents,
            self.questions,
            log,
            say=self._say,
            changed=self._tell_status,
            room=self._wire.room,
            agent=(like.agent if like else agent) or start.agent,
            model=like.model if like else model or (start.model if agent in (None, start.agent) else None),
            record=start.record,
            resume=resume,
        )

    async def _watch(self, id: str) -> None:
        try:
            await self._open(id)
        except AtomicError as error:
            self._say(message_of(error), Level.ERROR)

    async def _open(self, id: str) -> None:
        session = self.project.store.find(id)
        if session.record.is_conversation:
            await self.open_conversation(session)
            return
        if any(run.session == session.id for run in self._runs.active(RunKind.WORKFLOW)):
            return  # it is shown already
        record = shown(session.record)
        self._runs.begin(uuid4().hex, lambda run: self.workflows.watch(run, session), prompt=record.prompt)
        if self.conversation.provider is None:
            self.conversation.warm_up()

    # what is told ----------------------------------------------------------------------------------------------------

    def _tell(self, news: ChatEvent) -> None:
        self._wire.tell(news)
        self.conversation.log.note(news)

    def _say(self, text: str, level: Level) -> None:
        self._wire.tell(ChatNotice(text=text, level=level))

    def _tell_failure(self, error: BaseException) -> None:
        self._say(message_of(error) if isinstance(error, Exception) else str(error), Level.ERROR)

    def _tell_status(self) -> None:
        """The status, if it is another now."""
        talk, project = self.conversation, self.project
        status = StatusChanged(
            session=talk.log.id if talk.log.exists else "",
            provider=talk.agent or "",
            model=talk.model or self._configured_model() or talk.context.model,
            project=shown_folder(project.cwd),
            branch=current_branch(project.cwd),
            context_used=talk.context.used,
            context_limit=talk.context.limit,
            usage=talk.usage,
            ready=talk.provider is not None and not talk.problem,
            problem=talk.problem,
        )
        if status != self._status:
            self._status = status
            self._wire.tell(status)

    def _configured_model(self) -> str:
        try:
            return self.project.settings.model or ""
        except ConfigError:
            return ""


def _folder_of(record: SessionRecord) -> Path:
    """Where a conversation was held. Raises CommandError if that is not there any more."""
    cwd = Path(record.cwd or record.project)
    if not cwd.is_dir():
        raise CommandError(f"{cwd}, where this conversation was held, no longer exists")
    return cwd
