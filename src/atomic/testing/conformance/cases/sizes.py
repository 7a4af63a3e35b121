"""Big answers, big prompts, names in every script."""

from __future__ import annotations

from atomic.providers import ToolEnded
from atomic.testing.conformance.case import Cases
from atomic.testing.conformance.case_setup import Stage, World
from atomic.testing.model_server import Big, Script

cases = Cases("Sizes and names")
NAMES = "Ünïcödé Ελληνικά עברית हिन्दी 日本語 🦊 a'b$c"


@cases.case(lambda stage: {"big": Big(8 * 1024 * 1024)})
async def an_answer_of_8_mb(world: World) -> None:
    """An answer of 8 MB arrives whole."""
    async with world.open() as session:
        heard = (await world.turn(session, "big")).ended()
    assert len(heard.end.text) == len(heard.streamed) == 8 * 1024 * 1024


@cases.case(lambda stage: {"long": "Read."})
async def a_prompt_of_1_mb(world: World) -> None:
    """A prompt of 1 MB reaches the model whole."""
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


@cases.case(_names)
async def names_in_every_script(world: World) -> None:
    """Folders, files and texts in every script stay as they are."""
    folder = world.folder / NAMES
    folder.mkdir()
    async with world.open(cwd=folder) as session:
        heard = (await world.turn(session, "names", NAMES)).ended()
    assert (folder / f"{NAMES}.txt").read_text() == f"{NAMES}\n"
    assert heard.end.text.startswith(NAMES)
    assert f"{NAMES}.txt" in heard.of(ToolEnded)[1].output
