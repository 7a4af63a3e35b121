"""A run of a Python program: the runtime of its steps, without a session of the user.

What a resume needs is in the run's own journal, as facts beside its rows: calls and what
they cost, the task list, the ids of named sessions, the branch of its workspaces. The
folder of the run is temporary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import NAMESPACE_URL, uuid4, uuid5

from atomic.graph import Journal, JournalError, MemoryJournal, RunOwnedError, RunStatus
from atomic.runs.events import Warning, WorkflowEvent
from atomic.runs.named_sessions import NamedSessions
from atomic.runs.runtime import RunRuntime
from atomic.runs.spending import Amount
from atomic.sessions.facts import Facts
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import SessionRecord

if TYPE_CHECKING:
    from atomic.providers.events import AgentEvent
    from atomic.runs.agent_calls import Caller
    from atomic.runs.host import Runtime
    from atomic.runs.limits import CapReached

EventT = TypeVar("EventT", bound=WorkflowEvent)
Warn = Callable[[str], object]
NAMED_SESSIONS = "named_sessions"


class ProgramEvents:
    """What a run tells a Python program: warnings. The engine tells the rest."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self.facts: Facts | None = None

    def warn(self, text: str) -> None:
        self._warn(text)

    def emit(self, make: type[EventT], /, **fields: Any) -> None:
        if make is Warning:
            self._warn(fields["text"])

    def save_named_sessions(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Keep the provider and id of each named session for a resume."""
        if self.facts is not None:
            self.facts.set(NAMED_SESSIONS, {name: list(kept) for name, kept in ids.items()})

    # These reach the program in other ways: as the pause or the result of the step.

    def close_question(self, id: str) -> None:
        pass

    def agent_activity(self, caller: Caller, event: AgentEvent) -> None:
        pass

    def cap_reached(self, reached: CapReached) -> None:
        pass

    def provider_limited(self, until: float) -> None:
        pass

    def call_started(self, line: Mapping[str, Any]) -> None:
        pass

    def call_ended(self, line: Mapping[str, Any]) -> None:
        pass


class ProgramRun(RunRuntime):
    """The runtime of one run, or of the turns outside of a run."""

    def __init__(
        self,
        host: Runtime,
        execution_id: str,
        journal: Journal | None,
        warn: Warn,
        *,
        ended: Callable[[ProgramRun], object] = lambda run: None,
    ) -> None:
        """Keep facts in the journal; None: in memory, as the run cannot be resumed."""
        self._is_resumable = journal is not None
        id = str(uuid4() if journal is None else _id_of(journal, execution_id))
        record = SessionRecord(id=id, workflow="", project=str(host.project), cwd=str(host.folder))
        events = ProgramEvents(warn)
        super().__init__(host, host.store.create(record), events, {})
        self._ended = ended
        self._is_over = False
        self._timekeeper: asyncio.Task[None] | None = None
        self.facts.open(journal or MemoryJournal(), execution_id)
        events.facts = self.facts
        self.sessions = NamedSessions(self.facts.get(NAMED_SESSIONS, {}), events.save_named_sessions, warn)
        self.budget.open(self.facts)
        self._spent_before = self.budget.spent.amount
        if host.caps.max_time is not None:
            self._timekeeper = asyncio.create_task(self._keep_time(), name="run-time")

    @property
    def spent_here(self) -> Amount:
        """Return what the run took in this process."""
        return self.budget.spent.amount - self._spent_before

    def release_in(self, closing: ExitStack) -> None:
        """Give up the facts before the journal is closed."""
        closing.callback(self.facts.close)

    async def end_run(self, status: RunStatus | None) -> None:
        """End the programs of the run, and remove its folder."""
        if self._is_over:
            return
        self._is_over = True
        if self._timekeeper is not None:
            self._timekeeper.cancel()
        try:
            is_over = status is RunStatus.COMPLETED or not self._is_resumable
            await self.close(completed=is_over)
        finally:
            with suppress(JournalError, RunOwnedError):  # the journal may have failed: the run reports that
                self.budget.stop()
            self.session.remove()
            self._ended(self)

    async def _keep_time(self) -> None:
        """Keep the working time, so that a killed process does not forget it."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.budget.keep_time()


def _id_of(journal: Journal, execution_id: str) -> Any:
    """Return an id that no run of another journal has: workspaces and their branch have
    it in their names.
    """
    started = journal.history(execution_id, at=0).start.time
    return uuid5(NAMESPACE_URL, f"{execution_id} {started}")
