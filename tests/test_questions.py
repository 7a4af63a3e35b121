from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.questions import Option, Question

OPTIONS = st.builds(Option, st.text(), st.text())
QUESTIONS = st.builds(
    Question,
    st.text(),
    options=st.lists(OPTIONS),
    default=st.none() | st.text(),
    header=st.text(),
    multi_select=st.booleans(),
    id=st.text(),
)


def test_a_question_needs_only_its_text() -> None:
    question = Question("Which database?")
    assert (question.text, question.options, question.default) == ("Which database?", (), None)
    assert (question.header, question.multi_select, question.id) == ("", False, "")


def test_a_label_is_an_option_without_a_description() -> None:
    question = Question("Which?", options=["JWT", Option("Session", "a cookie")])
    assert question.options == (Option("JWT"), Option("Session", "a cookie"))


def test_a_text_instead_of_a_list_of_options_is_refused() -> None:
    with pytest.raises(TypeError, match="list, not the text 'JWT'"):
        Question("Which?", options="JWT")


def test_only_the_text_is_positional() -> None:
    with pytest.raises(TypeError):
        cast("Any", Question)("Which?", ["JWT"])


def test_a_question_is_immutable() -> None:
    question = Question("Which?", options=["JWT"])
    with pytest.raises(AttributeError):
        cast("Any", question).text = "Why?"
    assert hash(question) == hash(Question("Which?", options=[Option("JWT")]))


@given(QUESTIONS)
def test_a_question_survives_json(question: Question) -> None:
    assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question
