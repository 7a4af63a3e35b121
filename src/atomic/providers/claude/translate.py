"""What Claude Code says, as the events of a turn, and when the turn is over.

A `result` is not the end: tasks in the background come back after it and set the agent going again. The end is the
session's `idle`, once our own prompt is closed. What comes before the prompt was taken up is not ours: a shell in the
background may have woken the agent between two turns.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

from atomic.providers.claude import limits, wire
from atomic.providers.claude.messages import MessageReader
from atomic.providers.claude.outcome import Outcome, outcome_of
from atomic.providers.claude.usage import spent
from atomic.providers.errors import ProgramFailedError
from atomic.providers.events import AgentEvent, Compacted, EndReason, LimitReached, Notice, Usage
from atomic.providers.turns import Turn


@dataclass
class Reading:
    """A turn that is under way. `stop` is set when there is no use in waiting for its end."""

    turn: Turn
    prompt: str  # its id
    state: str | None = None  # of the prompt; None: the program does not say
    results: list[wire.Result] = field(default_factory=list[wire.Result])
    cut: bool = False  # a task was stopped because the turn was to end
    limit: wire.RateLimitInfo | None = None
    tried_since: datetime | None = None  # against a limit, in vain
    given_up: LimitReached | None = None
    is_unheard: bool = False  # the program had died between two turns, before it could hear the prompt
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class Translator:
    """Hears the program of one session, turn after turn; what it says between turns only changes what is known."""

    def __init__(self, messages: MessageReader, *, login: str) -> None:
        self.session_id: str | None = None  # as it said last; `/clear` begins a new one
        self._messages = messages
        self._login = login
        self._reading: Reading | None = None
        self._state: str | None = None  # of the session; None: the program does not say
        self._tells_of_prompts = False  # older ones do not
        self._spent = Usage()  # and not yet told with the end of a turn

    def program_started(self) -> None:
        self._state, self._tells_of_prompts = None, False

    def begin(self, turn: Turn, prompt: str) -> Reading:
        """Tell what follows to this turn."""
        self._reading = Reading(turn, prompt)
        self._messages.begin(turn)
        return self._reading

    def finish(self) -> None:
        """The turn is over: what still comes belongs to nobody."""
        self._reading = None
        self._messages.finish()

    def agent_of(self, task: str | None) -> str | None:
        return self._messages.subagents.of_task(task)

    def tell(self, event: AgentEvent) -> None:
        if self._reading is not None:
            self._reading.turn.tell(event)

    def hear(self, message: wire.Message) -> None:
        """Take in one message."""
        match message:
            case wire.Assistant() | wire.User() | wire.StreamEvent():
                if self._is_taken_up():
                    self._messages.hear(message)
                    self._served(message)
            case wire.TaskStarted() | wire.TaskEnded() | wire.TaskUpdated():
                if self._is_taken_up():
                    self._task(message)
            case wire.Result():
                self._result(message)
            case wire.PromptState():
                self._prompt(message)
            case wire.SessionState(state):
                self._state = state
                self._look_whether_over()
            case wire.Init(session_id):
                self.session_id = session_id
            case wire.ApiRetry():
                self._retry(message)
            case wire.RateLimit(info):
                self._rate_limit(info)
            case wire.CompactBoundary(metadata):
                self.tell(Compacted(metadata.pre_tokens, metadata.post_tokens))
            case wire.Remark(content, text):
                if content or text:
                    self.tell(Notice(content or text))
            case wire.Unknown(kind):
                if self._reading is not None:
                    self._reading.turn.note_unknown(kind)
            case wire.Passed():
                pass

    def lost(self, error: ProgramFailedError) -> None:
        """The program is gone, or cannot be understood any more."""
        self._state = None
        if self._reading is not None and self._reading.state is None and self._tells_of_prompts:
            self._reading.is_unheard = True
            self._reading.stop.set()
        else:
            self._end(Outcome(EndReason.ERROR, error=str(error)))

    # one kind each --------------------------------------------------------------------------------------------

    def _task(self, message: wire.TaskStarted | wire.TaskEnded | wire.TaskUpdated) -> None:
        self._messages.task(message)
        status = message.patch.status if isinstance(message, wire.TaskUpdated) else getattr(message, "status", None)
        reading = self._reading
        if reading is not None and reading.turn.ending and status in ("stopped", "killed"):
            reading.cut = True

    def _result(self, result: wire.Result) -> None:
        self._spent += spent(result)
        if self._reading is not None and self._is_taken_up():
            self._reading.results.append(result)
            self._look_whether_over()

    def _prompt(self, message: wire.PromptState) -> None:
        self._tells_of_prompts = True
        if self._reading is not None and message.command_uuid == self._reading.prompt:
            if message.state == "started":
                self._reading.results.clear()  # of tasks that a killed program had left behind
            self._reading.state = message.state
            self._look_whether_over()

    def _served(self, message: wire.Assistant | wire.User | wire.StreamEvent) -> None:
        """The model answers: whatever limit there was is over."""
        if self._reading is not None and not (isinstance(message, wire.Assistant) and message.error):
            self._reading.tried_since = None

    def _retry(self, retry: wire.ApiRetry) -> None:
        reading, now = self._reading, datetime.now(UTC)
        if reading is None:
            return
        why = f"{retry.error or 'error'}{f' {retry.error_status}' if retry.error_status else ''}"
        if why == "unknown":  # it says so of a network that is not there
            why = "the model cannot be reached"
        again = limits.next_try(retry, now)
        if not limits.is_limit(retry):
            reading.turn.tell(Notice(f"{why}: Claude Code tries again in {retry.retry_delay_ms / 1000:.0f} s"))
            return
        reading.tried_since = reading.tried_since or now
        reached = LimitReached(again, why)
        reading.turn.tell(reached)
        if again - reading.tried_since > limits.PATIENCE:
            reading.given_up = reached
            reading.stop.set()

    def _rate_limit(self, info: wire.RateLimitInfo) -> None:
        if self._reading is None:
            return
        if info.status == "rejected":
            self._reading.limit = info
        elif info.status == "allowed_warning":
            share = f"{info.utilization:.0%} of " if info.utilization is not None else ""
            self.tell(Notice(f"{share}the {info.rate_limit_type or 'usage'} limit is used"))

    def _is_taken_up(self) -> bool:
        """Whether what is said now is about our prompt."""
        if self._reading is None:
            return False
        return self._reading.state not in (None, "queued") or not self._tells_of_prompts

    # the end --------------------------------------------------------------------------------------------------

    def _look_whether_over(self) -> None:
        reading = self._reading
        if reading is None:
            return
        if self._tells_of_prompts:
            closed = reading.state in wire.CLOSED
        else:
            closed = any(result.origin is None for result in reading.results)
        quiet = self._state == "idle" if self._state is not None else not self._messages.subagents.at_work
        if closed and quiet:
            self._end(outcome_of(reading.results, reading.state, self._login))

    def _end(self, outcome: Outcome) -> None:
        reading = self._reading
        if reading is None:
            return
        self._messages.leave_nothing_open()
        if reading.cut:
            outcome = Outcome(EndReason.INTERRUPTED)
        elif reading.given_up is not None:
            outcome = Outcome(EndReason.LIMIT, error=reading.given_up.message)
        elif outcome.reason is EndReason.LIMIT:
            reset = limits.reset_of(reading.limit, outcome.error or "", datetime.now(UTC))
            reading.turn.tell(LimitReached(reset, outcome.error or ""))
        used, self._spent = self._spent, Usage()
        reading.turn.end(outcome.reason, text=outcome.text, usage=used, error=outcome.error)
