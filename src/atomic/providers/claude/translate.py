"""Translate Claude Code's messages into events and detect the end of a turn.

A `result` is not the end: background tasks end after it and wake the agent again. The
end is the session's `idle`, once the prompt is closed. Messages before the prompt was
started do not belong to it: a background shell may have woken the agent between two
turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from atomic.providers.claude import limits, messages
from atomic.providers.claude.message_events import MessageReader
from atomic.providers.claude.spending import Spending
from atomic.providers.errors import ProgramFailedError
from atomic.providers.events import AgentEvent, Compacted, EndReason, LimitReached, Notice, Usage
from atomic.providers.turn import Turn


class Outcome(msgspec.Struct, frozen=True):
    """How a turn ended; `text` is None if the streamed text is the answer."""

    reason: EndReason
    text: str | None = None
    error: str | None = None


def outcome_of(results: Sequence[messages.Result], prompt_state: str | None, login: str) -> Outcome:
    """Evaluate a turn: the result of the prompt, and of tasks that ended after it.

    `login` is the remedy for a missing login.
    """
    meaningful = [one for one in results if one.num_turns or one.is_error or one.result] or results
    if not meaningful:
        return Outcome(EndReason.ERROR, error=f"Claude Code did not answer: the prompt was {prompt_state}")
    last = meaningful[-1]
    if last.stop_reason == "refusal":
        return Outcome(EndReason.REFUSED, error=_problem(last, login) if last.is_error else None)
    if last.subtype == "error_max_turns":
        return Outcome(EndReason.MAX_TURNS, error=_problem(last, login))
    if limits.ended_at_limit(last):
        return Outcome(EndReason.LIMIT, error=_problem(last, login))
    if last.is_error or last.subtype != "success":
        return Outcome(EndReason.ERROR, error=_problem(last, login))
    structured = [one.structured_output for one in meaningful if one.structured_output is not None]
    answer = msgspec.json.encode(structured[-1]).decode() if structured else last.result or None
    return Outcome(EndReason.DONE, text=answer)


def _problem(result: messages.Result, login: str) -> str:
    problem = "; ".join(result.errors or ()) or result.result or result.subtype
    is_about_login = result.api_error_status in (401, 403) or (result.result or "").startswith("Not logged in")
    return f"{problem} ({login})" if is_about_login else problem


@dataclass
class Reading:
    """A running turn. `stop` is set when waiting for its end is useless."""

    turn: Turn
    prompt: str  # its id
    state: str | None = None  # of the prompt; None: not reported
    results: list[messages.Result] = field(default_factory=list[messages.Result])
    cut: bool = False  # the interrupt stopped a task
    limit: messages.RateLimitInfo | None = None
    tried_since: datetime | None = None  # start of the retries against a limit
    given_up: LimitReached | None = None
    is_unreceived: bool = False  # the program died between two turns, before it read the prompt
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class Translator:
    """Receives the messages of one session's program, turn after turn."""

    def __init__(self, *, login: str) -> None:
        self.session_id: str | None = None  # as last reported; `/clear` starts a new one
        self._messages = MessageReader()
        self._login = login
        self._reading: Reading | None = None
        self._state: str | None = None  # of the session; None: not reported
        self._reports_prompts = False  # older versions do not
        self._spending = Spending()
        self._spent = Usage()  # not yet reported with the end of a turn

    def program_started(self) -> None:
        self._spending.program_started()
        self._state = None
        self._reports_prompts = False

    def begin(self, turn: Turn, prompt: str) -> Reading:
        """Send the following events to this turn."""
        self._reading = Reading(turn, prompt)
        self._messages.begin(turn)
        return self._reading

    def finish(self) -> None:
        """Ignore messages until the next turn."""
        self._reading = None
        self._messages.finish()

    def agent_of(self, task: str | None) -> str | None:
        return self._messages.subagents.of_task(task)

    def emit(self, event: AgentEvent) -> None:
        if self._reading is not None:
            self._reading.turn.emit(event)

    def receive(self, message: messages.Message) -> None:
        """Handle one message."""
        match message:
            case messages.Assistant() | messages.User() | messages.StreamEvent():
                if self._reading is not None and self._is_started():
                    self._messages.receive(message)
                    if not (isinstance(message, messages.Assistant) and message.error):
                        self._reading.tried_since = None  # the model answers again, so a limit has ended
            case messages.TaskStarted() | messages.TaskEnded() | messages.TaskUpdated():
                if self._is_started():
                    self._task(message)
            case messages.Result():
                self._spent += self._spending.since_last(message)
                if self._reading is not None and self._is_started():
                    self._reading.results.append(message)
                    self._check_end()
            case messages.PromptState():
                self._prompt(message)
            case messages.SessionState(state):
                self._state = state
                self._check_end()
            case messages.Init(session_id):
                self.session_id = session_id
            case messages.ApiRetry():
                self._retry(message)
            case messages.RateLimit(info):
                self._rate_limit(info)
            case messages.CompactBoundary(metadata):
                self.emit(Compacted(metadata.pre_tokens, metadata.post_tokens))
            case messages.Remark(content, text):
                if content or text:
                    self.emit(Notice(content or text))
            case messages.Unknown(kind):
                if self._reading is not None:
                    self._reading.turn.note_unknown(kind)
            case messages.Ignored():
                pass

    def lost(self, error: ProgramFailedError) -> None:
        """Handle the end of the program, or of its readable output."""
        self._state = None
        if self._reading is not None and self._reading.state is None and self._reports_prompts:
            self._reading.is_unreceived = True
            self._reading.stop.set()
        else:
            self._end(Outcome(EndReason.ERROR, error=str(error)))

    # Kinds of messages

    def _task(self, message: messages.TaskStarted | messages.TaskEnded | messages.TaskUpdated) -> None:
        self._messages.task(message)
        status = message.patch.status if isinstance(message, messages.TaskUpdated) else getattr(message, "status", None)
        reading = self._reading
        if reading is not None and reading.turn.ending and status in ("stopped", "killed"):
            reading.cut = True

    def _prompt(self, message: messages.PromptState) -> None:
        self._reports_prompts = True
        if self._reading is not None and message.command_uuid == self._reading.prompt:
            if message.state == "started":
                self._reading.results.clear()  # of tasks that a killed program left
            self._reading.state = message.state
            self._check_end()

    def _retry(self, retry: messages.ApiRetry) -> None:
        reading = self._reading
        now = datetime.now(UTC)
        if reading is None:
            return
        reason = retry.error or "error"
        if retry.error_status:
            reason += f" {retry.error_status}"
        if reason == "unknown":  # the program reports this without a network
            reason = "the model cannot be reached"
        again = limits.next_try(retry, now)
        if not limits.is_limit(retry):
            reading.turn.emit(Notice(f"{reason}: Claude Code tries again in {retry.retry_delay_ms / 1000:.0f} s"))
            return
        reading.tried_since = reading.tried_since or now
        reached = LimitReached(again, reason)
        reading.turn.emit(reached)
        if again - reading.tried_since > limits.PATIENCE:
            reading.given_up = reached
            reading.stop.set()

    def _rate_limit(self, info: messages.RateLimitInfo) -> None:
        if self._reading is None:
            return
        if info.status == "rejected":
            self._reading.limit = info
        elif info.status == "allowed_warning":
            share = f"{info.utilization:.0%} of " if info.utilization is not None else ""
            self.emit(Notice(f"{share}the {info.rate_limit_type or 'usage'} limit is used"))

    def _is_started(self) -> bool:
        """Return whether current messages belong to the prompt."""
        if self._reading is None:
            return False
        return self._reading.state not in (None, "queued") or not self._reports_prompts

    # The end of a turn

    def _check_end(self) -> None:
        reading = self._reading
        if reading is None:
            return
        if self._reports_prompts:
            closed = reading.state in messages.CLOSED
        else:
            closed = any(result.origin is None for result in reading.results)
        is_idle = not self._messages.subagents.active if self._state is None else self._state == "idle"
        if closed and is_idle:
            self._end(outcome_of(reading.results, reading.state, self._login))

    def _end(self, outcome: Outcome) -> None:
        reading = self._reading
        if reading is None:
            return
        self._messages.end_all()
        if reading.cut:
            outcome = Outcome(EndReason.INTERRUPTED)
        elif reading.given_up is not None:
            outcome = Outcome(EndReason.LIMIT, error=reading.given_up.message)
        elif outcome.reason is EndReason.LIMIT:
            reset = limits.reset_of(reading.limit, outcome.error or "", datetime.now(UTC))
            reading.turn.emit(LimitReached(reset, outcome.error or ""))
        used = self._spent
        self._spent = Usage()
        reading.turn.end(outcome.reason, text=outcome.text, usage=used, error=outcome.error)
