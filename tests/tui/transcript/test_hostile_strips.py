"""A hostile text has no effect anywhere in the transcript."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES

from atomic.chat.protocol import ChatEvent, QuestionClosed, QuestionOpened, RunEnded, RunKind, RunStarted, ShellOutput
from atomic.providers.events import Notice, SubagentStarted, TextDelta, ThinkingDelta, ToolEnded, ToolStarted
from atomic.questions import Question
from atomic.tui.state.store import Store
from atomic.tui.transcript.blocks import Painter
from atomic.tui.transcript.palette import Palette
from tests.tui.hostile import vectors
from tests.tui.terminal_effects import effects
from tests.tui.transcript.transcript_app import TranscriptApp, turn

VECTORS = vectors()
CONSOLE = Console(color_system="truecolor", force_terminal=True)
PALETTE = Palette.of(BUILTIN_THEMES["textual-dark"].to_color_system().generate(), Color.parse("#121212"))
# The operations that the transcript itself uses.
COLOURS = {"select_graphic_rendition"}


def events_with(text: str) -> list[ChatEvent]:
    """Return events with the text in every field from outside."""
    return [
        *turn(
            ThinkingDelta(text),
            TextDelta(f"{text}\n\n- {text}\n\n```py\n{text}\n```\n\n| {text} | b |\n|---|---|\n| a | {text} |\n"),
            ToolStarted("1", text, {"file_path": text, "old_string": text, "new_string": f"{text}x"}),
            ToolEnded("1", text, error=text),
            ToolStarted("2", "Bash", {text: text}),
            SubagentStarted("s", text, text),
            Notice(text),
            prompt=text,
            ends=False,
        ),
        QuestionOpened(id="q", run="r1", question=Question(text), who=text),
        QuestionClosed(id="q", answers=(text,)),
        RunEnded(run="r1", status="failed", message=text, resume=text),
        RunStarted(run="s", kind=RunKind.SHELL, prompt=text or "x"),
        ShellOutput(run="s", text=text),
        RunEnded(run="s", status="failed"),
        RunStarted(run="w", kind=RunKind.WORKFLOW, title=text, session=text),
        RunEnded(run="w", status=text, message=text, resume=text),
    ]


def check(strips: list[Strip]) -> None:
    for strip in strips:
        assert strip.cell_length == sum(segment.cell_length for segment in strip)
        assert strip.text.isprintable()
        assert not any((segment.style or Style()).link for segment in strip)
    assert set(effects("\n".join(strip.render(CONSOLE) for strip in strips))) <= COLOURS


@pytest.mark.parametrize("part", range(10))
def test_hostile_texts_have_no_effect_in_any_block(part: int) -> None:
    for text in VECTORS[part::10]:
        store = Store()
        for event in events_with(text):
            store.apply(event, 1.0)
        for block in store.screen.blocks:
            block.folded = block.hidden = False
        painter = Painter(PALETTE, 60)
        check([strip for block in store.screen.blocks for strip in painter.paint(block, 2.0).strips])


async def test_hostile_texts_have_no_effect_in_the_view() -> None:
    app = TranscriptApp(turn(*(Notice(text) for text in VECTORS), TextDelta("\n\n".join(VECTORS))))
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        app.view.action_scroll_start()
        seen = 0
        while True:
            height = app.view.size.height
            check([app.view.render_line(y) for y in range(height)])
            seen += height
            if app.view.is_following:
                break
            app.view.action_page_down()
        assert seen > len(VECTORS)
