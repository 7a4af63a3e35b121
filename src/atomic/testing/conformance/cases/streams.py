"""Cases about streams of text."""

from __future__ import annotations

from atomic.providers import PlanChanged, TextDelta, ThinkingDelta, ToolEnded, ToolStarted
from atomic.testing.conformance.case import Cases, Stage, World
from atomic.testing.model_server import Big, Drip, HalfCharacter, Pause, Say, Script, Stop, Think

cases = Cases("Streams")
HELLO = "Hello from the scripted model, in more than one piece."
sizes = Cases("Sizes and names")
NAMES = "Ünïcödé Ελληνικά עברית हिन्दी 日本語 🦊 a'b$c"


@cases.case(lambda stage: {"hello": HELLO})
async def text_streams(world: World) -> None:
    """Stream text in pieces, and return it whole at the end."""
    async with world.open() as session:
        heard = (await world.turn(session, "hello")).ended()
    assert heard.streamed == HELLO
    assert len(heard.of(TextDelta)) > 1
    assert heard.end.text == HELLO


@cases.case(lambda stage: {"slow": Drip("word", times=20, every=0.05)})
async def text_comes_while_it_is_said(world: World) -> None:
    """Stream the first piece long before the last."""
    times: list[int] = []
    async with world.open() as session:
        heard = await world.until(session, "slow", lambda event: times.append(len(world.server.calls)))
    assert heard.ended().streamed.count("word") == 20
    assert len(heard.of(TextDelta)) >= 10


@cases.case(
    lambda stage: {"think": [[Think("I ponder the question."), Say("The answer.")]]}, needs=lambda can: can.thinking
)
async def thinking_streams(world: World) -> None:
    """Separate thinking from the answer."""
    async with world.open() as session:
        heard = (await world.turn(session, "think")).ended()
    # Some agents add line breaks or a heading.
    assert "I ponder the question." in "".join(event.text for event in heard.of(ThinkingDelta))
    assert heard.streamed == heard.end.text == "The answer."


@cases.case(lambda stage: {"a": "One.", "b": "Two."})
async def turns_follow_each_other(world: World) -> None:
    """Accept one prompt after another; the model sees earlier ones."""
    async with world.open() as session:
        assert (await world.turn(session, "a", "My number is 4711.")).ended().end.text == "One."
        assert (await world.turn(session, "b")).ended().end.text == "Two."
    assert "4711" in str(world.calls("b")[-1].body)


@cases.case(lambda stage: {"half": [[Say("The price is 3 "), HalfCharacter("€"), Say(" now.")]]})
async def half_a_character_is_put_together(world: World) -> None:
    """Join a character whose bytes arrive separately."""
    async with world.open() as session:
        heard = (await world.turn(session, "half")).ended()
    assert "3 € now." in heard.streamed


@cases.case(lambda stage: {"refuse": [[Say("I cannot"), Stop("refusal")]], "length": [[Say("Long"), Stop("length")]]})
async def a_refusal_ends_the_turn(world: World) -> None:
    """End the turn once if the model refuses or stops for another reason."""
    async with world.open() as session:
        heard = await world.turn(session, "refuse")
        assert heard.end.reason in ("refused", "done", "error"), heard


@cases.case(lambda stage: {"call": [[stage.words.bash("echo one")], "Behind it."]})
async def the_last_message_is_the_text(world: World) -> None:
    """Return the last message as the text, not the text before a tool."""
    async with world.open() as session:
        heard = (await world.turn(session, "call")).ended()
    assert heard.end.text == "Behind it."
    assert len(heard.of(ToolStarted)) == 1


@cases.case(lambda stage: {"late": [[Pause(2), Say("Sorry, I am late.")]]})
async def a_quiet_model_is_waited_for(world: World) -> None:
    """Wait for a model that sends nothing for two seconds."""
    async with world.open() as session:
        heard = (await world.turn(session, "late")).ended()
    assert heard.end.text == "Sorry, I am late."
    assert not [event for event in heard.of(PlanChanged) if event.agent]


@sizes.case(lambda stage: {"big": Big(8 * 1024 * 1024)})
async def an_answer_of_8_mb(world: World) -> None:
    """Receive an answer of 8 MB."""
    async with world.open() as session:
        heard = (await world.turn(session, "big")).ended()
    assert len(heard.end.text) == len(heard.streamed) == 8 * 1024 * 1024


@sizes.case(lambda stage: {"long": "Read."})
async def a_prompt_of_1_mb(world: World) -> None:
    """Send a prompt of 1 MB."""
    async with world.open() as session:
        text = "".join(f"line {number:06d} of a long prompt\n" for number in range(33_000))
        (await world.turn(session, "long", f"{text}the very end")).ended()
    assert "line 032999" in str(world.calls("long")[0].body)


def _names(stage: Stage) -> dict[str, Script]:
    folder = stage.folder / NAMES
    return {
        "names": [
            [stage.words.write(folder / f"{NAMES}.txt", f"{NAMES}\n")],
            [stage.words.bash("ls | cat")],
            f"{NAMES} {{{{tool_result}}}}",
        ]
    }


@sizes.case(_names)
async def names_in_every_script(world: World) -> None:
    """Keep folders, files and texts in every script as they are."""
    folder = world.folder / NAMES
    folder.mkdir()
    async with world.open(cwd=folder) as session:
        heard = (await world.turn(session, "names", NAMES)).ended()
    assert (folder / f"{NAMES}.txt").read_text() == f"{NAMES}\n"
    assert heard.end.text.startswith(NAMES)
    assert f"{NAMES}.txt" in heard.of(ToolEnded)[1].output
