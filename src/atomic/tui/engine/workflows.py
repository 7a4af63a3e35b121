"""Runs of workflows: each in a process of its own, which nothing that happens here can end by mistake.

A run is started detached and followed by its log; it is asked to stop, and its questions are answered, by messages in
its inbox. So one that was started elsewhere is shown just the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from atomic.errors import AtomicError
from atomic.hosts import HostError, ask_to_stop, follow, leave_answer
from atomic.processes import end_group
from atomic.processes.watching import ExitWatch
from atomic.providers.starting import start_seconds
from atomic.questions import Question
from atomic.sessions.errors import SessionError
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.store import Session, SessionStore
from atomic.tui.engine.asides import Asides
from atomic.tui.engine.pictures import picture_of
from atomic.tui.engine.questions import Answers, Questions
from atomic.tui.engine.runs import INTERRUPTED, End, Run
from atomic.tui.protocol import GraphDrawn, RunKind, Said, WorkflowNews
from atomic.workflows.events import QuestionAsked, RunEnded

ANSWERS_BY_INBOX = {"ATOMIC_ANSWERS": "inbox"}
_LONGEST_LINE = 256 * 1024 * 1024
_FORCE_GRACE = 1.0  # seconds
_BRIEF = 512  # events between two looks at the other tasks

_log = logging.getLogger(__name__)


class _First(msgspec.Struct, frozen=True):
    """The first line that says what has become of a start."""

    type: str
    run: str = ""
    message: str = ""
    text: str = ""
    error: str | None = None


class WorkflowRuns:
    """Starts runs, follows them, and speaks with those who work on them."""

    def __init__(self, store: Callable[[], SessionStore], questions: Questions, room: Callable[[], Any]) -> None:
        self._store, self._questions, self._room = store, questions, room
        self._asides = Asides()

    async def start(self, run: Run, words: Sequence[str], *, title: str, cwd: Path, input: str = "") -> End:
        """Start `atomic` with these words and follow the run that it begins, to its end."""
        child = _Child(words, cwd, input)
        # Before anything is waited for: from now on there is something to stop.
        run.interrupt = lambda: child.send(signal.SIGINT)
        run.break_off = lambda: self._asides.start(end_group(child.pid, grace=_FORCE_GRACE))
        async with child.heard():
            first = await child.first_words()
            if first.type != "run_started":
                return self._not_started(run, first, title)
            run.start(RunKind.WORKFLOW, title, session=first.run)
            return await self.follow(run, self._store().find(first.run), lambda: end_group(child.pid))

    def _not_started(self, run: Run, first: _First, title: str) -> End:
        run.start(RunKind.WORKFLOW, title)
        if first.type == "turn_ended" and not first.error:  # it only wanted to say something: its help
            run.tell(Said(text=first.text, run=run.id))
            return End()
        if run.is_stopping:
            return End(INTERRUPTED)
        return End("failed", first.message or first.error or "it ended before it began")

    async def watch(self, run: Run, session: Session) -> End:
        """Show what the log says, and follow it while the run goes on."""
        run.start(RunKind.WORKFLOW, session.record.workflow, session=session.id)
        if not session.logs.events.is_file():
            return End(str(session.record.status), f"{session.id} has no log")
        return await self.follow(run, session, lambda: _end_owner(session))

    async def follow(self, run: Run, session: Session, end_it: Callable[[], Any]) -> End:
        """Tell what happens until the run is over; who leaves off leaves the run alone."""
        resume = f"atomic resume {session.id}"
        run.resume = resume
        run.interrupt = lambda: _ask_to_stop(session)
        run.break_off = lambda: self._asides.start(end_it())
        if run.is_stopping:  # before it was known whom to ask
            _ask_to_stop(session)
        drawing = self._asides.start(self._draw(run, session))
        try:
            count = 0
            async for event in follow(session):
                count += 1
                run.tell(WorkflowNews(run=run.id, event=event))
                if isinstance(event, QuestionAsked):
                    self._ask(run, session, event.question, event.node)
                if isinstance(event, RunEnded):
                    run.resume = ""
                    return End(event.status, event.said, event.resume)
                if count % _BRIEF == 0:
                    await asyncio.sleep(0)
                await self._room()
        finally:
            drawing.cancel()
        return End(INTERRUPTED, "the process that worked on it has gone", resume)

    # questions ----------------------------------------------------------------------------------------------------

    def _ask(self, run: Run, session: Session, question: Question, node: str) -> None:
        id = f"{run.id}:{question.id}"
        mine = Session(session.dir, session.record, session.redactor)
        if not _is_open(mine, question.id):
            return  # the log tells of the past too

        def hear(answers: Answers | None) -> None:
            self._answer(session, question, answers)

        self._questions.put(id, run, question, node, hear)
        self._asides.start(self._until_answered(mine, question.id, id, run))

    def _answer(self, session: Session, question: Question, answers: Answers | None) -> None:
        """Hand the answer over. A question without an answer pauses the run: it is asked again when that goes on."""
        given = answers or (() if question.default is None else (question.default,))
        if not given:
            _ask_to_stop(session)
            return
        with suppress(SessionError):
            session.reload()
        leave_answer(session, question.id, list(given) if question.multi_select else ", ".join(given))

    async def _until_answered(self, session: Session, question: str, id: str, run: Run) -> None:
        """Close the question where somebody else has answered it."""
        while not run.is_over and _is_open(session, question):  # noqa: ASYNC110  # a file tells it
            await asyncio.sleep(POLL_SECONDS)
        self._questions.close(id)

    # the picture --------------------------------------------------------------------------------------------------

    async def _draw(self, run: Run, session: Session) -> None:
        try:
            picture = await asyncio.to_thread(picture_of, session.record.project, session.record.workflow)
        except (AtomicError, OSError, ValueError) as error:
            _log.warning("the graph of %s cannot be drawn: %s", session.record.workflow, error)
            return
        if picture is not None:
            run.tell(GraphDrawn(run=run.id, lines=picture[0], places=picture[1]))


def _is_open(session: Session, question: str) -> bool:
    """Whether somebody waits for the answer now."""
    try:
        record = session.reload()
    except SessionError:
        return False
    return session.is_owned and question in {one.id for one in record.questions}


def _ask_to_stop(session: Session) -> None:
    with suppress(SessionError):
        session.reload()
    ask_to_stop(session)


async def _end_owner(session: Session) -> None:
    """End the process that works on a run which was started elsewhere; its agents end with it."""
    with suppress(SessionError):
        session.reload()
    owner = session.record.owner
    for number in (signal.SIGTERM, signal.SIGKILL):
        if owner is None or not session.is_owned:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.kill(owner.pid, number)
        await asyncio.sleep(_FORCE_GRACE)


class _Child:
    """`atomic`, started detached. What it says is read, so that it does not stand still; then forgotten."""

    def __init__(self, words: Sequence[str], cwd: Path, input: str) -> None:
        self._process = _start(words, cwd, input)
        self.pid = self._process.pid
        self._output = asyncio.StreamReader(limit=_LONGEST_LINE)
        self._draining: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def heard(self) -> AsyncGenerator[None]:
        """Listen to it. Leaving does not end it: it only is not listened to any more."""
        loop = asyncio.get_running_loop()
        assert self._process.stdout is not None
        watch = ExitWatch(self.pid, self.look)
        try:
            pipe = self._process.stdout
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._output), pipe)
            try:
                yield
            finally:
                transport.close()
        finally:
            watch.close()
            if self._draining is not None:
                self._draining.cancel()

    def look(self) -> None:
        """See whether it has exited: somebody must, or it stays as a shadow of itself."""
        self._process.poll()

    def send(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    async def first_words(self) -> _First:
        """What has become of the start. Raises HostError if nothing has, in time."""
        seconds = start_seconds()
        try:
            async with asyncio.timeout(seconds):
                first = await self._first()
        except TimeoutError:
            await end_group(self.pid)
            raise HostError(f"the workflow has not started within {seconds:g} s (atomic doctor)") from None
        self._draining = asyncio.create_task(self._drain())
        return first

    async def _first(self) -> _First:
        while line := await self._output.readline():
            with suppress(msgspec.DecodeError):
                first = msgspec.json.decode(line, type=_First)
                if first.type in ("run_started", "error", "turn_ended"):
                    return first
        return _First("error")

    async def _drain(self) -> None:
        while await self._output.read(1 << 20):
            pass


def _start(words: Sequence[str], cwd: Path, input: str) -> subprocess.Popen[bytes]:
    """Start it in a session of its own. `input` is in a file without a name: who reads it may outlive us."""
    with open(os.devnull, "rb") if not input else tempfile.TemporaryFile() as given:
        if input:
            given.write(input.encode("utf-8", "replace"))
            given.seek(0)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "atomic", *words],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env={**os.environ, **ANSWERS_BY_INBOX},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise HostError(f"the workflow cannot be started: {error}") from error
