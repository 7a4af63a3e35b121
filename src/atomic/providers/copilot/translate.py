"""Translate Copilot's events and detect the end of a turn.

The end is `session.idle`: Copilot sends it when nothing of the session runs, including
sub-agents and background commands. It counts only for a turn whose prompt was started
before it, or that was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from time import monotonic

from atomic.providers.copilot import limits, messages
from atomic.providers.copilot.environment import LOGIN, is_about_login
from atomic.providers.copilot.subagents import TOOL, Subagents, as_input
from atomic.providers.events import (
    AgentEvent,
    Compacted,
    EndReason,
    LimitReached,
    Notice,
    SkillLoaded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    Usage,
    UsageReported,
)
from atomic.providers.turn import Turn

_ENDS = ("session.idle", "session.error")  # an unreadable one ends the turn too


class Translator:
    """Translates the events of one turn."""

    def __init__(self, turn: Turn, prompt: str, subagents: Subagents, max_turns: int | None = None) -> None:
        self.turn = turn
        self.stopping: EndReason | None = None  # why Atomic stops the turn
        self._prompt = prompt
        self._subagents = subagents
        self._left = max_turns  # model calls
        self._turns_error = f"stopped after {max_turns} model calls"
        self._is_started = False
        self._calls_tools = False  # the newest message calls tools
        self._streamed: set[str] = set()  # messages and thoughts that were streamed
        self._tools: dict[str, str | None] = {}  # running call -> agent
        self._error: str | None = None
        self._refused = False
        self._limit = ""  # the provider's message
        self._limited_since: float | None = None

    def receive(self, event: messages.Event) -> None:
        """Handle one event."""
        agent = event.agent
        match event.data:
            case messages.TextAdded(id, text):
                self._streamed.add(id)
                self._limited_since = None
                self._emit(TextDelta(text, agent))
            case messages.ThoughtAdded(id, text):
                self._streamed.add(id)
                self._emit(ThinkingDelta(text, agent))
            case messages.MessageBegun():
                if agent is None:
                    self.turn.begin_message()
            case messages.MessageDone():
                self._message(event.data, agent)
            case messages.ThoughtDone(id, text):
                if id not in self._streamed and text:
                    self._emit(ThinkingDelta(text, agent))
            case messages.Used():
                self._limited_since = None
                if agent is None:
                    self._refused = event.data.finish_reason == "content_filter"
                self._emit(UsageReported(_usage(event.data), agent))
            case messages.StepDone():
                self._step_done(agent)
            case _:
                self._receive_tool_event(event)

    def _receive_tool_event(self, event: messages.Event) -> None:
        agent = event.agent
        match event.data:
            case messages.ToolBegun(id, name, arguments):
                if name == TOOL:
                    self._subagents.called(id, agent, as_input(arguments))
                else:
                    self._tools[id] = agent
                    self._emit(ToolStarted(id, name, as_input(arguments), agent))
            case messages.ToolSaid(id, text) | messages.ToolProgressed(id, text):
                if id in self._tools:  # not of a tool in the background
                    self._emit(ToolOutput(id, text, agent))
            case messages.ToolDone():
                self._tool_done(event.data, agent)
            case messages.AgentBegun(call, name, parent) if agent is not None:
                self._emit(self._subagents.began(agent, name, call, parent))
            case messages.AgentDone(cancelled) if agent is not None:
                self._emit(self._subagents.ended(agent, "cancelled" if cancelled else None))
            case messages.AgentFailed(error) if agent is not None:
                self._emit(self._subagents.ended(agent, error or "failed"))
            case messages.Notified(kind):
                if kind.type in ("agent_idle", "agent_completed") and kind.agent_id:
                    self._emit(self._subagents.ended(kind.agent_id))
            case messages.SkillInvoked(name):
                self._emit(SkillLoaded(name, agent))
            case _:
                self._receive_session_event(event)

    def _receive_session_event(self, event: messages.Event) -> None:
        agent = event.agent
        match event.data:
            case messages.Prompted(content, id):
                self._is_started = self._is_started or id == self._prompt
                self._emit(None if agent is None else self._subagents.woken(agent, content))
            case messages.CompactionDone():
                self._compacted(event.data, agent)
            case messages.Truncated(before, after):
                self._emit(Compacted(int(before), int(after), agent))
            case messages.Informed(message, kind):
                if kind == "model_retry":
                    self._emit(Notice(message, agent))
            case messages.Warned(message):
                self._emit(Notice(message, agent))
            case messages.CallFailed():
                self._call_failed(event.data, agent)
            case messages.Failed():
                self._failed(event.data, agent)
            case messages.Idle(aborted):
                self._idle(bool(aborted), agent)
            case messages.Lost(reason):
                self._end(EndReason.ERROR, reason)
            case messages.Unreadable(problem) if event.kind in _ENDS and agent is None:
                self._end(EndReason.ERROR, f"Copilot ended the turn with an unreadable message: {problem}")
            case messages.Unreadable() | messages.Unknown():
                self.turn.note_unknown(event.kind)
            case _:
                pass  # handled by the session

    # Kinds of events

    def _message(self, message: messages.MessageDone, agent: str | None) -> None:
        if agent is None:
            self._calls_tools = bool(message.tool_requests)
        else:
            self._subagents.add_text(agent, message.content)
        if message.content and message.message_id not in self._streamed:
            if agent is None:
                self.turn.begin_message()
            self._emit(TextDelta(message.content, agent))

    def _step_done(self, agent: str | None) -> None:
        """Count model calls and stop before the limit is exceeded."""
        if agent is not None or self._left is None or not self._calls_tools:
            return
        self._left -= 1
        if self._left <= 0:
            self.stopping = self.stopping or EndReason.MAX_TURNS

    def _tool_done(self, done: messages.ToolDone, agent: str | None) -> None:
        output = done.result.content if done.result is not None else ""
        error = None
        if not done.success:
            error = (done.error.message if done.error is not None else "") or "failed"
        if done.tool_call_id in self._tools:
            del self._tools[done.tool_call_id]
            self._emit(ToolEnded(done.tool_call_id, output, error, agent))
        else:
            self._emit_all(self._subagents.returned(done.tool_call_id, output, error))

    def _compacted(self, done: messages.CompactionDone, agent: str | None) -> None:
        if done.compaction_tokens_used is not None:
            self._emit(UsageReported(_usage(done.compaction_tokens_used), agent))
        if not done.success:
            self._emit(Notice(f"The context could not be summarised: {done.error or 'no reason given'}", agent))
            return
        before = done.pre_compaction_tokens
        after = done.post_compaction_tokens
        self._emit(Compacted(None if before is None else int(before), None if after is None else int(after), agent))

    def _call_failed(self, failure: messages.CallFailed, agent: str | None) -> None:
        if not limits.is_limit(failure):
            return
        self._limit = limits.message_of(failure)
        now = monotonic()
        self._emit(LimitReached(limits.reset_of(failure, datetime.now(UTC)), self._limit, agent))
        self._limited_since = self._limited_since or now
        if now - self._limited_since >= limits.PATIENCE:
            self.stopping = self.stopping or EndReason.LIMIT

    def _failed(self, failure: messages.Failed, agent: str | None) -> None:
        if agent is not None or failure.originating_message_id not in (None, self._prompt):
            return
        self._is_started = True
        self._error = failure.message
        if is_about_login(failure.message):
            self._error = f"GitHub did not accept Copilot's login or cannot be reached ({LOGIN})"
        if limits.is_limit(failure) and self._limited_since is None:
            self._emit(LimitReached(None, failure.message))

    # The end of a turn

    def _idle(self, aborted: bool, agent: str | None) -> None:
        stopped = aborted and (self.turn.ending or self.stopping is not None)
        if agent is not None or not (self._is_started or stopped):
            return
        if self.stopping is not None and aborted:
            self._end(self.stopping, self._limit if self.stopping is EndReason.LIMIT else self._turns_error)
        elif aborted:
            self._end(EndReason.INTERRUPTED)
        elif self._error is not None:
            self._end(EndReason.ERROR, self._error)
        else:
            self._end(EndReason.REFUSED if self._refused else EndReason.DONE)

    def _end(self, reason: EndReason, error: str | None = None) -> None:
        cause = "the turn was stopped" if error is None else error
        for id, agent in self._tools.items():
            self._emit(ToolEnded(id, error=cause, agent=agent))
        self._emit_all(self._subagents.end_all(cause))
        self._tools.clear()
        self.turn.end(reason, error=error)

    def _emit(self, event: AgentEvent | None) -> None:
        if event is not None:
            self.turn.emit(event)

    def _emit_all(self, events: Iterable[AgentEvent]) -> None:
        for event in events:
            self.turn.emit(event)


def _usage(used: messages.Used) -> Usage:
    tokens = (used.input_tokens, used.output_tokens, used.cache_read_tokens)
    return Usage(*(int(count or 0) for count in tokens))
