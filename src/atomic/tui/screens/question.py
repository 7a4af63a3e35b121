"""Answer questions: choose by number or arrows, mark several with Space, or type text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Event, Key
from textual.message import Message
from textual.widgets import TextArea

from atomic.questions import Question
from atomic.tui.screens.dialog import Dialog, DialogLine, Item, RowList, fixed, keys_line, paragraph, wrapped
from atomic.tui.state.model import QuestionEntry, Screen
from atomic.tui.text import MUTED, content, fit, harmless, one_line, spread

_OTHER = "other"
_AROUND = 4  # rows of the rest of the dialog: frame, title, keys
_MOST_WORDS = 6  # visible rows of typed text


class Answered(NamedTuple):
    """The answers to a question."""

    question: str
    answers: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    """An unfinished answer, kept while another question is shown."""

    at: int | None = None
    checked: set[int] = field(default_factory=set[int])
    words: str = ""
    writes: bool = False


class QuestionScreen(Dialog["Answered | None"]):
    """Shows the open questions one at a time.

    It returns one of them answered, or None to postpone them all. `sync` drops closed
    questions and closes the dialog after the last one. The app opens it again after an
    answer while questions remain.
    """

    DEFAULT_CSS = """
    QuestionScreen { align: center bottom; }
    QuestionScreen > .frame { width: 100%; max-width: 120; border: round $warning; }
    """

    def __init__(self, entries: Sequence[QuestionEntry], first: str = "", *, later: str = "F6") -> None:
        """Show the question `first`, or the oldest.

        `later` is the key that opens the dialog again; it closes it, too.
        """
        super().__init__()
        self._later = later
        self._entries = {entry.id: entry for entry in entries}
        self._shown = first if first in self._entries else next(iter(self._entries), "")
        self._drafts: dict[str, _Draft] = {}
        self._painted = math.inf  # when the current question was painted, in Textual's event time
        self._title = DialogLine()
        self._list = RowList(reserved=_AROUND)
        self._words = Words()
        self._keys = DialogLine()

    def compose(self) -> ComposeResult:
        """Yield title, text with options, typed answer and keys."""
        with Vertical(classes="frame"):
            yield self._title
            yield self._list
            yield self._words
            yield self._keys

    def on_mount(self) -> None:
        """Show the first question."""
        self._appear()

    def is_for(self, event: Event) -> bool:
        """Return whether a key was pressed after the question was painted."""
        return event.time > self._painted

    def sync(self, screen: Screen, now: float) -> None:
        """Update the open questions and keep the drafts of those that remain."""
        gone = self._shown not in screen.questions
        self._entries = dict(screen.questions)
        if not self._entries:
            self._close(None)
        elif gone:
            self._shown = next(iter(self._entries))
            self._appear()
        else:
            self._show_frame()

    # drawing

    @property
    def _question(self) -> Question:
        return self._entries[self._shown].question

    @property
    def _draft(self) -> _Draft:
        if self._shown not in self._drafts:
            self._drafts[self._shown] = _first_draft(self._question)
        return self._drafts[self._shown]

    def _appear(self) -> None:
        """Show a question that the user has not requested."""
        self._painted = math.inf
        self._show(top=True)
        self.call_after_refresh(self._note_painted)  # in case nothing is drawn

    def _show(self, *, top: bool = False) -> None:
        draft = self._draft
        self._show_frame()
        self._list.show(_items(self._question, draft), draft.at, top=top)
        self._make_room()
        if draft.writes != self._words.display or top:
            self._words.display = draft.writes
            self._words.load_text(draft.words)
            self._words.move_cursor(self._words.document.end)
            self._words.placeholder = _placeholder(self._question)
        self.set_focus(self._words if draft.writes else None)

    def _note_painted(self) -> None:
        """Note when the question becomes visible: only later keys can answer it."""
        if self._painted == math.inf:
            self._painted = Event().time

    def _make_room(self) -> None:
        """Give the list the rows that the typed answer leaves."""
        words = min(_MOST_WORDS, self._words.wrapped_document.height) if self._draft.writes else 0
        if self._list.reserved != _AROUND + words:
            self._list.reserved = _AROUND + words
            self._list.refresh(layout=True)

    def _show_frame(self) -> None:
        """Draw title and keys, which depend on the number of questions."""
        entry = self._entries[self._shown]
        ids = list(self._entries)
        who = one_line(entry.who)
        place = f"question {ids.index(self._shown) + 1} of {len(ids)}" if len(ids) > 1 else ""
        header = one_line(entry.question.header)
        left = content(("? ", "bold $warning"), (f"{who} asks" if who else "A question", "bold"))
        named = content(left, (f" · {header}" if header else "", MUTED))

        def title(width: int) -> Content:
            self._note_painted()
            return spread(named, content((place, "$warning")), width)

        self._title.show(title)
        self._keys.show(keys_line(*_hints(entry.question, self._draft, len(ids)), (self._later, "reopens")))

    # keys

    BINDINGS = [
        Binding("escape,f6", "later", show=False),
        Binding("tab", "other_question(1)", show=False, priority=True),
        Binding("shift+tab", "other_question(-1)", show=False, priority=True),
    ]

    def action_later(self) -> None:
        """Close the dialog. The questions stay open."""
        self._close(None)

    def action_other_question(self, by: int) -> None:
        """Show the next open question and keep the draft of this one."""
        ids = list(self._entries)
        if len(ids) > 1:
            self._keep_words()
            self._shown = ids[(ids.index(self._shown) + by) % len(ids)]
            self._show(top=True)

    def on_key(self, event: Key) -> None:
        """Handle the keys of the list.

        While an answer is typed, they belong to the text.
        """
        if self._draft.writes:
            return
        does = {
            "up": lambda: self._step(-1),
            "down": lambda: self._step(1),
            "ctrl+p": lambda: self._step(-1),
            "ctrl+n": lambda: self._step(1),
            "pageup": lambda: self._page(-1),
            "pagedown": lambda: self._page(1),
            "left": lambda: self.action_other_question(-1),
            "right": lambda: self.action_other_question(1),
            "space": lambda: self._toggle(self._draft.at),
            "enter": self._enter,
        }.get(event.key)
        if does is None and event.key.isdigit() and event.key != "0":
            does = lambda: self._number(int(event.key))  # noqa: E731
        if does is not None:
            event.stop()
            event.prevent_default()
            does()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """Select the clicked row and answer with it."""
        self._number(self._numbered().index(message.at) + 1)
        if not self._question.multi_select:
            self._enter(directly=True)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Adapt the list to the height of the typed text."""
        event.stop()
        self._make_room()

    def on_words_sent(self, message: Words.Sent) -> None:
        """Answer with the typed text."""
        message.stop()
        self._keep_words()
        self._enter()

    def on_words_left(self, message: Words.Left) -> None:
        """Return from the first line of the typed text to the options."""
        message.stop()
        if self._question.options:
            self._keep_words()
            self._draft.writes = False
            self._step(-1)
            self._show()

    def _numbered(self) -> list[int]:
        return [at for at, item in enumerate(self._list.items) if item.value is not None]

    def _number(self, number: int) -> None:
        rows = self._numbered()
        if number > len(rows):
            return
        self._draft.at = rows[number - 1]
        if self._question.multi_select and not self._is_other(self._draft.at):
            self._toggle(self._draft.at)
        elif self._is_other(self._draft.at):
            self._list.choose(self._draft.at)
            self._write()
        else:
            self._list.choose(self._draft.at)

    def _step(self, by: int) -> None:
        self._list.step(by)
        self._draft.at = self._list.at

    def _page(self, by: int) -> None:
        self._list.move(by * max(1, self._list.size.height - 1))

    def _toggle(self, at: int | None) -> None:
        if at is None or not self._question.multi_select:
            return
        if self._is_other(at):
            self._write()
            return
        self._draft.checked ^= {at}
        self._show()

    def _enter(self, *, directly: bool = False) -> None:
        draft = self._draft
        if draft.at is not None and self._is_other(draft.at) and not draft.writes:
            self._write()
            return
        answers = self._answers(directly)
        if answers:
            self._close(Answered(self._shown, answers))

    def _write(self) -> None:
        self._draft.writes = True
        self._show()

    def _is_other(self, at: int) -> bool:
        return self._list.items[at].value == _OTHER

    def _keep_words(self) -> None:
        if self._draft.writes:
            self._draft.words = self._words.text

    def _answers(self, directly: bool) -> tuple[str, ...]:
        """Return the marked labels and the typed text, or the default if nothing was
        typed.
        """
        question = self._question
        draft = self._draft
        words = (draft.words.strip(),) if draft.writes and draft.words.strip() else ()
        if not question.options:
            return words or ((question.default,) if question.default else ())
        labels = {at: option.label for at, option in zip(self._numbered(), question.options, strict=False)}
        if question.multi_select and (draft.checked or words):
            return (*(labels[at] for at in sorted(draft.checked)), *words)
        if draft.writes and not directly:
            return words
        return (labels[draft.at],) if draft.at in labels else ()

    def _close(self, result: Answered | None) -> None:
        if self.is_current:
            self.dismiss(result)


class Words(TextArea):
    """Input for a typed answer.

    Enter sends it, Ctrl+J and Alt+Enter insert a line break.
    """

    DEFAULT_CSS = """
    Words {
        height: auto; max-height: 6; min-height: 1; width: 1fr; padding: 0 0 0 2; border: none;
        background: $panel; color: $text; background-tint: transparent;
        &:focus { border: none; background-tint: transparent; }
        & .text-area--cursor, &:light .text-area--cursor {
            color: $input-cursor-foreground; background: $input-cursor-background;
        }
        & .text-area--placeholder { color: $text-muted; }
        &:nocolor .text-area--cursor { text-style: underline; }
    }
    """

    class Sent(Message):
        """Enter was pressed."""

    class Left(Message):
        """Up was pressed in the first line."""

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False)
        self.cursor_blink = False

    async def _on_key(self, event: Key) -> None:
        if event.key == "enter":
            self._stop(event, self.Sent())
        elif event.key == "up" and self.cursor_location[0] == 0:
            self._stop(event, self.Left())
        elif event.key in ("ctrl+j", "alt+enter", "shift+enter"):
            event.stop()
            event.prevent_default()
            self.insert("\n")
        else:
            await super()._on_key(event)

    def _stop(self, event: Key, message: Message) -> None:
        event.stop()
        event.prevent_default()
        self.post_message(message)


def _first_draft(question: Question) -> _Draft:
    """Return a draft with the default selected.

    Without options only text can be typed.
    """
    if not question.options:
        return _Draft(writes=True)
    labels = [option.label for option in question.options]
    first = labels.index(question.default) if question.default in labels else 0
    at = _HEAD_ITEMS + first
    checked = {at} if question.multi_select and question.default in labels else set[int]()
    return _Draft(at=at, checked=checked)


_HEAD_ITEMS = 2  # the text and an empty line come before the options


def _items(question: Question, draft: _Draft) -> list[Item]:
    head = [paragraph(content(harmless(question.text))), fixed(content())]
    if not question.options:
        return head
    options = [
        Item(
            _option_lines(at, option.label, option.description, question, _HEAD_ITEMS + at in draft.checked),
            value=str(at),
            short=_option_lines(at, option.label, "", question, _HEAD_ITEMS + at in draft.checked),
        )
        for at, option in enumerate(question.options)
    ]
    own = harmless(" ".join(draft.words.split())) if draft.words and not draft.writes else ""
    other = content(
        (f"{len(options) + 1} ", "$primary"),
        "    " if question.multi_select else "",
        ("other…", MUTED),
        f" {own}" if own else "",
    )
    return [*head, *options, Item(lambda width: [fit(other, width)], value=_OTHER)]


def _option_lines(
    at: int, label: str, description: str, question: Question, checked: bool
) -> Callable[[int], list[Content]]:
    number = f"{at + 1} " if at < 9 else "  "
    box = ""
    if question.multi_select:
        box = "[✓] " if checked else "[ ] "
    indent = len(number) + len(box)
    default = "  (default)" if label == question.default else ""

    def draw(width: int) -> list[Content]:
        first = wrapped(content(one_line(label), (default, MUTED)), width, indent)
        first[0] = content((number, "$primary"), (box, "$success" if checked else MUTED), first[0][indent:])
        return [*first, *(wrapped(content((harmless(description), MUTED)), width, indent) if description else [])]

    return draw


def _placeholder(question: Question) -> Content:
    if question.default and not question.options:
        return content(f"{one_line(question.default)}  (Enter takes it)")
    return content("your own words")


def _hints(question: Question, draft: _Draft, waiting: int) -> list[tuple[str, str]]:
    hints = [("⏎", "answer"), ("Esc", "later")]
    if draft.writes:
        hints += [("Ctrl+J", "newline"), *([("↑", "options")] if question.options else [])]
    elif question.multi_select:
        hints.insert(0, ("Space", "mark"))
    else:
        hints.insert(0, (f"1–{min(9, len(question.options) + 1)}", "choose"))
    if waiting > 1:
        hints.append(("Tab", "next question"))
    return hints
