"""The prompt: a multi-line text, its history, labels for large pastes, and suggestions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import TextArea

from atomic.chat.prompt_history import PromptHistory, Walk
from atomic.tui.suggestions import KnownNames, Offer, OfferKind, Suggestion, mention_at, offer
from atomic.tui.widgets.popup import ROWS, Popup

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

    from atomic.chat.protocol import CommandInfo
    from atomic.commands import CommandRegistry

MOST_LINES = 10  # visible lines of the text

# A larger paste is shown as a label such as `[Pasted 214 lines]`. It is sent byte for byte.
PASTE_LINES = 10
PASTE_CHARACTERS = 1_000

# Characters that act on the terminal or are invisible.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")

HINTS_OF_POPUP: dict[OfferKind, tuple[tuple[str, str], ...]] = {
    OfferKind.COMMANDS: (("⏎", "run"), ("Tab", "complete"), ("Esc", "close")),
    OfferKind.MENTIONS: (("⏎", "take"), ("Esc", "close")),
    OfferKind.HISTORY: (("⏎", "take"), ("Ctrl+R", "older"), ("Esc", "close")),
}


def as_typed(text: str) -> str:
    """Restore line ends of a paste: terminals send CR for LF, unless the text has an
    LF.
    """
    return text if "\n" in text else text.replace("\r", "\n")


def is_big(text: str) -> bool:
    """Return whether a text is better shown as a label."""
    return len(text) > PASTE_CHARACTERS or text.count("\n") >= PASTE_LINES or _UNSEEN.search(text) is not None


class Pastes:
    """The pastes of a prompt by their labels."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, text: str) -> str:
        """Store a paste and return its label."""
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        number = 2
        word = f"[Pasted {size}]"
        while self._texts.get(word, text) != text:
            word = f"[Pasted {size} #{number}]"
            number += 1
        self._texts[word] = text
        return word

    def shorten(self, text: str) -> str:
        """Replace large parts of a text by labels: known pastes, or the whole text."""
        for word, paste in self._texts.items():
            text = text.replace(paste, word)
        return self.add(text) if is_big(text) else text

    def fill(self, text: str) -> str:
        """Return the text with labels replaced by their pastes."""
        if not self._texts or "[Pasted " not in text:
            return text
        words = "|".join(re.escape(word) for word in self._texts)
        return re.sub(words, lambda match: self._texts[match[0]], text)

    def forget(self) -> None:
        """Forget all pastes."""
        self._texts.clear()

    def span(self, line: str, column: int) -> tuple[int, int] | None:
        """Return the span of the label that a Backspace at this column would delete, or
        None.
        """
        for word in self._texts:
            at = line.rfind(word, 0, column + len(word) - 1)
            if 0 <= at < column <= at + len(word):
                return at, at + len(word)
        return None


class PromptArea(TextArea):
    """The text. The app handles all keys that do more than edit."""

    DEFAULT_CSS = """
    PromptArea {
        height: auto;
        max-height: 10;
        width: 1fr;
        border: none;
        padding: 0;
        background: transparent;
        color: $text;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        & .text-area--cursor, &:light .text-area--cursor {
            color: $input-cursor-foreground; background: $input-cursor-background;
        }
        & .text-area--suggestion { color: $text-muted; text-style: none; }
    }
    """

    def __init__(self, pastes: Pastes) -> None:
        super().__init__(id="prompt", highlight_cursor_line=False, max_checkpoints=200)
        self.cursor_blink = False
        self.match_cursor_bracket = False
        self._pastes = pastes

    @property
    def cursor(self) -> int:
        """Return the cursor position in characters from the beginning."""
        row, column = self.cursor_location
        return sum(len(self.document.get_line(line)) + 1 for line in range(row)) + column

    def put(self, text: str) -> None:
        """Replace the text and move the cursor to its end.

        Undo restores the previous text.
        """
        self.history.checkpoint()
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)
        self.history.checkpoint()

    def take(self, text: str) -> None:
        """Insert a text at the cursor."""
        result = self.replace(text, *self.selection, maintain_selection_offset=False)
        self.move_cursor(result.end_location)

    def paste(self, text: str) -> None:
        """Insert a paste."""
        text = as_typed(text)
        self.history.checkpoint()
        self.take(self._pastes.add(text) if is_big(text) else text)

    def action_paste(self) -> None:
        """Insert the text copied in the screen."""
        text = self.app.clipboard  # pyright: ignore[reportUnknownMemberType]  # App has a type argument for its result
        self.take(self._pastes.add(text) if is_big(text) else text)

    def action_cursor_right(self, select: bool = False) -> None:
        """Move the cursor. The grey hint is only a hint and cannot be accepted."""
        if not self.suggestion:
            super().action_cursor_right(select)

    def action_delete_left(self) -> None:
        """Delete a character, or the whole label of a paste."""
        row, column = self.cursor_location
        span = self._pastes.span(self.document.get_line(row), column) if self.selection.is_empty else None
        if span is None:
            super().action_delete_left()
        else:
            self.delete((row, span[0]), (row, span[1]), maintain_selection_offset=False)

    def action_delete_word(self) -> None:
        """Delete the word to the left, or the label of a paste."""
        row, column = self.cursor_location
        if self._pastes.span(self.document.get_line(row), column):
            self.action_delete_left()
        else:
            self.action_delete_word_left()

    # Actions of the key table that `TextArea` has by other names.
    action_line_start = TextArea.action_cursor_line_start
    action_line_end = TextArea.action_cursor_line_end
    action_word_left = TextArea.action_cursor_word_left
    action_word_right = TextArea.action_cursor_word_right
    action_delete_to_start = TextArea.action_delete_to_start_of_line
    action_delete_to_end = TextArea.action_delete_to_end_of_line


def _edits(area: PromptArea) -> dict[str, Callable[[], object]]:
    """Return the keys that only edit.

    They cannot be remapped, so they are not in the table.
    """
    return {
        "backspace": area.action_delete_left,
        "shift+backspace": area.action_delete_left,
        "delete": area.action_delete_right,
        "ctrl+d": area.action_delete_right,
        "left": area.action_cursor_left,
        "right": area.action_cursor_right,
        "ctrl+b": area.action_cursor_left,
        "ctrl+f": area.action_cursor_right,
        "shift+left": partial(area.action_cursor_left, True),
        "shift+right": partial(area.action_cursor_right, True),
        "shift+up": partial(area.action_cursor_up, True),
        "shift+down": partial(area.action_cursor_down, True),
        "shift+home": partial(area.action_cursor_line_start, True),
        "shift+end": partial(area.action_cursor_line_end, True),
        "ctrl+shift+left": partial(area.action_cursor_word_left, True),
        "ctrl+shift+right": partial(area.action_cursor_word_right, True),
        "ctrl+x": area.action_cut,
        "ctrl+v": area.action_paste,
    }


class Mark(Widget):
    """The sign before the prompt: `›`, or `!` for a shell command."""

    DEFAULT_CSS = "Mark { width: 2; height: 1; color: $primary; text-style: bold; }"

    is_shell = reactive(False)

    def watch_is_shell(self, is_shell: bool) -> None:
        """Change the colour."""
        self.set_class(is_shell, "-shell")

    def render(self) -> Content:
        """Draw the sign."""
        return Content("! " if self.is_shell else "› ")


class Prompt(Vertical):
    """The prompt with its list. It posts messages, which the app handles."""

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        border-top: solid $primary 50%;
        & > #prompt-line { height: auto; padding: 0 1; }
        & .-shell { color: $warning; }
    }
    """

    class Sent(Message):
        """A text was sent. Labels are replaced by their pastes."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class FilesWanted(Message):
        """`@` and some letters were typed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Offered(Message):
        """The kind of the suggestions has changed."""

        def __init__(self, kind: OfferKind) -> None:
            super().__init__()
            self.kind = kind

    class TakeBack(Message):
        """The user wants to edit the last queued text."""

    def __init__(self, history: PromptHistory) -> None:
        super().__init__(id="prompt-box")
        self.pastes = Pastes()
        self.sent = history
        self.has_queue = False
        self._known = KnownNames()
        self._offer = Offer()
        self._chosen: int = 0
        self._dismissed = False
        self._searching = False
        self._walk: Walk | None = None
        self._seen = ""  # the text of the current suggestions
        self._recalled = ""  # the text recalled from the history
        self._asked: str | None = None
        self.area = PromptArea(self.pastes)
        self._edits = _edits(self.area)
        self._mark = Mark()
        self._popup = Popup()

    def compose(self) -> ComposeResult:
        with Horizontal(id="prompt-line"):
            yield self._mark
            yield self.area
        yield self._popup

    def on_mount(self) -> None:
        """Show the first suggestions."""
        self._look()

    # -- interface for the app

    @property
    def text(self) -> str:
        """Return the visible text, with labels for pastes."""
        return self.area.text

    @property
    def full_text(self) -> str:
        """Return the text as it would be sent."""
        return self.pastes.fill(self.area.text)

    @property
    def is_empty(self) -> bool:
        return not self.area.text

    @property
    def is_open(self) -> bool:
        """Return whether a list or a hint is shown that Esc would close."""
        return self._offer.kind is not OfferKind.NOTHING or bool(self._offer.ghost)

    @property
    def has_list(self) -> bool:
        """Return whether there are rows to choose from."""
        return bool(self._offer.rows)

    def put(self, text: str) -> None:
        """Replace the text. Large parts become labels."""
        self.area.put(self.pastes.shorten(text))

    def fit(self, rows: int) -> None:
        """Limit the height to a third of the screen's rows. Longer text scrolls."""
        self.area.styles.max_height = max(2, min(MOST_LINES, rows // 3))

    def know(self, registry: CommandRegistry | None = None, agents: Sequence[CommandInfo] | None = None) -> None:
        """Set the known commands and agents."""
        known = self._known
        self._known = known._replace(
            registry=registry or known.registry, agents=known.agents if agents is None else agents
        )
        self._look()

    def found_files(self, text: str, paths: Sequence[str]) -> None:
        """Set the files that match some letters after `@`."""
        self._known = self._known._replace(files=(text, tuple(paths)))
        self._look()

    def dismiss(self) -> None:
        """Close the list and the hint until the text changes."""
        self._dismissed = True
        self._searching = False
        self._look()

    def clear(self) -> str:
        """Empty the prompt and return the text that it had."""
        text = self.full_text
        self.area.put("")
        self.pastes.forget()
        return text

    # -- keys

    def type(self, event: events.Key) -> bool:
        """Insert a character or run an editing key. Return False for other keys.

        Immediate, so that the next key sees the result.
        """
        if event.is_printable and event.character is not None:
            self.area.take(event.character)
        elif (edit := self._edits.get(event.key)) is not None:
            edit()
        else:
            return False
        return True

    def settle(self) -> None:
        """Update the suggestions to the current text before a key is looked up."""
        if self.area.text == self._seen:
            return
        self._seen = self.area.text
        self._dismissed = False
        if self._recalled != self._seen:
            self._walk = None
        self._look()

    def action_send(self) -> None:
        """Send the text. A backslash before Enter inserts a line break instead."""
        row, column = self.area.cursor_location
        before = self.area.document.get_line(row)[:column]
        if before.endswith("\\") and not before.endswith("\\\\"):
            self.area.replace("\n", (row, column - 1), (row, column), maintain_selection_offset=False)
            self.area.move_cursor((row + 1, 0))
        elif self.area.text.strip():
            self._walk = None
            self.post_message(self.Sent(self.clear()))

    def action_newline(self) -> None:
        """Insert a line break."""
        self.area.take("\n")

    def action_complete(self) -> None:
        """Open a closed list again."""
        self._dismissed = False
        self._look()

    def action_popup_previous(self) -> None:
        """Select the previous row."""
        self._choose(self._chosen - 1)

    def action_popup_next(self) -> None:
        """Select the next row."""
        self._choose(self._chosen + 1)

    def action_popup_complete(self) -> None:
        """Insert the selected row."""
        if self._offer.rows:
            self._take(self._offer.rows[self._chosen])

    def action_popup_run(self) -> None:
        """Run the selected row, or insert it if an argument is missing."""
        row = self._offer.rows[self._chosen]
        if row.runs:
            self.area.put(row.insert.rstrip())
            self.action_send()
        else:
            self._take(row)

    def action_history_back(self) -> None:
        """Move up. In the first line recall the previous text; if empty, the queued
        one.
        """
        if self.has_queue and self.is_empty:
            self.post_message(self.TakeBack())
        elif not self.area.cursor_at_first_line:
            self.area.action_cursor_up()
        else:
            self._walk = self._walk or Walk(self.sent.texts(), self.full_text)
            self._recall(self._walk.back())

    def action_history_forward(self) -> None:
        """Move down. In the last line recall the next text."""
        if not self.area.cursor_at_last_line:
            self.area.action_cursor_down()
        elif self._walk is not None:
            self._recall(self._walk.forward())

    def action_history_search(self) -> None:
        """Search the history for the typed words. Again: select the next match."""
        if self._searching:
            self._choose(self._chosen + 1)
            return
        self._searching = True
        self._dismissed = False
        self._look()

    # -- suggestions

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Update the suggestions after the text has changed."""
        event.stop()
        self.settle()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """Update the suggestions after the cursor has moved."""
        event.stop()
        self._look()

    def on_popup_taken(self, event: Popup.Taken) -> None:
        event.stop()
        self._choose(event.index)
        self.action_popup_complete()
        self.area.focus()

    def _look(self) -> None:
        """Compute and show the suggestions for the current text."""
        text = self.area.text
        cursor = self.area.cursor
        self._mark.is_shell = text.startswith("!")
        query = None if self._dismissed else mention_at(text, cursor)
        if query is not None and query != self._asked:
            self.post_message(self.FilesWanted(query))
        self._asked = query
        known = self._known._replace(history=self.sent.find(text)) if self._searching else self._known
        self._show(offer(text, cursor, self._dismissed, known))

    def _show(self, new: Offer) -> None:
        if new.rows != self._offer.rows:
            labels = [row.label for row in new.rows]
            before = self._offer.rows[self._chosen].label if self._offer.rows else ""
            is_same = new.kind is self._offer.kind and before in labels and self._chosen > 0
            self._chosen = labels.index(before) if is_same else 0
        changed = new.kind is not self._offer.kind
        self._offer = new
        self.area.suggestion = new.ghost
        self._paint()
        if changed:
            self.post_message(self.Offered(new.kind))

    def _paint(self) -> None:
        most = max(2, min(ROWS, self.screen.size.height // 3)) if self.is_attached else ROWS
        self._popup.show(self._offer.rows, self._chosen, self._offer.note, most=most)

    def _choose(self, index: int) -> None:
        if self._offer.rows:
            self._chosen = index % len(self._offer.rows)
            self._paint()

    def _take(self, row: Suggestion) -> None:
        """Replace the typed text by a suggestion."""
        was_search = self._searching
        self._searching = False
        if was_search or self._offer.kind is OfferKind.COMMANDS:
            self.put(row.insert)
        else:
            cursor_row, column = self.area.cursor_location
            begin = column - (self.area.cursor - row.start)
            self.area.replace(row.insert, (cursor_row, begin), (cursor_row, column), maintain_selection_offset=False)
            self.area.move_cursor((cursor_row, begin + len(row.insert)))
        if was_search:
            self.dismiss()

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self._recalled = self.pastes.shorten(text)
            self.area.put(self._recalled)
