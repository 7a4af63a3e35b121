"""The agent's questions on their way to a person. Where no answer comes back, the turn cannot go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from atomic.errors import AtomicError
from atomic.providers.base import Ask
from atomic.questions import Question

_log = logging.getLogger(__name__)


class Asking:
    """Stands between an adapter and the caller's `ask`: what that raises, or gets wrong, ends the turn.

    An agent that were told of it instead would go on without the answer, and might call that done.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.give_up: Callable[[str], None] | None = None  # of the session, once it is open

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """The labels that were chosen, for each question; where there are none it waits for the end of the turn."""
        try:
            return _labels(questions, await self._ask(questions))
        except Exception as error:  # it is somebody else's function, and no mistake in it may end the program
            if self.give_up is None:
                raise
            _log.info("a question was not answered", exc_info=error)
            reason = str(error) if isinstance(error, AtomicError) else f"{type(error).__name__}: {error}"
            self.give_up(f"the agent's question could not be answered: {reason}")
        return await asyncio.get_running_loop().create_future()


def _labels(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> list[list[str]]:
    # One label where a list of them belongs is meant as one: its letters are no labels.
    chosen = [[labels] if isinstance(labels, str) else list(labels) for labels in answers]
    if len(chosen) != len(questions):
        raise AtomicError(f"`ask` was given {len(questions)} questions and gave {len(chosen)} answers")
    return chosen
