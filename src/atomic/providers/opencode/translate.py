"""Translate OpenCode's events of one turn and detect its end.

An idle session is not always the end. A prompt is first started (its message appears),
then worked on (the session is busy), and has ended when the session is idle and its
last message complete. An earlier idle belongs to the previous turn, or to an error
after which OpenCode still cleans up.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from atomic.providers.events import (
    AgentEvent,
    Compacted,
    EndReason,
    LimitReached,
    Notice,
    PlanChanged,
    PlanItem,
)
from atomic.providers.opencode import messages
from atomic.providers.opencode.limits import (
    ended_at_limit,
    is_too_long,
    next_try,
    problem_reset,
    retry_is_limit,
    retry_reset,
)
from atomic.providers.opencode.message_events import MessageReader
from atomic.providers.opencode.stream import Event
from atomic.providers.opencode.subagents import Subagents
from atomic.providers.turn import Turn

# Known and not needed here. The session answers questions and permission requests.
_IGNORED = frozenset(
    {
        "command.executed",
        "message.part.removed",
        "message.removed",
        "permission.replied",
        "question.rejected",
        "question.replied",
        "session.created",
        "session.deleted",
        "session.diff",
        "session.updated",
    }
)
_NEXT = ("session.next.", "permission.v2.", "question.v2.")  # OpenCode's next protocol repeats the same events
_REFUSALS = frozenset({"content-filter", "refusal"})
_UNFINISHED = frozenset({None, "tool-calls", "unknown"})  # another model call had to follow
_HINTS = {401: " (is the key right?)", 403: " (may this key use the model?)"}


class Outcome(msgspec.Struct, frozen=True):
    """The reason and its details."""

    reason: EndReason
    error: str | None = None
    text: str | None = None  # None: the streamed text
    limit: LimitReached | None = None


def outcome_of(
    last: messages.Message | None, complaint: messages.Problem | None, *, now: datetime, wants_value: bool
) -> Outcome:
    """Evaluate the end of a turn.

    `wants_value` means that the turn was to return a value; the caller judges a text
    then.
    """
    problem = complaint if last is None else last.error
    if problem is not None and not (wants_value and problem.name == "StructuredOutputError"):
        return _of_problem(problem, now)
    if last is None:
        return Outcome(EndReason.ERROR, "OpenCode stopped without an answer")
    if last.structured is not msgspec.UNSET and wants_value:
        return Outcome(EndReason.DONE, text=msgspec.json.encode(last.structured).decode())
    if last.finish in _REFUSALS:
        return Outcome(EndReason.REFUSED, "the model refused to answer")
    if last.finish in _UNFINISHED:
        return Outcome(EndReason.ERROR, "OpenCode stopped after a tool call")
    if last.finish == "length":
        return Outcome(EndReason.ERROR, "the answer reached the model's limit for one message")
    return Outcome(EndReason.DONE)


def describe(problem: messages.Problem) -> str:
    """Return the error with the provider's message."""
    data = problem.data
    number = "" if data.status_code is None else f" {data.status_code}"
    message = data.message.partition("\n    at ")[0]  # without a stack trace
    return f"{problem.name}{number}: {message}" + _HINTS.get(data.status_code or 0, "")


def _of_problem(problem: messages.Problem, now: datetime) -> Outcome:
    if problem.name == "MessageAbortedError":
        return Outcome(EndReason.INTERRUPTED)
    if problem.name == "ContentFilterError":
        return Outcome(EndReason.REFUSED, problem.data.message or "the provider's filter blocked the answer")
    if ended_at_limit(problem):
        limit = LimitReached(problem_reset(problem, now), problem.data.message)
        return Outcome(EndReason.LIMIT, describe(problem), limit=limit)
    return Outcome(EndReason.ERROR, describe(problem))


class Translator:
    """Emits the events of a turn, from its session and its sub-agents' sessions."""

    def __init__(
        self,
        turn: Turn,
        session: str,
        prompt: str,
        *,
        adopt: Callable[[str], None],
        stop: Callable[[], None],
        max_turns: int | None,
        has_own_tools: bool = False,
    ) -> None:
        self.subagents = Subagents(session)
        self.wants_value = False  # the turn is to return a value
        self.is_started = False
        self.has_ended = False
        self.is_idle_without_answer = False  # an error may still arrive
        self.context = messages.Tokens()
        self.model: tuple[str, str] | None = None  # provider and model of the last message
        self._turn = turn
        self._session = session
        self._prompt = prompt
        self._stop = stop
        self._max_turns = max_turns
        self._messages = MessageReader(self._emit, self.subagents, adopt, has_own_tools=has_own_tools)
        self._is_busy = False
        self._answers: dict[str, messages.Message] = {}  # of the main agent, in order
        self._roles: dict[str, tuple[str, bool]] = {}  # by message: its role, and whether its text is hidden
        self._early: dict[str, list[Event]] = {}  # by session: events of sub-agents whose call is not known yet
        self._complaint: messages.Problem | None = None
        self._verdict: Outcome | None = None  # why Atomic stops the turn
        self._has_continued = False  # it called the model after an abort
        self._plan: dict[str, list[messages.Todo]] = {}
        self._calls = 0  # of the model, by the main agent
        self._compacted_from: int | None = None

    # Events

    def take(self, event: Event) -> None:
        """Translate an event. Raise UnreadableError."""
        if not self.subagents.knows(event.session):
            self._early.setdefault(event.session, []).append(event)
            return
        try:
            self._take(event)
        except msgspec.ValidationError:
            self._turn.note_unknown(event.type)
        # The calls of some sub-agents may be known now: emit their early events.
        for session in [session for session in self._early if self.subagents.knows(session)]:
            for early in self._early.pop(session):
                self.take(early)

    def _take(self, event: Event) -> None:
        session = event.session
        properties = event.properties
        match event.type:
            case "message.updated":
                self.take_message(session, messages.read(properties, messages.MessageUpdated).info)
            case "message.part.updated":
                self.take_part(session, messages.read(properties, messages.PartUpdated).part)
            case "message.part.delta":
                self._messages.take_piece(messages.read(properties, messages.Delta))
            case "session.status":
                self._status(session, messages.read(properties, messages.StatusChanged).status)
            case "session.idle":
                self.take_idle(session)
            case "session.error":
                self._problem(session, messages.read(properties, messages.SessionFailed).error)
            case "session.compacted":
                agent = self.subagents.of(session)
                if agent is None:
                    self._emit(Compacted(self._compacted_from, self.context.read))
                else:
                    self._emit(Compacted(agent=agent))
            case "todo.updated":
                self.take_plan(session, messages.read(properties, messages.TodosUpdated).todos)
            case kind if kind not in _IGNORED and not kind.startswith(_NEXT):
                self._turn.note_unknown(kind)
            case _:
                pass

    # Content of events; also used after a gap

    def note_gap(self) -> None:
        self._messages.note_gap()

    def take_message(self, session: str, message: messages.Message) -> None:
        self._roles[message.id] = message.role, message.is_summary
        if session != self._session:
            return
        if message.id == self._prompt:
            self.is_started = True
        elif message.role == "assistant" and self.is_started:
            if message.id not in self._answers:
                self._turn.begin_message()
                self._has_continued = self._has_continued or self._turn.ending
            self._answers[message.id] = message
            self._measure(message)

    def take_part(self, session: str, part: messages.Part) -> None:
        role, is_quiet = self._roles.get(part.message, ("", False))
        if role != "assistant" or not self.is_started:
            return
        agent = self.subagents.of(session)
        if part.type == "step-finish":
            if self._messages.take_step(part, agent) and session == self._session:
                self._calls += 1
                if part.reason == "tool-calls" and self._max_turns is not None and self._calls >= self._max_turns:
                    self._give_up(Outcome(EndReason.MAX_TURNS, f"stopped after {self._calls} model calls"))
        elif not is_quiet:
            self._messages.take(part, agent)

    def take_plan(self, session: str, todos: list[messages.Todo]) -> None:
        if self._plan.get(session, []) != todos:
            self._plan[session] = todos
            items = tuple(PlanItem(todo.content, todo.status) for todo in todos)
            self._emit(PlanChanged(items, agent=self.subagents.of(session)))

    def take_work(self) -> None:
        """Note that the session is busy."""
        self._is_busy = self._is_busy or self.is_started
        self.is_idle_without_answer = False

    def take_idle(self, session: str) -> None:
        last = self._last()
        if session != self._session or not self.is_started or not (self._is_busy or last):
            return
        if last is not None and last.time.completed is None:
            return  # it still cleans up and will report idle again
        if last is None and self._complaint is None and self._verdict is None and not self._turn.ending:
            self.is_idle_without_answer = True
            return
        self.has_ended = True
        self.finish()

    def finish(self) -> None:
        """End the turn with the current state."""
        found = outcome_of(self._last(), self._complaint, now=datetime.now(UTC), wants_value=self.wants_value)
        if self._verdict is not None and found.reason is not EndReason.DONE:
            found = self._verdict
        elif self._has_continued and found.reason is EndReason.DONE:
            # An abort may end only a sub-agent. The agent's text about that is not an
            # answer.
            found = Outcome(EndReason.INTERRUPTED)
        if found.limit is not None:
            self._emit(found.limit)
        self.leave()
        self._turn.end(found.reason, text=found.text, error=found.error)

    def leave(self) -> None:
        """End all sub-agents, because the turn has ended."""
        for ended in self.subagents.interrupted():
            self._emit(ended)

    # Details

    def _last(self) -> messages.Message | None:
        return next(reversed(self._answers.values()), None)

    def _measure(self, message: messages.Message) -> None:
        self.model = message.provider, message.model
        if not message.tokens.read:
            return
        if message.is_summary:  # it read the old context, and its output is the new one
            self._compacted_from = message.tokens.read
            self.context = messages.Tokens(input=message.tokens.written)
        else:
            self.context = message.tokens

    def _status(self, session: str, status: messages.Status) -> None:
        if status.type == "idle":
            self.take_idle(session)
            return
        if session == self._session:
            self.take_work()
        if status.type == "retry" and self.is_started:
            self._retry(status, self.subagents.of(session))

    def _retry(self, status: messages.Status, agent: str | None) -> None:
        """Report a failed call that will be retried.

        Give up if the wait is too long.
        """
        now = datetime.now(UTC)
        is_limit = retry_is_limit(status, now)
        if is_limit:
            self._emit(LimitReached(retry_reset(status, now), status.message, agent=agent))
        else:
            self._emit(Notice(f"{status.message}; next try at {next_try(status):%H:%M:%S} UTC", agent=agent))
        if is_too_long(status, now):
            self._give_up(Outcome(EndReason.LIMIT if is_limit else EndReason.ERROR, status.message))

    def _problem(self, session: str, problem: messages.Problem | None) -> None:
        if session != self._session or problem is None:
            return
        if not self.is_started:
            if problem.name != "MessageAbortedError":  # an echo of the previous turn
                self._complaint = self._complaint or problem
                self.finish()
            return
        self._complaint = self._complaint or problem
        if self.is_idle_without_answer:
            self.finish()

    def _give_up(self, verdict: Outcome) -> None:
        if self._verdict is None:
            self._verdict = verdict
            self._stop()

    def _emit(self, event: AgentEvent) -> None:
        self._turn.emit(event)
