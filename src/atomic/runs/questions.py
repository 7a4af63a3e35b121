"""Questions of a run to the user, who answers at the host or from another process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from atomic.graph import Suspend
from atomic.questions import Question
from atomic.runs.budget import Budget
from atomic.runs.host import Answer, Person

if TYPE_CHECKING:
    from atomic.runs.event_log import EventLog


class HostBroker:
    """Asks the person at the host. An answer from another process is accepted too."""

    def __init__(self, person: Person, budget: Budget, events: EventLog) -> None:
        self._person = person
        self._budget = budget
        self._events = events
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    async def ask(self, question: Question) -> Answer:
        """Return the answer. Raises Suspend if the person does not want to answer now."""
        elsewhere: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = elsewhere
        here = asyncio.create_task(self._person.ask(question))
        try:
            with self._budget.resting():
                await asyncio.wait({here, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            answer = elsewhere.result() if elsewhere.done() else here.result()
        finally:
            del self._waiting[question.id]
            here.cancel()
            await asyncio.wait({here})
        if answer is None:
            raise Suspend(f"waits for an answer to '{question.id}'", question=question)
        self._events.close_question(question.id)
        return answer

    def deliver(self, answers: Mapping[str, Answer]) -> set[str]:
        """Deliver answers from another process, and return the ids of the questions that waited for them."""
        taken: set[str] = set()
        for id, answer in answers.items():
            waiting = self._waiting.get(id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
                taken.add(id)
        return taken
