"""The one door through which a run calls agents.

A provider is wrapped, so that whoever opens a session, a node by `turn`, a sub-agent by the bridge or a named session,
comes through here: the governor reserves before and settles after, the call is logged, the host hears what the agent
does, its questions reach a person or pause the run, and a limit of the provider is noticed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import datetime
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from atomic.graph import Suspend
from atomic.providers.errors import AnswerError
from atomic.providers.events import AgentEvent, EndReason, LimitReached, TurnEnded, Usage, UsageReported
from atomic.providers.heading import role_and_task
from atomic.questions import Question
from atomic.workflows.characters import Characters
from atomic.workflows.errors import TurnCutError
from atomic.workflows.governor import Account, CapReached, Governor, Parked
from atomic.workflows.turn_watch import TurnWatch

if TYPE_CHECKING:
    from atomic.graph.context import StepContext
    from atomic.providers.base import AgentProvider, AgentSession, Capabilities, ContextUsage, ModelInfo, SessionOptions

ValueT = TypeVar("ValueT")
INTERRUPT_AGAIN = 3.0  # seconds; an interrupt takes 2 at most


class Limited(BaseException):
    """The provider does not serve now. No Exception: it is nobody's but the door's to handle."""

    def __init__(self, provider: str, reset_at: datetime | None, message: str) -> None:
        self.provider, self.reset_at, self.message = provider, reset_at, message
        super().__init__(message)


class CutOff(Suspend):
    """The pause of a run whose turn at work was interrupted by a cap: that turn was made, and paid for."""


class Caller(msgspec.Struct, frozen=True):
    """Who calls an agent, in the words of events and logs."""

    node: str
    task: str | None = None
    role: str | None = None
    file: str | None = None  # with the words of an agent that is not built in

    def speaking(self, prompt: str) -> Caller:
        """With what the prompt says of itself in its first line."""
        role, task = role_and_task(prompt)
        return msgspec.structs.replace(self, role=role or self.role, task=task or self.task)


class Office(Protocol):
    """What the door needs of the run."""

    @property
    def governor(self) -> Governor: ...

    async def prepared(self, provider: AgentProvider, options: SessionOptions) -> SessionOptions: ...

    def told_activity(self, caller: Caller, event: AgentEvent) -> None: ...

    def told_cap(self, reached: CapReached) -> None: ...

    def began_call(self, line: Mapping[str, Any]) -> None: ...

    def ended_call(self, line: Mapping[str, Any]) -> None: ...


class Door:
    """The door for one step."""

    def __init__(self, office: Office, ctx: StepContext, caller: Caller) -> None:
        self.office, self.ctx, self.caller = office, ctx, caller

    def guard(self, provider: AgentProvider, name: str, caller: Caller | None = None) -> GuardedProvider:
        """The provider, with the door in front of it."""
        return GuardedProvider(provider, name, self, caller or self.caller)

    @asynccontextmanager
    async def call(self, about: CallInfo) -> AsyncGenerator[Call]:
        """One call: admitted by the governor, and settled whatever ends it. Raises Suspend where a cap is reached."""
        async with AsyncExitStack() as stack:
            caller = about.caller
            turn = self.office.governor.turn(
                caller.role, priced=about.priced, provider=about.provider, node=caller.node, task=caller.task,
                model=about.model, file=caller.file, first=Characters(about.prompt).usage,
            )  # fmt: skip
            account = await self._admitted(stack, turn)
            call = Call(self, about, account)
            self.office.began_call(call.line())
            try:
                yield call
            finally:
                call.close()

    async def _admitted(self, stack: AsyncExitStack, turn: Any) -> Account:
        try:
            with self.ctx.resting():
                return await stack.enter_async_context(turn)
        except (CapReached, Parked) as reached:
            raise self.suspend(reached) from reached

    def suspend(self, reached: CapReached | Parked, *, is_cut: bool = False) -> Suspend:
        """Return the pause that a limit brings; the step keeps it, so that no node can swallow it."""
        if isinstance(reached, CapReached):
            self.office.told_cap(reached)
            code = reached.kind
        else:
            code = "provider_limit"
        if is_cut:
            pause: Suspend = CutOff(str(reached), code=code, remedy=reached.remedy)
        else:
            pause = Suspend(str(reached), code=code, begun=False, remedy=reached.remedy)
        self.ctx.hold(pause)
        return pause

    def known_answers(self) -> str:
        """What agents of this step asked before it was cut, and the answers, as a part of the next prompt."""
        known = self.ctx.answers_for_agent()
        lines = [
            f"- {text}\n  {answer if isinstance(answer, str) else ', '.join(answer)}" for text, answer in known.items()
        ]
        return "\n\nYou have asked this before, and were answered:\n" + "\n".join(lines) if lines else ""


class CallInfo(msgspec.Struct, frozen=True):
    """What a call is, before it begins."""

    caller: Caller
    provider: str
    model: str | None
    prompt: str
    priced: bool = True
    tells_usage: bool = True  # the agent is known to tell tokens


class Call:
    """One call of an agent, as its events tell it."""

    def __init__(self, door: Door, about: CallInfo, account: Account) -> None:
        self.about, self._door, self._account = about, door, account
        self.interrupt: Callable[[], Any] | None = None
        self._usage, self._interim = Usage(), Usage()
        self._limit: LimitReached | None = None
        self._ended: TurnEnded | None = None
        self._suspend: Suspend | None = None
        self._stopping: asyncio.Task[Any] | None = None
        self._began = perf_counter()
        self._watch = TurnWatch(door.office.governor, account)
        self._watching: asyncio.Task[None] | None = None
        self._cut: CapReached | TurnCutError | None = None
        self._characters = Characters(about.prompt)
        self._is_estimated = False

    def hear(self, event: AgentEvent) -> None:
        """An event of the agent."""
        self._watch.hear()
        self._characters.count(event)
        if isinstance(event, UsageReported):
            self._interim += event.usage
            self._account.report(self._usage + self._interim, is_final=False)
            self._watch.count()
        elif self._interim == Usage() and self._characters.has_grown():
            self._account.report(self._usage + self._characters.usage, is_final=False, estimated=True)
            self._watch.count()
        elif isinstance(event, LimitReached):
            self._limit = event
        self._door.office.told_activity(self.about.caller, event)
        if isinstance(event, TurnEnded):
            self._end(event)

    def _end(self, ended: TurnEnded) -> None:
        usage = ended.usage
        if usage == Usage() and not self.about.tells_usage and ended.reason is not EndReason.LIMIT:
            usage, self._is_estimated = self._characters.usage, True
        self._characters.begin_turn()
        self._usage, self._interim, self._ended = self._usage + usage, Usage(), ended
        self._log(ended, usage)  # before the journal has it: a call that has ended there has its line
        self._account.report(self._usage, estimated=self._is_estimated)
        self._began = perf_counter()

    def line(self) -> dict[str, Any]:
        """What is known of the call when it begins, as `agent-calls.jsonl` has it."""
        about, caller = self.about, self.about.caller
        return {
            "time": time.time(), "node": caller.node, "task": caller.task, "role": caller.role,
            **({} if caller.file is None else {"file": caller.file}),
            "provider": about.provider, "model": about.model, "prompt": about.prompt,
        }  # fmt: skip

    def _log(self, ended: TurnEnded, usage: Usage) -> None:
        seconds = round(perf_counter() - self._began, 3)
        self._account.end(str(ended.reason), seconds)
        line = self.line() | {
            "reason": str(ended.reason), "usage": usage, "seconds": seconds,
            "error": ended.error or self._why_cut(ended), "call": self._account.id,
        }  # fmt: skip
        if self._is_estimated:
            line["estimated"] = True
        self._door.office.ended_call(line)

    @asynccontextmanager
    async def watched(self, interrupt: Callable[[], Any]) -> AsyncGenerator[None]:
        """Interrupt what is done inside when it passes a limit."""
        self.interrupt = interrupt
        self._watching = asyncio.create_task(self._keep_limits(interrupt), name="turn-limits")
        try:
            yield
        finally:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _keep_limits(self, interrupt: Callable[[], Any]) -> None:
        self._cut = await self._watch.passed()
        self._account.is_cut = True
        while True:  # until the turn is over: one that has not really begun does not hear the first
            await interrupt()
            await asyncio.sleep(INTERRUPT_AGAIN)

    def _why_cut(self, ended: TurnEnded) -> str | None:
        return None if self._cut is None or ended.reason is EndReason.DONE else str(self._cut)

    def finish(self) -> None:
        """It is done, for a provider that tells no end of what was asked."""
        if self._ended is None:
            self._end(TurnEnded(EndReason.DONE, usage=self._interim))

    def close(self) -> None:
        """The call is over; one that nobody heard the end of was cut."""
        usage = self._interim
        if self._ended is None and usage == Usage() and self._characters.has_any:
            usage, self._is_estimated = self._characters.usage, True
        if self._ended is None or usage != Usage():
            self._account.report(self._usage + usage, is_final=False, estimated=self._is_estimated)
            self._log(TurnEnded(EndReason.INTERRUPTED), usage)

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """Put the agent's questions to a person. Where nobody is, the turn ends and the run pauses."""
        try:
            with self._watch.asking(), self._door.office.governor.asking(), self._door.ctx.resting():
                return [await self._ask(question) for question in questions]
        except Suspend as suspend:
            self._suspend = suspend
        if self.interrupt is not None:
            self._stopping = asyncio.create_task(self.interrupt())
        await asyncio.get_running_loop().create_future()  # until the end of the turn cancels this
        raise AssertionError("nobody answers")

    async def _ask(self, question: Question) -> Sequence[str]:
        ctx = self._door.ctx
        number = sha256(question.text.encode("utf-8", "replace")).hexdigest()[:6]
        asked = msgspec.structs.replace(question, id=f"{ctx.node_id}-{number}")
        answer = await ctx.ask_for_agent(asked)
        return [answer] if isinstance(answer, str) else answer

    async def check(self) -> None:
        """Raise what the end of the turn means for its step.

        Suspend: a question waits, or a cap has cut the turn. TurnCutError: its own limit has cut it. Limited: the
        provider does not serve.
        """
        if self._stopping is not None:
            await self._stopping
        if self._suspend is not None:
            raise self._suspend
        ended = self._ended
        if self._cut is not None and (ended is None or ended.reason is not EndReason.DONE):
            if isinstance(self._cut, CapReached):
                raise self._door.suspend(self._cut, is_cut=True)
            self._cut.said = "" if ended is None else ended.text
            raise self._cut
        if ended is not None and ended.reason is EndReason.LIMIT:
            limit = self._limit or LimitReached()
            raise Limited(self.about.provider, limit.reset_at, limit.message or ended.error or "")


class _Line:
    """The line to one session: whose call it is at the moment."""

    def __init__(self, watch: Callable[[AgentEvent], None] | None) -> None:
        self.call: Call | None = None
        self._watch = watch

    def hear(self, event: AgentEvent) -> None:
        if self.call is not None:
            self.call.hear(event)
        if self._watch is not None:
            self._watch(event)

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        assert self.call is not None
        return await self.call.ask(questions)


class GuardedProvider:
    """A provider with the door in front of it."""

    def __init__(self, provider: AgentProvider, name: str, door: Door, caller: Caller) -> None:
        self._provider, self._name, self._door, self._caller = provider, name, door, caller

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def capabilities(self) -> Capabilities:
        return self._provider.capabilities

    @asynccontextmanager
    async def open(self, options: SessionOptions) -> AsyncGenerator[GuardedSession]:
        """Open a session whose turns go through the door."""
        line = _Line(options.watch)
        options = await self._door.office.prepared(self._provider, options)
        heard = msgspec.structs.replace(options, watch=line.hear, ask=line.ask)
        async with self._provider.open(heard) as session:
            yield GuardedSession(session, line, self._door, self._about(options))

    def _about(self, options: SessionOptions) -> CallInfo:
        can = self._provider.capabilities
        return CallInfo(self._caller, self._name, options.model, "", can.cost, can.usage)

    async def models(self) -> Sequence[ModelInfo]:
        return await self._provider.models()

    async def check(self) -> Any:
        return await self._provider.check()


class GuardedSession:
    """A session whose turns go through the door; `door` and `about` change where several steps share it."""

    def __init__(self, session: AgentSession, line: _Line, door: Door, about: CallInfo) -> None:
        self._session, self._line, self.door, self.about = session, line, door, about

    @property
    def id(self) -> str:
        return self._session.id

    async def send(self, prompt: str) -> AsyncIterator[AgentEvent]:
        """One turn. Raises Suspend, Limited behind its end."""
        async with self._calling(prompt) as call, aclosing(_closable(self._session.send(call.about.prompt))) as events:
            async for event in events:
                yield event

    async def ask_for(self, type: type[ValueT], prompt: str) -> ValueT:
        async with self._calling(prompt) as call:
            try:
                return await self._session.ask_for(type, call.about.prompt)
            except AnswerError:
                await call.check()
                raise

    @asynccontextmanager
    async def _calling(self, prompt: str) -> AsyncGenerator[Call]:
        prompt += self.door.known_answers()
        about = msgspec.structs.replace(self.about, prompt=prompt, caller=self.about.caller.speaking(prompt))
        async with self.door.call(about) as call:
            self._line.call = call
            try:
                async with call.watched(self._session.interrupt):
                    yield call
            finally:
                self._line.call = None
        await call.check()

    async def interrupt(self) -> None:
        await self._session.interrupt()

    async def context(self) -> ContextUsage:
        return await self._session.context()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context, which is a call of the model like any other. Raises Suspend, Limited."""
        async with self._calling("/compact") as call:
            await self._session.compact(focus)
            call.finish()

    async def set_model(self, id: str) -> None:
        await self._session.set_model(id)


def _closable(events: AsyncIterator[AgentEvent]) -> AsyncGenerator[AgentEvent]:
    return cast("AsyncGenerator[AgentEvent]", events)
