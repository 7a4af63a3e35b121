"""An answer is split into parts, independent of how its deltas are cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from atomic.tui.state.markdown_parts import Pieces

LINES = st.sampled_from(
    [
        "",
        " ",
        "\t",
        "text",
        "# Head",
        "###### six",
        "####### seven",
        "- item",
        "  - inner",
        "  more",
        "1. one",
        "12) two",
        "```python",
        "```",
        "```a`b",
        "~~~~",
        "~~~",
        "    ```",
        "> quote",
        "| a | b |",
        "x\r",
        "-",
        "日本語",
    ]
)


def parts(*texts: str) -> list[str]:
    pieces = Pieces()
    found: list[str] = []
    for piece in [piece for text in texts for piece in pieces.feed(text)] + pieces.flush():
        if piece.begins:
            found.append(piece.text)
        else:
            found[-1] += piece.text
    return found


@given(st.lists(LINES, max_size=12), st.data())
def test_parts_do_not_depend_on_where_deltas_are_cut(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    deltas = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert parts(*deltas) == parts(text) == parts(*text)


@given(st.lists(LINES, max_size=12))
def test_no_text_is_lost(lines: list[str]) -> None:
    def without_blanks(text: str) -> str:
        return "".join(text.split())

    text = "\n".join(lines)
    assert without_blanks("".join(parts(text))) == without_blanks(text)


def test_blank_lines_do_not_split_a_fence() -> None:
    fence = "```python\na = 1\n\n\nb = 2\n```\n"
    assert parts(f"before\n{fence}after") == ["before\n", fence, "after"]


def test_a_fence_ends_only_with_its_own_marker() -> None:
    fence = "~~~~\n```\n~~~\n\nx\n~~~~\n"
    assert parts(f"{fence}\nafter") == [fence, "after"]


def test_indented_lines_belong_to_the_item_above() -> None:
    item = "- one\n\n  more of it\n\n  ```\n  code\n\n  ```\n"
    assert parts(f"{item}\ntext") == [item, "text"]


def test_a_heading_is_its_own_part() -> None:
    assert parts("# One\ntext\n## Two\n- a\n") == ["# One\n", "text\n", "## Two\n", "- a\n"]


def test_a_long_list_is_cut_between_items_without_a_gap() -> None:
    pieces = Pieces()
    found = [piece for number in range(200) for piece in pieces.feed(f"- item number {number}\n")]
    begun = [piece for piece in found if piece.begins]
    assert len(begun) > 1
    assert not any(piece.gap for piece in begun[1:])
