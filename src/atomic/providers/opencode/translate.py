"""One turn: OpenCode's events as ours, and its end.

The end is an idle session, but an idle session alone is not the end. A prompt is first taken up (its message appears),
then worked on (the session is busy), and is over when the session is idle with its last message complete. An idle that
comes earlier belongs to the turn before, or to an error that OpenCode is still cleaning up behind.
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
from atomic.providers.opencode import wire
from atomic.providers.opencode.limits import is_too_long, next_try, retry_is_limit, retry_reset
from atomic.providers.opencode.outcome import Outcome, outcome
from atomic.providers.opencode.parts import Parts
from atomic.providers.opencode.router import Event
from atomic.providers.opencode.subagents import Subagents
from atomic.providers.turns import Turn

# Known, and of no interest here. Questions and permissions are the session's to answer.
_PASSED_OVER = frozenset(
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
_NEXT = ("session.next.", "permission.v2.", "question.v2.")  # OpenCode's next protocol, which says the same again


class Translator:
    """Tells a turn what happens in its session and in those of its sub-agents."""

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
        self.wants_value = False  # the turn is to give a value
        self.is_taken_up = False
        self.has_heard_end = False
        self.is_idle_in_vain = False  # idle without a message: the reason may still come
        self.context = wire.Tokens()
        self.model: tuple[str, str] | None = None  # provider and model of the last message
        self._turn, self._session, self._prompt = turn, session, prompt
        self._stop, self._max_turns = stop, max_turns
        self._parts = Parts(self._tell, self.subagents, adopt, has_own_tools=has_own_tools)
        self._is_at_work = False
        self._answers: dict[str, wire.Message] = {}  # of the agent itself, in their order
        self._roles: dict[str, tuple[str, bool]] = {}  # by message: its role, and whether its text is for nobody
        self._early: dict[str, list[Event]] = {}  # by session: of a sub-agent whose call is not yet known
        self._complaint: wire.Problem | None = None
        self._verdict: Outcome | None = None  # why we stop it ourselves
        self._went_on = False  # it was told to stop, and asked the model once more
        self._plan: dict[str, list[wire.Todo]] = {}
        self._calls = 0  # of the model, by the agent itself
        self._compacted_from: int | None = None

    # events ---------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Tell what an event says. Raises UnreadableError."""
        if not self.subagents.knows(event.session):
            self._early.setdefault(event.session, []).append(event)
            return
        try:
            self._take(event)
        except msgspec.ValidationError:
            self._turn.note_unknown(event.type)
        self._catch_up()

    def _take(self, event: Event) -> None:
        session, properties = event.session, event.properties
        match event.type:
            case "message.updated":
                self.take_message(session, wire.read(properties, wire.MessageNews).info)
            case "message.part.updated":
                self.take_part(session, wire.read(properties, wire.PartNews).part)
            case "message.part.delta":
                self._parts.take_piece(wire.read(properties, wire.Delta))
            case "session.status":
                self._status(session, wire.read(properties, wire.StatusNews).status)
            case "session.idle":
                self.take_idle(session)
            case "session.error":
                self._problem(session, wire.read(properties, wire.ProblemNews).error)
            case "session.compacted":
                self._tell(self._compacted(session))
            case "todo.updated":
                self.take_plan(session, wire.read(properties, wire.TodoNews).todos)
            case kind if kind not in _PASSED_OVER and not kind.startswith(_NEXT):
                self._turn.note_unknown(kind)
            case _:
                pass

    def _catch_up(self) -> None:
        """Tell what sub-agents did before it was known whose they are."""
        for session in [session for session in self._early if self.subagents.knows(session)]:
            for event in self._early.pop(session):
                self.take(event)

    # pieces of them; the session uses these too, for what it had to ask for ---------------------------------------

    def missed_something(self) -> None:
        self._parts.missed_something()

    def take_message(self, session: str, message: wire.Message) -> None:
        self._roles[message.id] = message.role, message.is_summary
        if session != self._session:
            return
        if message.id == self._prompt:
            self.is_taken_up = True
        elif message.role == "assistant" and self.is_taken_up:
            if message.id not in self._answers:
                self._turn.begin_message()
                self._went_on = self._went_on or self._turn.ending
            self._answers[message.id] = message
            self._measure(message)

    def take_part(self, session: str, part: wire.Part) -> None:
        role, is_quiet = self._roles.get(part.message, ("", False))
        if role != "assistant" or not self.is_taken_up:
            return
        agent = self.subagents.of(session)
        if part.type == "step-finish":
            if self._parts.take_step(part, agent) and session == self._session:
                self._count(part)
        elif not is_quiet:
            self._parts.take(part, agent)

    def take_plan(self, session: str, todos: list[wire.Todo]) -> None:
        if self._plan.get(session, []) != todos:
            self._plan[session] = todos
            items = tuple(PlanItem(todo.content, todo.status) for todo in todos)
            self._tell(PlanChanged(items, agent=self.subagents.of(session)))

    def take_work(self) -> None:
        """The session is at work."""
        self._is_at_work = self._is_at_work or self.is_taken_up
        self.is_idle_in_vain = False

    def take_idle(self, session: str) -> None:
        last = self._last()
        if session != self._session or not self.is_taken_up or not (self._is_at_work or last):
            return
        if last is not None and last.time.completed is None:
            return  # OpenCode is idle already while it still cleans up; it will say so once more
        if last is None and self._complaint is None and self._verdict is None and not self._turn.ending:
            self.is_idle_in_vain = True
            return
        self.has_heard_end = True
        self.finish()

    def finish(self) -> None:
        """End the turn with what is known."""
        found = outcome(self._last(), self._complaint, now=datetime.now(UTC), wants_value=self.wants_value)
        if self._verdict is not None and found.reason is not EndReason.DONE:
            found = self._verdict
        elif self._went_on and found.reason is EndReason.DONE:
            # An abort can end a sub-agent alone. What is then said of its work is not what was asked for.
            found = Outcome(EndReason.INTERRUPTED)
        if found.limit is not None:
            self._tell(found.limit)
        self.leave()
        self._turn.end(found.reason, text=found.text, error=found.error)

    def leave(self) -> None:
        """The turn is over, however: so are its sub-agents."""
        for ended in self.subagents.interrupted():
            self._tell(ended)

    # the rest -------------------------------------------------------------------------------------------------

    def _last(self) -> wire.Message | None:
        return next(reversed(self._answers.values()), None)

    def _measure(self, message: wire.Message) -> None:
        self.model = message.provider, message.model
        if not message.tokens.read:
            return
        if message.is_summary:  # it read all that there was; what it wrote is all that there is
            self._compacted_from = message.tokens.read
            self.context = wire.Tokens(input=message.tokens.written)
        else:
            self.context = message.tokens

    def _compacted(self, session: str) -> Compacted:
        agent = self.subagents.of(session)
        return Compacted(self._compacted_from, self.context.read, agent) if agent is None else Compacted(agent=agent)

    def _status(self, session: str, status: wire.Status) -> None:
        if status.type == "idle":
            self.take_idle(session)
            return
        if session == self._session:
            self.take_work()
        if status.type == "retry" and self.is_taken_up:
            self._retry(status, self.subagents.of(session))

    def _retry(self, status: wire.Status, agent: str | None) -> None:
        """A call failed and will be tried again."""
        now = datetime.now(UTC)
        is_limit = retry_is_limit(status, now)
        if is_limit:
            self._tell(LimitReached(retry_reset(status, now), status.message, agent=agent))
        else:
            self._tell(Notice(f"{status.message}; next try at {next_try(status):%H:%M:%S} UTC", agent=agent))
        if is_too_long(status, now):
            self._give_up(Outcome(EndReason.LIMIT if is_limit else EndReason.ERROR, status.message))

    def _problem(self, session: str, problem: wire.Problem | None) -> None:
        if session != self._session or problem is None:
            return
        if not self.is_taken_up:
            if problem.name != "MessageAbortedError":  # that one is an echo of the turn before
                self._complaint = self._complaint or problem
                self.finish()
            return
        self._complaint = self._complaint or problem
        if self.is_idle_in_vain:
            self.finish()

    def _count(self, step: wire.Part) -> None:
        self._calls += 1
        if step.reason == "tool-calls" and self._max_turns is not None and self._calls >= self._max_turns:
            self._give_up(Outcome(EndReason.MAX_TURNS, f"stopped after {self._calls} calls of the model"))

    def _give_up(self, verdict: Outcome) -> None:
        if self._verdict is None:
            self._verdict = verdict
            self._stop()

    def _tell(self, event: AgentEvent) -> None:
        self._turn.tell(event)
