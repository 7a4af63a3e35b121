"""The transcript view: scroll, select, fold and copy."""

from __future__ import annotations

import itertools
import random

import pytest
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection

from atomic.chat.protocol import Activity, ChatEvent, ChatNotice, Cleared, StatusChanged
from atomic.providers.events import SubagentStarted, TextDelta, ToolEnded, ToolStarted
from atomic.tui.transcript import blocks
from atomic.tui.transcript.blocks import Painter
from atomic.tui.transcript.palette import Palette
from tests.tui.transcript.transcript_app import TranscriptApp, turn


def paragraphs(count: int, first: int = 0) -> str:
    """Return numbered paragraphs of different heights."""
    return "".join(f"P{number} {'word ' * (number % 37)}\n\n" for number in range(first, first + count))


def long_turn(count: int, run: str = "r1") -> list[ChatEvent]:
    return turn(TextDelta(paragraphs(count)), run=run)


def transcript(*events: ChatEvent) -> TranscriptApp:
    return TranscriptApp(events)


async def settle(pilot: Pilot[None]) -> None:
    await pilot.pause()


async def test_the_view_follows_the_end_while_text_arrives() -> None:
    app = transcript(*turn(ends=False))
    async with app.run_test(size=(60, 12)) as pilot:
        for number in range(40):
            app.show_events(Activity(run="r1", event=TextDelta(f"P{number}\n\n")))
            await settle(pilot)
            assert app.rows()[-1].endswith(f"P{number}") or app.rows()[-1] == ""
        assert app.view.is_following


async def test_a_reader_who_scrolled_up_is_not_moved() -> None:
    app = transcript(*turn(TextDelta(paragraphs(80)), ends=False))
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.press("pageup")
        await pilot.press("pageup")
        before = app.rows()
        for number in range(5):
            app.show_events(Activity(run="r1", event=TextDelta(f"new {number}\n\n")))
            await settle(pilot)
        assert not app.view.is_following
        assert app.rows()[:-1] == before[:-1]
        assert app.rows()[-1].endswith("↓ 5 new")
        app.view.follow()
        await settle(pilot)
        assert "new 4" in "\n".join(app.rows())
        assert app.view.unseen == 0


async def test_blocks_inserted_above_do_not_move_the_view() -> None:
    events = turn(SubagentStarted("a", "alice"), TextDelta(paragraphs(80)), ends=False)
    app = transcript(*events)
    async with app.run_test(size=(60, 12)) as pilot:
        app.store.toggle(app.store.screen.blocks[1].id)
        app.show_events()
        await pilot.press("pageup")
        before = app.rows()
        for number in range(30):
            app.show_events(Activity(run="r1", event=TextDelta(f"alice {number}\n\n", agent="a")))
        await settle(pilot)
        assert app.rows()[:-1] == before[:-1]


@pytest.mark.parametrize("size", [(30, 7), (80, 24), (120, 40)])
async def test_pages_join_although_heights_are_estimated(size: tuple[int, int]) -> None:
    app = transcript(*long_turn(120))
    async with app.run_test(size=size) as pilot:
        pages = [app.rows()]
        for _ in range(400):
            app.view.action_page_up()
            await settle(pilot)
            pages.append(app.rows())
            if pages[-1] == pages[-2]:
                break
        pages.pop()
        for below, above in itertools.pairwise(pages[:-1]):
            assert above[-1] == below[0]  # pages overlap by one line
        assert pages[-1][:2] == ["", "› hi"]
        text = "\n".join(line for page in reversed(pages) for line in page)
        numbers = [int(word[1:]) for word in text.split() if word[:1] == "P" and word[1:].isdigit()]
        assert sorted(set(numbers)) == list(range(120))


async def test_home_and_end_scroll_to_the_ends() -> None:
    app = transcript(*long_turn(60))
    async with app.run_test(size=(60, 12)) as pilot:
        app.view.focus()
        await pilot.press("home")
        assert app.rows()[:2] == ["", "› hi"]
        assert not app.view.is_following
        await pilot.press("end")
        assert app.view.is_following
        assert "P59" in "\n".join(app.rows())


async def test_the_wheel_scrolls_three_lines() -> None:
    app = transcript(*long_turn(60))
    async with app.run_test(size=(60, 12)) as pilot:
        before = app.rows()
        await pilot._post_mouse_events([_wheel_up()], app.view, (5, 5))  # pyright: ignore[reportPrivateUsage]
        await settle(pilot)
        assert app.rows()[3:] == before[:-3]
        app.view.scroll_lines(3)
        assert app.rows() == before
        assert app.view.is_following


def _wheel_up() -> type:
    from textual.events import MouseScrollUp

    return MouseScrollUp


async def test_dragging_the_scrollbar_scrolls_far() -> None:
    app = transcript(*long_turn(300))
    async with app.run_test(size=(60, 12)) as pilot:
        app.view.scroll_to(y=100, animate=False)
        await settle(pilot)
        assert not app.view.is_following
        numbers = [int(word[1:]) for word in " ".join(app.rows()).split() if word[:1] == "P" and word[1:].isdigit()]
        assert numbers
        assert 0 < numbers[0] < 150


async def test_a_click_unfolds_a_card_and_it_stays_where_it_is() -> None:
    tools = [ToolStarted("t", "Bash", {"command": "ls"}), ToolEnded("t", "\n".join(f"out {n}" for n in range(30)))]
    app = transcript(*turn(TextDelta("Before.\n\n"), *tools))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        at = next(y for y, row in enumerate(app.rows()) if row.startswith("▸ Bash"))
        await pilot.click(app.view, offset=(3, at))
        await settle(pilot)
        rows = app.rows()
        assert rows[at].startswith("▾ Bash")
        assert rows[at + 1] == "  │ $ ls"
        await pilot.click(app.view, offset=(3, at))
        await settle(pilot)
        assert app.rows()[at].startswith("▸ Bash")
        assert app.view.is_following


async def test_a_click_on_the_pill_scrolls_to_the_end() -> None:
    app = transcript(*turn(TextDelta(paragraphs(80)), ends=False))
    async with app.run_test(size=(60, 12)) as pilot:
        app.view.action_page_up()
        app.show_events(Activity(run="r1", event=TextDelta("new\n\n")))
        await settle(pilot)
        await pilot.click(app.view, offset=(50, 11))
        await settle(pilot)
        assert app.view.is_following


async def test_a_click_on_a_link_opens_it() -> None:
    app = transcript(*turn(TextDelta("See https://example.org/a now.")))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        at = next(y for y, row in enumerate(app.rows()) if "https" in row)
        await pilot.click(app.view, offset=(10, at))
        await settle(pilot)
        assert app.opened == ["https://example.org/a"]


async def test_selected_text_has_no_decoration() -> None:
    app = transcript(*turn(TextDelta("Hello there friend.\n\nSecond one.")))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        first = next(y for y, row in enumerate(app.rows()) if "Hello" in row)
        last = next(y for y, row in enumerate(app.rows()) if "Second" in row)
        await pilot.mouse_down(app.view, offset=(9, first))
        await pilot.hover(app.view, offset=(8, last))
        await pilot.mouse_up(app.view, offset=(8, last))
        await settle(pilot)
        assert app.view.selected_text() == "there friend.\n\nSecond"
        assert app.screen.get_selected_text() == "there friend.\n\nSecond"
        plain = TranscriptApp(turn(TextDelta("Hello there friend.\n\nSecond one.")))
        async with plain.run_test(size=(60, 12)):
            marked, clean = (transcript.view.render_line(first) for transcript in (app, plain))
            assert marked.text == clean.text
            assert [s.style.bgcolor for s in marked if s.style] != [s.style.bgcolor for s in clean if s.style]


async def test_selecting_all_copies_the_source() -> None:
    app = transcript(*turn(TextDelta("**Bold** text.\n\n| a |\n|---|\n| b |\n")))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        found = app.view.get_selection(Selection(None, None))
        assert found is not None
        assert found[0] == "hi\n\n**Bold** text.\n\n| a |\n|---|\n| b |"
        assert app.view.get_selection(Selection(Offset(0, 0), None)) is not None


async def test_a_selection_from_the_very_first_cell_keeps_the_rows_above_the_view() -> None:
    app = transcript(*turn(TextDelta("".join(f"P{number}\n\n" for number in range(100)))))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        app.view.selection_updated(Selection(Offset(0, 0), None))
        copied = app.view.selected_text()
        assert copied.split()[:2] == ["hi", "P0"]
        assert "P99" in copied


async def test_the_last_answer_is_copied_as_it_was_written() -> None:
    answer = "# Title\n\nText with `code`.\n\n```py\nx = 1\n```"
    events = [
        *turn(TextDelta("Old."), run="r0"),
        *turn(TextDelta("Before."), ToolStarted("t", "Bash", {}), TextDelta(answer)),
    ]
    app = transcript(*events)
    async with app.run_test(size=(60, 12)):
        assert app.view.last_answer(app.store.screen) == answer


async def test_transcript_mode_walks_over_blocks() -> None:
    tools = [ToolStarted("t", "Bash", {"command": "ls"}), ToolEnded("t", "out")]
    app = transcript(*turn(TextDelta(paragraphs(40)), *tools, TextDelta("The end.")))
    async with app.run_test(size=(60, 12)) as pilot:
        view = app.view
        view.action_block_previous()
        assert view.current_text() == "The end."
        view.action_block_previous()
        assert view.current_text() == "Bash ls\n$ ls\nout"
        view.action_block_unfold()
        await settle(pilot)
        assert not next(block for block in app.store.screen.blocks if block.title == "Bash").folded
        assert any(row.endswith("▐") for row in app.rows())
        view.action_block_first()
        await settle(pilot)
        assert any("P0" in row for row in app.rows())
        view.action_block_next()
        view.action_block_last()
        assert view.current_text() == "The end."
        view.clear_cursor()
        assert view.current_block is None


async def test_a_resize_keeps_the_scroll_position() -> None:
    app = transcript(*long_turn(100))
    async with app.run_test(size=(80, 20)) as pilot:
        for _ in range(3):
            app.view.action_page_up()
        top = next(row for row in app.rows() if "P" in row).split()[0]
        await pilot.resize_terminal(50, 20)
        await settle(pilot)
        assert top in "\n".join(app.rows()[:6])


async def test_a_theme_change_repaints_the_blocks() -> None:
    app = transcript(*long_turn(3))
    async with app.run_test(size=(60, 12)) as pilot:
        before = [segment.style for segment in app.view.render_line(1)]
        app.theme = "textual-light"
        await settle(pilot)
        await settle(pilot)
        assert [segment.style for segment in app.view.render_line(1)] != before
        assert app.view.render_line(1).text.strip() != ""


async def test_a_cleared_transcript_is_empty_and_follows_again() -> None:
    app = transcript(*long_turn(80))
    async with app.run_test(size=(60, 12)) as pilot:
        app.view.action_scroll_start()
        app.show_events(Cleared())
        await settle(pilot)
        assert "P79" not in "\n".join(app.rows())
        assert "/sessions" in "\n".join(app.rows())  # the first steps, as at the start
        app.show_events(*long_turn(80, run="r2"))
        await settle(pilot)
        assert app.view.is_following
        assert "P79" in "\n".join(app.rows())


@pytest.mark.parametrize(
    ("width", "height", "words"),
    [
        (80, 20, "Ask claude for something, or let a workflow do it."),
        (40, 8, '/ralph "…"  plan, build and review'),
        (20, 8, '/ralph "…"'),
        (5, 1, ""),
    ],
)
async def test_an_empty_conversation_shows_first_steps(width: int, height: int, words: str) -> None:
    app = transcript(StatusChanged(provider="claude", ready=True), ChatNotice(text="A notice."))
    async with app.run_test(size=(width, height)) as pilot:
        await settle(pilot)
        rows = app.rows()
        assert len(rows) == height
        assert words in [row.strip() for row in rows] or not words
        app.show_events(*turn(TextDelta("Hello."), prompt="hi"))
        await settle(pilot)
        assert "/ralph" not in "\n".join(app.rows())


async def test_without_an_agent_the_view_shows_how_to_get_one() -> None:
    app = transcript(StatusChanged(problem="No agent can be used here: none"))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        assert app.rows()[:6] == [
            "",
            "▲ No agent can be used here: none",
            "",
            "  atomic doctor  what each one needs",
            "  atomic demo    a run without one",
            "  /agent         choose one",
        ]


async def test_a_key_between_an_event_and_its_frame_finds_consistent_state() -> None:
    app = transcript(*long_turn(80))
    async with app.run_test(size=(60, 12)) as pilot:
        app.store.apply(Cleared(), 1.0)
        app.view.action_page_up()
        for event in long_turn(90, run="r2"):
            app.store.apply(event, 1.0)
        app.view.action_page_up()
        app.view.action_block_previous()
        await settle(pilot)
        assert "P89" in "\n".join(app.rows())


async def test_a_frame_without_events_paints_nothing() -> None:
    app = transcript(*long_turn(200))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        painted: list[object] = []
        original = app.view.refresh

        def refresh(*regions: object, **named: object) -> object:
            painted.append(regions)
            return original(*regions, **named)  # pyright: ignore[reportArgumentType]

        app.view.refresh = refresh  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(10):
            app.show_events()
        assert painted == []


async def test_a_long_conversation_needs_only_one_widget() -> None:
    app = transcript(*long_turn(2000))
    async with app.run_test(size=(80, 24)):
        assert len(app.view.walk_children()) == 0


@pytest.mark.parametrize("seed", range(2))
async def test_the_view_always_matches_a_full_painting(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paint everything, and check that the rows of the view are a part of it."""
    # The clock of this test does not move.
    monkeypatch.setattr(blocks, "_LONG", 1e9)
    chance = random.Random(seed)
    app = transcript(*turn(ends=False))
    async with app.run_test(size=(50, 14)) as pilot:
        for step in range(200):
            _act_randomly(app, chance, step)
            if chance.random() < 0.1:
                await settle(pilot)
            app.show_events()
            whole = _paint_all(app)
            rows = [strip.text for strip in app.view.painted_rows()]
            assert len(rows) == min(14, len(whole))
            if app.view.is_following:
                assert rows == whole[-14:]
            else:
                assert any(rows == whole[at : at + 14] for at in range(len(whole)))


def _paint_all(app: TranscriptApp) -> list[str]:
    view = app.view
    painter = Painter(Palette.of(app.theme_variables, view.background_colors[1]), view.scrollable_content_region.width)
    return [strip.text for block in app.store.screen.blocks for strip in painter.paint(block, app.now).strips]


def _act_randomly(app: TranscriptApp, chance: random.Random, step: int) -> None:
    agent = chance.choice([None, "a", "b", "c"])
    shown = app.store.screen.blocks
    match chance.randrange(9):
        case 0 | 1 | 2:
            text = chance.choice([f"step {step} ", "\n\n", "```\nx\n", "word " * 30, "- a\n- b\n"])
            app.store.apply(Activity(run="r1", event=TextDelta(text, agent)), app.now)
        case 3:
            app.store.apply(
                Activity(run="r1", event=SubagentStarted(chance.choice("abc"), "sub", agent=agent)), app.now
            )
        case 4:
            app.store.apply(Activity(run="r1", event=ToolStarted(str(step), "Bash", {}, agent)), app.now)
        case 5:
            app.store.apply(Activity(run="r1", event=ToolEnded(str(step - 1), "out\n" * 9)), app.now)
        case 6:
            app.store.toggle(chance.choice(shown).id)
        case 7:
            app.view.scroll_lines(chance.choice([-30, -3, -1, 1, 3, 30]))
        case _:
            chance.choice([app.view.follow, app.view.action_block_next, app.view.action_block_previous])()


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (9, 3), (250, 80)])
async def test_every_size_works(size: tuple[int, int]) -> None:
    table = "| a | b |\n|---|---|\n| 日本語 | x |\n\n```py\nx = 1\n```\n\n- one\n  - two\n"
    tools = [ToolStarted("t", "Bash", {"command": "ls"}, "a"), SubagentStarted("b", "bob", agent="a")]
    app = transcript(*turn(SubagentStarted("a", "alice"), *tools, TextDelta(table)))
    async with app.run_test(size=size) as pilot:
        for block in list(app.store.screen.blocks):
            app.store.toggle(block.id)
        app.show_events()
        for _ in range(30):
            app.view.action_page_up()
        await settle(pilot)
        assert all(app.view.render_line(y).cell_length >= size[0] - 1 for y in range(size[1]))


async def test_a_click_after_a_selection_folds_again() -> None:
    app = transcript(
        *turn(TextDelta("Some words."), ToolStarted("t", "Bash", {"command": "ls"}), ToolEnded("t", "out"))
    )
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        await pilot.mouse_down(app.view, offset=(4, 3))
        await pilot.hover(app.view, offset=(10, 3))
        await pilot.mouse_up(app.view, offset=(10, 3))
        assert app.view.selected_text()
        at = next(y for y, row in enumerate(app.rows()) if row.startswith("▸ Bash"))
        await pilot.click(app.view, offset=(3, at))
        await settle(pilot)
        assert app.rows()[at].startswith("▾ Bash")


async def test_a_double_click_selects_a_word_and_a_triple_click_a_block() -> None:
    app = transcript(*turn(TextDelta("日本 see src/atomic/tui.py now.\n\nOther.")))
    async with app.run_test(size=(60, 12)) as pilot:
        await settle(pilot)
        at = next(y for y, row in enumerate(app.rows()) if "see" in row)
        await pilot.click(app.view, offset=(16, at), times=2)
        await settle(pilot)
        assert app.view.selected_text() == "src/atomic/tui.py"
        await pilot.click(app.view, offset=(16, at), times=3)
        await settle(pilot)
        assert app.view.selected_text().strip() == "日本 see src/atomic/tui.py now."
