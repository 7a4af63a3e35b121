"""Put an agent's questions to the person at the terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from atomic.base.terminal import harmless, one_line
from atomic.cli.output import Output
from atomic.cli.streams import STDERR, STDIN
from atomic.questions import Question


class WrongAnswerError(ValueError):
    """A line that answers no question; the text says why."""


class Asker:
    """Answers questions: by the person, if there is one, else by their defaults.

    Where there is neither, `unanswered` is the question and `give_up` is called: the turn cannot go on.
    """

    def __init__(self, out: Output, give_up: Callable[[], object]) -> None:
        self.unanswered: Question | None = None
        self._out, self._give_up = out, give_up
        self._one_at_a_time = asyncio.Lock()  # two sub-agents may ask at once
        self._is_somebody_there = os.isatty(STDIN) and os.isatty(STDERR)

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """The labels that were chosen, for each question."""
        async with self._one_at_a_time:
            return [await self._ask(question) for question in questions]

    async def _ask(self, question: Question) -> Sequence[str]:
        answer = await self._from_person(question) if self._is_somebody_there else None
        if answer is None:
            answer = None if question.default is None else [question.default]
        if answer is None:
            self.unanswered = question
            self._give_up()
            await asyncio.get_running_loop().create_future()  # until the end of the turn cancels this
        return answer or []

    async def _from_person(self, question: Question) -> Sequence[str] | None:
        self._out.show(shown(question))
        while True:
            self._out.show(prompt_of(question))
            try:
                line = await read_line()
            except asyncio.CancelledError:
                self._out.show("\n")
                raise
            if not line:  # Ctrl+D
                self._out.show("\n")
                return None
            try:
                return read_answer(question, line)
            except WrongAnswerError as error:
                self._out.show(f"{error}\n")


def shown(question: Question) -> str:
    """A question as it stands on a terminal."""
    header = f"[{one_line(question.header)}] " if question.header else ""
    lines = [f"\n? {header}{harmless(question.text)}"]
    for number, option in enumerate(question.options, 1):
        description = f" - {one_line(option.description)}" if option.description else ""
        lines.append(f"  {number}. {one_line(option.label)}{description}")
    return "\n".join(lines) + "\n"


def prompt_of(question: Question) -> str:
    """What stands in front of the answer."""
    how = "answer"
    if question.options:
        how = "numbers, with commas between them" if question.multi_select else "number, or an answer of your own"
    return f"{how}{'' if question.default is None else f' [{one_line(question.default)}]'}> "


def read_answer(question: Question, line: str) -> list[str]:
    """The labels that a line means: numbers, labels or words of one's own. Raises WrongAnswerError."""
    labels = [option.label for option in question.options]
    said = line.strip()
    if not question.multi_select and _are_several(said, labels):
        choices = ", ".join(f"{number}. {one_line(label)}" for number, label in enumerate(labels, 1))
        raise WrongAnswerError(f'This question takes one answer, not "{one_line(said)}"; choose one of: {choices}.')
    is_one = not question.multi_select or said in labels  # a label may have a comma
    answers = [said] if is_one else [word.strip() for word in said.split(",")]
    chosen = [_chosen(answer, labels) for answer in answers if answer]
    if not chosen and question.default is None:
        raise WrongAnswerError("Please type an answer: there is no default.")
    return chosen or [question.default or ""]


def _are_several(said: str, labels: Sequence[str]) -> bool:
    """Whether every part of a text is an option or the number of one; other words with commas are one answer."""
    known = {label.casefold() for label in labels}
    if said.casefold() in known:  # a label may have a comma
        return False
    numbers = {str(number) for number in range(1, len(labels) + 1)}
    words = [word.strip().casefold() for word in said.split(",")]
    return len(words) > 1 and all(word in known or word in numbers for word in words)


def _chosen(word: str, labels: Sequence[str]) -> str:
    if labels and word.isdecimal() and word not in labels:  # a label may be a number itself
        if not 1 <= int(word) <= len(labels):
            raise WrongAnswerError(f"No answer {word}: they are numbered 1 to {len(labels)}.")
        return labels[int(word) - 1]
    return next((label for label in labels if label.casefold() == word.casefold()), word)


async def read_line() -> str:
    """A line of the terminal, which sends whole ones; empty at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(STDIN, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(STDIN)
    try:
        return os.read(STDIN, 64 * 1024).decode("utf-8", "replace")
    except OSError:  # the terminal has gone
        return ""
