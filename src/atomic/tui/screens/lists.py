"""Dialogs with a list that is filtered by typing: help, palette, keys, and the pickers
of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key, Paste

from atomic.chat.protocol import CommandInfo, PickKind, PickOpened, PickRow
from atomic.tui.screens.dialog import Dialog, DialogLine, Item, RowList, fixed, keys_line, wrapped
from atomic.tui.text import MUTED, app_of, content, fit, one_line, short_hint, spread
from atomic.tui.themes import textual_name

GROUPS = {
    "builtin": "Slash Commands",
    "command": "Slash Commands",
    "workflow": "Workflows",
    "skill": "Skills",
    "agent": "Sub-Agents",
}
COMMAND = "/"  # prefix of a command's value in the palette; an action's value is its name
_NOTHING = {
    PickKind.MODEL: "The agent lists no models.",
    PickKind.PROVIDER: "No agent was found. `atomic doctor` says what each one needs.",
    PickKind.SESSION: "No runs and no conversations yet.",
    PickKind.MCP: "No MCP server is configured.",
}
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
        self._title = DialogLine()
        self._typed = DialogLine()
        self._list = RowList(reserved=_AROUND)
        self._keys = DialogLine()

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
        texts = [f"{row.label} {row.detail} {row.group}" for row in self._rows]
        self._found = [self._rows[at] for at in matching(self._filter, texts)]
        items = self._items()
        able = [at for at, item in enumerate(items) if item.value is not None]
        marked = [at for at in able if current and self._found[int(items[at].value or 0)].current]
        self._list.show(items, next(iter([*marked, *able]), None), top=True)
        found = self._number(self._found)
        all_of_them = self._number(self._rows)
        count = f"{found} of {all_of_them}" if self._filter else str(all_of_them)
        self._title.show(lambda width: spread(content((self._heading, "bold")), content((count, MUTED)), width))
        typed = content(("› ", "$primary"), one_line(self._filter), ("▏", "$primary"))
        hint = content() if self._filter else content(("type to filter", MUTED))
        self._typed.show(lambda _: content(typed, hint))
        self._moved()

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
        if self.is_current:
            self.dismiss(None)

    def on_key(self, event: Key) -> None:
        """Move on arrows, choose on Enter, filter by printable characters."""
        match event.key:
            case "up" | "ctrl+p":
                self._list.step(-1)
            case "down" | "ctrl+n":
                self._list.step(1)
            case "pageup":
                self._list.leap(-1)
            case "pagedown":
                self._list.leap(1)
            case "backspace":
                self._refine(self._filter[:-1])
            case "ctrl+u":
                self._refine("")
            case "enter":
                self._take()
            case _ if event.is_printable and event.character:
                self._refine(self._filter + event.character)
            case _:
                return
        event.stop()
        event.prevent_default()
        self._moved()

    def on_paste(self, event: Paste) -> None:
        """Add pasted text to the filter."""
        event.stop()
        self._refine(self._filter + " ".join(event.text.split()))

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """Choose the clicked row."""
        self._list.choose(message.at)
        self._take()

    def _refine(self, words: str) -> None:
        if words[:_MOST_LETTERS] != self._filter:
            self._filter = words[:_MOST_LETTERS]
            self._show()

    def _take(self) -> None:
        row = self.chosen
        if row is not None and self.is_current:
            self.dismiss(row.value)

    def _moved(self) -> None:
        """React to another selected row."""


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
    if any(len(word) <= 2 for word in asked):  # too short to be similar to something
        return exact
    from rapidfuzz.fuzz import partial_ratio

    scores = {  # of the least similar word
        at: min(partial_ratio(word, text) for word in asked) for at, text in enumerate(folded) if at not in taken
    }
    return exact + [at for at in sorted(scores, key=lambda at: -scores[at]) if scores[at] >= _LEAST_SCORE]


class HelpScreen(Listing):
    """All commands by category. Returns the name of one, or None."""

    HINTS = (("⏎", "insert"), ("↑↓", "move"), ("Esc", "close"))

    def __init__(self, commands: Sequence[CommandInfo]) -> None:
        super().__init__("Help", command_rows(commands), nothing="The commands are still being read.")


def command_rows(commands: Sequence[CommandInfo]) -> list[PickRow]:
    """Return the visible commands grouped as in `/help`.

    Aliases are part of the detail.
    """
    groups: dict[str, list[PickRow]] = {group: [] for group in GROUPS.values()}
    for command in commands:
        if command.hidden:
            continue
        label = f"/{command.name} {short_hint(command.argument_hint)}".rstrip()
        detail = command.description
        if command.aliases:
            detail += f" (also {', '.join('/' + alias for alias in command.aliases)})"
        group = GROUPS.get(command.category, "Slash Commands")
        groups[group].append(PickRow(command.name, label, detail, group))
    return [row for rows in groups.values() for row in rows]


class PaletteScreen(Listing):
    """Returns `/name` of a command, the name of an action, or None.

    An action is its name in the key table, its description and its key.
    """

    HINTS = (("⏎", "do it"), ("↑↓", "move"), ("Esc", "close"))

    def __init__(self, commands: Sequence[CommandInfo], actions: Sequence[tuple[str, str, str]]) -> None:
        acts = [PickRow(name, description, key, "Actions") for name, description, key in actions]
        rows = [PickRow(COMMAND + row.value, row.label, row.detail, row.group) for row in command_rows(commands)]
        super().__init__("What do you want to do?", [*acts, *rows])


class KeysScreen(Listing):
    """Rows of keys, action and place, to read and to filter."""

    CHOOSES = False
    HINTS = (("↑↓", "scroll"), ("Esc", "close"))

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("Keys", [PickRow(keys, keys, does, where) for keys, does, where in rows])

    def _number(self, rows: Sequence[PickRow]) -> int:
        """Count keys: a row may have several."""
        return sum(len(row.label.split(", ")) for row in rows)


class PickScreen(Listing):
    """Returns the chosen row's value, or None. The selected theme is previewed."""

    def __init__(self, pick: PickOpened) -> None:
        super().__init__(pick.title, pick.rows, nothing=_NOTHING.get(pick.kind, "Nothing to choose from."))
        self._kind = pick.kind
        self._theme_before: str | None = None
        if pick.kind is PickKind.MCP:  # here `current` means that the server is on
            self.NO_MARK = "○"
            self.HINTS = (("⏎", "on or off"), ("↑↓", "move"), ("Esc", "close"))

    def _moved(self) -> None:
        """Preview the selected theme."""
        row = self.chosen
        if self._kind is not PickKind.THEME or row is None:
            return
        app = app_of(self)
        self._theme_before = self._theme_before or app.theme
        if textual_name(row.value) in app.available_themes:
            app.theme = textual_name(row.value)

    def action_close(self) -> None:
        """Restore the theme and close without a choice."""
        if self._theme_before is not None:
            app_of(self).theme = self._theme_before
        super().action_close()
