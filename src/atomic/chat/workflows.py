"""Runs of workflows.

Each is a process of its own, which continues when the screen ends.

Events come from the pipe of a run that was started here, or from the log of a run that
another process started. Stops and answers are messages in the run's inbox.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.text import width
from atomic.chat.protocol import GraphDrawn, RunKind, WorkflowActivity
from atomic.chat.questions import Answers, Questions
from atomic.chat.runs import INTERRUPTED, BackgroundTasks, ChatRun, RunEnd
from atomic.graph import JournalError
from atomic.graph.drawing.text import walk_ids
from atomic.loading.catalog import WorkflowCatalog
from atomic.processes import ExitWatch, end_group
from atomic.providers.programs import NotStartedError, start_seconds
from atomic.questions import Question
from atomic.runs.events import QuestionAsked, RunEnded, RunStarted, WorkflowEvent
from atomic.runs.log_follower import follow_log
from atomic.sessions.errors import SessionError
from atomic.sessions.facts import read_facts
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.store import Session, SessionStore
from atomic.workflows.definition import WorkflowSource
from atomic.workflows.errors import UntrustedError, WorkflowLoadError
from atomic.workspaces.run_branch import read_branch

ANSWERS_BY_INBOX = {"ATOMIC_ANSWERS": "inbox"}
_CHUNK = 1 << 18  # bytes of a read
_MOST_UNREAD = 1 << 20  # bytes
_FORCE_GRACE = 1.0  # seconds
_DRAWING_COLUMNS = 40  # the panel next to the transcript is narrow
_BRIEF = 512  # events between two looks at the other tasks

_log = logging.getLogger(__name__)


class _StartRefused(msgspec.Struct, frozen=True, tag="error", tag_field="type"):
    """The line that a process writes instead of a run's events when it cannot start the
    run.
    """

    message: str = "it ended before it began"


_decode = msgspec.json.Decoder(WorkflowEvent | _StartRefused).decode


class WorkflowRuns:
    """Starts runs, shows their events, and passes stops and answers on to them."""

    def __init__(
        self, store: Callable[[], SessionStore], questions: Questions, wait_for_room: Callable[[], Any]
    ) -> None:
        self._store = store
        self._questions = questions
        self._wait_for_room = wait_for_room
        self._background = BackgroundTasks()
        self.last = ""  # the run that was started or watched last

    async def start(self, run: ChatRun, words: Sequence[str], *, title: str, cwd: Path, prompt: str = "") -> RunEnd:
        """Start `atomic` with these arguments and show its run until it ends."""
        child = _Child(words, cwd, prompt)
        # Before anything is awaited: from now on there is something to stop.
        run.interrupt = lambda: child.send(signal.SIGINT)
        run.break_off = lambda: self._background.start(end_group(child.pid, grace=_FORCE_GRACE))
        async with child.connected():
            first = await child.first_event()
            if isinstance(first, _StartRefused):
                run.start(RunKind.WORKFLOW, title)
                return RunEnd(INTERRUPTED) if run.is_stopping else RunEnd("failed", first.message)
            run.start(RunKind.WORKFLOW, title, session=first.run)
            session = self._store().find(first.run)
            return await self._show(run, session, _all_events(first, child, session), lambda: end_group(child.pid))

    async def watch(self, run: ChatRun, session: Session) -> RunEnd:
        """Show a run of another process by its log, and follow it while that process
        works.
        """
        run.start(RunKind.WORKFLOW, session.record.workflow, session=session.id)
        if not session.logs.events.is_file():
            return RunEnd(str(session.record.status), f"{session.id} has no log")
        return await self._show(run, session, follow_log(session), lambda: _end_owner(session))

    async def _show(
        self, run: ChatRun, session: Session, events: AsyncGenerator[WorkflowEvent], end_it: Callable[[], Any]
    ) -> RunEnd:
        """Show events until the run ends. Cancelling this does not stop the run."""
        resume = f"atomic resume {session.id}"
        self.last = session.id
        run.resume = resume
        run.interrupt = lambda: _ask_to_stop(session)
        run.break_off = lambda: self._background.start(end_it())
        if run.is_stopping:  # the stop came before the session was known
            _ask_to_stop(session)
        drawing = self._background.start(self._draw(run, session))
        try:
            count = 0
            async for event in events:
                count += 1
                run.emit(WorkflowActivity(run=run.id, event=event))
                if isinstance(event, QuestionAsked):
                    self._ask(run, session, event.question, event.node)
                if isinstance(event, RunEnded):
                    run.resume = ""
                    actions = await asyncio.to_thread(_branch_actions, session)
                    return RunEnd(event.status, event.said, event.resume, actions)
                if count % _BRIEF == 0:
                    await asyncio.sleep(0)
                await self._wait_for_room()
        finally:
            drawing.cancel()
        return RunEnd(INTERRUPTED, "the process that worked on it has gone", resume)

    def _ask(self, run: ChatRun, session: Session, question: Question, node: str) -> None:
        id = f"{run.id}:{question.id}"
        mine = Session(session.dir, session.record, session.redactor)
        if not _is_open(mine, question.id):
            return  # the log also has questions of the past

        def on_answer(answers: Answers | None) -> None:
            self._answer(session, question, answers)

        self._questions.open(id, run, question, node, on_answer)

        async def close_when_answered_elsewhere() -> None:
            while not run.is_over and _is_open(mine, question.id):  # noqa: ASYNC110  # a file tells it
                await asyncio.sleep(POLL_SECONDS)
            self._questions.close(id)

        self._background.start(close_when_answered_elsewhere())

    def _answer(self, session: Session, question: Question, answers: Answers | None) -> None:
        """Pass the answer on.

        A dismissed question without a default pauses the run; a resume asks it again.
        """
        given = answers or (() if question.default is None else (question.default,))
        if not given:
            _ask_to_stop(session)
            return
        with suppress(SessionError):
            session.reload()
        session.leave_answer(question.id, list(given) if question.multi_select else ", ".join(given))

    async def _draw(self, run: ChatRun, session: Session) -> None:
        """Send the drawing of the workflow's graph, if its file can be loaded."""
        project = session.record.project
        workflow = session.record.workflow
        if session.record.workflow_source == WorkflowSource.FILE:
            return
        try:
            drawing = await asyncio.to_thread(_draw_workflow, project, workflow)
        except (AtomicError, OSError, ValueError) as error:
            _log.warning("the graph of %s cannot be drawn: %s", workflow, error)
            return
        if drawing is not None:
            lines, positions = drawing
            run.emit(GraphDrawn(run=run.id, lines=lines, positions=positions))


Positions = dict[str, tuple[int, int, int]]


def _draw_workflow(project: str, workflow: str) -> tuple[tuple[str, ...], Positions] | None:
    """Draw a workflow and return lines and positions.

    None if it is untrusted or has no graph.
    """
    definition = WorkflowCatalog(Path(project)).find(workflow) if os.path.isdir(project) else None
    if definition is None:
        return None
    try:
        graph = definition.load().graph
    except (UntrustedError, WorkflowLoadError):
        return None
    if graph is None:
        return None
    lines = tuple(graph.draw(_DRAWING_COLUMNS).rstrip("\n").split("\n"))
    return lines, _node_positions(lines, list(walk_ids(graph)))


def _node_positions(lines: tuple[str, ...], ids: list[str]) -> Positions:
    """Return row, column and width of each node's name.

    A name that was cut has no position.
    """
    positions: Positions = {}
    for id in ids:
        name = id.rpartition("/")[2]
        # Inside a box first: the title of a frame may be equal to the name of a node.
        for sides in ("│║╎", "─═╌"):
            pattern = re.compile(rf"(?<=[{sides}] ){re.escape(name)}(?= *[{sides}])")
            found = next(((row, at) for row, line in enumerate(lines) if (at := pattern.search(line))), None)
            if found is not None:
                row, at = found
                positions[id] = row, width(lines[row][: at.start()]), width(name)
                break
    return positions


def _branch_actions(session: Session) -> tuple[str, ...]:
    """Return the slash commands for the branch of a run that has ended; none without
    work on a branch.
    """
    try:
        branch = read_branch(read_facts(session.journal_path, session.id))
    except (JournalError, OSError):  # the run reports that itself
        return ()
    if branch is None or not branch.landed:
        return ()
    result = branch.accept_result
    is_merged = result is not None and not result.problem
    return ("/diff",) if is_merged else ("/diff", "/accept", "/undo TASK", "/discard")


def _is_open(session: Session, question: str) -> bool:
    """Return whether a running process waits for the answer."""
    try:
        record = session.reload()
    except SessionError:
        return False
    return session.is_owned and question in {one.id for one in record.questions}


def _ask_to_stop(session: Session) -> None:
    with suppress(SessionError):
        session.reload()
    session.ask_to_stop()


async def _end_owner(session: Session) -> None:
    """End the process of a run that was started elsewhere; its agents end with it."""
    with suppress(SessionError):
        session.reload()
    owner = session.record.owner
    for number in (signal.SIGTERM, signal.SIGKILL):
        if owner is None or not session.is_owned:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.kill(owner.pid, number)
        await asyncio.sleep(_FORCE_GRACE)


async def _all_events(first: RunStarted, child: _Child, session: Session) -> AsyncGenerator[WorkflowEvent]:
    """Yield the events of a child from its pipe, and the rest from the log if the pipe
    ends early.

    Both are redacted.
    """
    last = first.time
    yield first
    async for event in child.events:
        if isinstance(event, _StartRefused):
            continue
        yield event
        last = event.time
        if isinstance(event, RunEnded):
            return
    async for event in follow_log(session):
        if event.time > last:
            yield event


class _Child:
    """An `atomic` process in a session of its own, which writes the events of a run to
    a pipe.
    """

    def __init__(self, words: Sequence[str], cwd: Path, prompt: str) -> None:
        self._process = _start(words, cwd, prompt)
        self.pid = self._process.pid
        # Reading pauses while this much waits. The run does not: it joins events until
        # the pipe takes them.
        self._output = asyncio.StreamReader(limit=_MOST_UNREAD)
        self._transport: asyncio.ReadTransport | None = None
        self.events = self._read_events()

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Read its output inside this context.

        Leaving closes the pipe and does not end the process.
        """
        loop = asyncio.get_running_loop()
        pipe = self._process.stdout
        assert pipe is not None
        watch = ExitWatch(self.pid, self._exited)
        try:
            self._transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._output), pipe)
            try:
                yield
            finally:
                self._transport.close()
        finally:
            watch.close()

    def _exited(self) -> None:
        """Reap the process and end its output: a process that a workflow forked may
        hold the pipe open.
        """
        self._process.poll()
        pipe = self._process.stdout
        if self._transport is None or self._transport.is_closing() or pipe is None:
            return
        with suppress(BlockingIOError):
            while data := os.read(pipe.fileno(), _CHUNK):
                self._output.feed_data(data)
        self._transport.close()

    def send(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    async def first_event(self) -> RunStarted | _StartRefused:
        """Return what came of the start.

        Raise NotStartedError if nothing did in time.
        """
        seconds = start_seconds()
        try:
            async with asyncio.timeout(seconds):
                async for event in self.events:
                    if isinstance(event, RunStarted | _StartRefused):
                        return event
        except TimeoutError:
            await end_group(self.pid)
            raise NotStartedError(f"the workflow has not started within {seconds:g} s (atomic doctor)") from None
        return _StartRefused()

    async def _read_events(self) -> AsyncGenerator[WorkflowEvent | _StartRefused]:
        """Decode lines of any length until the output ends."""
        parts: list[bytes] = []
        while data := await self._output.read(_CHUNK):
            *lines, rest = data.split(b"\n")
            for line in lines:
                try:
                    event = _decode(b"".join((*parts, line)))
                except msgspec.DecodeError:  # of another version of Atomic
                    continue
                finally:
                    parts.clear()
                yield event
            parts.append(rest)


def _start(words: Sequence[str], cwd: Path, prompt: str) -> subprocess.Popen[bytes]:
    """Start the process.

    The prompt is in a file without a name: the process may outlive this one.
    """
    arguments = [*words, "--", "-"] if prompt else words
    with tempfile.TemporaryFile() as given:
        given.write(prompt.encode("utf-8", "replace"))
        given.seek(0)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "atomic", *arguments],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env={**os.environ, **ANSWERS_BY_INBOX},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotStartedError(f"the workflow cannot be started: {error}") from error
