"""Cases about typed answers."""

from __future__ import annotations

import msgspec

from atomic.providers import AnswerError
from atomic.testing.conformance.case import Cases, World

cases = Cases("Structured answers")


class Finding(msgspec.Struct):
    title: str
    line: int


class Review(msgspec.Struct):
    ok: bool
    findings: list[Finding] = []


RIGHT = {"ok": True, "findings": [{"title": "typo", "line": 7}]}
WRONG = {"ok": "perhaps", "findings": "none"}
EXPECTED = Review(ok=True, findings=[Finding("typo", 7)])


@cases.case(lambda stage: {"ask": [[stage.words.answer(RIGHT)], "Handed in."], "next": "Plain again."})
async def an_answer_of_a_type(world: World) -> None:
    """Return a checked value from `ask_for`, then continue with plain turns."""
    async with world.open() as session:
        assert await session.ask_for(Review, world.prompt("ask", "Review it.")) == EXPECTED
        assert (await world.turn(session, "next")).ended().end.text == "Plain again."


@cases.case(
    lambda stage: {
        "ask": [[stage.words.answer(WRONG)], [stage.words.answer(WRONG)], [stage.words.answer(RIGHT)], "Handed in."]
    },
    needs=lambda can: can.structured != "text",
)
async def wrong_twice_then_right(world: World) -> None:
    """Refuse an answer of the wrong shape, with the reason, until it fits."""
    async with world.open() as session:
        assert await session.ask_for(Review, world.prompt("ask", "Review it.")) == EXPECTED


@cases.case(lambda stage: {"ask": ["I would rather not say."] * 4})
async def no_answer_is_an_error(world: World) -> None:
    """Raise an error if the agent never returns the value."""
    problem = ""
    async with world.open() as session:
        try:
            await session.ask_for(Review, world.prompt("ask", "Review it."))
        except AnswerError as error:
            problem = str(error)
    assert problem, "`ask_for` returned a value"
