"""What Copilot says, as the events of a turn, and when the turn is over.

The end is `session.idle`: Copilot sends it when nothing of the session is at work any more, sub-agents and commands in
the background included. It counts only for the turn whose prompt was taken up before it, or that was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from time import monotonic

from atomic.providers.copilot import limits
from atomic.providers.copilot import messages as said
from atomic.providers.copilot.login import LOGIN, is_about_login
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
from atomic.providers.turns import Turn

_ENDS = ("session.idle", "session.error")  # not to understand one of these is an end too


class Translator:
    """Hears one turn."""

    def __init__(self, turn: Turn, prompt: str, subagents: Subagents, max_turns: int | None = None) -> None:
        self.turn = turn
        self.stopping: EndReason | None = None  # why it is to be stopped, if that is our own wish
        self._prompt, self._subagents, self._left = prompt, subagents, max_turns
        self._most = f"stopped after {max_turns} calls of the model"
        self._taken_up = False
        self._calls_tools = False  # the newest message does
        self._streamed: set[str] = set()  # messages and thoughts that came in pieces
        self._tools: dict[str, str | None] = {}  # those that run, and whose they are
        self._error: str | None = None
        self._refused = False
        self._limit = ""  # what the provider said when it did not serve
        self._limited_since: float | None = None

    def hear(self, event: said.Event) -> None:
        """Take in one event."""
        agent = event.agent
        match event.data:
            case said.TextAdded(id, text):
                self._streamed.add(id)
                self._limited_since = None
                self._tell(TextDelta(text, agent))
            case said.ThoughtAdded(id, text):
                self._streamed.add(id)
                self._tell(ThinkingDelta(text, agent))
            case said.MessageBegun():
                if agent is None:
                    self.turn.begin_message()
            case said.MessageDone():
                self._message(event.data, agent)
            case said.ThoughtDone(id, text):
                if id not in self._streamed and text:
                    self._tell(ThinkingDelta(text, agent))
            case said.Used():
                self._used(event.data, agent)
            case said.StepDone():
                self._step_done(agent)
            case _:
                self._hear_tools(event)

    def _hear_tools(self, event: said.Event) -> None:
        agent = event.agent
        match event.data:
            case said.ToolBegun(id, name, arguments):
                self._tool_began(id, name, arguments, agent)
            case said.ToolSaid(id, text) | said.ToolProgressed(id, text):
                if id in self._tools:  # not of one that went into the background
                    self._tell(ToolOutput(id, text, agent))
            case said.ToolDone():
                self._tool_done(event.data, agent)
            case said.AgentBegun(call, name, parent) if agent is not None:
                self._tell(self._subagents.began(agent, name, call, parent))
            case said.AgentDone(cancelled) if agent is not None:
                self._tell(self._subagents.ended(agent, "it was cancelled" if cancelled else None))
            case said.AgentFailed(error) if agent is not None:
                self._tell(self._subagents.ended(agent, error or "it failed"))
            case said.Notified(kind):
                if kind.type in ("agent_idle", "agent_completed") and kind.agent_id:
                    self._tell(self._subagents.ended(kind.agent_id))
            case said.SkillInvoked(name):
                self._tell(SkillLoaded(name, agent))
            case _:
                self._hear_session(event)

    def _hear_session(self, event: said.Event) -> None:
        agent = event.agent
        match event.data:
            case said.Prompted(content, id):
                self._taken_up = self._taken_up or id == self._prompt
                self._tell(None if agent is None else self._subagents.woken(agent, content))
            case said.CompactionDone():
                self._compacted(event.data, agent)
            case said.Truncated(before, after):
                self._tell(Compacted(int(before), int(after), agent))
            case said.Informed(message, kind):
                if kind == "model_retry":
                    self._tell(Notice(message, agent))
            case said.Warned(message):
                self._tell(Notice(message, agent))
            case said.CallFailed():
                self._call_failed(event.data, agent)
            case said.Failed():
                self._failed(event.data, agent)
            case said.Idle(aborted):
                self._idle(bool(aborted), agent)
            case said.Lost(reason):
                self._end(EndReason.ERROR, reason)
            case said.Unreadable(problem) if event.kind in _ENDS and agent is None:
                self._end(EndReason.ERROR, f"Copilot ended the turn in a way that cannot be read: {problem}")
            case said.Unreadable() | said.Unknown():
                self.turn.note_unknown(event.kind)
            case _:
                pass  # what is asked of us, and what only the session wants to know

    # one kind each --------------------------------------------------------------------------------------------

    def _message(self, message: said.MessageDone, agent: str | None) -> None:
        if agent is None:
            self._calls_tools = bool(message.tool_requests)
        else:
            self._subagents.said(agent, message.content)
        if message.content and message.message_id not in self._streamed:
            if agent is None:
                self.turn.begin_message()
            self._tell(TextDelta(message.content, agent))

    def _used(self, used: said.Used, agent: str | None) -> None:
        self._limited_since = None
        if agent is None:
            self._refused = used.finish_reason == "content_filter"
        self._tell(UsageReported(_usage(used), agent))

    def _step_done(self, agent: str | None) -> None:
        """Count the calls of the model; the one that would be too many is not made."""
        if agent is not None or self._left is None or not self._calls_tools:
            return
        self._left -= 1
        if self._left <= 0:
            self.stopping = self.stopping or EndReason.MAX_TURNS

    def _tool_began(self, id: str, name: str, arguments: object, agent: str | None) -> None:
        if name == TOOL:
            self._subagents.called(id, agent, as_input(arguments))
            return
        self._tools[id] = agent
        self._tell(ToolStarted(id, name, as_input(arguments), agent))

    def _tool_done(self, done: said.ToolDone, agent: str | None) -> None:
        output = done.result.content if done.result is not None else ""
        error = None if done.success else (done.error.message if done.error is not None else "") or "it failed"
        if done.tool_call_id in self._tools:
            del self._tools[done.tool_call_id]
            self._tell(ToolEnded(done.tool_call_id, output, error, agent))
        else:
            self._tell_all(self._subagents.returned(done.tool_call_id, output, error))

    def _compacted(self, done: said.CompactionDone, agent: str | None) -> None:
        if done.compaction_tokens_used is not None:
            self._tell(UsageReported(_usage(done.compaction_tokens_used), agent))
        if not done.success:
            self._tell(Notice(f"The context could not be summarised: {done.error or 'nobody knows why'}", agent))
            return
        before, after = done.pre_compaction_tokens, done.post_compaction_tokens
        self._tell(Compacted(None if before is None else int(before), None if after is None else int(after), agent))

    def _call_failed(self, failure: said.CallFailed, agent: str | None) -> None:
        if not limits.is_limit(failure):
            return
        self._limit, now = limits.words_of(failure), monotonic()
        self._tell(LimitReached(limits.reset_of(failure, datetime.now(UTC)), self._limit, agent))
        self._limited_since = self._limited_since or now
        if now - self._limited_since >= limits.PATIENCE:
            self.stopping = self.stopping or EndReason.LIMIT

    def _failed(self, failure: said.Failed, agent: str | None) -> None:
        if agent is not None or failure.originating_message_id not in (None, self._prompt):
            return
        self._taken_up, self._error = True, failure.message
        if is_about_login(failure.message):
            self._error = f"Copilot's login is not accepted, or GitHub cannot be reached ({LOGIN})"
        if limits.is_limit(failure) and self._limited_since is None:
            self._tell(LimitReached(None, failure.message))

    # the end --------------------------------------------------------------------------------------------------

    def _idle(self, aborted: bool, agent: str | None) -> None:
        stopped = aborted and (self.turn.ending or self.stopping is not None)
        if agent is not None or not (self._taken_up or stopped):
            return
        if self.stopping is not None and aborted:
            self._end(self.stopping, self._limit if self.stopping is EndReason.LIMIT else self._most)
        elif aborted:
            self._end(EndReason.INTERRUPTED)
        elif self._error is not None:
            self._end(EndReason.ERROR, self._error)
        else:
            self._end(EndReason.REFUSED if self._refused else EndReason.DONE)

    def _end(self, reason: EndReason, error: str | None = None) -> None:
        why = "the turn was stopped" if error is None else error
        for id, agent in self._tools.items():
            self._tell(ToolEnded(id, error=why, agent=agent))
        self._tell_all(self._subagents.leave_none_open(why))
        self._tools.clear()
        self.turn.end(reason, error=error)

    def _tell(self, event: AgentEvent | None) -> None:
        if event is not None:
            self.turn.tell(event)

    def _tell_all(self, events: Iterable[AgentEvent]) -> None:
        for event in events:
            self.turn.tell(event)


def _usage(used: said.Used) -> Usage:
    tokens = (used.input_tokens, used.output_tokens, used.cache_read_tokens)
    return Usage(*(int(count or 0) for count in tokens))
