"""Questions of a workflow function whose code changes while the run is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from atomic.workflows import Flow, MemoryJournal, RunStatus, WorkflowChangedError, current_step, step, workflow
from atomic.workflows.flow import FunctionWorkflow

Body = Callable[[Flow], Awaitable[str]]


def flow_of(body: Body) -> FunctionWorkflow[[], str]:
    @workflow(name="trip")
    async def trip(flow: Flow) -> str:
        return await body(flow)

    return trip


async def old(flow: Flow) -> str:
    unit = await flow.ask("Which unit?", options=["C", "F"])
    return f"{unit} {await flow.ask('Sure?')}"


async def edited(flow: Flow) -> str:
    unit = await flow.ask("Which units?", options=["C", "F"])
    return f"{unit} {await flow.ask('Sure?')}"


async def with_its_own_id(flow: Flow) -> str:
    await flow.ask("Which city?", id="city")
    return await old(flow)


async def beside(flow: Flow) -> str:
    city, unit = await asyncio.gather(flow.ask("Which city?"), flow.ask("Which unit?", options=["C", "F"]))
    return f"{city} {unit}"


async def paused(body: Body) -> MemoryJournal:
    journal = MemoryJournal()
    ended = await flow_of(body).run(journal=journal, execution_id="mine")
    assert ended.status is RunStatus.PAUSED
    return journal


async def test_an_answer_to_an_edited_question_is_not_dropped() -> None:
    journal = await paused(old)
    with pytest.raises(WorkflowChangedError) as refused:
        await flow_of(edited).resume(journal, "mine", answers={"ask-1": "C"})
    assert "'Which unit?', which has the answer 'C', and is now 'Which units?'" in str(refused.value)
    # Nothing was recorded, so the old code takes the answer.
    again = await flow_of(old).resume(journal, "mine", answers={"ask-1": "C"})
    assert [question.text for question in again.questions] == ["Sure?"]


async def test_an_edited_question_without_an_answer_is_asked() -> None:
    journal = await paused(old)
    again = await flow_of(edited).resume(journal, "mine")
    assert [question.text for question in again.questions] == ["Which units?"]


async def test_a_new_question_with_an_id_of_its_own_comes_before_an_answered_one() -> None:
    journal = await paused(old)
    again = await flow_of(with_its_own_id).resume(journal, "mine", answers={"ask-1": "C"})
    assert [question.text for question in again.questions] == ["Which city?"]
    ended = await flow_of(with_its_own_id).resume(journal, "mine", answers={"city": "Rome"})
    assert [question.text for question in ended.questions] == ["Sure?"]


async def test_a_new_question_beside_an_answered_one_is_asked() -> None:
    journal = await paused(old)
    again = await flow_of(beside).resume(journal, "mine", answers={"ask-1": "C"})
    assert [question.text for question in again.questions] == ["Which city?"]
    (question,) = again.questions
    ended = await flow_of(beside).resume(journal, "mine", answers={question.id: "Rome"})
    assert ended.result == "Rome C"


@step
async def confirm(version: str) -> str:
    context = current_step()
    assert context is not None
    return await context.ask(f"Ship {version}?")


async def test_an_answer_to_a_step_with_other_arguments_is_not_dropped() -> None:
    journal = await paused(lambda flow: confirm("1.2"))
    with pytest.raises(
        WorkflowChangedError, match=r"'Ship 1.2\?', which has the answer 'yes', and is now confirm\('1.3'"
    ):
        await flow_of(lambda flow: confirm("1.3")).resume(journal, "mine", answers={"confirm-1": "yes"})
