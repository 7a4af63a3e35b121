"""Base classes of providers and sessions: one turn at a time, one end, a safe
interrupt.

An adapter implements how its program starts a turn, stops one and is killed. All
guarantees to callers are implemented here, once.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from atomic.base.errors import AtomicError
from atomic.config import Settings
from atomic.providers.answers import Wanted, ask_in_text, ask_with_repair
from atomic.providers.base import Ask, Capabilities, ContextUsage, Health, ModelInfo, SessionOptions, ValueT
from atomic.providers.errors import ProgramFailedError, ProviderError, SessionBusyError, UnsupportedError
from atomic.providers.events import AgentEvent, EndReason, Notice, TurnEnded
from atomic.providers.option_checks import only_named, refuse
from atomic.providers.recording import CallRecorder, Recorder
from atomic.providers.turn import Turn
from atomic.questions import Question

# An interrupt takes at most 2 s: first the program may stop by itself, then it is
# killed.
STOP_SECONDS = 1.4
KILL_SECONDS = 0.5
CLEANUP_SECONDS = 30.0  # for the previous turn, before the next one fails

_log = logging.getLogger(__name__)


class LiveSession(ABC):
    """A session whose adapter implements `id`, `run_turn`, `stop_turn` and `break_off`."""

    def __init__(self, provider: str, capabilities: Capabilities, options: SessionOptions) -> None:
        self.provider = provider
        self.capabilities = capabilities
        self.options = options
        self.notices: list[str] = []  # for the user, sent with the next turn
        self._turn: Turn | None = None
        self._work: asyncio.Task[None] | None = None  # runs `_turn`
        self._stopping: asyncio.Task[None] | None = None  # the interrupt of `fail_turn`
        self._leftovers: set[asyncio.Task[None]] = set()  # cancelled tasks that still run
        self._recorder = None if options.record is None else Recorder(provider, options)

    # For adapters

    @property
    @abstractmethod
    def id(self) -> str: ...

    @abstractmethod
    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Send the prompt and report events, up to `turn.end`.

        Returning or raising before the end is an error. With a schema (only if
        `capabilities.structured` is "native") the text of the end is the answer as
        JSON.
        """

    @abstractmethod
    async def stop_turn(self, turn: Turn) -> None:
        """Ask the program to stop this turn.

        Its own end still arrives through `run_turn`.
        """

    @abstractmethod
    async def break_off(self) -> None:
        """Kill the processes of this session; the next turn starts them again.

        It is called if the program does not stop in time.
        """

    # For callers

    def send(self, prompt: str) -> AsyncGenerator[AgentEvent]:
        """Run one turn and yield its events; TurnEnded is always the last one.

        Closing the iterator interrupts the turn.
        """
        return self._send(prompt, None)

    async def interrupt(self) -> None:
        """Stop the turn within 2 s; the session stays usable.

        Do nothing without a turn.
        """
        turn = self._turn
        if turn is None or turn.over:
            return
        turn.ending = True
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        if await self._bounded("stopped", self.stop_turn(turn), STOP_SECONDS) and not turn.over:
            await turn.wait_over(deadline - asyncio.get_running_loop().time())
        if not turn.over:
            _log.info("%s did not stop within %s s and is killed", self.provider, STOP_SECONDS)
            try:
                await self._bounded("killed", self.break_off(), KILL_SECONDS)
            finally:
                turn.end(EndReason.INTERRUPTED)

    def fail_turn(self, why: str) -> None:
        """Stop the turn and end it as an error, for a reason on Atomic's side."""
        if self._turn is not None and not self._turn.over:
            self._turn.problem = why
            self._stopping = asyncio.create_task(self.interrupt())

    def keep_secret(self, *environments: Mapping[str, str]) -> None:
        """Keep values of these environments that look like secrets out of the
        recording.
        """
        if self._recorder is not None:
            self._recorder.learn(*environments)

    async def settle(self) -> None:
        """End the current turn, if any, before the session closes."""
        await self.interrupt()
        if self._work is not None:
            await self._cancel_and_wait(self._work)

    async def context(self) -> ContextUsage:
        """Return how full the context is; zeros mean unknown."""
        return ContextUsage()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context. Raise UnsupportedError."""
        raise UnsupportedError(f"{self.provider} cannot compact a session", provider=self.provider)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raise UnsupportedError."""
        raise UnsupportedError(f"{self.provider} cannot change the model of a session", provider=self.provider)

    async def ask_for(self, type: type[ValueT], prompt: str) -> ValueT:
        """Run one turn and return its answer as a value of `type`.

        Raise AnswerError.
        """
        wanted = Wanted(type)
        if self.capabilities.structured == "native":
            return await ask_with_repair(partial(self._send, schema=wanted.schema), wanted, prompt, repairs=2)
        return await ask_in_text(self.send, wanted, prompt)

    # Internals

    async def _send(self, prompt: str, schema: Mapping[str, Any] | None) -> AsyncGenerator[AgentEvent]:
        if self._turn is not None:
            raise SessionBusyError(self.provider)
        call = None if self._recorder is None else self._recorder.call(prompt)
        turn = self._turn = Turn(self.provider, on_event=None if call is None else call.add)
        self._work = asyncio.create_task(self._do_turn(prompt, turn, schema, call), name=f"{self.provider}-turn")
        try:
            async with aclosing(self._events_of(turn, call)) as events:
                async for event in events:
                    if self.options.watch is not None:
                        self.options.watch(event)
                    yield event
        finally:
            await undisturbed(self._finish(turn, self._work, call))

    async def _events_of(self, turn: Turn, call: CallRecorder | None) -> AsyncGenerator[AgentEvent]:
        """Yield the events of a turn.

        The call is recorded before the end is yielded.
        """
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
            for text in dict.fromkeys(self.notices):
                turn.emit(Notice(text))
            self.notices.clear()
            if not turn.over:
                await self.run_turn(prompt, turn, schema=schema)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                turn.end(EndReason.INTERRUPTED)
                raise
            turn.end(EndReason.ERROR, error=f"{self.provider}: an operation of the turn was cancelled")
        except (ProviderError, OSError) as error:
            turn.end(EndReason.ERROR, error=str(error) or f"{self.provider}: {type(error).__name__}")
        except Exception as error:  # an adapter's bug ends only this turn
            _log.exception("%s: the turn failed", self.provider)
            turn.end(EndReason.ERROR, error=f"{self.provider}: {type(error).__name__}: {error}")
        turn.end(EndReason.ERROR, error=f"{self.provider} ended the stream without ending the turn")

    async def _finish(self, turn: Turn, work: asyncio.Task[None], call: CallRecorder | None) -> None:
        """Clean up after a turn: the reader has closed the iterator or has read the
        end.
        """
        try:
            if not turn.over:
                await self.interrupt()
            await self._cancel_and_wait(work)
            if call is not None:
                await call.finish(self.id)
        finally:
            self._turn = None

    async def _bounded(self, what: str, work: Coroutine[Any, Any, None], seconds: float) -> bool:
        """Run `work` for at most `seconds` and return whether it succeeded.

        Work that takes longer is cancelled, but not waited for.
        """
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            self._cancel(task)
        if not task.done():
            _log.warning("%s could not be %s within %s s", self.provider, what, seconds)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s could not be %s: %s: %s", self.provider, what, type(error).__name__, error)
        return task.done() and not task.cancelled() and task.exception() is None

    async def _cancel_and_wait(self, work: asyncio.Task[None]) -> None:
        """Cancel the work of a turn and wait briefly.

        The next turn waits for the rest.
        """
        self._cancel(work)
        await asyncio.wait({work}, timeout=KILL_SECONDS)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            task.cancel()
            self._leftovers.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._leftovers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s: %s: %s", self.provider, type(error).__name__, error)

    async def _wait_for_leftovers(self) -> None:
        if self._leftovers and (await asyncio.wait(self._leftovers, timeout=CLEANUP_SECONDS))[1]:
            raise ProgramFailedError(
                f"{self.provider} is still busy with an interrupted turn",
                provider=self.provider,
                remedy="open a new session",
            )


class LiveProvider(ABC):
    """A provider whose adapter implements `start`, `models` and `check`."""

    name: str
    capabilities: Capabilities

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def require_program(self) -> None:  # noqa: B027  # a replay needs no program
        """Raise ProgramMissingError if this needs a program that is not installed.

        Nothing is started.
        """

    @abstractmethod
    def start(self, options: SessionOptions) -> AbstractAsyncContextManager[LiveSession]:
        """Open a session; leaving the context ends it and its processes.

        Raise ProviderError.
        """

    @abstractmethod
    async def models(self) -> Sequence[ModelInfo]: ...

    @abstractmethod
    async def check(self) -> Health: ...

    @asynccontextmanager
    async def open(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session; leaving the context ends it and its processes.

        That holds for cancellation too. Raise ProviderError.
        """
        refuse(self.name, self.capabilities, options)
        options = only_named(options)
        relay = None
        if options.ask is not None:
            relay = QuestionRelay(options.ask)
            options = replace(options, ask=relay.ask)
        async with AsyncExitStack() as stack:
            session = await self._entered(stack, options)
            if relay is not None:
                relay.give_up = session.fail_turn
            session.keep_secret(*(known.env for known in self.settings.providers.values()))
            try:
                yield session
            finally:
                await undisturbed(session.settle())

    async def _entered(self, stack: AsyncExitStack, options: SessionOptions) -> LiveSession:
        """Start the session.

        If the program does not start, add the remedy of `check`.
        """
        try:
            return await stack.enter_async_context(self.start(options))
        except ProgramFailedError as error:
            if error.remedy or (health := await self.check()).ok:
                raise
            raise ProgramFailedError(str(error), provider=self.name, remedy=health.remedy) from error


async def undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to completion, then raise a cancellation that arrived during it."""
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


class QuestionRelay:
    """Calls the caller's `ask` for an adapter and ends the turn if it raises.

    If the agent received the error instead, it would continue without the answer and
    might report success.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.give_up: Callable[[str], None] | None = None  # `fail_turn` of the open session

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """Return the chosen labels for each question.

        Without an answer, wait until the turn has ended.
        """
        try:
            answers = await self._ask(questions)
            if len(answers) != len(questions):
                raise AtomicError(f"`ask` returned {len(answers)} answers for {len(questions)} questions")
            # A plain string is one label, not a list of its letters.
            return [[labels] if isinstance(labels, str) else list(labels) for labels in answers]
        except Exception as error:  # the caller's function may raise anything
            if self.give_up is None:
                raise
            _log.info("could not answer a question of the agent", exc_info=error)
            reason = str(error) if isinstance(error, AtomicError) else f"{type(error).__name__}: {error}"
            self.give_up(f"the agent's question could not be answered: {reason}")
        return await asyncio.get_running_loop().create_future()
