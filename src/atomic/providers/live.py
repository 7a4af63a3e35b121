"""What all providers have in common: one turn at a time, one end for each, an interrupt that always works.

An adapter says how its program begins a turn, stops one and is broken off; everything a caller may rely on is
made here, once.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from atomic.config import Settings
from atomic.providers.answers import Wanted, ask_in_text, ask_with_repair
from atomic.providers.asking import Asking
from atomic.providers.base import Capabilities, ContextUsage, Health, ModelInfo, SessionOptions, ValueT
from atomic.providers.errors import ProgramFailedError, ProviderError, SessionBusyError, UnsupportedError
from atomic.providers.events import AgentEvent, EndReason, Notice, TurnEnded
from atomic.providers.optional import only_named
from atomic.providers.recording import CallRecorder, Recorder
from atomic.providers.refusing import refuse
from atomic.providers.turns import Turn

POLITE = 1.4  # seconds that a program has to stop by itself; the rest of the two is for breaking it off
BREAKING = 0.5
LEAVING = 30.0  # for the work of a turn that was broken off, before the next one gives up

_log = logging.getLogger(__name__)


class LiveSession(ABC):
    """A session whose adapter implements `id`, `run_turn`, `stop_turn` and `break_off`."""

    def __init__(self, provider: str, capabilities: Capabilities, options: SessionOptions) -> None:
        self.provider, self.capabilities, self.options = provider, capabilities, options
        self.notices: list[str] = []  # what a person is to know of the session, told with the next turn
        self._turn: Turn | None = None
        self._work: asyncio.Task[None] | None = None  # of that turn
        self._stopping: asyncio.Task[None] | None = None  # an interrupt of our own
        self._leftovers: set[asyncio.Task[None]] = set()  # work of turns that were broken off may still be ending
        self._recorder = None if options.record is None else Recorder(provider, options)

    # what an adapter says -------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def id(self) -> str: ...

    @abstractmethod
    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Send the prompt and tell what comes of it, up to `turn.end`. Returning or raising before that is an error.

        With a schema (only where `capabilities.structured` is native) the text of the end is the answer as JSON.
        """

    @abstractmethod
    async def stop_turn(self, turn: Turn) -> None:
        """Ask the program to stop this turn; its own end signal still comes through `run_turn`."""

    @abstractmethod
    async def break_off(self) -> None:
        """The program does not stop: end what belongs to this session. The next turn starts it again."""

    # what a caller gets ---------------------------------------------------------------------------------------

    def send(self, prompt: str) -> AsyncGenerator[AgentEvent]:
        """One turn; the last event, and only the last, is TurnEnded. Closing the iterator interrupts the turn."""
        return self._send(prompt, None)

    async def interrupt(self) -> None:
        """Stop the turn within 2 s; the session can go on. Without a turn it does nothing."""
        turn = self._turn
        if turn is None or turn.over:
            return
        turn.ending = True
        deadline = asyncio.get_running_loop().time() + POLITE
        if await self._bounded("asked to stop", self.stop_turn(turn), POLITE) and not turn.over:
            await turn.wait_over(deadline - asyncio.get_running_loop().time())
        if not turn.over:
            _log.info("%s did not stop within %s s: it is broken off", self.provider, POLITE)
            try:
                await self._bounded("broken off", self.break_off(), BREAKING)
            finally:
                turn.end(EndReason.INTERRUPTED)

    def fail_turn(self, why: str) -> None:
        """The turn cannot go on for a reason of ours: it is stopped, and ends as an error."""
        if self._turn is not None and not self._turn.over:
            self._turn.problem = why
            self._stopping = asyncio.create_task(self.interrupt())

    def keep_secret(self, *environments: Mapping[str, str]) -> None:
        """What looks like a secret in these is not to be recorded."""
        if self._recorder is not None:
            self._recorder.learn(*environments)

    async def settle(self) -> None:
        """End the turn, if there is one, whether or not somebody still reads it; the session is about to close."""
        await self.interrupt()
        if self._work is not None:
            await self._put_down(self._work)

    async def context(self) -> ContextUsage:
        """How full the context is; zeros where nobody knows."""
        return ContextUsage()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context. Raises UnsupportedError."""
        raise UnsupportedError(f"{self.provider} cannot compact a session", provider=self.provider)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raises UnsupportedError."""
        raise UnsupportedError(f"{self.provider} cannot change the model of a session", provider=self.provider)

    async def ask_for(self, type: type[ValueT], prompt: str) -> ValueT:
        """One turn whose answer is a value of that type. Raises AnswerError."""
        wanted = Wanted(type)
        if self.capabilities.structured == "native":
            return await ask_with_repair(partial(self._send, schema=wanted.schema), wanted, prompt, repairs=2)
        return await ask_in_text(self.send, wanted, prompt)

    # how it is kept -------------------------------------------------------------------------------------------

    async def _send(self, prompt: str, schema: Mapping[str, Any] | None) -> AsyncGenerator[AgentEvent]:
        if self._turn is not None:
            raise SessionBusyError(self.provider)
        call = None if self._recorder is None else self._recorder.call(prompt)
        turn = self._turn = Turn(self.provider, hear=None if call is None else call.hear)
        self._work = asyncio.create_task(self._do_turn(prompt, turn, schema, call), name=f"{self.provider}-turn")
        try:
            async with aclosing(self._told(turn, call)) as events:
                async for event in events:
                    if self.options.watch is not None:
                        self.options.watch(event)
                    yield event
        finally:
            await undisturbed(self._finish(turn, self._work, call))

    async def _told(self, turn: Turn, call: CallRecorder | None) -> AsyncGenerator[AgentEvent]:
        """The events of a turn; before the end is told, what there is to record has been seen in the files."""
        async with aclosing(turn.events()) as events:
            async for event in events:
                if call is not None and isinstance(event, TurnEnded):
                    for notice in await call.finish(self.id):
                        yield notice
                yield event

    async def _do_turn(
        self, prompt: str, turn: Turn, schema: Mapping[str, Any] | None, call: CallRecorder | None
    ) -> None:
        try:
            await self._wait_for_leftovers()
            if call is not None:
                await call.start()
            self._tell_notices(turn)
            if not turn.over:
                await self.run_turn(prompt, turn, schema=schema)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                turn.end(EndReason.INTERRUPTED)
                raise
            turn.end(EndReason.ERROR, error=f"{self.provider}: something that the turn waited for was cancelled")
        except (ProviderError, OSError) as error:
            turn.end(EndReason.ERROR, error=str(error) or f"{self.provider}: {type(error).__name__}")
        except Exception as error:  # a message that an adapter could not read: it ends this turn, never the program
            _log.exception("%s: the turn failed", self.provider)
            turn.end(EndReason.ERROR, error=f"{self.provider}: {type(error).__name__}: {error}")
        turn.end(EndReason.ERROR, error=f"{self.provider} ended the stream without saying that the turn is over")

    def _tell_notices(self, turn: Turn) -> None:
        notices, self.notices[:] = dict.fromkeys(self.notices), []
        for text in notices:
            turn.tell(Notice(text))

    async def _finish(self, turn: Turn, work: asyncio.Task[None], call: CallRecorder | None) -> None:
        """The reader has gone, or has read the end: leave nothing of the turn behind."""
        try:
            if not turn.over:
                await self.interrupt()
            await self._put_down(work)
            if call is not None:
                await call.finish(self.id)
        finally:
            self._turn = None

    async def _bounded(self, what: str, work: Coroutine[Any, Any, None], seconds: float) -> bool:
        """Do something that must not take longer, even if it does not want to stop; whether it was done."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            self._let_end(task)
        if not task.done():
            _log.warning("%s could not be %s within %s s", self.provider, what, seconds)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s could not be %s: %s: %s", self.provider, what, type(error).__name__, error)
        return task.done() and not task.cancelled() and task.exception() is None

    async def _put_down(self, work: asyncio.Task[None]) -> None:
        """End the work of a turn; what does not end at once may take its time, but is not forgotten."""
        self._let_end(work)
        await asyncio.wait({work}, timeout=BREAKING)

    def _let_end(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            task.cancel()
            self._leftovers.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._leftovers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s: %s: %s", self.provider, type(error).__name__, error)

    async def _wait_for_leftovers(self) -> None:
        if self._leftovers and (await asyncio.wait(self._leftovers, timeout=LEAVING))[1]:
            raise ProgramFailedError(
                f"{self.provider} is still busy with a turn that was broken off",
                provider=self.provider,
                remedy="open another session",
            )


class LiveProvider(ABC):
    """A provider whose adapter implements `start`, `models` and `check`."""

    name: str
    capabilities: Capabilities

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def start(self, options: SessionOptions) -> AbstractAsyncContextManager[LiveSession]:
        """Open a session; leaving the context ends it and its processes. Raises ProviderError."""

    @abstractmethod
    async def models(self) -> Sequence[ModelInfo]: ...

    @abstractmethod
    async def check(self) -> Health: ...

    @asynccontextmanager
    async def open(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session; leaving the context ends it and its processes, on cancellation too. Raises ProviderError."""
        refuse(self.name, self.capabilities, options)
        asking = None if options.ask is None else Asking(options.ask)
        options = replace(only_named(options), ask=None if asking is None else asking.ask)
        async with AsyncExitStack() as stack:
            session = await self._entered(stack, options)
            if asking is not None:
                asking.give_up = session.fail_turn
            session.keep_secret(*(known.env for known in self.settings.providers.values()))
            try:
                yield session
            finally:
                await undisturbed(session.settle())

    async def _entered(self, stack: AsyncExitStack, options: SessionOptions) -> LiveSession:
        """The session. A program that does not start is asked why: it may be too old, or without a login."""
        try:
            return await stack.enter_async_context(self.start(options))
        except ProgramFailedError as error:
            if error.remedy or (health := await self.check()).ok:
                raise
            raise ProgramFailedError(str(error), provider=self.name, remedy=health.remedy) from error


async def undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Clean up to the end; a cancellation that comes meanwhile is raised behind it."""
    task = asyncio.create_task(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    task.result()
    if interruption is not None:
        raise interruption
