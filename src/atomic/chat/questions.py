"""Open questions to the user.

Each has an id, and each answer goes to the one that asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import uuid4

import msgspec

from atomic.chat.protocol import QuestionClosed, QuestionOpened
from atomic.chat.runs import ChatRun
from atomic.providers.base import Ask
from atomic.questions import Question

Answers = tuple[str, ...]
OnAnswer = Callable[[Answers | None], object]


class _OpenQuestion(msgspec.Struct, frozen=True, eq=False):
    run: ChatRun
    on_answer: OnAnswer


class Questions:
    """The open questions of all runs."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenQuestion] = {}

    def open(self, id: str, run: ChatRun, question: Question, who: str, on_answer: OnAnswer) -> None:
        """Open a question.

        `on_answer` is called once: with the answer, or None if dismissed.
        """
        if id not in self._open and not run.is_over:
            self._open[id] = _OpenQuestion(run, on_answer)
            run.emit(QuestionOpened(id=id, run=run.id, question=question, who=who))

    def answer(self, id: str, answers: Answers | None) -> None:
        """Deliver an answer. Ignored if the question is closed."""
        question = self._open.get(id)
        if question is None:
            return
        self.close(id, answers)
        question.on_answer(answers)

    def close(self, id: str, answers: Answers | None = None) -> None:
        """Close a question. Ignored if it is closed."""
        question = self._open.pop(id, None)
        if question is not None:
            question.run.emit(QuestionClosed(id=id, answers=answers))

    def close_all(self, run: ChatRun) -> None:
        """Close the questions of a run that is about to end."""
        for id in [id for id, question in self._open.items() if question.run is run]:
            self.close(id)

    def asker(self, find_run: Callable[[], ChatRun | None], unanswered: Sequence[str], *, who: str = "") -> Ask:
        """Return the function by which an agent asks the user.

        `unanswered` is the answer to a dismissed question without a default. `find_run`
        is called for each question, because an agent's session outlives its turns.
        """

        def default(question: Question) -> Sequence[str]:
            return [*unanswered] if question.default is None else [question.default]

        async def ask_one(run: ChatRun, question: Question) -> Sequence[str]:
            id = uuid4().hex
            given: asyncio.Future[Answers | None] = asyncio.get_running_loop().create_future()
            self.open(id, run, question, who, lambda answers: given.done() or given.set_result(answers))
            try:
                answers = await given
            finally:
                self.close(id)
            return answers or default(question)

        async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
            run = find_run()
            if run is None:
                return [default(question) for question in questions]
            return await asyncio.gather(*(ask_one(run, question) for question in questions))

        return ask
