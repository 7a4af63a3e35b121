"""The active runs of a conversation by id, and tasks in the background.

The end of each run is reported exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from atomic.base.errors import AtomicError, message_of
from atomic.chat.protocol import ChatEvent, RunEnded, RunKind, RunStarted

_log = logging.getLogger(__name__)


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended."""

    status: str = "done"
    message: str = ""
    resume: str = ""
    actions: tuple[str, ...] = ()


INTERRUPTED = "interrupted"

Work = Callable[["ChatRun"], Awaitable[RunEnd]]


class ChatRun:
    """An active run. No event is sent after its end."""

    def __init__(self, id: str, prompt: str, emit: Callable[[ChatEvent], None]) -> None:
        self.id = id
        self.prompt = prompt
        self.kind: RunKind | None = None  # None: not known yet
        self.session = ""
        self.is_over = False
        self.is_stopping = False
        self.interrupt: Callable[[], object] | None = None  # how it is stopped; None: its task is cancelled
        self.break_off: Callable[[], object] | None = None  # ends it by force
        self.resume = ""  # the command that resumes it, if it is broken off
        self.task: asyncio.Task[None] | None = None
        self._emit = emit

    def start(self, kind: RunKind, title: str = "", *, session: str = "") -> None:
        """Report its kind and title, once."""
        if self.kind is not None:
            return
        self.kind = kind
        self.session = session
        self.emit(
            RunStarted(run=self.id, kind=kind, title=title, prompt=self.prompt, session=session, time=time.time())
        )

    def emit(self, event: ChatEvent) -> None:
        """Send an event of the run, unless it is over."""
        if not self.is_over:
            self._emit(event)

    def end(self, end: RunEnd) -> None:
        """Report its end; a second call does nothing."""
        if self.is_over:
            return
        self.start(RunKind.COMMAND)
        self.is_over = True
        resume = end.resume or self.resume
        self._emit(
            RunEnded(
                run=self.id,
                status=end.status,
                message=end.message,
                resume=resume,
                actions=end.actions,
                time=time.time(),
            )
        )


class Runs:
    """All active runs. `before_end` is called before the end of a run is reported."""

    def __init__(self, emit: Callable[[ChatEvent], None], before_end: Callable[[ChatRun], None]) -> None:
        self._emit = emit
        self._before_end = before_end
        self._active: dict[str, ChatRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # also of runs that were broken off and still clean up

    def begin(self, id: str, work: Work, *, prompt: str = "") -> ChatRun:
        """Start a run; the result of `work` is its end."""
        run = ChatRun(id, prompt, self._emit)
        self._active[id] = run
        run.task = asyncio.create_task(self._do(run, work), name=f"run-{id}")
        self._tasks.add(run.task)
        run.task.add_done_callback(self._tasks.discard)
        run.task.add_done_callback(lambda _: self._end(run, RunEnd(INTERRUPTED)))  # cancelled before its first step
        return run

    def find(self, id: str) -> ChatRun | None:
        """Return the run if it is active."""
        return self._active.get(id)

    def active(self, *kinds: RunKind) -> list[ChatRun]:
        """Return the active runs of these kinds, or all."""
        return [run for run in self._active.values() if not kinds or run.kind in kinds]

    def interrupt(self, run: ChatRun) -> None:
        """Ask a run to stop, once; its end is reported when it has stopped."""
        if run.is_stopping:
            return
        run.is_stopping = True
        if run.interrupt is not None:
            run.interrupt()
        elif run.task is not None:
            run.task.cancel()

    def break_off(self, run: ChatRun) -> None:
        """Report the end of a run now and end it by force; it may still clean up."""
        run.is_stopping = True
        if run.break_off is not None:
            run.break_off()
        self._end(run, RunEnd(INTERRUPTED))
        if run.task is not None:
            run.task.cancel()

    def detach(self, run: ChatRun, end: RunEnd) -> None:
        """Stop following a run, which continues in another process."""
        self._end(run, end)
        if run.task is not None:
            run.task.cancel()

    async def wait_for(self, runs: Iterable[ChatRun], limit: float) -> None:
        """Wait for the ends of runs, at most `limit` seconds."""
        tasks = {run.task for run in runs if run.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=limit)

    async def wait_for_tasks(self, limit: float) -> None:
        """Wait until all tasks have cleaned up, at most `limit` seconds."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit)

    async def _do(self, run: ChatRun, work: Work) -> None:
        end = RunEnd("failed", "it ended without a result")
        try:
            end = await work(run)
        except asyncio.CancelledError:
            end = RunEnd(INTERRUPTED)
        except AtomicError as error:
            end = RunEnd("failed", message_of(error))
        except Exception as error:  # the user must learn of the end in any case
            _log.exception("run %s failed", run.id)
            end = RunEnd("failed", message_of(error))
        finally:
            self._end(run, end)

    def _end(self, run: ChatRun, end: RunEnd) -> None:
        if not run.is_over:
            self._before_end(run)
        run.end(end)
        self._active.pop(run.id, None)


class BackgroundTasks:
    """Tasks that nothing waits for.

    `on_failure` receives their errors, which are also logged.
    """

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task and keep it until it has ended."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        _log.warning("a background task failed", exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)
