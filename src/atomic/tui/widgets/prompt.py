"""The prompt: a text of several lines, its history, big pastes as one word, and the list of what could be meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import TextArea

from atomic.tui.history import PromptHistory, Walk
from atomic.tui.paste import Pastes, as_typed, is_big
from atomic.tui.suggest import Known, Offer, OfferKind, Suggestion, mention_at, offer
from atomic.tui.widgets.popup import ROWS, Popup

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

    from atomic.commands import CommandRegistry
    from atomic.tui.protocol import CommandInfo

MOST_LINES = 10  # of a text that are seen at once

HINTS_OF_POPUP: dict[OfferKind, tuple[tuple[str, str], ...]] = {
    OfferKind.COMMANDS: (("⏎", "run"), ("Tab", "complete"), ("Esc", "close")),
    OfferKind.MENTIONS: (("⏎", "take"), ("Esc", "close")),
    OfferKind.HISTORY: (("⏎", "take"), ("Ctrl+R", "older"), ("Esc", "close")),
}


class PromptArea(TextArea):
    """The text itself. Keys that do more than edit are the app's; it never sees them."""

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
        """Where the cursor is, in characters from the beginning."""
        row, column = self.cursor_location
        return sum(len(self.document.get_line(line)) + 1 for line in range(row)) + column

    def put(self, text: str) -> None:
        """Show another text, the cursor at its end. Ctrl+_ brings the one before back."""
        self.history.checkpoint()
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)
        self.history.checkpoint()

    def take(self, text: str) -> None:
        """Put a text in at the cursor."""
        result = self.replace(text, *self.selection, maintain_selection_offset=False)
        self.move_cursor(result.end_location)

    def paste(self, text: str) -> None:
        """Put in what was pasted."""
        text = as_typed(text)
        self.history.checkpoint()
        self.take(self._pastes.add(text) if is_big(text) else text)

    def action_paste(self) -> None:
        """Put in what was copied here."""
        text = self.app.clipboard  # pyright: ignore[reportUnknownMemberType]  # App has a type argument for its result
        self.take(self._pastes.add(text) if is_big(text) else text)

    def action_cursor_right(self, select: bool = False) -> None:
        """Move. The grey hint says what could be typed; it is not a text to be taken."""
        if not self.suggestion:
            super().action_cursor_right(select)

    def action_delete_left(self) -> None:
        """Delete a character, or the whole word that stands for a paste."""
        row, column = self.cursor_location
        span = self._pastes.span(self.document.get_line(row), column) if self.selection.is_empty else None
        if span is None:
            super().action_delete_left()
        else:
            self.delete((row, span[0]), (row, span[1]), maintain_selection_offset=False)


def _edits(area: PromptArea) -> dict[str, Callable[[], object]]:
    """The keys that only edit; they are the same everywhere, so they are in no table."""
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

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.is_shell = False

    def render(self) -> Content:
        return Content("! " if self.is_shell else "› ")

    def show(self, is_shell: bool) -> None:
        if is_shell != self.is_shell:
            self.is_shell = is_shell
            self.set_class(is_shell, "-shell")
            self.refresh()


class Prompt(Vertical):
    """The prompt with its list. It tells what was sent; what becomes of it is the app's business."""

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        border-top: solid $primary 50%;
        & > #prompt-line { height: auto; padding: 0 1; }
        & .-shell { color: $warning; }
    }
    """

    class Sent(Message):
        """A text is to be sent; pastes are filled in."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class FilesWanted(Message):
        """`@` and some letters were typed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Offered(Message):
        """What the list offers has changed its kind."""

        def __init__(self, kind: OfferKind) -> None:
            super().__init__()
            self.kind = kind

    class TakeBack(Message):
        """The last queued text is wanted for editing."""

    def __init__(self, history: PromptHistory) -> None:
        super().__init__(id="prompt-box")
        self.pastes = Pastes()
        self.sent = history
        self.has_queue = False
        self._known = Known()
        self._offer = Offer()
        self._chosen: int = 0
        self._dismissed = False
        self._searching = False
        self._walk: Walk | None = None
        self._seen = ""  # the text that the offer is for
        self._recalled = ""  # the text that the walk through the history has brought
        self._asked: str | None = None
        self._area = PromptArea(self.pastes)
        self._edits = _edits(self._area)
        self._mark = Mark()
        self._popup = Popup()

    def compose(self) -> ComposeResult:
        with Horizontal(id="prompt-line"):
            yield self._mark
            yield self._area
        yield self._popup

    def on_mount(self) -> None:
        """Offer what there is to offer."""
        self._look()

    # -- what the app asks and says

    @property
    def text(self) -> str:
        """What stands there, with words for pastes."""
        return self._area.text

    @property
    def full_text(self) -> str:
        """What would be sent."""
        return self.pastes.fill(self._area.text)

    @property
    def is_empty(self) -> bool:
        return not self._area.text

    @property
    def is_open(self) -> bool:
        """Whether a list or a hint is shown that Esc would close."""
        return self._offer.kind is not OfferKind.NOTHING or bool(self._offer.ghost)

    @property
    def has_list(self) -> bool:
        """Whether there are rows to choose from."""
        return bool(self._offer.rows)

    def focus_text(self) -> None:
        self._area.focus()

    def put(self, text: str) -> None:
        """Show another text; what is too big of it is shown as a word."""
        self._area.put(self.pastes.shorten(text))

    def fit(self, rows: int) -> None:
        """Take no more than a third of so many rows; what is longer scrolls."""
        self._area.styles.max_height = max(2, min(MOST_LINES, rows // 3))

    def know(self, registry: CommandRegistry | None = None, agents: Sequence[CommandInfo] | None = None) -> None:
        """The commands and agents that can be named."""
        known = self._known
        self._known = known._replace(
            registry=registry or known.registry, agents=known.agents if agents is None else agents
        )
        self._look()

    def found_files(self, text: str, paths: Sequence[str]) -> None:
        """The files for some letters behind `@`."""
        self._known = self._known._replace(files=(text, tuple(paths)))
        self._look()

    def dismiss(self) -> None:
        """Close the list and the hint; they stay shut until the text changes."""
        self._dismissed = True
        self._searching = False
        self._look()

    def clear(self) -> str:
        """Empty it; what would have been sent."""
        text = self.full_text
        self._area.put("")
        self.pastes.forget()
        return text

    # -- what keys do

    def type(self, event: events.Key) -> bool:
        """Take a letter, or a key that edits; False: it is neither. At once: what follows must find it there."""
        if event.is_printable and event.character is not None:
            self._area.take(event.character)
        elif (edit := self._edits.get(event.key)) is not None:
            edit()
        else:
            return False
        return True

    def paste(self, text: str) -> None:
        """Take what was pasted."""
        self._area.paste(text)

    def settle(self) -> None:
        """Offer what fits the text that stands there now, before a key is understood by it."""
        if self._area.text != self._seen:
            self._changed()

    def do(self, action: str) -> None:
        """Do what a key stands for."""
        method = cast("Callable[[], None]", getattr(self, f"do_{action}"))
        method()

    def do_send(self) -> None:
        """Send it; a backslash before Enter breaks the line instead."""
        row, column = self._area.cursor_location
        before = self._area.document.get_line(row)[:column]
        if before.endswith("\\") and not before.endswith("\\\\"):
            self._area.replace("\n", (row, column - 1), (row, column), maintain_selection_offset=False)
            self._area.move_cursor((row + 1, 0))
        elif self._area.text.strip():
            self._walk = None
            self.post_message(self.Sent(self.clear()))

    def do_newline(self) -> None:
        self._area.take("\n")

    def do_complete(self) -> None:
        """Tab where no list is open: open it again."""
        self._dismissed = False
        self._look()

    def do_popup_previous(self) -> None:
        self._choose(self._chosen - 1)

    def do_popup_next(self) -> None:
        self._choose(self._chosen + 1)

    def do_popup_complete(self) -> None:
        """Take the chosen row into the prompt."""
        if self._offer.rows:
            self._take(self._offer.rows[self._chosen])

    def do_popup_run(self) -> None:
        """Run the chosen row, or take it where something is missing."""
        row = self._offer.rows[self._chosen]
        if row.runs:
            self._area.put(row.insert.rstrip())
            self.do_send()
        else:
            self._take(row)

    def do_history_back(self) -> None:
        """Up: a line up; at the first line the text before; on the empty prompt what is queued."""
        if self.has_queue and self.is_empty:
            self.post_message(self.TakeBack())
        elif not self._area.cursor_at_first_line:
            self._area.action_cursor_up()
        else:
            self._walk = self._walk or Walk(self.sent.texts(), self.full_text)
            self._recall(self._walk.back())

    def do_history_forward(self) -> None:
        """Down: a line down; at the last line the next text."""
        if not self._area.cursor_at_last_line:
            self._area.action_cursor_down()
        elif self._walk is not None:
            self._recall(self._walk.forward())

    def do_history_search(self) -> None:
        """Search what was sent before for the words that are typed; again: the next one."""
        if self._searching:
            self._choose(self._chosen + 1)
            return
        self._searching, self._dismissed = True, False
        self._look()

    def do_line_start(self) -> None:
        self._area.action_cursor_line_start()

    def do_line_end(self) -> None:
        self._area.action_cursor_line_end()

    def do_word_left(self) -> None:
        self._area.action_cursor_word_left()

    def do_word_right(self) -> None:
        self._area.action_cursor_word_right()

    def do_delete_to_start(self) -> None:
        self._area.action_delete_to_start_of_line()

    def do_delete_to_end(self) -> None:
        self._area.action_delete_to_end_of_line()

    def do_delete_word(self) -> None:
        """Delete the word to the left, or the paste that a word stands for."""
        row, column = self._area.cursor_location
        if self.pastes.span(self._area.document.get_line(row), column):
            self._area.action_delete_left()
        else:
            self._area.action_delete_word_left()

    def do_delete_word_right(self) -> None:
        self._area.action_delete_word_right()

    def do_undo(self) -> None:
        self._area.action_undo()

    def do_redo(self) -> None:
        self._area.action_redo()

    # -- the list

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """The text is another one."""
        event.stop()
        self.settle()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """The cursor has moved."""
        event.stop()
        self._look()

    def _changed(self) -> None:
        self._seen, self._dismissed = self._area.text, False
        if self._recalled != self._seen:
            self._walk = None
        self._look()

    def on_popup_taken(self, event: Popup.Taken) -> None:
        event.stop()
        self._choose(event.index)
        self.do_popup_complete()
        self.focus_text()

    def _look(self) -> None:
        """See what is to be offered for what stands there now."""
        text, cursor = self._area.text, self._area.cursor
        self._mark.show(text.startswith("!"))
        self._ask_for_files(text, cursor)
        known = self._known._replace(history=self.sent.find(text)) if self._searching else self._known
        self._show(offer(text, cursor, self._dismissed, known))

    def _show(self, new: Offer) -> None:
        if new.rows != self._offer.rows:
            labels = [row.label for row in new.rows]
            before = self._offer.rows[self._chosen].label if self._offer.rows else ""
            is_same = new.kind is self._offer.kind and before in labels and self._chosen > 0
            self._chosen = labels.index(before) if is_same else 0
        changed, self._offer = new.kind is not self._offer.kind, new
        self._area.suggestion = new.ghost
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
        """Put a row in the place of what was typed of it."""
        was_search, self._searching = self._searching, False
        if was_search or self._offer.kind is OfferKind.COMMANDS:
            self.put(row.insert)
        else:
            cursor_row, column = self._area.cursor_location
            begin = column - (self._area.cursor - row.start)
            self._area.replace(row.insert, (cursor_row, begin), (cursor_row, column), maintain_selection_offset=False)
            self._area.move_cursor((cursor_row, begin + len(row.insert)))
        if was_search:
            self.dismiss()

    def _recall(self, text: str | None) -> None:
        if text is None:
            return
        self._recalled = self.pastes.shorten(text)
        self._area.put(self._recalled)

    def _ask_for_files(self, text: str, cursor: int) -> None:
        query = None if self._dismissed else mention_at(text, cursor)
        if query is not None and query != self._asked:
            self.post_message(self.FilesWanted(query))
        self._asked = query
