"""Read the line that answers an agent's question."""

from __future__ import annotations

import pytest

from atomic.cli.terminal_questions import WrongAnswerError, answer_prompt, question_text, read_answer
from atomic.questions import Option, Question

COLOUR = Question("Which colour?", options=["Blue", "Red", "Blue, light"], header="Colour")
SEVERAL = Question("Which parts?", options=["api", "ui", "docs, all"], multi_select=True)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("2\n", "Red"),
        (" red ", "Red"),
        ("Blue, light", "Blue, light"),
        ("green", "green"),
        ("red, but darker", "red, but darker"),
    ],
)
def test_an_answer_is_a_number_a_label_or_free_text(line: str, answer: str) -> None:
    assert read_answer(COLOUR, line) == [answer]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("1", ["api"]),
        ("2,1\n", ["ui", "api"]),
        ("UI, 3", ["ui", "docs, all"]),
        ("docs, all", ["docs, all"]),
        ("x,", ["x"]),
    ],
)
def test_several_answers_are_separated_by_commas(line: str, answer: list[str]) -> None:
    assert read_answer(SEVERAL, line) == answer


@pytest.mark.parametrize("line", ["1,2", "1, 2\n", "red, 1", "Blue, Red"])
def test_several_choices_are_refused_for_a_single_choice(line: str) -> None:
    with pytest.raises(WrongAnswerError) as refused:
        read_answer(COLOUR, line)
    choices = "choose one of: 1. Blue, 2. Red, 3. Blue, light."
    assert str(refused.value) == f'This question takes one answer, not "{line.strip()}"; {choices}'


def test_numbers_with_commas_are_free_text_without_options() -> None:
    assert read_answer(Question("Which lines?"), "1,2\n") == ["1,2"]


@pytest.mark.parametrize("line", ["0", "4", "17"])
def test_a_number_out_of_range_is_refused(line: str) -> None:
    with pytest.raises(WrongAnswerError, match=f"No answer {line}: they are numbered 1 to 3"):
        read_answer(COLOUR, line)


def test_a_number_is_free_text_without_options() -> None:
    assert read_answer(Question("How many?"), "4\n") == ["4"]


@pytest.mark.parametrize(("line", "answer"), [("3", "3"), ("2", "5"), ("10", "10")])
def test_a_numeric_label_is_chosen_by_its_text(line: str, answer: str) -> None:
    assert read_answer(Question("How many?", options=["10", "5", "7", "3"]), line) == [answer]


def test_enter_chooses_the_default_if_there_is_one() -> None:
    assert read_answer(Question("Go on?", options=["Yes", "No"], default="No"), "\n") == ["No"]
    for nothing in (COLOUR, SEVERAL):
        with pytest.raises(WrongAnswerError, match="Please type an answer"):
            read_answer(nothing, "\n")
    with pytest.raises(WrongAnswerError, match="Please type an answer"):
        read_answer(SEVERAL, " , ")


def test_a_question_shows_its_options_and_its_default() -> None:
    question = Question("Go on?", header="Step", options=[Option("Yes", "and\ndo it"), Option("No")], default="No")
    assert question_text(question) == "\n? [Step] Go on?\n  1. Yes - and do it\n  2. No\n"
    assert answer_prompt(question) == "number, or an answer of your own [No]> "
    assert answer_prompt(Question("Why?")) == "answer> "


def test_a_question_cannot_write_to_the_terminal() -> None:
    assert "\x1b" not in question_text(Question("\x1b[2Jx", options=["\x1b]0;y\x07"], header="\x1b["))


@pytest.mark.parametrize("own", ["1,000", "1,001", "10, 50", "2,3"])
def test_a_number_with_commas_is_free_text(own: str) -> None:
    """Only if every part is an option, or the number of one, is it several answers."""
    assert read_answer(Question("How many?", options=["10", "100"]), own) == [own]


@pytest.mark.parametrize("line", ["1,2", "10, 100", "1, 100"])
def test_several_options_that_are_numbers_are_several_answers(line: str) -> None:
    with pytest.raises(WrongAnswerError, match="takes one answer"):
        read_answer(Question("How many?", options=["10", "100"]), line)
