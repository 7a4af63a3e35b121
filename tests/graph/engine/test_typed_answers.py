"""Questions whose answers are data of a type: approve, edit, reject with arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pytest

from atomic.questions import AnswerError
from atomic.workflows import (
    AtomicError,
    Flow,
    MemoryJournal,
    Node,
    NodeContext,
    Question,
    QuestionError,
    RunStatus,
    ask_user_node,
    graph,
    workflow,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, failed, within


class Approval(msgspec.Struct):
    approve: bool
    note: str = ""


ASKED = Question("Deploy?", id="deploy", returns=Approval)


async def decide(ctx: NodeContext[S]) -> dict[str, Any]:
    answer = await ctx.ask(ASKED)
    assert isinstance(answer, Approval)
    return {"done": answer.approve, "text": answer.note}


FLOW = graph(S).node("decide", decide).compile()


async def paused() -> KeptJournal:
    journal = KeptJournal()
    result = await within(FLOW.run(journal=journal, execution_id=RUN))
    assert result.status is RunStatus.PAUSED
    return journal


@pytest.mark.parametrize(
    "answer",
    ['{"approve": true, "note": "go"}', {"approve": True, "note": "go"}, Approval(True, "go")],
)
async def test_an_answer_is_json_or_data_and_the_node_gets_the_type(answer: Any) -> None:
    journal = await paused()
    result = await within(FLOW.resume(journal, RUN, answers={"deploy": answer}))
    assert (result.status, result.state.done, result.state.text) == (RunStatus.COMPLETED, True, "go")


async def test_a_host_sees_the_schema_of_the_answer() -> None:
    journal = KeptJournal()
    (question,) = (await within(FLOW.run(journal=journal, execution_id=RUN))).questions
    assert question.returns == msgspec.json.schema(Approval)
    assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question
    (question,) = (await within(FLOW.resume(journal, RUN))).questions
    assert question.returns == msgspec.json.schema(Approval)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"approve": "yes"}', "does not fit at approve: Expected `bool`, got `str`"),
        ({"note": "x"}, "does not fit: Object missing required field `approve`"),
        ("yes", 'does not fit: it needs {"approve": bool, "note"?: str}, not \'yes\''),
        ('{"approve": tru', "does not fit: Expected `object`, got `str`"),
        (7, "does not fit: Expected `object`, got `int`"),
        (object, 'does not fit: it needs {"approve": bool, "note"?: str}, not <class \'object\'>'),
    ],
)
async def test_a_wrong_answer_is_refused_and_nothing_is_recorded(answer: Any, problem: str) -> None:
    journal = await paused()
    before = journal.rows(RUN)
    with pytest.raises(AnswerError) as caught:
        await FLOW.resume(journal, RUN, answers={"deploy": answer})
    assert str(caught.value) == f'The answer to "deploy" {problem}'
    assert journal.rows(RUN) == before
    result = await within(FLOW.resume(journal, RUN, answers={"deploy": {"approve": False}}))
    assert result.status is RunStatus.COMPLETED


async def test_the_same_answer_may_be_given_twice_and_another_one_not() -> None:
    async def two(ctx: NodeContext[S]) -> None:
        await ctx.ask(ASKED)
        await ctx.ask(Question("And?", id="and"))

    flow = graph(S).node("two", two).compile()
    journal = MemoryJournal()
    await within(flow.run(journal=journal, execution_id=RUN))
    await within(flow.resume(journal, RUN, answers={"deploy": '{"approve": true}'}))
    await within(flow.resume(journal, RUN, answers={"deploy": {"approve": True}}))
    with pytest.raises(QuestionError, match=r"is already answered: \{'approve': True\}"):
        await flow.resume(journal, RUN, answers={"deploy": {"approve": False}})


async def test_a_kill_after_the_answer_loses_nothing() -> None:
    journal = await paused()
    await within(FLOW.resume(journal, RUN, answers={"deploy": {"approve": True}}))
    for rows in range(3, len(journal.rows(RUN))):
        assert (await within(FLOW.resume(journal.cut(RUN, rows), RUN))).state.done


class Stricter(msgspec.Struct):
    approve: bool
    by: str


async def test_a_recorded_answer_that_no_longer_fits_is_asked_again() -> None:
    journal = await paused()
    cut: Any = None

    async def interrupted(ctx: NodeContext[S]) -> None:
        await ctx.ask(ASKED)
        await ctx.ask(Question("More?", id="more"))

    before = graph(S).node("decide", interrupted).compile()
    cut = journal
    await within(before.resume(cut, RUN, answers={"deploy": {"approve": True}}))

    async def newer(ctx: NodeContext[S]) -> dict[str, Any]:
        answer = await ctx.ask(Question("Deploy?", id="deploy", returns=Stricter))
        return {"text": answer.by}

    after = graph(S).node("decide", newer).compile()
    result = await within(after.resume(cut, RUN))
    assert [question.id for question in result.questions] == ["deploy"]
    (warning,) = result.warnings
    assert "does not fit: Object missing required field `by`; it is asked again" in warning.data["text"]
    result = await within(after.resume(cut, RUN, answers={"deploy": {"approve": True, "by": "me"}}))
    assert result.state.text == "me"


@dataclass
class Host:
    """Answers one after the other."""

    answers: Sequence[Any]
    asked: list[Question] = field(default_factory=list[Question])

    async def ask(self, question: Question) -> Any:
        self.asked.append(question)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


@dataclass
class Deps:
    broker: Host


async def test_a_host_is_asked_again_until_its_answer_fits() -> None:
    host = Host(["yes", '{"approve": 1}', '{"approve": true, "note": "ok"}'])
    result = await within(FLOW.run(deps=Deps(host)))
    assert (result.status, result.state.text) == (RunStatus.COMPLETED, "ok")
    assert [question.text.partition("\n")[2] for question in host.asked] == [
        "",
        'The answer to "deploy" does not fit: it needs {"approve": bool, "note"?: str}, not \'yes\'',
        'The answer to "deploy" does not fit at approve: Expected `bool`, got `int`',
    ]
    assert len(result.warnings) == 2


async def test_a_host_that_never_answers_rightly_fails_the_node() -> None:
    host = Host(["no"])
    text = await failed(FLOW, "decide", deps=Deps(host))
    assert "does not fit" in text
    assert len(host.asked) == 10


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (int, "10", 10),
        (str, "10", "10"),
        (list[int], "[1, 2]", [1, 2]),
        (Literal["yes", "no"], "yes", "yes"),
        (int | None, "null", None),
        (dict[str, int], {"a": 1}, {"a": 1}),
    ],
)
async def test_answers_of_any_type(kind: Any, answer: Any, value: Any) -> None:
    flow = graph(S).then(ask_user_node("q", "What?", returns=kind)).compile()
    journal = MemoryJournal()
    await within(flow.run(journal=journal, execution_id=RUN))
    result = await within(flow.resume(journal, RUN, answers={"q": answer}))
    assert result.state.outputs == {"q": value}


async def test_a_map_asks_for_typed_answers() -> None:
    asks: Node[S] = ask_user_node("q", lambda state, n: f"What about {n}?", returns=Approval)
    flow = graph(S).map("m", lambda s: [1, 2], asks).compile()
    journal = MemoryJournal()
    await within(flow.run(journal=journal, execution_id=RUN))
    result = await within(flow.resume(journal, RUN, answers={"q[0]": {"approve": True}, "q[1]": '{"approve": false}'}))
    assert result.state.outputs["m"] == [{"approve": True, "note": ""}, {"approve": False, "note": ""}]


async def test_a_type_without_a_schema_fails_the_node_clearly() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await ctx.ask(Question("What?", returns=object()))

    text = await failed(graph(S).node("n", run).compile(), "n")
    assert text.startswith("n: Question(returns=<object object at")


async def test_other_questions_take_texts_as_before() -> None:
    flow = graph(S).then(ask_user_node("q", "What?")).compile()
    journal = MemoryJournal()
    await within(flow.run(journal=journal, execution_id=RUN))
    with pytest.raises(AtomicError, match='The answer to "q" is 7; give a text, or a list of texts'):
        await flow.resume(journal, RUN, answers={"q": 7})


async def test_a_function_workflow_gets_the_type(tmp_path: Any) -> None:
    @workflow(name="asks")
    async def asks(flow: Flow) -> str:
        answer = await flow.ask(ASKED)
        assert isinstance(answer, Approval)
        return answer.note

    journal = MemoryJournal()
    await within(asks.run(journal=journal, execution_id=RUN))
    result = await within(asks.resume(journal, RUN, answers={"deploy": {"approve": True, "note": "fine"}}))
    assert result.result == "fine"
