"""What is said arrives as it is said."""

from __future__ import annotations

from atomic.providers import PlanChanged, TextDelta, ThinkingDelta, ToolStarted
from atomic.testing.conformance.case import Cases
from atomic.testing.conformance.case_setup import World
from atomic.testing.model_server import Drip, HalfCharacter, Pause, Say, Stop, Think

cases = Cases("Streams")
HELLO = "Hello from the scripted model, in more than one piece."


@cases.case(lambda stage: {"hello": HELLO})
async def text_streams(world: World) -> None:
    """Text arrives in pieces, and whole at the end."""
    async with world.open() as session:
        heard = (await world.turn(session, "hello")).ended()
    assert heard.streamed == HELLO
    assert len(heard.of(TextDelta)) > 1
    assert heard.end.text == HELLO


@cases.case(lambda stage: {"slow": Drip("word", times=20, every=0.05)})
async def text_comes_while_it_is_said(world: World) -> None:
    """The first piece is there long before the last."""
    times: list[int] = []
    async with world.open() as session:
        heard = await world.until(session, "slow", lambda event: times.append(len(world.server.calls)))
    assert heard.ended().streamed.count("word") == 20
    assert len(heard.of(TextDelta)) >= 10


@cases.case(
    lambda stage: {"think": [[Think("I ponder the question."), Say("The answer.")]]}, needs=lambda can: can.thinking
)
async def thinking_streams(world: World) -> None:
    """Thinking is told apart from the answer."""
    async with world.open() as session:
        heard = (await world.turn(session, "think")).ended()
    assert "".join(event.text for event in heard.of(ThinkingDelta)) == "I ponder the question."
    assert heard.streamed == heard.end.text == "The answer."


@cases.case(lambda stage: {"a": "One.", "b": "Two."})
async def turns_follow_each_other(world: World) -> None:
    """A session takes one prompt after another, and the model sees the ones before."""
    async with world.open() as session:
        assert (await world.turn(session, "a", "My number is 4711.")).ended().end.text == "One."
        assert (await world.turn(session, "b")).ended().end.text == "Two."
    assert "4711" in str(world.calls("b")[-1].body)


@cases.case(lambda stage: {"half": [[Say("The price is 3 "), HalfCharacter("€"), Say(" now.")]]})
async def half_a_character_is_put_together(world: World) -> None:
    """A character whose bytes come apart arrives whole."""
    async with world.open() as session:
        heard = (await world.turn(session, "half")).ended()
    assert "3 € now." in heard.streamed


@cases.case(lambda stage: {"refuse": [[Say("I cannot"), Stop("refusal")]], "length": [[Say("Long"), Stop("length")]]})
async def a_refusal_ends_the_turn(world: World) -> None:
    """A model that refuses, or stops for another reason, ends the turn once; it does not hang."""
    async with world.open() as session:
        heard = await world.turn(session, "refuse")
        assert heard.end.reason in ("refused", "done", "error"), heard


@cases.case(lambda stage: {"call": [[stage.words.bash("echo one")], "Behind it."]})
async def the_last_message_is_the_text(world: World) -> None:
    """The text of the end is the last message, not what was said before a tool."""
    async with world.open() as session:
        heard = (await world.turn(session, "call")).ended()
    assert heard.end.text == "Behind it."
    assert len(heard.of(ToolStarted)) == 1


@cases.case(lambda stage: {"late": [[Pause(2), Say("Sorry, I am late.")]]})
async def a_quiet_model_is_waited_for(world: World) -> None:
    """Quiet is not dead: nothing for two seconds, then the answer."""
    async with world.open() as session:
        heard = (await world.turn(session, "late")).ended()
    assert heard.end.text == "Sorry, I am late."
    assert not [event for event in heard.of(PlanChanged) if event.agent]
