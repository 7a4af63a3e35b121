"""Ask an agent's questions at the terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from atomic.base.json_schema import sketch
from atomic.base.terminal import harmless, one_line
from atomic.cli.output import Output
from atomic.cli.streams import STDIN, forget_typed_text, has_terminal
from atomic.questions import Question


class WrongAnswerError(ValueError):
    """A line that does not answer the question; the text is a message for the user."""


class Asker:
    """Gets answers from the user, without a terminal from the defaults of the
    questions.

    If a question has no default either, it becomes `unanswered` and `give_up` is
    called.
    """

    def __init__(self, out: Output, give_up: Callable[[], object]) -> None:
        self.unanswered: Question | None = None
        self._out = out
        self._give_up = give_up
        self._one_at_a_time = asyncio.Lock()  # two sub-agents may ask at once
        self._has_user = has_terminal()

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """Return the chosen labels of each question."""
        async with self._one_at_a_time:
            return [await self._ask(question) for question in questions]

    async def _ask(self, question: Question) -> Sequence[str]:
        if self._has_user:
            answer = await self._ask_user(question)
            if answer is not None:
                return answer
        if question.default is not None:
            return [question.default]
        self.unanswered = question
        self._give_up()
        await asyncio.get_running_loop().create_future()  # until the end of the turn cancels this
        return []

    async def _ask_user(self, question: Question) -> Sequence[str] | None:
        forget_typed_text()
        self._out.show(question_text(question))
        while True:
            self._out.show(answer_prompt(question))
            try:
                line = await read_typed_line()
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


def question_text(question: Question) -> str:
    """Return the text of a question with numbered options."""
    header = f"[{one_line(question.header)}] " if question.header else ""
    lines = [f"\n? {header}{harmless(question.text)}"]
    for number, option in enumerate(question.options, 1):
        description = f" - {one_line(option.description)}" if option.description else ""
        lines.append(f"  {number}. {one_line(option.label)}{description}")
    if question.returns is not None:
        lines.append(f"  {one_line(sketch(question.described().returns))}")
    return "\n".join(lines) + "\n"


def answer_prompt(question: Question) -> str:
    """Return the prompt of the answer: its form, and the default."""
    how = "answer" if question.returns is None else "answer as JSON"
    if question.options:
        how = "numbers, with commas between them" if question.multi_select else "number, or an answer of your own"
    return f"{how}> " if question.default is None else f"{how} [{one_line(question.default)}]> "


def read_answer(question: Question, line: str) -> list[str]:
    """Return the labels or texts that a line chooses. Raise WrongAnswerError."""
    labels = [option.label for option in question.options]
    text = line.strip()
    if not question.multi_select and _are_several(text, labels):
        choices = ", ".join(f"{number}. {one_line(label)}" for number, label in enumerate(labels, 1))
        raise WrongAnswerError(f'This question takes one answer, not "{one_line(text)}"; choose one of: {choices}.')
    is_one = not question.multi_select or text in labels  # a label may contain a comma
    answers = [text] if is_one else [part.strip() for part in text.split(",")]
    chosen = [_choose(answer, labels) for answer in answers if answer]
    if not chosen and question.default is None:
        raise WrongAnswerError("Please type an answer: there is no default.")
    return chosen or [question.default or ""]


def _are_several(text: str, labels: Sequence[str]) -> bool:
    """Return whether a text lists several options by label or number.

    Other text with commas is one answer.
    """
    known = {label.casefold() for label in labels}
    if text.casefold() in known:  # a label may contain a comma
        return False
    numbers = {str(number) for number in range(1, len(labels) + 1)}
    parts = [part.strip().casefold() for part in text.split(",")]
    return len(parts) > 1 and all(part in known or part in numbers for part in parts)


def _choose(text: str, labels: Sequence[str]) -> str:
    """Return the label with this number or this name, else the text itself."""
    if labels and text.isdecimal() and text not in labels:  # a label may itself be a number
        if not 1 <= int(text) <= len(labels):
            raise WrongAnswerError(f"No answer {text}: they are numbered 1 to {len(labels)}.")
        return labels[int(text) - 1]
    return next((label for label in labels if label.casefold() == text.casefold()), text)


async def read_typed_line() -> str:
    """Read one line from the terminal; empty at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(STDIN, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(STDIN)
    try:
        return os.read(STDIN, 64 * 1024).decode("utf-8", "replace")
    except OSError:  # the terminal was closed
        return ""
