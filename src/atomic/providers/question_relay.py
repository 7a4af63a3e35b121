"""Pass the agent's questions to the user and end the turn if no answer arrives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from atomic.base.errors import AtomicError
from atomic.providers.base import Ask
from atomic.questions import Question

_log = logging.getLogger(__name__)


class QuestionRelay:
    """Calls the caller's `ask` for an adapter and ends the turn if it raises.

    If the agent received the error instead, it would continue without the answer and
    might report success.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.give_up: Callable[[str], None] | None = None  # `fail_turn` of the open session

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """Return the chosen labels for each question.

        Without an answer, wait until the turn has ended.
        """
        try:
            return _labels(questions, await self._ask(questions))
        except Exception as error:  # the caller's function may raise anything
            if self.give_up is None:
                raise
            _log.info("could not answer a question of the agent", exc_info=error)
            reason = str(error) if isinstance(error, AtomicError) else f"{type(error).__name__}: {error}"
            self.give_up(f"the agent's question could not be answered: {reason}")
        return await asyncio.get_running_loop().create_future()


def _labels(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> list[list[str]]:
    # A plain string is one label, not a list of its letters.
    chosen = [[labels] if isinstance(labels, str) else list(labels) for labels in answers]
    if len(chosen) != len(questions):
        raise AtomicError(f"`ask` returned {len(chosen)} answers for {len(questions)} questions")
    return chosen
