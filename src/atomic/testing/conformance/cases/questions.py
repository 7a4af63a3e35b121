"""Cases about an agent's questions to the user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from atomic.providers import AgentSpec, Question, QuestionAsked
from atomic.testing.conformance.case import Cases, Stage, World
from atomic.testing.model_server import Script

cases = Cases("Questions")
COLOUR = {"text": "Which colour?", "header": "Colour", "options": ["Red", "Blue"]}
SIZE = {"text": "Which size?", "header": "Size", "options": ["Small", "Large"]}
TOPPINGS = {"text": "Which toppings?", "header": "Toppings", "options": ["Nuts", "Figs", "Rum"], "multi": True}


class Person:
    """Answers by the text of the question, and keeps the questions."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self.answers = answers
        self.asked: list[tuple[Question, ...]] = []
        self.most_at_once = 0
        self._open = 0

    async def __call__(self, questions: Sequence[Question]) -> list[Sequence[str]]:
        self.asked.append(tuple(questions))
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        await asyncio.sleep(0.3)
        self._open -= 1
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Sequence[str]:
        [found] = [labels for word, labels in self.answers.items() if word in question.text]
        return found


@cases.case(
    lambda stage: {"ask": [[stage.words.ask([COLOUR])], "You said {{tool_result}}"]}, needs=lambda can: can.questions
)
async def a_question_with_options(world: World) -> None:
    """Pass a question with its options to the user, and the label to the agent."""
    person = Person(colour=["Blue"])
    async with world.open(ask=person) as session:
        heard = (await world.turn(session, "ask")).ended()
    [[question]] = person.asked
    assert "Which colour?" in question.text
    assert [option.label for option in question.options] == ["Red", "Blue"]
    assert not question.multi_select
    assert [event.questions for event in heard.of(QuestionAsked)] == person.asked
    assert "Blue" in heard.end.text


@cases.case(
    lambda stage: {"ask": [[stage.words.ask([COLOUR])], "You said {{tool_result}}"]},
    needs=lambda can: can.questions and can.tool_selection,
)
async def a_question_of_a_session_with_a_list_of_tools(world: World) -> None:
    """Ask the user also in a session with a list of tools."""
    person = Person(colour=["Red"])
    async with world.open(ask=person, tools=["read"]) as session:
        heard = (await world.turn(session, "ask")).ended()
    assert len(person.asked) == 1
    assert "Red" in heard.end.text


@cases.case(
    lambda stage: {"ask": [[stage.words.ask([TOPPINGS])], "You said {{tool_result}}"]},
    needs=lambda can: can.multi_select,
)
async def a_question_with_several_answers(world: World) -> None:
    """Pass all chosen labels of a multi-select question to the agent."""
    person = Person(toppings=["Nuts", "Rum"])
    async with world.open(ask=person) as session:
        heard = (await world.turn(session, "ask")).ended()
    [[question]] = person.asked
    assert question.multi_select
    assert "Nuts" in heard.end.text
    assert "Rum" in heard.end.text


@cases.case(
    lambda stage: {"ask": [[stage.words.ask([COLOUR, SIZE])], "You said {{tool_result}}"]},
    needs=lambda can: can.questions,
)
async def two_questions_at_once(world: World) -> None:
    """Pass two questions of one call together, and their answers too."""
    person = Person(colour=["Red"], size=["Large"])
    async with world.open(ask=person) as session:
        heard = (await world.turn(session, "ask")).ended()
    [questions] = person.asked
    assert ["colour" in questions[0].text, "size" in questions[1].text] == [True, True]
    assert "Red" in heard.end.text
    assert "Large" in heard.end.text


def _two_sessions(stage: Stage) -> dict[str, Script]:
    return {
        "one": [[stage.words.ask([COLOUR])], "One: {{tool_result}}"],
        "two": [[stage.words.ask([SIZE])], "Two: {{tool_result}}"],
    }


@cases.case(_two_sessions, needs=lambda can: can.questions)
async def two_agents_ask_at_the_same_time(world: World) -> None:
    """Answer two agents that ask at the same time."""
    person = Person(colour=["Red"], size=["Small"])
    async with world.open(ask=person) as first, world.open(ask=person) as second:
        one, two = await asyncio.gather(world.turn(first, "one"), world.turn(second, "two"))
    assert "Red" in one.ended().end.text
    assert "Small" in two.ended().end.text
    assert len(person.asked) == 2


@cases.case(
    lambda stage: {
        "lead": [[stage.words.subagent("worker", f"{stage.mark('part')} Ask.")], "Lead: {{tool_result}}"],
        "part": [[stage.words.ask([COLOUR])], "Part: {{tool_result}}"],
    },
    needs=lambda can: can.questions and can.subagents,
)
async def a_subagents_question_does_not_hang(world: World) -> None:
    """Answer a sub-agent's question, or offer it no question tool; never hang."""
    worker = AgentSpec(name="worker", description="Asks.", prompt="You ask.")
    async with world.open(ask=Person(colour=["Blue"]), agents=[worker]) as session:
        await world.turn(session, "lead")


@cases.case(lambda stage: {"no": [[stage.words.bash("true")], "Done."]}, needs=lambda can: can.questions)
async def nobody_is_there_to_ask(world: World) -> None:
    """Offer no question tool if no user is available."""
    async with world.open() as session:
        (await world.turn(session, "no")).ended()
    offered = {name.lower() for name in world.calls("no")[0].tools}
    assert not offered & {"askuserquestion", "question", "ask_user"}
