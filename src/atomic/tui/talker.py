"""The talking half of the screen: what is sent, what is answered, and how it is left."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from atomic.tui import attention, compat
from atomic.tui.harmless import one_line
from atomic.tui.keys import Keymap, keymap
from atomic.tui.protocol import (
    Answer,
    FilesFound,
    FindFiles,
    Leave,
    Left,
    News,
    Picked,
    RunKind,
    ScreenSize,
    Shell,
    Submit,
)
from atomic.tui.reader import EVERYTHING, ReadingApp
from atomic.tui.state.changes import Changes
from atomic.tui.state.model import Run
from atomic.tui.supervisor import SIGNALLED
from atomic.tui.widgets.prompt import HINTS_OF_POPUP, Prompt
from atomic.tui.widgets.status import IDLE_HINTS
from atomic.tui.widgets.transcript import TranscriptView

if TYPE_CHECKING:
    from atomic.config import Settings
    from atomic.tui.link import EngineLink
    from atomic.tui.screens.question import Answered

GOODBYE = 5.0  # seconds for the engine's last word
QUIET_BEFORE_DIALOG = 1.0  # seconds without a key: no letter of a text may answer a question

_FOREGROUND = (RunKind.TURN, RunKind.CREW, RunKind.SHELL, RunKind.COMMAND)
_AT_ONCE = frozenset(("help", "h", "?", "theme", "exit", "quit", "q", "mcp", "sessions", "model", "m"))


class TalkingApp(ReadingApp):
    """Turns what a person says into intents."""

    def __init__(self, link: EngineLink, *, settings: Settings, prompt: str = "", **options: Any) -> None:
        """`prompt` is sent as soon as there is a picture; for the other options see `ReadingApp`."""
        super().__init__(link, settings=settings, **options)
        self._keys: Keymap
        self._keys, self._key_warnings = keymap(settings.keys)
        self._transcript.end_key = self._keys.shown("scroll_end")
        for panel in (self._status, *self._strips, *self._side.panels):
            panel.keys = {action: self._keys.shown(action) for action in panel.keys}
        self._first_prompt = prompt
        self._last_key = float("-inf")
        self._is_leaving = False
        self._has_left = asyncio.Event()  # the engine has said its last word
        self._was_busy = False
        self._working: set[str] = set()  # the runs that were active when we looked last
        self._runs = self._requests = 0
        self._asked_for = ("", "")  # the request for files, and its letters
        self._known_questions: set[str] = set()
        self._unseen_questions: set[str] = set()  # no dialog has shown them yet
        self._width = 0

    # -- begin and end

    def _begin(self) -> None:
        super()._begin()
        if compat.can_ask_for_shift():
            compat.write(self, compat.ASK_FOR_SHIFT)
        self._prompt.fit(self.rows)
        self._send_size()  # the first intent: it starts the engine
        if self._first_prompt:
            self._send(self._first_prompt)
        for warning in (*self._settings.warnings, *self._key_warnings):
            self.say(warning, severity="warning")

    async def on_unmount(self) -> None:
        """Whoever ended the screen: the engine is told, and it is gone before we are."""
        if compat.can_ask_for_shift():
            compat.write(self, compat.END_ASKING)
        if not self._is_leaving:
            self._is_leaving = True
            await self._be_ended()
        await self._link.close()
        self._end()

    async def _be_ended(self) -> None:
        """A signal, or a terminal that has gone, pauses workflows as `/exit` does; a screen that fails leaves them."""
        is_signal = (self.return_code or 0) > SIGNALLED
        self._link.send(Leave(pause=is_signal))
        if is_signal:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._has_left.wait()

    def leave(self, *, pause: bool = True) -> None:
        """Leave in order: the engine has the last word, if it comes in time."""
        if self._is_leaving:
            self.leave_at_once()
            return
        self._is_leaving = True
        self._remind("leaving …")
        self._link.send(Leave(pause=pause))
        asyncio.get_running_loop().call_later(GOODBYE, self.exit, "")

    def leave_at_once(self) -> None:
        """Leave without waiting for anybody; workflows go on."""
        if not self._is_leaving:
            self._is_leaving = True
            self._link.send(Leave())
        self.exit(self.store.screen.left or "")

    # -- what news bring with them

    def _hear(self, news: News) -> None:
        super()._hear(news)
        if isinstance(news, Left):
            self._has_left.set()

    def _apply(self, news: News) -> None:
        if isinstance(news, FilesFound):
            request, letters = self._asked_for
            if news.request == request:
                self._prompt.found_files(letters, news.paths)
            return
        super()._apply(news)

    def _follow_up(self, changes: Changes) -> None:
        super()._follow_up(changes)
        if changes & Changes.QUEUE:
            self._prompt.has_queue = bool(self.store.screen.queue)
        if changes & Changes.COMMANDS:
            self._start(self._learn_commands())
        if changes & Changes.QUESTIONS:
            self._ask(by_itself=True)
        if changes & Changes.PICK:
            self._pick()
        if changes & Changes.STATUS:
            self._note_busy()
        if self._width:  # panels may have come or gone
            self._send_size()
        if changes & Changes.LEFT:
            self.exit(self.store.screen.left or "")

    async def _learn_commands(self) -> None:
        """Build the registry of the prompt; what it needs takes long to import, so it is made in a thread."""
        from atomic.tui.registry import registry_of

        screen = self.store.screen
        registry = await asyncio.to_thread(registry_of, screen.commands)
        self._prompt.know(registry, screen.agents_by_name)

    def _note_busy(self) -> None:
        """When the last of the person's own runs ends: the queue goes on, or who looks elsewhere is called."""
        was_busy, self._was_busy = self._was_busy, self._is_occupied()
        ended = self._ended_runs()
        if self._is_leaving:
            return
        for flow in ended:
            if flow.kind is RunKind.WORKFLOW:
                self._call(f"Atomic: {flow.title or 'the workflow'} {flow.status}")
        if was_busy and not self._was_busy and not self._send_queued() and ended:
            self._call("Atomic is done")

    def _ended_runs(self) -> list[Run]:
        """What was at work when we looked last and is not any more."""
        runs = self.store.screen.runs
        before, self._working = self._working, {id for id, run in runs.items() if run.is_active}
        return [runs[id] for id in before - self._working if id in runs]

    def _send_queued(self) -> bool:
        """Send the oldest text of the queue, unless it would most likely fail as well."""
        if self.store.screen.queue and self._went_wrong():
            self.say("It failed, so the queue waits: send something, or take it back with ↑", severity="warning")
        elif (text := self.store.dequeue()) is not None:
            self._send(text)
            self._mark(Changes.QUEUE)
            return True
        return False

    def _went_wrong(self) -> bool:
        """Whether the last of the person's own runs failed: what is queued would most likely fail as well."""
        ended = [run for run in self.store.screen.runs.values() if not run.is_active and run.kind in _FOREGROUND]
        return bool(ended) and max(ended, key=lambda run: run.ended or 0.0).status in ("failed", "limit")

    def _call(self, words: str) -> None:
        """Call somebody who looks elsewhere."""
        if not self.app_focus:
            compat.write(self, attention.call(words) + attention.title(f"● {words}"))

    def on_app_focus(self) -> None:
        """The person looks at it again."""
        compat.write(self, attention.title("atomic"))

    # -- sending

    def _is_occupied(self) -> bool:
        """Whether a prompt would have to wait; a workflow runs by itself."""
        return any(run.is_active and run.kind in _FOREGROUND for run in self.store.screen.runs.values())

    def on_prompt_sent(self, message: Prompt.Sent) -> None:
        """A text was sent: to the engine, or to the queue."""
        trouble = self._prompt.sent.add(message.text, time.time())
        if trouble:
            self.say(trouble, severity="warning")
        self._transcript.follow()
        self._say_or_queue(message.text)

    def _say_or_queue(self, text: str) -> None:
        """While the agent is busy a text waits, unless it is for the screen alone."""
        if self._is_occupied() and not _is_at_once(text):
            self._mark(self.store.enqueue(text))
        else:
            self._send(text)

    def _send(self, text: str) -> None:
        """Hand a text to the engine; it is on the screen before anybody answers."""
        self._runs += 1
        run = f"{os.getpid():x}-{int(time.time() * 1000):x}-{self._runs}"
        command = text.lstrip()
        if command.startswith("!"):
            kind, intent = RunKind.SHELL, Shell(run=run, command=command[1:].strip())
        else:
            kind = RunKind.COMMAND if command.startswith("/") else RunKind.TURN
            intent = Submit(run=run, text=text)
        self._mark(self.store.begin(run, kind, text, time.time()))
        self._was_busy = True
        self._working.add(run)
        self._link.send(intent)

    def on_prompt_take_back(self, message: Prompt.TakeBack) -> None:
        """↑ on the empty prompt: the last queued text comes back."""
        queue = self.store.screen.queue
        if queue:
            id, text = queue[-1].id, queue[-1].text
            self._mark(self.store.edit_queue(id, ""))
            self._prompt.has_queue = bool(queue)
            self._prompt.put(text)

    def on_prompt_files_wanted(self, message: Prompt.FilesWanted) -> None:
        """`@` and letters: the engine knows the files."""
        self._requests += 1
        self._asked_for = (f"files-{self._requests}", message.text)
        self._link.send(FindFiles(request=self._asked_for[0], text=message.text))

    def on_prompt_offered(self, message: Prompt.Offered) -> None:
        """The keys of the list stand in the last line while it is open."""
        self._hint(HINTS_OF_POPUP.get(message.kind, IDLE_HINTS))

    def _hint(self, hints: Sequence[tuple[str, str]]) -> None:
        """The keys that the last line names while nothing is at work."""
        self._status.say(self._status.words, hints)

    def _remind(self, words: str) -> None:
        """Words in the last line that come before all else; none: as usual."""
        self._status.say(words, self._status.hints)

    def on_resize(self) -> None:
        """Another size: other panels, and the engine's lines are as long as ours."""
        self.call_after_refresh(self._resized)  # the screen below has it a moment later

    def _resized(self) -> None:
        self._prompt.fit(self.rows)
        if self._width:  # not before the engine may start
            self._send_size()
        self._mark(EVERYTHING)

    def _send_size(self) -> None:
        """Tell the engine how long a line of what it says may be."""
        width = min(self._transcript.room, self.columns) or self.columns
        if width != self._width:
            self._width = width
            self._link.send(ScreenSize(width=width))

    # -- dialogs

    @property
    def _has_dialog(self) -> bool:
        return len(self.screen_stack) > 1

    def _ask(self, *, by_itself: bool) -> None:
        """Open the questions that wait; by itself only for new ones, and only if nobody is typing."""
        questions = self.store.screen.questions
        if not questions and not self._has_dialog:
            self._known_questions.clear()
            return
        from atomic.tui.screens.question import QuestionScreen

        if isinstance(self.screen, QuestionScreen):
            self.screen.sync(self.store.screen, time.time())
        new = questions.keys() - self._known_questions
        self._known_questions = set(questions)
        self._unseen_questions = (self._unseen_questions | new) & questions.keys()
        if by_itself and new:
            self._call("Atomic has a question")
        if questions and not self._has_dialog and (not by_itself or self._may_interrupt()):
            self._unseen_questions.clear()
            later = self._keys.shown("questions")
            self.push_screen(QuestionScreen(list(questions.values()), later=later), self._answered)

    def _may_interrupt(self) -> bool:
        """Whether a dialog for new questions may open now; if it is only a moment too early, it is tried again."""
        if not self._unseen_questions or not self._prompt.is_empty:
            return False
        patience = self._last_key + QUIET_BEFORE_DIALOG - self._monotonic()
        if patience > 0:
            asyncio.get_running_loop().call_later(patience, self._mark, Changes.QUESTIONS)
        return patience <= 0

    def _answered(self, answered: Answered | None) -> None:
        """Answered, dismissed (no answers), or put off (None)."""
        if answered is None:
            return
        self._mark(self.store.close_question(answered.question))
        self._link.send(Answer(question=answered.question, answers=answered.answers))
        if self.store.screen.questions:
            self.call_later(self._ask, by_itself=False)

    def _pick(self) -> None:
        """A person is to choose."""
        from atomic.tui.screens.pick import PickScreen

        pick = self.store.screen.pick
        if pick is None:
            return

        def picked(value: str | None) -> None:
            self._mark(self.store.close_pick())
            self._link.send(Picked(request=pick.request, value=value))

        self.push_screen(PickScreen(pick), picked)

    def on_transcript_view_toggled(self, message: TranscriptView.Toggled) -> None:
        """A card was unfolded or folded."""
        self._mark(self.store.toggle(message.block_id))

    def on_transcript_view_link_opened(self, message: TranscriptView.LinkOpened) -> None:
        """A link was clicked. What is no web address is only shown; where there is no window for it, it is copied."""
        if not message.url.startswith(("http://", "https://")):
            self.say(one_line(message.url))
        elif self.is_web or _has_windows():
            self.open_url(message.url)
        else:
            self._copy(message.url, "")

    def _copy(self, text: str, nothing: str) -> None:
        """Copy a text and say which way it went; `nothing` is said if there is none."""
        if text:
            self._start(self._copied(text))
        else:
            self.say(nothing)

    async def _copied(self, text: str) -> None:
        from atomic.tui.clipboard import copy

        words: list[str] = []
        way = await asyncio.to_thread(copy, text, words.append)
        compat.write(self, "".join(words))
        self.say(way)


def _has_windows() -> bool:
    """Whether a browser would open beside us, not in our terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _is_at_once(text: str) -> bool:
    """Whether a text need not wait for the agent: a command that only shows or leaves."""
    word = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return word.startswith("/") and word[1:].lower() in _AT_ONCE
