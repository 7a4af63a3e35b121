"""The conversation: one session of an agent that is kept open, one turn at a time.

A session that fails is opened again where it was; where the agent cannot do that, it is told what was said.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any, cast

import msgspec

from atomic.base.errors import AtomicError, message_of
from atomic.chat.agent_session import Keeper
from atomic.chat.agents import Agents
from atomic.chat.background_tasks import Asides
from atomic.chat.log import ChatLog, last_exchanges
from atomic.chat.protocol import Activity, Level
from atomic.chat.questions import Questions
from atomic.chat.runs import INTERRUPTED, End, Run
from atomic.commands import TurnPrompt
from atomic.commands.errors import CommandError
from atomic.providers import (
    AgentEvent,
    AgentProvider,
    AgentSession,
    ContextUsage,
    EndReason,
    ProviderError,
    SessionOptions,
    TextDelta,
    TurnEnded,
    UnsupportedError,
    Usage,
)
from atomic.sessions.store import Session
from atomic.wiring import Project

BUSY = "The agent is answering (wait for its end, or stop it)"
_CONTEXT_LIMIT = 5.0  # seconds to ask an agent how full its context is
_SUMMARY_LIMIT = 90.0
_KEPT = 6  # exchanges that are told to an agent which does not know them
_LONG = 4_000  # characters of each
_NO_ANSWER = ("(The person does not want to answer this question: decide yourself, or go on without it.)",)
_WHY = {
    EndReason.ERROR: "the turn failed",
    EndReason.REFUSED: "the agent refused",
    EndReason.MAX_TURNS: "the agent took as many turns as it may and was not done",
    EndReason.LIMIT: "the provider does not serve now",
}
_NEXT = {
    EndReason.ERROR: "Send the message again to retry, or choose another agent with /agent.",
    EndReason.LIMIT: "Send the message again later, or choose another agent with /agent.",
}
_STATUS = {EndReason.DONE: "done", EndReason.INTERRUPTED: INTERRUPTED, EndReason.LIMIT: "limit"}
SUMMARY_PROMPT = (
    "Another agent takes this conversation over. Tell it, in at most 300 words and without using any tool, what the "
    "person wants, what was done and decided, which files matter, and what is left to do."
)

_log = logging.getLogger(__name__)

Say = Callable[[str, Level], None]


class Wanted(msgspec.Struct, frozen=True):
    """How a session differs from that of the plain conversation."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    system_prompt: str | None = None
    agents: tuple[Any, ...] = ()


PLAIN = Wanted()


class Conversation:
    """Who is talked to, in which session, and what goes along with the next prompt."""

    def __init__(
        self,
        project: Project,
        agents: Agents,
        questions: Questions,
        log: ChatLog,
        *,
        say: Say,
        changed: Callable[[], None],
        room: Callable[[], Coroutine[Any, Any, None]],
        agent: str | None = None,
        model: str | None = None,
        record: str | None = None,
        resume: str | None = None,
    ) -> None:
        self.project, self.log = project, log
        self.agent, self.model = agent, model  # as they were named
        self.provider: AgentProvider | None = None
        self.problem = ""
        self.usage = Usage()
        self.context = ContextUsage()
        self._agents, self._questions = agents, questions
        self._say, self._changed, self._room, self.record = say, changed, room, record
        self._keeper: Keeper | None = None
        self._resume = resume  # the provider's id of the session, once it has something to remember
        self._run: Run | None = None  # whose turn it is
        self._before: list[str] = []  # what goes along with the next prompt
        self._exchanges: deque[tuple[str, str]] = deque(maxlen=_KEPT)
        self._choosing, self._opening = asyncio.Lock(), asyncio.Lock()
        self._is_warned = False
        self._asides = Asides()
        self._settling: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the agent is at work for it."""
        return self._run is not None

    @property
    def config(self) -> dict[str, Any]:
        """What `session.json` keeps of it."""
        return {"provider": self.agent, "model": self.model, "provider_session": self._resume}

    @property
    def flags(self) -> list[str]:
        """With whom a workflow is to work that is started here."""
        chosen = (("--agent", self.agent), ("--model", self.model), ("--record", self.record))
        return [word for flag, value in chosen if value for word in (flag, value)]

    def warm_up(self) -> None:
        """Find the agent and open its session, while nobody waits for it."""
        self._asides.start(self._warm_up())

    def add_context(self, text: str) -> None:
        """Let a text go along with the next prompt."""
        self._before.append(text)

    def remember(self, prompt: str, answer: str) -> None:
        """Know what was said, should an agent have to be told."""
        self._exchanges.append((prompt[:_LONG], answer[-_LONG:]))

    def know(self, session: Session) -> None:
        """Take over what was kept of it."""
        record = session.record
        for prompt, answer in last_exchanges(session, _KEPT):
            self.remember(prompt, answer)
        self.usage = Usage(record.cost.input_tokens, record.cost.output_tokens, cost=record.cost.usd)

    def spend(self, usage: Usage) -> None:
        """Add what was spent beside its turns."""
        self.usage += usage
        self._save()

    # a turn -------------------------------------------------------------------------------------------------------

    async def turn(self, run: Run, prompt: TurnPrompt) -> End:
        """One turn to its end. Raises CommandError while there is another."""
        with self._taken(run):
            provider = await self._provider()
            await self.log.begin(run.prompt or prompt.text, self.config)
            wanted = await self._wanted(prompt, provider)
            if prompt.subtask or (wanted != PLAIN and self._resume and not provider.capabilities.resume):
                return await self._turn_apart(run, provider, wanted, prompt.text)
            session = await self._session(wanted)
            ended = await self._hear(run, session, self._with_context(prompt.text))
            self._note(session, run.prompt or prompt.text, ended)
            return self._end(ended, provider)

    async def compact(self, run: Run, focus: str) -> None:
        """Summarise the context. Raises UnsupportedError."""
        with self._taken(run):
            provider = await self._provider()
            if not provider.capabilities.compact:
                raise UnsupportedError(f"{provider.name} cannot summarise its context", provider=provider.name)
            if self._resume is None:
                raise CommandError("There is nothing to summarise yet")
            session = await self._session(PLAIN)
            try:
                await session.compact(focus)
            except asyncio.CancelledError:
                self._drop()  # who knows how far it was
                raise
            await self._look_at_context(session)

    async def set_model(self, run: Run, model: str) -> None:
        """Use another model from now on. Raises UnsupportedError."""
        with self._taken(run):
            provider = await self._provider()
            if not provider.capabilities.models:
                raise UnsupportedError(f"{provider.name} cannot change the model", provider=provider.name)
            session = await self._session(PLAIN)
            await session.set_model(model)
            self.model = model
            self._save()

    async def switch(self, run: Run, name: str) -> str:
        """Go on with another agent; what it will be told. Raises AtomicError, and then nothing has changed."""
        with self._taken(run):
            name, provider = await self._agents.choose(name)
            if provider is self.provider:
                raise CommandError(f"{name} is the agent already")
            keeper = self._open(provider, PLAIN, model=None, resume=None)
            try:
                await keeper.session()
                summary = await self._summary(run)
                if run.is_stopping:
                    raise asyncio.CancelledError
            except BaseException:
                self._asides.start(keeper.close())
                raise
            self._drop()
            self.agent, self.provider, self.model, self._keeper = name, provider, None, keeper
            self.problem, self.context, self._resume = "", ContextUsage(), None
            if summary:
                self._before.insert(0, summary)
            self._save()
            return summary

    async def models_provider(self) -> tuple[str, AgentProvider]:
        """The agent in use and its name. Raises AtomicError."""
        provider = await self._provider()
        return self.agent or provider.name, provider

    async def close(self) -> None:
        """End the session; the folder is nobody's then."""
        self._asides.cancel()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.close()
        if self._closing is not None:
            await asyncio.wait({self._closing}, timeout=2.0)
        self.log.close()

    # how it is done -----------------------------------------------------------------------------------------------

    @contextmanager
    def _taken(self, run: Run) -> Generator[None]:
        if self._run is not None:
            raise CommandError(BUSY)
        self._run = run
        run.break_off = lambda: self._break_off(run)
        try:
            yield
        finally:
            self._release(run)

    def _release(self, run: Run) -> None:
        if self._run is run:
            self._run = None
            self._changed()

    def _break_off(self, run: Run) -> None:
        """Nobody waits for this turn any more: the next one gets another session."""
        self._drop()
        self._release(run)

    async def _provider(self) -> AgentProvider:
        async with self._choosing:  # the first prompt may come while it is looked for
            if self.provider is None:
                try:
                    self.agent, self.provider = await self._agents.choose(self.agent)
                    self.problem = ""
                except AtomicError as error:
                    self.problem = message_of(error)
                    raise
                finally:
                    self._changed()
            return self.provider

    async def _warm_up(self) -> None:
        provider = None
        try:
            provider = await self._provider()
            if self._run is None:  # else its turn opens it, as it wants it
                await self._session(PLAIN)
        except Exception as error:  # the first prompt tries again
            if not isinstance(error, AtomicError | OSError):
                _log.exception("the agent could not be started")
            if self.provider is provider:  # else the person has chosen another meanwhile
                self.problem = message_of(error)
        self._changed()

    async def _wanted(self, prompt: TurnPrompt, provider: AgentProvider) -> Wanted:
        can = provider.capabilities
        model = await self._agents.fitting_model(
            self.agent or provider.name, provider, prompt, lambda text: self._say(text, Level.WARNING)
        )
        return Wanted(
            model if model != self.model else None,
            None if prompt.tools is None else tuple(prompt.tools),
            tuple(prompt.denied_tools),
            prompt.system_prompt,
            tuple(prompt.agents) if can.subagents else (),
        )

    async def _session(self, wanted: Wanted) -> AgentSession:
        """The session of the conversation, as it is wanted; opened again where it must be."""
        async with self._opening:
            await self._settled()
            keeper = self._keeper
            if keeper is None or keeper.has_failed or keeper.wanted != wanted:
                session = await self._opened(wanted)
            else:
                session = await keeper.session()
        self.problem = ""
        return session

    async def _opened(self, wanted: Wanted) -> AgentSession:
        """Another session: the same conversation where the agent can go on with it, else it is told what was said."""
        assert self.provider is not None
        self._drop()
        await self._closed()
        if self._resume is None or self.provider.capabilities.resume:
            keeper = self._keeper = self._open(self.provider, wanted, model=self.model, resume=self._resume)
            try:
                return await keeper.session()
            except ProviderError:
                if self._resume is None:
                    raise
                self._drop()
        keeper = self._keeper = self._open(self.provider, wanted, model=self.model, resume=None)
        session = await keeper.session()
        self._tell_what_was_said()
        return session

    def _tell_what_was_said(self) -> None:
        self._say("The agent has lost the conversation; it is told the last of it.", Level.WARNING)
        self._resume = None
        if said := self._last_exchanges():
            self._before.insert(0, said)

    def _open(self, provider: AgentProvider, wanted: Wanted, *, model: str | None, resume: str | None) -> Keeper:
        return Keeper(provider, lambda: self._options(provider, wanted, model, resume), wanted)

    async def _options(
        self, provider: AgentProvider, wanted: Wanted, model: str | None, resume: str | None
    ) -> SessionOptions:
        project = self.project
        trusted = await asyncio.to_thread(project.is_trusted)
        options = SessionOptions(
            cwd=str(project.cwd),
            model=wanted.model or model or project.settings.model,
            tools=wanted.tools,
            denied_tools=wanted.denied_tools,
            system_prompt=wanted.system_prompt,
            agents=wanted.agents,
            ask=self._questions.asker(lambda: self._run, self.unanswered(provider), who=provider.name),
            record=self.record,
            resume=resume,
            trusted=trusted,
        )
        mcp = await project.session_mcp(provider, trusted=trusted, tell=lambda text: self._say(text, Level.WARNING))
        return mcp.added_to(options)

    @staticmethod
    def unanswered(provider: AgentProvider) -> Sequence[str]:
        """What an agent is told where the person dismisses its question; over ACP a form can be declined."""
        return () if provider.name.startswith("acp") else _NO_ANSWER

    async def _hear(self, run: Run, session: AgentSession, prompt: str) -> TurnEnded:
        """Send it and tell what comes of it, up to the end."""
        run.interrupt = lambda: self._asides.start(session.interrupt())
        if run.is_stopping:
            return TurnEnded(EndReason.INTERRUPTED)
        async with aclosing(_events(session, prompt)) as events:
            async for event in events:
                run.tell(Activity(run=run.id, event=event, time=time.time()))
                if isinstance(event, TurnEnded):
                    return event
                await self._room()
        return TurnEnded(EndReason.ERROR, error="the stream ended without saying that the turn is over")

    async def _turn_apart(self, run: Run, provider: AgentProvider, wanted: Wanted, text: str) -> End:
        """A turn in a session of its own: what it reads does not fill the conversation."""
        keeper = self._open(provider, wanted, model=self.model, resume=None)
        run.break_off = lambda: self._release(run)
        try:
            ended = await self._hear(run, await keeper.session(), text)
        finally:
            self._asides.start(keeper.close())
        self.usage += ended.usage
        return self._end(ended, provider)

    def _note(self, session: AgentSession, prompt: str, ended: TurnEnded) -> None:
        """The turn is over: what it was is kept, and how full the context is now is asked for."""
        self.usage += ended.usage
        self.remember(prompt, ended.text)
        if ended.reason is not EndReason.ERROR or self._resume is not None:
            self._resume = session.id
        self._save()
        self._settling = self._asides.start(self._look_at_context(session))

    def _end(self, ended: TurnEnded, provider: AgentProvider) -> End:
        if ended.reason in (EndReason.DONE, EndReason.INTERRUPTED):
            return End(_STATUS[ended.reason])
        why = ended.error or _WHY[ended.reason]
        why = why if why.startswith(provider.name) else f"{provider.name}: {why}"
        if ended.reason is EndReason.ERROR:
            self._asides.start(self._tell_remedy(provider, why))
        if (advice := _NEXT.get(ended.reason)) is not None:
            why = f"{why.rstrip().rstrip('.')}. {advice}"
        return End(_STATUS.get(ended.reason, "failed"), why)

    async def _tell_remedy(self, provider: AgentProvider, why: str) -> None:
        """An agent that failed may lack something; to find out takes a while, and the end does not wait for it."""
        remedy = await self._agents.remedy(provider, why)
        if remedy and remedy not in why:
            self._say(f"{provider.name}: {remedy}", Level.WARNING)

    async def _look_at_context(self, session: AgentSession) -> None:
        with suppress(ProviderError, OSError, TimeoutError):
            async with asyncio.timeout(_CONTEXT_LIMIT):
                self.context = await session.context()
        self._changed()

    async def _settled(self) -> None:
        """An agent is asked one thing at a time."""
        if self._settling is not None and not self._settling.done():
            await asyncio.wait({self._settling})

    def _drop(self) -> None:
        """Use this session no more; it closes while nobody waits."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._closing = asyncio.create_task(keeper.close())

    async def _closed(self) -> None:
        """Wait for the session before: of one conversation two at once would not know of each other."""
        if self._closing is not None:
            await asyncio.wait({self._closing})

    def _save(self) -> None:
        self.log.save(self.config, self.usage)
        if (failure := self.log.failure) and not self._is_warned:
            self._is_warned = True
            self._say(f"The conversation is not kept: {failure}", Level.WARNING)
        self._changed()

    # what goes along ------------------------------------------------------------------------------------------------

    def _with_context(self, text: str) -> str:
        before, self._before = self._before, []
        return "\n\n".join([*before, text])

    async def _summary(self, run: Run) -> str:
        """What the next agent is told of the conversation: in the words of this one, else the last exchanges."""
        if not self._exchanges:
            return ""
        keeper, said = self._keeper, ""
        if keeper is not None and not keeper.has_failed:
            with suppress(AtomicError, OSError, TimeoutError):
                async with asyncio.timeout(_SUMMARY_LIMIT):
                    said = await self._asked_quietly(run, await keeper.session())
        if said:
            return f"You take over a conversation from another agent. Its summary:\n\n{said}"
        return self._last_exchanges()

    async def _asked_quietly(self, run: Run, session: AgentSession) -> str:
        run.interrupt = lambda: self._asides.start(session.interrupt())
        spoken: list[str] = []
        async with aclosing(_events(session, SUMMARY_PROMPT)) as events:
            async for event in events:
                if isinstance(event, TextDelta) and event.agent is None:
                    spoken.append(event.text)
                if isinstance(event, TurnEnded):
                    self.usage += event.usage
                    return (event.text or "".join(spoken)) if event.reason is EndReason.DONE else ""
        return ""

    def _last_exchanges(self) -> str:
        if not self._exchanges:
            return ""
        told = "\n\n".join(f"The person:\n{prompt}\n\nThe agent:\n{answer}" for prompt, answer in self._exchanges)
        return f"You take over a conversation. The last of what was said:\n\n{told}\n\nThis is the end of it."


def _events(session: AgentSession, prompt: str) -> AsyncGenerator[AgentEvent]:
    return cast("AsyncGenerator[AgentEvent]", session.send(prompt))  # closing it interrupts the turn
