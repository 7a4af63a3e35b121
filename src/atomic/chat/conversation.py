"""The conversation with an agent: one open session, one turn at a time.

A session that failed is resumed. If the agent cannot resume it, a new session gets the
last exchanges.
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
from atomic.chat.agents import Agents, SessionTask
from atomic.chat.log import ChatLog, last_exchanges
from atomic.chat.protocol import Activity, Level, status_of
from atomic.chat.questions import Questions
from atomic.chat.runs import BackgroundTasks, ChatRun, RunEnd
from atomic.commands import CommandError, TurnPrompt
from atomic.config.known_agents import uses_acp
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
_SUMMARY_LIMIT = 90.0  # seconds
_KEPT_EXCHANGES = 6  # for an agent that does not know them
_LONGEST_EXCHANGE = 4_000  # characters of each side
_NO_ANSWER = ("(The user does not want to answer this question: decide yourself, or continue without an answer.)",)
_WHY = {
    EndReason.ERROR: "the turn failed",
    EndReason.REFUSED: "the agent refused",
    EndReason.MAX_TURNS: "the agent reached its limit of turns before it was done",
    EndReason.LIMIT: "the agent is rate-limited",
}
_NEXT = {
    EndReason.ERROR: "Send the message again to retry, or choose another agent with /agent.",
    EndReason.LIMIT: "Send the message again later, or choose another agent with /agent.",
}
SUMMARY_PROMPT = (
    "Another agent takes this conversation over. Summarise it in at most 300 words, without using any tool: what the "
    "user wants, what was done and decided, which files matter, and what is left to do."
)

_log = logging.getLogger(__name__)


class Variant(msgspec.Struct, frozen=True):
    """The options of a session that a plain conversation does not have."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    system_prompt: str | None = None
    agents: tuple[Any, ...] = ()


PLAIN = Variant()


class Conversation:
    """The agent, its session, and the texts that precede the next prompt."""

    def __init__(
        self,
        project: Project,
        agents: Agents,
        questions: Questions,
        log: ChatLog,
        *,
        say: Callable[[str, Level], None],
        changed: Callable[[], None],
        wait_for_room: Callable[[], Coroutine[Any, Any, None]],
        agent: str | None = None,
        model: str | None = None,
        record: str | None = None,
        resume: str | None = None,
    ) -> None:
        """Start without a session; `changed` reports a new status, `say` shows a notice."""
        self.project = project
        self.log = log
        # As the user named them.
        self.agent = agent
        self.model = model
        self.record = record
        self.provider: AgentProvider | None = None
        self.problem = ""
        self.usage = Usage()
        self.context = ContextUsage()
        self._agents = agents
        self._questions = questions
        self._say = say
        self._changed = changed
        self._wait_for_room = wait_for_room
        self._session_task: SessionTask | None = None
        self._resume = resume  # the provider's id of the session, after its first turn
        self._run: ChatRun | None = None  # whose turn it is
        self._before: list[str] = []  # texts that precede the next prompt
        self._exchanges: deque[tuple[str, str]] = deque(maxlen=_KEPT_EXCHANGES)
        self._choosing = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._has_warned = False
        self._background = BackgroundTasks()
        self._context_query: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether the agent is working on a turn."""
        return self._run is not None

    @property
    def config(self) -> dict[str, Any]:
        """Return what `session.json` keeps of it."""
        return {"provider": self.agent, "model": self.model, "provider_session": self._resume}

    @property
    def flags(self) -> list[str]:
        """Return the flags that let a workflow use the same agent and model."""
        chosen = (("--agent", self.agent), ("--model", self.model), ("--record", self.record))
        return [word for flag, value in chosen if value for word in (flag, value)]

    def warm_up(self) -> None:
        """Find the agent and open its session in the background."""
        self._background.start(self._warm_up())

    def add_context(self, text: str) -> None:
        """Put a text before the next prompt."""
        self._before.append(text)

    def remember(self, prompt: str, answer: str) -> None:
        """Keep an exchange for an agent that does not know the conversation."""
        self._exchanges.append((prompt[:_LONGEST_EXCHANGE], answer[-_LONGEST_EXCHANGE:]))

    def restore(self, session: Session) -> None:
        """Restore exchanges and usage from disk."""
        for prompt, answer in last_exchanges(session, _KEPT_EXCHANGES):
            self.remember(prompt, answer)
        cost = session.record.cost
        self.usage = Usage(cost.input_tokens, cost.output_tokens, cost=cost.usd)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of other sessions to its own."""
        self.usage += usage
        self._save()

    # turns

    async def turn(self, run: ChatRun, prompt: TurnPrompt) -> RunEnd:
        """Run a turn and return how it ended. Raises CommandError during another turn."""
        with self._busy_with(run):
            provider = await self._require_provider()
            await self.log.begin(run.prompt or prompt.text, self.config)
            variant = await self._variant(prompt, provider)
            if prompt.subtask or (variant != PLAIN and self._resume and not provider.capabilities.resume):
                return await self._turn_apart(run, provider, variant, prompt.text)
            session = await self._open_session(variant)
            text = "\n\n".join([*self._before, prompt.text])
            self._before = []
            ended = await self._send(run, session, text)
            self._note_turn(session, run.prompt or prompt.text, ended)
            return self._end(ended, provider)

    async def compact(self, run: ChatRun, focus: str) -> None:
        """Summarise the context.

        Raises CommandError during another turn or without a context, UnsupportedError.
        """
        with self._busy_with(run):
            provider = await self._require_provider()
            if not provider.capabilities.compact:
                raise UnsupportedError(f"{provider.name} cannot summarise its context", provider=provider.name)
            if self._resume is None:
                raise CommandError("There is nothing to summarise yet")
            session = await self._open_session(PLAIN)
            try:
                await session.compact(focus)
            except asyncio.CancelledError:
                self._drop_session()  # its state is unknown
                raise
            await self._query_context(session)

    async def set_model(self, run: ChatRun, model: str) -> None:
        """Use another model from now on. Raises UnsupportedError."""
        with self._busy_with(run):
            provider = await self._require_provider()
            if not provider.capabilities.models:
                raise UnsupportedError(f"{provider.name} cannot change the model", provider=provider.name)
            session = await self._open_session(PLAIN)
            await session.set_model(model)
            self.model = model
            self._save()

    async def switch(self, run: ChatRun, name: str) -> str:
        """Continue with another agent and return the summary for it.

        Raises AtomicError; then nothing has changed.
        """
        with self._busy_with(run):
            name, provider = await self._agents.choose(name)
            if provider is self.provider:
                raise CommandError(f"{name} is the agent already")
            session_task = self._start_session(provider, PLAIN, model=None, resume=None)
            try:
                await session_task.session()
                summary = await self._summarise(run)
                if run.is_stopping:
                    raise asyncio.CancelledError
            except BaseException:
                # Also for a cancellation: the new session must not stay open. Raised again.
                self._background.start(session_task.close())
                raise
            self._drop_session()
            self.agent = name
            self.provider = provider
            self.model = None
            self.problem = ""
            self.context = ContextUsage()
            self._session_task = session_task
            self._resume = None
            if summary:
                self._before.insert(0, summary)
            self._save()
            return summary

    async def models_provider(self) -> tuple[str, AgentProvider]:
        """Return the name of the agent in use and its provider. Raises AtomicError."""
        provider = await self._require_provider()
        return self.agent or provider.name, provider

    async def close(self) -> None:
        """Close the agent's session and the log."""
        self._background.cancel()
        session_task = self._session_task
        self._session_task = None
        if session_task is not None:
            await session_task.close()
        if self._closing is not None:
            await asyncio.wait({self._closing}, timeout=2.0)
        self.log.close()

    @contextmanager
    def _busy_with(self, run: ChatRun) -> Generator[None]:
        if self._run is not None:
            raise CommandError(BUSY)

        def break_off() -> None:
            """Free the conversation at once. The next turn gets another session."""
            self._drop_session()
            self._release(run)

        self._run = run
        run.break_off = break_off
        try:
            yield
        finally:
            self._release(run)

    def _release(self, run: ChatRun) -> None:
        if self._run is run:
            self._run = None
            self._changed()

    async def _send(self, run: ChatRun, session: AgentSession, prompt: str) -> TurnEnded:
        """Send a prompt and emit the events of the turn. Return its end."""
        run.interrupt = lambda: self._background.start(session.interrupt())
        if run.is_stopping:
            return TurnEnded(EndReason.INTERRUPTED)
        async with aclosing(_events(session, prompt)) as events:
            async for event in events:
                run.emit(Activity(run=run.id, event=event, time=time.time()))
                if isinstance(event, TurnEnded):
                    return event
                await self._wait_for_room()
        return TurnEnded(EndReason.ERROR, error="the agent's stream ended before the end of the turn")

    async def _turn_apart(self, run: ChatRun, provider: AgentProvider, variant: Variant, text: str) -> RunEnd:
        """Run a turn in a session of its own, which does not fill the conversation's
        context.
        """
        session_task = self._start_session(provider, variant, model=self.model, resume=None)
        run.break_off = lambda: self._release(run)
        try:
            ended = await self._send(run, await session_task.session(), text)
        finally:
            self._background.start(session_task.close())
        self.add_usage(ended.usage)
        return self._end(ended, provider)

    def _note_turn(self, session: AgentSession, prompt: str, ended: TurnEnded) -> None:
        """Save the turn, and ask in the background how full the context is."""
        self.usage += ended.usage
        self.remember(prompt, ended.text)
        if ended.reason is not EndReason.ERROR or self._resume is not None:
            self._resume = session.id
        self._save()
        self._context_query = self._background.start(self._query_context(session))

    def _end(self, ended: TurnEnded, provider: AgentProvider) -> RunEnd:
        if ended.reason in (EndReason.DONE, EndReason.INTERRUPTED):
            return RunEnd(status_of(ended.reason))
        why = ended.error or _WHY[ended.reason]
        if not why.startswith(provider.name):
            why = f"{provider.name}: {why}"
        if ended.reason is EndReason.ERROR:
            self._background.start(self._show_remedy(provider, why))  # the turn's end does not wait for it
        advice = _NEXT.get(ended.reason)
        if advice is not None:
            why = f"{why.rstrip().rstrip('.')}. {advice}"
        return RunEnd(status_of(ended.reason), why)

    async def _show_remedy(self, provider: AgentProvider, why: str) -> None:
        """Show how to fix a failed agent, if a check finds a reason."""
        remedy = await self._agents.find_remedy(provider, why)
        if remedy and remedy not in why:
            self._say(f"{provider.name}: {remedy}", Level.WARNING)

    async def _query_context(self, session: AgentSession) -> None:
        with suppress(ProviderError, OSError, TimeoutError):
            async with asyncio.timeout(_CONTEXT_LIMIT):
                self.context = await session.context()
        self._changed()

    def _save(self) -> None:
        self.log.save(self.config, self.usage)
        if self.log.failure and not self._has_warned:
            self._has_warned = True
            self._say(f"The conversation is not saved: {self.log.failure}", Level.WARNING)
        self._changed()

    # the agent's session

    async def _require_provider(self) -> AgentProvider:
        async with self._choosing:  # the first prompt may come during the search
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
            provider = await self._require_provider()
            if self._run is None:  # otherwise the turn opens a session with its own options
                await self._open_session(PLAIN)
        except Exception as error:  # the first prompt tries again
            if not isinstance(error, AtomicError | OSError):
                _log.exception("the agent could not be started")
            if self.provider is provider:  # the user may have chosen another agent since
                self.problem = message_of(error)
        self._changed()

    async def _variant(self, prompt: TurnPrompt, provider: AgentProvider) -> Variant:
        model = await self._agents.find_model(
            self.agent or provider.name, provider, prompt, lambda text: self._say(text, Level.WARNING)
        )
        return Variant(
            model if model != self.model else None,
            None if prompt.tools is None else tuple(prompt.tools),
            tuple(prompt.denied_tools),
            prompt.system_prompt,
            tuple(prompt.agents) if provider.capabilities.subagents else (),
        )

    async def _open_session(self, variant: Variant) -> AgentSession:
        """Return the session of the conversation with these options.

        Reopens it if necessary.
        """
        async with self._opening:
            if self._context_query is not None and not self._context_query.done():
                await asyncio.wait({self._context_query})  # an agent handles one request at a time
            current = self._session_task
            if current is None or current.is_over or current.variant != variant:
                session = await self._reopen(variant)
            else:
                session = await current.session()
        self.problem = ""
        return session

    async def _reopen(self, variant: Variant) -> AgentSession:
        """Open another session: resumed if the agent can, otherwise with the last
        exchanges.
        """
        assert self.provider is not None
        self._drop_session()
        if self._closing is not None:  # two sessions of one conversation would not know of each other
            await asyncio.wait({self._closing})
        if self._resume is None or self.provider.capabilities.resume:
            self._session_task = self._start_session(self.provider, variant, model=self.model, resume=self._resume)
            try:
                return await self._session_task.session()
            except ProviderError:
                if self._resume is None:
                    raise
                self._drop_session()
        self._session_task = self._start_session(self.provider, variant, model=self.model, resume=None)
        session = await self._session_task.session()
        self._say("The agent has lost the conversation. It gets the last exchanges.", Level.WARNING)
        self._resume = None
        exchanges = self._last_exchanges()
        if exchanges:
            self._before.insert(0, exchanges)
        return session

    def _start_session(
        self, provider: AgentProvider, variant: Variant, *, model: str | None, resume: str | None
    ) -> SessionTask:
        async def make_options() -> SessionOptions:
            project = self.project
            trusted = await asyncio.to_thread(project.is_trusted)
            options = SessionOptions(
                cwd=str(project.cwd),
                model=variant.model or model or project.settings.model,
                tools=variant.tools,
                denied_tools=variant.denied_tools,
                system_prompt=variant.system_prompt,
                agents=variant.agents,
                ask=self._questions.asker(lambda: self._run, self.unanswered(provider), who=provider.name),
                record=self.record,
                resume=resume,
                trusted=trusted,
            )
            mcp = await project.session_mcp(provider, trusted=trusted, tell=lambda text: self._say(text, Level.WARNING))
            return mcp.added_to(options)

        return SessionTask(provider, make_options, variant)

    @staticmethod
    def unanswered(provider: AgentProvider) -> Sequence[str]:
        """Return the answer for a dismissed question.

        Over ACP a form can be declined.
        """
        return () if uses_acp(provider.name) else _NO_ANSWER

    def _drop_session(self) -> None:
        """Stop using the session, which closes in the background."""
        session_task = self._session_task
        self._session_task = None
        if session_task is not None:
            self._closing = asyncio.create_task(session_task.close())

    # what another agent gets

    async def _summarise(self, run: ChatRun) -> str:
        """Return the agent's summary of the conversation, or else the last exchanges."""
        if not self._exchanges:
            return ""
        current = self._session_task
        summary = ""
        if current is not None and not current.is_over:
            with suppress(AtomicError, OSError, TimeoutError):
                async with asyncio.timeout(_SUMMARY_LIMIT):
                    summary = await self._ask_for_summary(run, await current.session())
        if summary:
            return f"You take over a conversation from another agent. Its summary:\n\n{summary}"
        return self._last_exchanges()

    async def _ask_for_summary(self, run: ChatRun, session: AgentSession) -> str:
        run.interrupt = lambda: self._background.start(session.interrupt())
        text: list[str] = []
        async with aclosing(_events(session, SUMMARY_PROMPT)) as events:
            async for event in events:
                if isinstance(event, TextDelta) and event.agent is None:
                    text.append(event.text)
                if isinstance(event, TurnEnded):
                    self.usage += event.usage
                    return (event.text or "".join(text)) if event.reason is EndReason.DONE else ""
        return ""

    def _last_exchanges(self) -> str:
        if not self._exchanges:
            return ""
        exchanges = "\n\n".join(f"The user:\n{prompt}\n\nThe agent:\n{answer}" for prompt, answer in self._exchanges)
        return f"You take over a conversation. Its last exchanges:\n\n{exchanges}\n\nThis is the end of them."


def _events(session: AgentSession, prompt: str) -> AsyncGenerator[AgentEvent]:
    return cast("AsyncGenerator[AgentEvent]", session.send(prompt))  # closing it interrupts the turn
