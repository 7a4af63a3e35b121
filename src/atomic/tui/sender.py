"""Send prompts to the engine, one after the other, and queue them while the agent is
busy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from atomic.chat.protocol import RunKind, Shell, Submit
from atomic.tui.state.model import Changes

if TYPE_CHECKING:
    from atomic.chat.client import ChatClient
    from atomic.tui.state.store import Store

_FOREGROUND = (RunKind.TURN, RunKind.AGENTS, RunKind.SHELL, RunKind.COMMAND)
# Commands that only show something or leave, so they need not wait for the agent.
_IMMEDIATE = frozenset(("help", "h", "?", "theme", "exit", "quit", "q", "mcp", "sessions", "model", "m"))
_QUEUE_WAITS = "The run failed, so the queue waits: send something, or edit it with ↑"


class PromptSender:
    """Sends texts, and the next queued text when the run before has ended."""

    def __init__(
        self,
        store: Store,
        client: ChatClient,
        mark: Callable[[Changes], None],
        *,
        warn: Callable[[str], None],
        notify: Callable[[str], None],
    ) -> None:
        """`mark` plans a repaint, `notify` reaches a user who looks at another window."""
        self._store = store
        self._client = client
        self._mark = mark
        self._warn = warn
        self._notify = notify
        self._run_count = 0
        self._was_busy = False
        self._active_runs: set[str] = set()  # at the last status change

    @property
    def _is_busy(self) -> bool:
        """Return whether a prompt must wait. Workflows run in the background."""
        return any(run.is_active and run.kind in _FOREGROUND for run in self._store.screen.runs.values())

    def send_or_queue(self, text: str) -> None:
        """Send a text, or queue it while the agent is busy."""
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        is_immediate = word.startswith("/") and word[1:].lower() in _IMMEDIATE
        if self._is_busy and not is_immediate:
            self._mark(self._store.enqueue(text))
        else:
            self.send(text)

    def send(self, text: str) -> None:
        """Send a text to the engine and show it before the engine confirms it."""
        self._run_count += 1
        run = f"{os.getpid():x}-{int(time.time() * 1000):x}-{self._run_count}"
        command = text.lstrip()
        if command.startswith("!"):
            kind = RunKind.SHELL
            intent = Shell(run=run, command=command[1:].strip())
        else:
            kind = RunKind.COMMAND if command.startswith("/") else RunKind.TURN
            intent = Submit(run=run, text=text)
        self._mark(self._store.begin(run, kind, text, time.time()))
        self._was_busy = True
        self._active_runs.add(run)
        self._client.send(intent)

    def take_back(self) -> str | None:
        """Remove the last queued text and return it, or None if nothing is queued."""
        queue = self._store.screen.queue
        if not queue:
            return None
        text = queue[-1].text
        self._mark(self._store.edit_queue(queue[-1].id, ""))
        return text

    def note_ended_runs(self, *, is_leaving: bool) -> None:
        """Send the next queued text after the user's last run, or notify the user."""
        runs = self._store.screen.runs
        active = {id for id, run in runs.items() if run.is_active}
        ended = [runs[id] for id in self._active_runs - active if id in runs]
        self._active_runs = active
        was_busy = self._was_busy
        self._was_busy = self._is_busy
        if is_leaving:
            return
        for run in ended:
            if run.kind is RunKind.WORKFLOW:
                self._notify(f"Atomic: {run.title or 'the workflow'} {run.status}")
        if was_busy and not self._was_busy and not self._send_queued() and ended:
            self._notify("Atomic is done")

    def _send_queued(self) -> bool:
        """Send the oldest queued text, unless the last run failed: it would probably
        fail too.
        """
        screen = self._store.screen
        if not screen.queue:
            return False
        ended = [run for run in screen.runs.values() if not run.is_active and run.kind in _FOREGROUND]
        last = max(ended, key=lambda run: run.ended or 0.0, default=None)
        if last is not None and last.status in ("failed", "limit"):
            self._warn(_QUEUE_WAITS)
            return False
        text = self._store.dequeue()
        assert text is not None
        self.send(text)
        self._mark(Changes.QUEUE)
        return True
