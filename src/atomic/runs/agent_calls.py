"""All calls of agents that a run makes.

A provider is wrapped, so that every session goes through this module: those of `turn`
and sub-agents, and the named ones. The budget reserves before a call and settles after
it. The call is logged, its events are published, the agent's questions reach the user
or pause the run, and a rate limit is recognised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from atomic.graph import Suspend
from atomic.providers.errors import AnswerError
from atomic.providers.events import AgentEvent, EndReason, LimitReached, TurnEnded, Usage, UsageReported
from atomic.providers.prompt_title import role_and_task
from atomic.questions import Question
from atomic.runs.budget import TurnSpending
from atomic.runs.limits import CapReached
from atomic.runs.rate_limits import Parked
from atomic.runs.spending import CharacterCount
from atomic.runs.turn_watch import TurnWatch
from atomic.workflows.errors import TurnCutError

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider, AgentSession, Capabilities, ContextUsage, ModelInfo, SessionOptions
    from atomic.runs.calling_step import CallingStep
    from atomic.runs.runtime import RunRuntime
    from atomic.workspaces import View

ValueT = TypeVar("ValueT")
INTERRUPT_AGAIN = 3.0  # seconds; an interrupt takes 2 at most


class ProviderLimited(BaseException):
    """The agent is rate-limited until `reset_at`.

    A BaseException, so that node code cannot swallow it.
    """

    def __init__(self, provider: str, reset_at: datetime | None, message: str) -> None:
        self.provider = provider
        self.reset_at = reset_at
        self.message = message
        super().__init__(message)


class CutOff(Suspend):
    """The pause of a run after a cap has interrupted a turn, which is paid for."""


class Caller(msgspec.Struct, frozen=True):
    """Who calls an agent, as events and logs name it."""

    node: str
    task: str | None = None
    role: str | None = None
    file: str | None = None  # of an agent that is not built in

    def named_in(self, prompt: str) -> Caller:
        """Return the caller with the role and task that the first line of the prompt
        names.
        """
        role, task = role_and_task(prompt)
        return msgspec.structs.replace(self, role=role or self.role, task=task or self.task)


class StepCalls:
    """Makes the calls of one step."""

    def __init__(self, run: RunRuntime, ctx: CallingStep, caller: Caller) -> None:
        self.run = run
        self.ctx = ctx
        self.caller = caller

    def meter(
        self, provider: AgentProvider, name: str, caller: Caller | None = None, view: View | None = None
    ) -> MeteredProvider:
        """Wrap a provider, so that its sessions go through this object, and its programs
        start in a workspace, if a view of one is given.
        """
        return MeteredProvider(provider, name, self, caller or self.caller, view)

    @asynccontextmanager
    async def call(self, about: CallInfo) -> AsyncGenerator[Call]:
        """Make one call: wait until the budget admits it, and settle it however it
        ends.

        Raises Suspend if a cap is reached.
        """
        async with AsyncExitStack() as stack:
            caller = about.caller
            turn = self.run.budget.turn(
                caller.role, priced=about.priced, provider=about.provider, node=caller.node, task=caller.task,
                model=about.model, file=caller.file, first=CharacterCount(about.prompt).usage,
            )  # fmt: skip
            try:
                with self.ctx.resting():
                    if self.run.host.around_call is not None:
                        await stack.enter_async_context(self.run.host.around_call())
                    spending = await stack.enter_async_context(turn)
            except (CapReached, Parked) as reached:
                raise self.suspend(reached) from reached
            call = Call(self, about, spending)
            self.run.events.call_started(call.line())
            try:
                yield call
            finally:
                call.close()

    def suspend(self, reached: CapReached | Parked, *, is_cut: bool = False) -> Suspend:
        """Return the pause for a limit.

        The step holds it, so that a node cannot swallow it.
        """
        if isinstance(reached, CapReached):
            self.run.events.cap_reached(reached)
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
        """Return what agents of this step asked before an interruption, with the
        answers, for the next prompt.
        """
        lines: list[str] = []
        for text, answer in self.ctx.answers_for_agent().items():
            lines.append(f"- {text}\n  {answer if isinstance(answer, str) else ', '.join(answer)}")
        if not lines:
            return ""
        return "\n\nYou have asked this before, and were answered:\n" + "\n".join(lines)


class CallInfo(msgspec.Struct, frozen=True):
    """The description of a call before it starts."""

    caller: Caller
    provider: str
    model: str | None
    prompt: str
    priced: bool = True
    reports_usage: bool = True  # the agent is known to report tokens


class Call:
    """One call of an agent."""

    def __init__(self, calls: StepCalls, about: CallInfo, spending: TurnSpending) -> None:
        self.about = about
        self.interrupt: Callable[[], Any] | None = None
        self._calls = calls
        self._spending = spending
        self._usage = Usage()  # of the turns that have ended
        self._interim = Usage()  # of the running turn
        self._limit: LimitReached | None = None
        self._ended: TurnEnded | None = None
        self._suspend: Suspend | None = None
        self._stopping: asyncio.Task[Any] | None = None
        self._began = perf_counter()
        self._watch = TurnWatch(calls.run.budget, spending)
        self._watching: asyncio.Task[None] | None = None
        self._cut: CapReached | TurnCutError | None = None
        self._characters = CharacterCount(about.prompt)
        self._is_estimated = False

    def handle(self, event: AgentEvent) -> None:
        """Count and publish an event of the agent."""
        self._watch.note_activity()
        self._characters.count(event)
        if isinstance(event, UsageReported):
            self._interim += event.usage
            self._spending.report(self._usage + self._interim, is_final=False)
            self._watch.note_usage()
        elif self._interim == Usage() and self._characters.has_grown():
            self._spending.report(self._usage + self._characters.usage, is_final=False, estimated=True)
            self._watch.note_usage()
        elif isinstance(event, LimitReached):
            self._limit = event
        self._calls.run.events.agent_activity(self.about.caller, event)
        if isinstance(event, TurnEnded):
            self._end(event)

    def _end(self, ended: TurnEnded) -> None:
        usage = ended.usage
        if usage == Usage() and not self.about.reports_usage and ended.reason is not EndReason.LIMIT:
            usage = self._characters.usage
            self._is_estimated = True
        self._characters.begin_turn()
        self._usage += usage
        self._interim = Usage()
        self._ended = ended
        self._log(ended, usage)  # before the journal: a call that has ended there has its line in the log
        self._spending.report(self._usage, estimated=self._is_estimated)
        self._began = perf_counter()

    def line(self) -> dict[str, Any]:
        """Return the start of the call as a line of `agent-calls.jsonl`."""
        about = self.about
        caller = about.caller
        file = {} if caller.file is None else {"file": caller.file}
        return {
            "time": time.time(), "node": caller.node, "task": caller.task, "role": caller.role, **file,
            "provider": about.provider, "model": about.model, "prompt": about.prompt,
        }  # fmt: skip

    def _log(self, ended: TurnEnded, usage: Usage) -> None:
        seconds = round(perf_counter() - self._began, 3)
        self._spending.end(str(ended.reason), seconds)
        error = ended.error
        if not error and self._cut is not None and ended.reason is not EndReason.DONE:
            error = str(self._cut)
        line = self.line() | {
            "reason": str(ended.reason), "usage": usage, "seconds": seconds,
            "error": error, "call": self._spending.id,
        }  # fmt: skip
        if self._is_estimated:
            line["estimated"] = True
        self._calls.run.end_call(line)

    @asynccontextmanager
    async def watched(self, interrupt: Callable[[], Any]) -> AsyncGenerator[None]:
        """Interrupt the body when it passes a limit."""
        self.interrupt = interrupt
        self._watching = asyncio.create_task(self._enforce_limits(interrupt), name="turn-limits")
        try:
            yield
        finally:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _enforce_limits(self, interrupt: Callable[[], Any]) -> None:
        self._cut = await self._watch.passed()
        self._spending.is_cut = True
        while True:  # until the turn is over: an agent that is still starting ignores the first interrupt
            await interrupt()
            await asyncio.sleep(INTERRUPT_AGAIN)

    def finish(self) -> None:
        """End the call, for a request after which the provider sends no TurnEnded."""
        if self._ended is None:
            self._end(TurnEnded(EndReason.DONE, usage=self._interim))

    def close(self) -> None:
        """Close the call; without a TurnEnded it counts as interrupted."""
        usage = self._interim
        if self._ended is None and usage == Usage() and self._characters.has_any:
            usage = self._characters.usage
            self._is_estimated = True
        if self._ended is None or usage != Usage():
            self._spending.report(self._usage + usage, is_final=False, estimated=self._is_estimated)
            self._log(TurnEnded(EndReason.INTERRUPTED), usage)

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """Forward an agent's questions.

        Without a user, interrupt the turn and pause the run.
        """
        try:
            with self._watch.asking(), self._calls.run.budget.asking(), self._calls.ctx.resting():
                return [await self._ask(question) for question in questions]
        except Suspend as suspend:
            self._suspend = suspend
        if self.interrupt is not None:
            self._stopping = asyncio.create_task(self.interrupt())
        await asyncio.get_running_loop().create_future()  # until the end of the turn cancels this
        raise AssertionError("the turn was not interrupted")

    async def _ask(self, question: Question) -> Sequence[str]:
        ctx = self._calls.ctx
        number = sha256(question.text.encode("utf-8", "replace")).hexdigest()[:6]
        asked = msgspec.structs.replace(question, id=f"{ctx.node_id}-{number}")
        answer = await ctx.ask_for_agent(asked)
        return [answer] if isinstance(answer, str) else answer

    async def check(self) -> None:
        """Raise the error or pause that the end of the turn means for its step.

        Suspend: a question waits, or a cap has interrupted the turn. TurnCutError: the
        turn has passed its own limit. ProviderLimited: the agent is rate-limited.
        """
        if self._stopping is not None:
            await self._stopping
        if self._suspend is not None:
            raise self._suspend
        ended = self._ended
        if self._cut is not None and (ended is None or ended.reason is not EndReason.DONE):
            if isinstance(self._cut, CapReached):
                raise self._calls.suspend(self._cut, is_cut=True)
            self._cut.said = "" if ended is None else ended.text
            raise self._cut
        if ended is not None and ended.reason is EndReason.LIMIT:
            limit = self._limit or LimitReached()
            raise ProviderLimited(self.about.provider, limit.reset_at, limit.message or ended.error or "")


class _CurrentCall:
    """The call that the events and questions of a session belong to at the moment."""

    def __init__(self, watch: Callable[[AgentEvent], None] | None) -> None:
        self.call: Call | None = None
        self._watch = watch

    def handle(self, event: AgentEvent) -> None:
        if self.call is not None:
            self.call.handle(event)
        if self._watch is not None:
            self._watch(event)

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        assert self.call is not None
        return await self.call.ask(questions)


def _in_workspace(options: SessionOptions, view: View) -> SessionOptions:
    """Return options that start the agent's program in a workspace."""
    env = {**(options.env or {}), **view.variables}
    cwd = view.root if options.cwd is None else view.path_of(Path(options.cwd))
    return msgspec.structs.replace(options, cwd=cwd, launcher=view.launcher, env=env)


class MeteredProvider:
    """A provider whose sessions go through a `StepCalls`."""

    def __init__(
        self, provider: AgentProvider, name: str, calls: StepCalls, caller: Caller, view: View | None = None
    ) -> None:
        self._provider = provider
        self._name = name
        self._calls = calls
        self._caller = caller
        self._view = view

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def capabilities(self) -> Capabilities:
        return self._provider.capabilities

    @asynccontextmanager
    async def open(self, options: SessionOptions) -> AsyncGenerator[MeteredSession]:
        """Open a session whose turns are charged, logged and published."""
        current = _CurrentCall(options.watch)
        if self._view is not None:
            options = _in_workspace(options, self._view)
        options = await self._calls.run.prepare(self._provider, options)
        can = self._provider.capabilities
        about = CallInfo(self._caller, self._name, options.model, "", can.cost, can.usage)
        watched = msgspec.structs.replace(options, watch=current.handle, ask=current.ask)
        async with self._provider.open(watched) as session:
            yield MeteredSession(session, current, self._calls, about)

    async def models(self) -> Sequence[ModelInfo]:
        return await self._provider.models()

    async def check(self) -> Any:
        return await self._provider.check()


class MeteredSession:
    """A session of a `MeteredProvider`.

    `calls` and `about` change if several steps share it.
    """

    def __init__(self, session: AgentSession, current: _CurrentCall, calls: StepCalls, about: CallInfo) -> None:
        self.calls = calls
        self.about = about
        self._session = session
        self._current = current

    @property
    def id(self) -> str:
        return self._session.id

    async def send(self, prompt: str) -> AsyncIterator[AgentEvent]:
        """Run one turn. Raises Suspend or ProviderLimited after its end."""
        async with self._call(prompt) as call:
            stream = cast("AsyncGenerator[AgentEvent]", self._session.send(call.about.prompt))
            async with aclosing(stream) as events:
                async for event in events:
                    yield event

    async def ask_for(self, type: type[ValueT], prompt: str) -> ValueT:
        """Return an answer of that type.

        Raises AnswerError, Suspend, ProviderLimited.
        """
        async with self._call(prompt) as call:
            try:
                return await self._session.ask_for(type, call.about.prompt)
            except AnswerError:
                await call.check()
                raise

    @asynccontextmanager
    async def _call(self, prompt: str) -> AsyncGenerator[Call]:
        prompt += self.calls.known_answers()
        about = msgspec.structs.replace(self.about, prompt=prompt, caller=self.about.caller.named_in(prompt))
        async with self.calls.call(about) as call:
            self._current.call = call
            try:
                async with call.watched(self._session.interrupt):
                    yield call
            finally:
                self._current.call = None
        await call.check()

    async def interrupt(self) -> None:
        await self._session.interrupt()

    async def context(self) -> ContextUsage:
        return await self._session.context()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context, which is a call like any other.

        Raises Suspend, ProviderLimited.
        """
        async with self._call("/compact") as call:
            await self._session.compact(focus)
            call.finish()

    async def set_model(self, id: str) -> None:
        await self._session.set_model(id)
