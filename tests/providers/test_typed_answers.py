"""Test typed answers: a value is found in the text of an agent and converted to its type."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.providers import AgentEvent, AnswerError, EndReason, TurnEnded
from atomic.providers.answers import Wanted, answer_tool, ask_in_text, ask_with_repair
from atomic.providers.errors import UnreadableAnswerError
from tests.support.timing import judge


class Verdict(StrEnum):
    APPROVE = "approve"
    CHANGE = "request_changes"


class Finding(msgspec.Struct):
    title: str
    priority: int | None = None


class Review(msgspec.Struct):
    verdict: Verdict
    findings: list[Finding] = []


@dataclass
class Point:
    x: int
    y: float = 0.0


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Box(msgspec.Struct):
    value: Box | None = None
    """Named like the wrapper and of the same type: the hardest case to distinguish."""


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


CASES: list[tuple[Any, Any, Any]] = [
    (Review, {"verdict": "approve"}, Review(Verdict.APPROVE)),
    (Review, {"verdict": "request_changes", "findings": [{"title": "x"}]}, Review(Verdict.CHANGE, [Finding("x")])),
    (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
    (list[Finding], [{"title": "x", "priority": 1}], [Finding("x", 1)]),
    (list[Finding], {"value": [{"title": "x"}]}, [Finding("x")]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    (Tree, {"value": {"name": "a"}}, Tree("a")),
    (Box, {"value": {"value": None}}, Box(None)),
    (Box, {"value": {}}, Box(None)),
    (Cat | Dog, {"type": "dog", "tricks": ["sit"]}, Dog(["sit"])),
    (Cat | Dog, {"value": {"type": "cat", "lives": 9}}, Cat(9)),
    (int, {"value": 42}, 42),
    (int, 42, 42),
    (bool, {"value": True}, True),
    (str, {"value": "yes"}, "yes"),
    (int | None, {"value": None}, None),
    (tuple[int, str], [1, "a"], (1, "a")),
]


@pytest.mark.parametrize(("wanted", "data", "value"), CASES)
def test_a_value_of_any_type_is_read(wanted: Any, data: Any, value: Any) -> None:
    assert Wanted[Any](wanted).read(data) == value
    assert Wanted[Any](wanted).read_text(json.dumps(data)) == value


@pytest.mark.parametrize("wanted", list({str(case[0]): case[0] for case in CASES}.values()), ids=str)
def test_a_schema_is_an_object_and_contains_its_definitions(wanted: Any) -> None:
    schema = Wanted[Any](wanted).schema
    assert schema["type"] == "object"
    text = json.dumps(schema)
    references = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert references <= set(schema.get("$defs", {}))


WRAPPINGS = [
    "{}",
    "```json\n{}\n```",
    "Here is the review that you asked for:\n\n```\n{}\n```\n\nLet me know if you want more.",
    "I looked at [the code](main.py) and {{it}} works. {}",
    "Sure [1]! {} (done)",
    'It was {{"almost": "this"}}, but: {}',
]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_json_is_found_in_fences_and_prose(wrapping: str) -> None:
    answer = wrapping.replace("{{", "{").replace("}}", "}").replace("{}", '{"verdict": "approve"}')
    assert Wanted(Review).read_text(answer) == Review(Verdict.APPROVE)


@given(
    st.builds(
        Review,
        st.sampled_from(Verdict),
        st.lists(st.builds(Finding, st.text(), st.none() | st.integers(-(2**53), 2**53)), max_size=3),
    ),
    st.text(alphabet=st.characters(exclude_characters='{["')),
    st.text(),
)
def test_json_is_found_within_other_text(review: Review, before: str, after: str) -> None:
    answer = before + msgspec.json.encode(review).decode() + after
    assert Wanted(Review).read_text(answer) == review


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("I could not do it.", "no JSON"),
        ('{"verdict": "perhaps"}', "verdict"),
        ('{"verdict": "approve", "findings": [{"title": 1}]}', "findings"),
        ("", "no JSON"),
        ("[" * 200_000, "no JSON"),
        ('{"a":' * 100_000, "no JSON"),
    ],
)
def test_an_unreadable_answer_is_an_error_with_the_location(answer: str, message: str) -> None:
    with pytest.raises(UnreadableAnswerError, match=message):
        Wanted(Review).read_text(answer)


@pytest.mark.timed
@pytest.mark.parametrize("answer", ["[" * 300_000, "{" * 300_000, '[{"a":[' * 50_000, '[{"c": [1]},' * 100_000])
def test_a_long_truncated_answer_is_refused_quickly(answer: str) -> None:
    began = time.process_time()
    with pytest.raises(UnreadableAnswerError):
        Wanted(Review).read_text(answer)
    judge(time.process_time() - began, 10)  # trying at each bracket would take minutes


class Agent:
    """Answers with one text after the other."""

    def __init__(self, *texts: str, reason: EndReason = EndReason.DONE) -> None:
        self.texts = list(texts)
        self.reason = reason
        self.prompts: list[str] = []
        self.completed = 0

    async def send(self, prompt: str) -> AsyncGenerator[AgentEvent]:
        self.prompts.append(prompt)
        yield TurnEnded(self.reason, self.texts.pop(0), error="overloaded" if self.reason is EndReason.ERROR else None)
        self.completed += 1


async def test_the_schema_is_in_the_prompt_and_a_wrong_answer_is_repaired_once() -> None:
    agent = Agent("I think so", '{"verdict": "approve"}')
    assert await ask_in_text(agent.send, Wanted(Review), "Review it.") == Review(Verdict.APPROVE)
    assert agent.prompts[0].startswith("Review it.")
    assert '"request_changes"' in agent.prompts[0]
    assert "no JSON" in agent.prompts[1]
    assert agent.completed == 2


async def test_an_answer_that_stays_wrong_is_an_error() -> None:
    agent = Agent("no", "still no", '{"verdict": "approve"}')
    with pytest.raises(AnswerError, match="no JSON"):
        await ask_in_text(agent.send, Wanted(Review), "Review it.")
    agent = Agent("no", "still no", '{"verdict": "approve"}')
    assert await ask_with_repair(agent.send, Wanted(Review), "Review it.", repairs=2) == Review(Verdict.APPROVE)


async def test_a_failed_turn_is_an_error_and_not_repaired() -> None:
    agent = Agent('{"verdict": "approve"}', reason=EndReason.ERROR)
    with pytest.raises(AnswerError, match="overloaded"):
        await ask_in_text(agent.send, Wanted(Review), "Review it.")
    assert len(agent.prompts) == 1


async def test_the_answer_tool_accepts_only_valid_answers() -> None:
    answers: list[Review] = []
    tool = answer_tool(Wanted(Review), answers)
    with pytest.raises(UnreadableAnswerError, match="verdict"):
        await tool.run({"verdict": "no"})
    await tool.run({"verdict": "approve"})
    assert answers == [Review(Verdict.APPROVE)]
    assert tool.schema["type"] == "object"
