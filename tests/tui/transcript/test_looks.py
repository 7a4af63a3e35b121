"""The appearance of blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from atomic.tui.state.model import Block, BlockKind
from atomic.tui.text import fit_text
from atomic.tui.transcript import blocks
from atomic.tui.transcript.blocks import Painted, Painter, estimate, seconds
from atomic.tui.transcript.code import coloured
from atomic.tui.transcript.markdown import LINK, markdown_rows
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.rows import Row, length, wrap

DARK = Palette.of(BUILTIN_THEMES["textual-dark"].to_color_system().generate(), Color.parse("#121212"))


def page(text: str, width: int = 40) -> list[str]:
    return ["".join(segment.text for segment in row).rstrip() for row in markdown_rows(text, width, DARK)]


def look(block: Block, width: int = 50, now: float = 0.0) -> list[str]:
    """Return the lines of a block, without the margin."""
    lines = [strip.text.rstrip() for strip in painted(block, width, now).strips]
    assert all(not line or line[0] == " " for line in lines)
    return [line[1:] for line in lines]


def painted(block: Block, width: int = 50, now: float = 0.0) -> Painted:
    return Painter(DARK, width).paint(block, now)


def styles(rows: list[Row], text: str) -> list[object]:
    return [segment.style for row in rows for segment in row if segment.text.strip() == text]


def test_words_are_wrapped_and_long_ones_broken() -> None:
    rows = wrap([("one two ", DARK.text), ("three ", DARK.muted), ("x" * 25, DARK.text)], 10)
    assert ["".join(part.text for part in row) for row in rows] == ["one two", "three", "x" * 10, "x" * 10, "x" * 5]


def test_wide_characters_break_anywhere_and_count_twice() -> None:
    rows = wrap([("日本語のテキスト", DARK.text)], 7)
    assert ["".join(part.text for part in row) for row in rows] == ["日本語", "のテキ", "スト"]


@given(st.lists(st.text(alphabet="ab 日🎉\n", max_size=30), max_size=4), st.integers(2, 12))
def test_no_row_is_wider_than_the_screen_and_no_letter_is_lost(texts: list[str], width: int) -> None:
    rows = wrap([(text, DARK.text) for text in texts], width)
    assert all(length(row) <= width or not "".join(s.text for s in row).strip() for row in trimmed(rows))
    kept = "".join(part.text for row in rows for part in row)
    assert "".join(kept.split()) == "".join("".join(texts).split())


def trimmed(rows: list[Row]) -> list[Row]:
    """Return the rows without trailing spaces, which are invisible."""
    out: list[Row] = []
    for row in rows:
        row = list(row)
        while row and not row[-1].text.strip(" "):
            row.pop()
        if row:
            row[-1] = row[-1]._replace(text=row[-1].text.rstrip(" "))
        out.append(row)
    return out


def test_fit_cuts_by_cells() -> None:
    assert fit_text("日本語", 5) == "日本…"
    assert cell_len(fit_text("日本語", 4)) <= 4
    assert (fit_text("abc", 3), fit_text("abcd", 3), fit_text("abc", 0)) == ("abc", "ab…", "")


def test_lists_hang_and_nest() -> None:
    text = "1. one that is long enough to be broken somewhere\n   - inner\n2. two\n- [x] done\n- [ ] open"
    assert page(text, 30) == [
        "1. one that is long enough to",
        "   be broken somewhere",
        "   ◦ inner",
        "2. two",
        "",
        "• ☑ done",
        "• ☐ open",
    ]


def test_a_continued_list_keeps_its_numbers() -> None:
    assert page("7. seven\n8. eight") == ["7. seven", "8. eight"]


def test_tables_fit_the_width() -> None:
    text = "| name | n | note |\n|:--|--:|---|\n| 日本語 | 7 | a note that is much too long for it |\n| b |"
    rows = page(text, 32)
    assert rows == [
        "name   │ n │ note",
        "───────┼───┼────────────────────",
        "日本語 │ 7 │ a note that is much",
        "       │   │ too long for it",
        "b      │   │",
    ]
    assert max(map(cell_len, rows)) <= 32


def test_a_table_with_too_many_columns_becomes_records() -> None:
    text = "|a|b|c|d|\n|-|-|-|-|\n|1|2|3|4|\n|5|6|7|8|"
    rows = page(text, 20)
    assert rows[:4] == ["a: 1", "b: 2", "c: 3", "d: 4"]


def test_code_is_coloured_and_chopped() -> None:
    rows = markdown_rows("```python\ndef f():\n    return 'a' * 1000  # why\n```", 20, DARK)
    assert all(length(row) == 20 for row in rows)
    assert styles(rows, "def") == [DARK.keyword]
    assert styles(rows, "f") == [DARK.name]


def test_a_comment_at_the_end_of_a_line_has_its_colour() -> None:
    rows = markdown_rows("```sh\nmake test   # proves it\n```", 40, DARK)
    assert styles(rows, "# proves it") == [DARK.comment]


def test_a_paragraph_joins_long_lines_and_keeps_short_ones() -> None:
    wrapped = "word " * 13 + "and\nmore of it."
    assert page(wrapped, 100) == [("word " * 13 + "and more of it.")]
    assert page("Dear all,\ngood morning.") == ["Dear all,", "good morning."]
    assert page("漢" * 40 + "\n字", 100) == ["漢" * 40 + "字"]
    assert page("word " * 13 + "and  \nmore of it.", 100)[1] == "more of it."


def test_code_in_an_unknown_language_is_shown_plainly() -> None:
    assert page("```nolang\na\n  b\n```") == [" a", "   b"]


@pytest.mark.parametrize("is_open", [True, False])
def test_code_keeps_its_lines(is_open: bool) -> None:
    code = "\n".join(f"x = {number}" if number % 3 else "" for number in range(700))
    lines = coloured(code, "python", DARK, is_open=is_open)
    assert ["".join(text for text, _ in line) for line in lines] == code.split("\n")


def test_links_can_be_opened_and_show_their_address() -> None:
    rows = markdown_rows("[docs](https://example.org/a) and https://example.com/b.", 80, DARK)
    links = [segment.style.meta.get(LINK) for row in rows for segment in row if segment.style]
    assert [link for link in links if link] == ["https://example.org/a", "https://example.com/b"]
    assert page("[docs](https://example.org/a)", 80) == ["docs (https://example.org/a)"]
    assert not any(segment.style and segment.style.link for row in rows for segment in row)


def test_other_links_cannot_be_opened() -> None:
    rows = markdown_rows("[x](file:///etc/passwd) [y](javascript:x)", 80, DARK)
    assert not any(segment.style.meta.get(LINK) for row in rows for segment in row if segment.style)


def test_deeply_nested_text_is_still_shown() -> None:
    assert "deep" in " ".join(page(">" * 200 + " deep", 40))
    lists = "".join(f"{'  ' * depth}- item{depth}\n" for depth in range(80))
    assert "item79" in " ".join(page(lists, 40))


def test_a_long_fence_shows_its_end_while_streaming_and_then_its_start() -> None:
    code = "".join(f"line{number}\n" for number in range(3000))
    coming = Block(1, BlockKind.ANSWER, text=f"```\n{code}", open=True)
    done = Block(2, BlockKind.ANSWER)
    done.text = f"```\n{code}```"
    assert look(coming)[-1].endswith("line2999")
    assert len(look(coming)) < 300
    assert look(done)[0].endswith("line0")
    assert look(done)[-1].endswith("… 2,000 lines")


def test_a_slow_block_is_repainted_less_often_while_streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    # Each painting takes a second.
    monkeypatch.setattr(blocks.time, "thread_time", lambda: float(next(clock)))
    painter = Painter(DARK, 40)
    block = Block(1, BlockKind.ANSWER, text="one", open=True)

    def version_at(now: float) -> int:
        block.version += 1
        return painter.paint(block, now).version

    assert [version_at(0.0), version_at(0.1), version_at(1.0), version_at(9.0), version_at(9.1)] == [1, 2, 2, 4, 4]
    block.open = False
    assert version_at(9.2) == 6


def test_html_is_text() -> None:
    assert page("<b>x</b> <!-- y -->") == ["<b>x</b> <!-- y -->"]


def test_a_running_tool_has_a_spinner_and_a_clock() -> None:
    block = Block(1, BlockKind.TOOL, title="Bash", detail="pytest", status="running", started=10.0)
    first = look(block, now=10.0)
    later = look(block, now=75.0)
    assert first[0][2:] == "Bash  pytest"
    assert later[0].endswith("1:05")
    assert first[0][0] != later[0][0]


def test_a_card_unfolds_to_its_diff_and_output() -> None:
    block = Block(1, BlockKind.TOOL, title="Edit", detail="a.py  +1 -1", input="-old\n+new", output="ok", status="done")
    block.seconds = 1.23
    folded = look(block)
    assert folded[0].startswith("▸ Edit  a.py +1 -1")
    assert folded[0].endswith("1.2 s")
    assert len(folded) == 1
    block.folded = False
    assert look(block)[1:] == ["  │ -old", "  │ +new", "  │ ok"]
    rows = [list(strip) for strip in painted(block).strips]
    assert styles(rows, "-old") == [DARK.removed]
    assert styles(rows, "+new") == [DARK.added]


def test_a_folded_card_that_failed_shows_why() -> None:
    block = Block(1, BlockKind.TOOL, title="Bash", output="a\nexit 1", status="failed")
    assert look(block) == ["✗ Bash", "  │ exit 1"]


def test_long_details_are_cut_not_wrapped() -> None:
    block = Block(1, BlockKind.TOOL, title="Bash", detail="x" * 500, status="done", seconds=12.0)
    (line,) = look(block, 40)
    assert line.endswith("…  12 s")
    assert len(line) <= 40


def test_thinking_is_one_line_until_it_is_unfolded() -> None:
    block = Block(1, BlockKind.THINKING, text="First.\nSecond.", seconds=3.0)
    assert look(block) == ["▸ Thought 3.0 s  First. Second."]
    block.folded = False
    assert look(block) == ["▾ Thought 3.0 s", "  │ First.", "  │ Second."]


def test_nested_blocks_have_tree_lines() -> None:
    block = Block(1, BlockKind.ANSWER, text="x", lead=True, depth=2, gap=True)
    assert look(block) == ["│ │", "│ │ ● x"]


def test_a_long_prompt_is_shortened_until_it_is_unfolded() -> None:
    block = Block(1, BlockKind.USER, text="\n".join(map(str, range(100))))
    assert look(block)[-1] == "  … 88 more lines"
    block.folded = False
    assert len(look(block)) == 100


def test_a_question_shows_its_answer() -> None:
    block = Block(1, BlockKind.QUESTION, title="planner", text="Which?", output="main", status="done")
    assert look(block) == ["? planner: Which?", "  → main"]


def test_hidden_blocks_have_no_lines() -> None:
    block = Block(1, BlockKind.ANSWER, text="x", hidden=True, gap=True)
    assert look(block) == []
    assert estimate(block, 50) == 0


@settings(max_examples=60)
@given(
    st.sampled_from(list(BlockKind)),
    st.text(max_size=80),
    st.text(max_size=30),
    st.integers(1, 60),
    st.integers(0, 4),
    st.booleans(),
)
def test_every_line_is_exactly_as_wide_as_the_screen(
    kind: BlockKind, text: str, title: str, width: int, depth: int, folded: bool
) -> None:
    block = Block(1, kind, text=text, title=title, detail=text, output=text, input=title, depth=depth, folded=folded)
    block.status = "running"
    block.gap = True
    width = max(width, 12)
    for strip in painted(block, width, 100.0).strips:
        assert strip.cell_length == sum(cell_len(segment.text) for segment in strip) == width


def test_a_painted_block_is_cached_until_it_changes() -> None:
    painter = Painter(DARK, 40)
    block = Block(1, BlockKind.ANSWER, text="a")
    first = painter.paint(block, 0.0)
    assert painter.paint(block, 9.0) is first
    block.text = "b"
    block.version = 1
    assert painter.paint(block, 0.0) is not first


def test_durations_are_short() -> None:
    assert [seconds(value) for value in (0.04, 9.96, 59.0, 61.0, 3720.0)] == ["0.0 s", "9 s", "59 s", "1:01", "1:02:00"]


@pytest.mark.parametrize("name", sorted(BUILTIN_THEMES))
def test_all_colours_are_readable(name: str) -> None:
    variables = BUILTIN_THEMES[name].to_color_system().generate()
    palette = Palette.of(variables, Color.parse(variables["background"]))
    for field in ("text", "muted", "primary", "success", "warning", "error", "code", "comment", "string", "user"):
        style = getattr(palette, field)
        if style.color.triplet is None or style.bgcolor.triplet is None:
            continue  # the terminal's own colours
        front, back = (Color(*colour.triplet) for colour in (style.color, style.bgcolor))
        assert contrast(front, back) >= 4.5, field


def contrast(one: Color, other: Color) -> float:
    def light(colour: Color) -> float:
        parts = [value / 255 for value in colour.rgb]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_removed_lines_of_a_fenced_diff_have_the_colour_of_an_error() -> None:
    rows = markdown_rows("```diff\n-old\n+new\n```", 40, DARK)
    assert styles(rows, "-old") == [DARK.deleted]
    assert styles(rows, "+new") == [DARK.string]


def test_the_end_of_a_run_has_its_commands_in_a_column_and_the_actions_of_its_branch() -> None:
    text = "1 of 1 task is done\n  git diff main...atomic/3f2a9c1e     what changed\n  atomic accept 3f2a9c1e"
    block = Block(0, BlockKind.RUN, title="ralph", text=text, status="completed", actions=("/diff", "/accept"))
    assert look(block, 80)[1:] == [
        "  1 of 1 task is done",
        "    git diff main...atomic/3f2a9c1e     what changed",
        "    atomic accept 3f2a9c1e",
        "  Next: /diff  /accept",
    ]
