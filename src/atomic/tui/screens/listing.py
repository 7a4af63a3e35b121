"""A dialog with a list that is filtered by typing.

Base of pickers, palette, help and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key, Paste

from atomic.chat.protocol import PickRow
from atomic.tui.screens.dialog import Dialog, Item, Row, RowList, fixed, keys_line, wrapped
from atomic.tui.text import one_line
from atomic.tui.widgets.text import MUTED, content, fit, spread

_AROUND = 5  # rows of the rest of the dialog: frame, title, filter, keys
_WIDEST_LABEL = 38
_LEAST_DETAIL = 20  # with fewer columns a detail is below its label
_LEAST_SCORE = 70.0  # of 100, for words that do not occur literally
_MOST_LETTERS = 200  # of the filter


class Listing(Dialog["str | None"]):
    """Grouped rows: letters filter, arrows select, Enter returns the row's value, Esc
    None.
    """

    MARK = "●"  # marks the current row
    NO_MARK = " "
    HINTS: Sequence[tuple[str, str]] = (("⏎", "choose"), ("↑↓", "move"), ("Esc", "close"))
    CHOOSES = True  # whether a row can be chosen
    BINDINGS = [Binding("escape", "close", show=False)]

    def __init__(self, title: str, rows: Sequence[PickRow], *, nothing: str = "Nothing to choose from.") -> None:
        super().__init__()
        self._heading = one_line(title)
        self._rows = rows
        self._nothing = nothing
        self._filter = ""
        self._found: list[PickRow] = []
        self._title = Row()
        self._typed = Row()
        self._list = RowList(reserved=_AROUND)
        self._keys = Row()

    def compose(self) -> ComposeResult:
        """Yield title, filter, rows and keys."""
        with Vertical(classes="frame"):
            yield self._title
            yield self._typed
            yield self._list
            yield self._keys

    def on_mount(self) -> None:
        """Show all rows and select the current one."""
        self._keys.show(keys_line(*self.HINTS))
        self._show(current=True)

    # drawing

    def _show(self, *, current: bool = False) -> None:
        self._found = [self._rows[at] for at in matching(self._filter, [_searched(row) for row in self._rows])]
        items = self._items()
        able = [at for at, item in enumerate(items) if item.value is not None]
        marked = [at for at in able if current and self._found[int(items[at].value or 0)].current]
        self._list.show(items, next(iter([*marked, *able]), None), top=True)
        self._show_head()
        self._moved()

    def _show_head(self) -> None:
        found = self._number(self._found)
        all_of_them = self._number(self._rows)
        count = f"{found} of {all_of_them}" if self._filter else str(all_of_them)
        self._title.show(lambda width: spread(content((self._heading, "bold")), content((count, MUTED)), width))
        typed = content(("› ", "$primary"), one_line(self._filter), ("▏", "$primary"))
        hint = content() if self._filter else content(("type to filter", MUTED))
        self._typed.show(lambda width: fit(content(typed, hint), width))

    def _number(self, rows: Sequence[PickRow]) -> int:
        """Return the number to show for these rows."""
        return len(rows)

    def _items(self) -> list[Item]:
        if not self._found:
            return [fixed(content((self._nothing if not self._rows else "Nothing fits.", MUTED)))]
        wide = min(_WIDEST_LABEL, max(cell_len(one_line(row.label)) for row in self._found))
        items: list[Item] = []
        group = None
        for at, row in enumerate(self._found):
            if row.group != group and row.group:
                items += [fixed(content())] if items else []
                items.append(fixed(content((one_line(row.group), "bold $secondary"))))
            group = row.group
            items.append(self._item(at, row, wide))
        return items

    def _item(self, at: int, row: PickRow, wide: int) -> Item:
        mark = (f"{self.MARK} ", "$success") if row.current else (f"{self.NO_MARK} ", MUTED)
        label = one_line(row.label)
        detail = one_line(row.detail)
        if not self.CHOOSES:
            return Item(lambda width: _in_full(mark, label, detail, wide, width))
        return Item(
            lambda width: _in_full(mark, label, detail, wide, width),
            value=str(at),
            short=lambda width: [_in_one_line(mark, label, detail, wide, width)],
        )

    # input

    @property
    def chosen(self) -> PickRow | None:
        """Return the selected row, or None."""
        at = self._list.at
        value = None if at is None else self._list.items[at].value
        return None if value is None else self._found[int(value)]

    def action_close(self) -> None:
        """Close without a choice."""
        self._finish(None)

    def on_key(self, event: Key) -> None:
        """Move on arrows, choose on Enter, filter by printable characters."""
        does = {
            "up": lambda: self._go(lambda: self._list.step(-1)),
            "down": lambda: self._go(lambda: self._list.step(1)),
            "ctrl+p": lambda: self._go(lambda: self._list.step(-1)),
            "ctrl+n": lambda: self._go(lambda: self._list.step(1)),
            "pageup": lambda: self._go(lambda: self._list.leap(-1)),
            "pagedown": lambda: self._go(lambda: self._list.leap(1)),
            "backspace": lambda: self._refine(self._filter[:-1]),
            "ctrl+u": lambda: self._refine(""),
            "enter": self._take,
        }.get(event.key)
        if does is None and event.is_printable and event.character:
            letter = event.character
            does = lambda: self._refine(self._filter + letter)  # noqa: E731
        if does is not None:
            event.stop()
            event.prevent_default()
            does()

    def on_paste(self, event: Paste) -> None:
        """Add pasted text to the filter."""
        event.stop()
        self._refine(self._filter + " ".join(event.text.split()))

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """Choose the clicked row."""
        self._list.choose(message.at)
        self._take()

    def _go(self, step: Callable[[], None]) -> None:
        step()
        self._moved()

    def _refine(self, words: str) -> None:
        if words[:_MOST_LETTERS] != self._filter:
            self._filter = words[:_MOST_LETTERS]
            self._show()

    def _take(self) -> None:
        row = self.chosen
        if row is not None:
            self._finish(row.value)

    def _moved(self) -> None:
        """React to another selected row."""

    def _finish(self, value: str | None) -> None:
        if self.is_current:
            self.dismiss(value)


def _in_one_line(mark: tuple[str, str], label: str, detail: str, wide: int, width: int) -> Content:
    """Draw mark, label and detail.

    A label takes at most half of the line if it has a detail.
    """
    if not detail:
        return fit(content(mark, label), width)
    column = min(wide, max(12, width // 2))
    return fit(content(mark, fit(content(label), column), "  ", (detail, MUTED)), width)


def _in_full(mark: tuple[str, str], label: str, detail: str, wide: int, width: int) -> list[Content]:
    """Draw without cutting: a long detail is wrapped, and placed below a long label."""
    column = min(wide, max(12, width // 2))
    if not detail or cell_len(label) > column or width - column - 4 < _LEAST_DETAIL:
        below = wrapped(content((detail, MUTED)), width, 4) if detail else []
        if detail and max(cell_len(label), column) + cell_len(detail) + 4 <= width:
            return [_in_one_line(mark, label, detail, column, width)]
        first, *others = wrapped(content(label), width, 2)
        return [content(mark, first[2:]), *others, *below]
    first, *others = wrapped(content((detail, MUTED)), width, column + 4)
    return [content(mark, fit(content(label), column), first[column + 2 :]), *others]


def matching(words: str, texts: Sequence[str]) -> list[int]:
    """Return the indexes of matching texts: first those with all words, then similar
    ones.
    """
    asked = words.casefold().split()
    if not asked:
        return list(range(len(texts)))
    folded = [text.casefold() for text in texts]
    exact = [at for at, text in enumerate(folded) if all(word in text for word in asked)]
    exact.sort(key=lambda at: not folded[at].lstrip("/").startswith(asked[0]))  # stable sort
    taken = set(exact)
    similar = [(_score(asked, text), at) for at, text in enumerate(folded) if at not in taken]
    return exact + [at for score, at in sorted(similar, key=lambda pair: -pair[0]) if score >= _LEAST_SCORE]


def _score(asked: Sequence[str], text: str) -> float:
    """Return the similarity of the least similar word."""
    from rapidfuzz.fuzz import partial_ratio

    return min(partial_ratio(word, text) if len(word) > 2 else 0.0 for word in asked)


def _searched(row: PickRow) -> str:
    return f"{row.label} {row.detail} {row.group}"
