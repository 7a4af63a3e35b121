"""Questions that wait for the person: each has its own id, and nobody waits for another's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import uuid4

import msgspec

from atomic.chat.protocol import QuestionClosed, QuestionOpened
from atomic.chat.runs import Run
from atomic.providers.base import Ask
from atomic.questions import Question

Answers = tuple[str, ...]
Hear = Callable[[Answers | None], object]


class _Open(msgspec.Struct, frozen=True, eq=False):
    run: Run
    hear: Hear


class Questions:
    """All that are open, of all runs."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def put(self, id: str, run: Run, question: Question, who: str, hear: Hear) -> None:
        """Open a question; `hear` is called once with the answer, None if the person does not want to answer."""
        if id not in self._open and not run.is_over:
            self._open[id] = _Open(run, hear)
            run.tell(QuestionOpened(id=id, run=run.id, question=question, who=who))

    def answer(self, id: str, answers: Answers | None) -> None:
        """What the person says; to a question that is not open any more it is nothing."""
        if (open := self._open.get(id)) is not None:
            self.close(id, answers)
            open.hear(answers)

    def close(self, id: str, answers: Answers | None = None) -> None:
        """Nobody waits for it any more."""
        if (open := self._open.pop(id, None)) is not None:
            open.run.tell(QuestionClosed(id=id, answers=answers))

    def close_all(self, run: Run) -> None:
        """The run is about to end."""
        for id in [id for id, open in self._open.items() if open.run is run]:
            self.close(id)

    def asker(self, run: Callable[[], Run | None], unanswered: Sequence[str], *, who: str = "") -> Ask:
        """How an agent of a run asks; `unanswered` is said where the person does not want to and there is no default.

        The run is asked for each time: a session outlives its turns.
        """

        async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
            now = run()
            if now is None:
                return [[one.default] if one.default is not None else [*unanswered] for one in questions]
            return await asyncio.gather(*(self._answer(now, one, unanswered, who) for one in questions))

        return ask

    async def _answer(self, run: Run, question: Question, unanswered: Sequence[str], who: str) -> Sequence[str]:
        id = uuid4().hex
        given: asyncio.Future[Answers | None] = asyncio.get_running_loop().create_future()
        self.put(id, run, question, who, lambda answers: given.done() or given.set_result(answers))
        try:
            answers = await given
        finally:
            self.close(id)
        if answers:
            return answers
        return [*unanswered] if question.default is None else [question.default]
