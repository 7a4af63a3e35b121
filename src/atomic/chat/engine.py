"""The engine: receives the user's intents, starts runs for them, and sends events.

Intents are handled as they come. No run waits for another.
"""

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
from atomic.base.untrusted_files import read_bounded_text
from atomic.chat.agents import Agents
from atomic.chat.command_context import ChatHost, OnPicked
from atomic.chat.connection import ScreenConnection
from atomic.chat.conversation import BUSY, Conversation
from atomic.chat.files import ProjectFiles
from atomic.chat.log import ChatLog, past_events, reopen
from atomic.chat.protocol import (
    Answer,
    ChatEvent,
    ChatNotice,
    Cleared,
    CommandInfo,
    CommandsListed,
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
from atomic.chat.runs import BackgroundTasks, ChatRun, RunEnd, Runs
from atomic.chat.workflows import WorkflowRuns
from atomic.commands import Category, Command, CommandError, TurnPrompt, parse
from atomic.commands.dispatch import call_agents
from atomic.config import ConfigError
from atomic.entities import Entity
from atomic.git import find_repository
from atomic.sessions.store import Session, shown
from atomic.wiring import Project

# Seconds for the engine's end, each of them a limit.
_EXIT_LIMIT = 4.5
_PAUSE_LIMIT = 8.0  # more for workflows that pause
_INTERRUPT_LIMIT = 2.5
_OPENING_COMMANDS = ("sessions", "resume")  # with an argument they start another kind of run
_BRANCH_COMMANDS = ("diff", "accept", "undo", "discard")  # they start as a command line
_PICKERS = {"sessions": ChatHost.pick_session, "resume": ChatHost.pick_session, "mcp": ChatHost.pick_mcp}

_log = logging.getLogger(__name__)


class EngineOptions(msgspec.Struct, frozen=True):
    """Options from the command line."""

    agent: str | None = None
    model: str | None = None
    resume: str | None = None
    record: str | None = None


class Engine:
    """One conversation at a time, and the other active runs."""

    def __init__(self, connection: ScreenConnection, cwd: Path, options: EngineOptions) -> None:
        self.width = 100
        self.theme = ""
        self.project = Project(cwd=cwd)
        self.agents = Agents(lambda: self.project.settings)
        self.questions = Questions()
        self.workflows = WorkflowRuns(lambda: self.project.store, self.questions, connection.wait_for_room)
        self._connection = connection
        self._options = options
        self._runs = Runs(self._emit, self.questions.close_all)
        self._files = ProjectFiles(cwd)
        self._picks: dict[str, OnPicked] = {}
        self._refreshing = asyncio.Lock()
        self._background = BackgroundTasks(
            lambda error: self._say(message_of(error) if isinstance(error, Exception) else str(error), Level.ERROR)
        )
        self._is_over = asyncio.Event()
        self._pauses_workflows = False
        self._says_goodbye = False
        self._status = StatusChanged()
        log = ChatLog(self.project.store, project=str(self.project.folder), cwd=str(cwd))
        self.conversation = self._make_conversation(log)

    # start and end

    async def run(self) -> None:
        """Work until the screen has gone, the user leaves or a signal arrives."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._is_over.set)
        self._send_status()
        self._background.start(self._refresh_commands())
        receiving = asyncio.create_task(self._receive())
        await self._is_over.wait()
        receiving.cancel()
        await self._end()

    def leave(self, *, pause: bool) -> None:
        """End the conversation, and with `pause` the workflows too."""
        self._pauses_workflows = pause
        self._says_goodbye = True
        self._is_over.set()

    async def _receive(self) -> None:
        try:
            await self._begin()  # intents that wait already are for the conversation that it opens
            async for intent in self._connection.intents():
                try:
                    self._handle(intent)
                except Exception as error:  # only this intent has failed
                    _log.exception("an intent failed")
                    self._say(message_of(error), Level.ERROR)
        finally:
            self._is_over.set()

    async def _begin(self) -> None:
        with suppress(ConfigError):  # the search for an agent reports it
            for warning in self.project.settings.warnings:
                self._say(warning, Level.WARNING)
        if self._options.resume is None:
            self.conversation.warm_up()
            return
        try:
            await self._open(self._options.resume)
        except Exception as error:  # a new conversation is possible in any case
            if not isinstance(error, AtomicError):
                _log.exception("%s cannot be opened", self._options.resume)
            self._say(message_of(error), Level.ERROR)

    async def _end(self) -> None:
        """Stop the runs of this process, detach from others, and close the
        conversation.
        """
        limit = _EXIT_LIMIT + (_PAUSE_LIMIT if self._pauses_workflows else 0.0)
        asyncio.get_running_loop().call_later(limit, os._exit, 1)  # guards end the rest
        self.conversation.log.close()  # first: the client may not wait for the rest
        workflows = self._runs.active(RunKind.WORKFLOW)
        await self._stop(workflows)
        message = self._resume_hints(workflows)
        self._detach()
        self.conversation.log.close()
        if self._says_goodbye:
            self._connection.send(Left(message=message))
        await self._runs.wait_for_tasks(1.0)
        await self.conversation.close()
        await self._connection.close(1.0)

    async def _stop(self, workflows: Sequence[ChatRun]) -> None:
        """Interrupt all runs; workflows only if they are to be paused."""
        others = [run for run in self._runs.active() if run not in workflows]
        for run in [*others, *(workflows if self._pauses_workflows else ())]:
            self._runs.interrupt(run)
        await self._runs.wait_for(others, _INTERRUPT_LIMIT)
        if self._pauses_workflows:
            await self._runs.wait_for(workflows, _PAUSE_LIMIT)

    def _detach(self) -> None:
        """Cancel the runs that are left. Runs in other processes continue there."""
        for run in self._runs.active():
            if run.session and run.is_stopping:
                self._runs.detach(run, RunEnd("running", "it is about to pause", f"atomic resume {run.session}"))
            elif run.session:
                end = RunEnd("running", "it keeps running without a screen", f"atomic attach {run.session}")
                self._runs.detach(run, end)
            elif run.task is not None:
                run.task.cancel()

    def _resume_hints(self, workflows: Sequence[ChatRun]) -> str:
        """Return how to resume, for the terminal after the screen has ended."""
        log = self.conversation.log
        lines = [f"Resume with: atomic chat --resume {log.id}"] if log.exists else []
        for run in workflows:
            if not run.session:
                continue
            if run.is_over or run.is_stopping:
                lines.append(f"The workflow is paused. Resume with: atomic resume {run.session}")
            else:
                lines.append(f"The workflow keeps running: atomic attach {run.session}")
        return "\n".join(lines)

    # intents

    def _handle(self, intent: Intent) -> None:
        match intent:
            case Submit():
                if self._runs.find(intent.run) is None:
                    self._runs.begin(intent.run, lambda run: self._submit(run, intent.text), prompt=intent.text)
            case Shell():
                self._runs.begin(
                    intent.run, lambda run: ChatHost(self, run).run_shell(intent.command), prompt=intent.command
                )
            case Interrupt():
                run = self._runs.find(intent.run)
                if run is not None and intent.force:
                    self._runs.break_off(run)
                elif run is not None:
                    self._runs.interrupt(run)
            case Answer():
                self.questions.answer(intent.question, intent.answers)
            case Picked():
                self._picked(intent)
            case FindFiles():

                async def find() -> None:
                    paths = await self._files.find(intent.text, intent.limit)
                    self._connection.send(FilesFound(request=intent.request, paths=paths))

                self._background.start(find())
            case Watch():
                self._background.start(self._open(intent.session))
            case ScreenSize():
                self.width = max(20, intent.width)
            case Leave():
                self.leave(pause=intent.pause)

    async def _submit(self, run: ChatRun, text: str) -> RunEnd:
        """Run a slash command, agents, or a prompt for the agent."""
        host = ChatHost(self, run)
        if not text.strip():
            return host.end
        if not text.lstrip().startswith(("/", "@")):  # a prompt need not wait for the list of commands
            self._background.start(self._refresh_commands())
            await host.turn(TurnPrompt(text=text))
            return host.end
        await self._refresh_commands()
        call = parse(text)
        if call is None:
            if not await call_agents(text, host):
                await host.turn(TurnPrompt(text=text))
            return host.end
        command = self.project.commands.require(call.name)
        if command.category is Category.BUILTIN:
            is_opening = command.name in _OPENING_COMMANDS and call.text
            if not is_opening and command.name not in _BRANCH_COMMANDS:
                run.start(RunKind.COMMAND, f"/{command.name}")
            open_picker = _PICKERS.get(command.name)
            if not call.text and open_picker is not None:
                await open_picker(host)
                return host.end
        await command.run(call, host)
        return host.end

    async def _refresh_commands(self) -> None:
        try:
            async with self._refreshing:
                changed = await asyncio.to_thread(self.project.refresh)
            if changed:
                self._connection.send(list_commands(self.project))
        except ConfigError as error:
            self._say(message_of(error), Level.ERROR)

    def pick(self, run: ChatRun, kind: PickKind, title: str, rows: Sequence[PickRow], on_picked: OnPicked) -> None:
        """Let the user choose.

        The command does not wait; the choice starts another run.
        """
        request = uuid4().hex
        self._picks = {request: on_picked}  # there is one dialog
        run.emit(PickOpened(request=request, kind=kind, title=title, rows=tuple(rows)))

    def _picked(self, intent: Picked) -> None:
        on_picked = self._picks.pop(intent.request, None)
        value = intent.value
        if on_picked is None or value is None:
            return

        async def work(run: ChatRun) -> RunEnd:
            host = ChatHost(self, run)
            if on_picked is not ChatHost.open_session:
                run.start(RunKind.COMMAND)
            await on_picked(host, value)
            return host.end

        self._runs.begin(uuid4().hex, work)

    # conversations

    async def new_conversation(self) -> None:
        """Start a new conversation.

        Raises CommandError while the agent is answering.
        """
        project = self.project
        log = ChatLog(project.store, project=str(project.folder), cwd=str(project.cwd))
        before = self.conversation
        self._replace(self._make_conversation(log, agent=before.agent, model=before.model, is_new=True))
        self._connection.send(Cleared(session=log.id))
        self._send_status()
        self.conversation.warm_up()

    async def open_conversation(self, session: Session) -> None:
        """Continue an earlier conversation. Raises CommandError, SessionError."""
        if session.id == self.conversation.log.id:
            raise CommandError("This is that conversation")
        if self.conversation.is_busy:
            raise CommandError(BUSY)
        record = session.record
        cwd = Path(record.cwd or record.project)
        if not await asyncio.to_thread(cwd.is_dir):
            raise CommandError(f"The folder of this conversation no longer exists: {cwd}")
        log = reopen(session, project=record.project, cwd=str(cwd), store=self.project.store)
        if cwd != self.project.cwd:
            self.project = Project(cwd=cwd)
            self._files = ProjectFiles(cwd)
            self._background.start(self._refresh_commands())
        config = {name: value for name, value in record.config.items() if isinstance(value, str)}
        self._replace(
            self._make_conversation(
                log,
                agent=config.get("provider"),
                model=config.get("model"),
                resume=config.get("provider_session"),
            )
        )
        self.conversation.restore(session)
        self._connection.send(Cleared(session=session.id))
        for events, is_last in past_events(session):
            self._connection.send(History(events=events, last=is_last))
            await self._connection.wait_for_room()
        self._send_status()
        self.conversation.warm_up()

    def _replace(self, conversation: Conversation) -> None:
        if self.conversation.is_busy:
            raise CommandError(BUSY)
        before = self.conversation
        self.conversation = conversation
        self._background.start(before.close())

    def _make_conversation(
        self,
        log: ChatLog,
        *,
        agent: str | None = None,
        model: str | None = None,
        resume: str | None = None,
        is_new: bool = False,
    ) -> Conversation:
        """Return a conversation; the command line's agent and model are the defaults.

        A new conversation keeps the agent and model of the one before, even if there is
        no model.
        """
        options = self._options
        if not is_new and not model and agent in (None, options.agent):
            model = options.model
        return Conversation(
            self.project,
            self.agents,
            self.questions,
            log,
            say=self._say,
            changed=self._send_status,
            wait_for_room=self._connection.wait_for_room,
            agent=agent or options.agent,
            model=model,
            record=options.record,
            resume=resume,
        )

    async def _open(self, id: str) -> None:
        """Continue a conversation, or show a run and follow it. Raises AtomicError."""
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

    # events

    def _emit(self, event: ChatEvent) -> None:
        self._connection.send(event)
        self.conversation.log.add(event)

    def _say(self, text: str, level: Level) -> None:
        self._connection.send(ChatNotice(text=text, level=level))

    def _send_status(self) -> None:
        """Send the status if it has changed."""
        conversation = self.conversation
        model = conversation.model
        with suppress(ConfigError):
            model = model or self.project.settings.model
        status = StatusChanged(
            session=conversation.log.id if conversation.log.exists else "",
            provider=conversation.agent or "",
            model=model or conversation.context.model,
            project=shown_folder(self.project.cwd),
            branch=current_branch(self.project.cwd),
            context_used=conversation.context.used,
            context_limit=conversation.context.limit,
            usage=conversation.usage,
            ready=conversation.provider is not None and not conversation.problem,
            problem=conversation.problem,
        )
        if status != self._status:
            self._status = status
            self._connection.send(status)


def list_commands(project: Project) -> CommandsListed:
    """Return the commands and agents for the prompt."""

    def info(one: Command | Entity, category: str) -> CommandInfo:
        return CommandInfo(one.name, one.description, category, tuple(one.aliases), one.argument_hint, one.hidden)

    commands = tuple(info(command, command.category) for command in project.commands.all())
    agents = tuple(info(agent, "agent") for agent in project.entities.all("agent"))
    return CommandsListed(commands=commands, agents=agents)


def shown_folder(folder: Path) -> str:
    """Return a path with `~` for the home folder."""
    home = str(Path.home())
    path = str(folder)
    return f"~{path[len(home) :]}" if path == home or path.startswith(home + os.sep) else path


def current_branch(folder: Path) -> str:
    """Return the branch that is checked out, without a call of git.

    Empty without a repository.
    """
    repository = find_repository(folder)
    if repository is None:
        return ""
    try:
        head = read_bounded_text(repository.git_dir / "HEAD").strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:8]
