"""Questions to the person of a host, or to whoever answers from another process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from atomic.graph import Suspend
from atomic.questions import Question
from atomic.workflows.governor import Governor
from atomic.workflows.host_runtime import Answer, Person, Reporter


class LiveBroker:
    """Puts questions to the person of the host; an answer from another process counts as well."""

    def __init__(self, person: Person, governor: Governor, reporter: Reporter) -> None:
        self._person, self._governor, self._reporter = person, governor, reporter
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    async def ask(self, question: Question) -> Answer:
        """The answer. Raises Suspend where the person does not want to give one now."""
        elsewhere: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = elsewhere
        here = asyncio.create_task(_asked(self._person, question))
        try:
            with self._governor.resting():
                await asyncio.wait({here, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            answer = elsewhere.result() if elsewhere.done() else here.result()
        finally:
            del self._waiting[question.id]
            here.cancel()
            await asyncio.wait({here})
        if answer is None:
            raise Suspend(f"waits for an answer to '{question.id}'", question=question)
        self._reporter.answered(question)
        return answer

    def deliver(self, answers: Mapping[str, Answer]) -> set[str]:
        """Answers that came from another process; the questions that were waiting for them."""
        taken = {id for id in answers if (waiting := self._waiting.get(id)) is not None and not waiting.done()}
        for id in taken:
            self._waiting[id].set_result(answers[id])
        return taken


async def _asked(person: Person, question: Question) -> Answer | None:
    return await person.ask(question)
