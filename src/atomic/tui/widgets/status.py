"""Last line of the screen: activity or key hints, and on the right queue and session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.content import Content

from atomic.chat.protocol import RunKind
from atomic.tui.state.model import RunEntry, RunState, Screen, spent
from atomic.tui.text import MUTED, clock, content, fit, one_line, spread
from atomic.tui.widgets.panel import KEYS, Panel, key_hint

_QUIET_FROM = 10.0  # seconds without an event after which a run counts as quiet
_SESSION_LETTERS = 8
_WITH_SESSION = 60  # columns from which an idle line always shows the session

IDLE_HINTS = (
    ("⏎", "send"),
    ("Ctrl+J", "newline"),
    ("/", "commands"),
    ("@", "files"),
    ("!", "shell"),
    ("?", "keys"),
)
_NEEDED = ("?", "/", "⏎", "@", "!")  # the hints that remain longest: they lead to the others


class StatusLine(Panel):
    """One line. `hints` and `words` come from the app, such as the keys of an open
    list.
    """

    DEFAULT_CSS = """
    StatusLine { height: 1; width: 1fr; background: $panel; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.hints: Sequence[tuple[str, str]] = IDLE_HINTS
        self.words = ""
        self.is_covered = False  # a panel is open, which Esc closes first

    def say(self, words: str = "", hints: Sequence[tuple[str, str]] = IDLE_HINTS) -> None:
        """Show a message that takes precedence, or key hints for an idle line."""
        if (words, hints) != (self.words, self.hints):
            self.words = words
            self.hints = hints
            self.refresh()

    def rows(self, width: int, height: int) -> list[Content]:
        """Return the line."""
        covered = self.is_covered and self.hints is IDLE_HINTS and self.keys.get("stop")
        hints = ((self.keys["stop"], "close"),) if covered else self.hints
        return [status_line(self.state, self.now, width, hints, self.words, self.keys)]


def status_line(
    screen: Screen,
    now: float,
    width: int,
    hints: Sequence[tuple[str, str]] = IDLE_HINTS,
    words: str = "",
    keys: Mapping[str, str] = KEYS,
) -> Content:
    """Return the line for this width."""
    lefts = _lefts(screen, now, hints, words, keys)
    queued = content((f"queued {len(screen.queue)}", "$accent")) if screen.queue else content()
    id = one_line(screen.status.session)[:_SESSION_LETTERS]
    session = content((f"session {id}", MUTED)) if id else content()
    gap = content((" · ", MUTED)) if queued.cell_length and id else content()
    rights = [content(queued, gap, session), queued]
    pairs = [(left, right) for right in rights for left in lefts]
    if width < _WITH_SESSION or screen.is_busy or screen.questions or screen.status.problem:
        pairs = [(left, right) for left in lefts for right in rights]  # activity takes precedence over the session
    for left, right in pairs:
        if left.cell_length + right.cell_length + (2 if right.cell_length else 0) <= width:
            return spread(left, right, width)
    return fit(lefts[-1], width)


def foreground(screen: Screen) -> RunEntry | None:
    """Return the run that Esc would stop: the newest turn, or else the newest workflow."""
    active = [run for run in screen.runs.values() if run.is_active]
    return next((run for run in reversed(active) if run.kind is not RunKind.WORKFLOW), active[-1] if active else None)


def _lefts(
    screen: Screen, now: float, hints: Sequence[tuple[str, str]], words: str, keys: Mapping[str, str]
) -> list[Content]:
    """Return the left side in forms from long to short."""
    if words:
        return [content((one_line(words), "$warning"))]
    run = foreground(screen)
    if run is not None and run.state is RunState.STOPPING:
        since = f" {clock(now - run.heard)}" if run.heard else ""
        what = content(("stopping now" if run.forced else f"stopping{since}", "$warning"))
        return [content(what, ("" if run.forced else key_hint(keys, "stop", "again forces"), MUTED)), what]
    if screen.questions:
        count = len(screen.questions)
        asked = content(("? 1 question waits" if count == 1 else f"? {count} questions wait", "bold $warning"))
        hint = (key_hint(keys, "questions", "answers"), MUTED)
        return [content(asked, hint), asked, content((f"? {count}", "$warning"))]
    if run is not None:
        others = sum(other.is_active for other in screen.runs.values()) - 1
        shown = _keys(hints)
        if hints is IDLE_HINTS:
            does = "pauses" if run.kind is RunKind.WORKFLOW else "stops"
            shown = content((key_hint(keys, "stop", does, ""), MUTED))
        return _working(run, now, others, shown)
    if hints is not IDLE_HINTS:
        return [_keys(hints[:count]) for count in range(len(hints), 0, -1)] or [content()]
    if screen.status.problem:  # or only its beginning: the transcript shows the rest
        words = one_line(screen.status.problem)
        first = words.partition(": ")[0]
        return [content((form, "$warning")) for form in (words, f"{first} · atomic doctor says why", first)]
    needed = [_NEEDED[:count] for count in range(len(_NEEDED), 0, -1)]
    return [_keys(hints), *(_keys([hint for hint in hints if hint[0] in some]) for some in needed)]


def _working(run: RunEntry, now: float, others: int, keys: Content) -> list[Content]:
    if run.kind is RunKind.SHELL:
        word = "running"
    elif run.state is RunState.STARTING:
        word = "starting"
    else:
        word = one_line(run.title) if run.kind is RunKind.WORKFLOW and run.title else "working"
    cost = spent(run.usage) if run.kind is RunKind.WORKFLOW else ""
    base = content(("● ", "$success"), f"{word} {clock(now - run.started)}", (f" · {cost}" if cost else "", MUTED))
    quiet = now - run.heard if run.heard else 0.0
    silence = content((f" · quiet for {clock(quiet)}", MUTED)) if quiet >= _QUIET_FROM else content()
    more = content((f" · {others} more", MUTED)) if others > 0 else content()
    keys = content((" · ", MUTED), keys) if keys.cell_length else keys
    return [content(base, more, silence, keys), content(base, keys), base]


def _keys(hints: Sequence[tuple[str, str]]) -> Content:
    return content((" · ", MUTED)).join(content((key, "$primary"), (f" {does}", MUTED)) for key, does in hints)
