"""A real terminal: tmux, with a separate server that ends with the test."""

from __future__ import annotations

import os
import shlex
import subprocess
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from tests.support.waits import HANG


class Tmux:
    """One pane. Keys have the names of tmux: Enter, Escape, C-j, M-Enter, S-Enter."""

    def __init__(self, socket: str, env: Mapping[str, str]) -> None:
        self._socket = socket
        self._env = env

    def run(self, *words: str) -> str:
        command = ("tmux", "-L", self._socket, "-f", os.devnull, *words)
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=HANG)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def keys(self, *names: str) -> None:
        self.run("send-keys", *names)

    def type(self, text: str) -> None:
        self.run("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """Paste text, bracketed if the program has enabled that."""
        self.run("set-buffer", "--", text)
        self.run("paste-buffer", "-p", "-r")

    def resize(self, columns: int, rows: int) -> None:
        self.run("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def text(self) -> str:
        return self.run("capture-pane", "-p")

    def shows(self, words: str, *, timeout: float = HANG) -> str:
        """Wait until the screen shows `words` and return its text."""
        return self._until(lambda text: words in text, f"{words!r}", timeout)

    def lacks(self, words: str, *, timeout: float = HANG) -> str:
        """Wait until the screen no longer shows `words` and return its text."""
        return self._until(lambda text: words not in text, f"end of {words!r}", timeout)

    def opens_question(self, *, timeout: float = HANG) -> None:
        """Wait for a question, which opens a moment after the last key."""
        self.shows("F6 reopens", timeout=timeout)

    def _until(self, condition: Callable[[str], bool], what: str, timeout: float) -> str:
        end = monotonic() + timeout
        while not condition(text := self.text):
            assert monotonic() < end, f"no {what} after {timeout} s:\n{text}"
            sleep(0.05)
        return text

    @property
    def pid(self) -> int:
        """The id of the process in the pane."""
        return int(self.run("display-message", "-p", "#{pane_pid}"))


@contextmanager
def in_tmux(
    words: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path, columns: int = 80, rows: int = 24
) -> Generator[Tmux]:
    """Run a command in a new tmux server, under a shell that prints its exit code."""
    known = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color", **env}
    tmux = Tmux(f"atomic-test-{uuid.uuid4().hex[:12]}", known)
    command = shlex.join(str(word) for word in words)
    tmux.run(
        "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(cwd),
        f"{command}; echo EXIT CODE $?; exec cat",
    )  # fmt: skip
    try:
        tmux.run("set-option", "-s", "extended-keys", "on")
        yield tmux
    finally:
        subprocess.run(("tmux", "-L", tmux._socket, "kill-server"), env=known, capture_output=True, check=False)  # pyright: ignore[reportPrivateUsage]
