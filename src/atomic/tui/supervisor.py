"""Watches over the screen: after any death of it the terminal is as before, and the person knows how to go on.

The screen is a child, forked before there are threads. Two pipes join them: on one the screen reports, the other
says nothing, but its end tells the screen that the supervisor has died. What the screen writes to standard error
lands in a file without a name, so that it cannot spoil the picture; it is shown afterwards.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from time import monotonic
from types import FrameType

from atomic.terminal import harmless
from atomic.tui.terminal import Terminal

GRACE = 4.0  # seconds for the screen to end what it has begun, after a signal
GRACE_TO_PAUSE = 9.0  # for one that has heard it: it waits for its workflows to be paused
AT_ONCE = 1.0  # seconds after Ctrl+C twice, then it goes, whatever it does
SIGNALLED = 128
HUNG_UP = SIGNALLED + signal.SIGHUP
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_SPLIT = "\x1e"  # stands for the end of a line inside a report
_MOST_SHOWN = 16 * 1024


class Report:
    """What the screen tells its supervisor: short lines that outlive it. Any thread may call."""

    def __init__(self, out: int, supervisor: int) -> None:
        self._out = out
        self.supervisor = supervisor  # readable when the supervisor has died
        self.ways: dict[str, str] = {}
        self.last_word: str | None = None
        self.has_left = False
        self.is_orphan = False  # the supervisor was killed

    def shown(self, is_shown: bool) -> None:
        """Whether the terminal has our modes."""
        self.has_left = not is_shown
        self._say("shown" if is_shown else "left")

    def leave(self) -> None:
        """Ctrl+C came twice: the screen is to be gone in a second."""
        self._say("leave")

    def ends(self) -> None:
        """A signal was heard: the screen ends in order."""
        self._say("ends")

    def way(self, key: str, text: str) -> None:
        """How to go on with something; an empty text: there is nothing to go on with any more."""
        if self.ways.get(key, "") != text:
            self.ways[key] = text
            self._say("way", key, text)

    def last(self, text: str) -> None:
        """The engine's last word; it says how to go on better than we do."""
        self.last_word = text
        self._say("last", text)

    def _say(self, *words: str) -> None:
        line = "\t".join(word.replace("\t", " ").replace("\n", _SPLIT) for word in words)
        try:
            os.write(self._out, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            return  # nobody listens any more


Work = Callable[[Report], int]  # the screen: runs in the child, its exit code


def supervise(terminal: Terminal, screen: Work) -> int:
    """Run the screen in a child until it ends, by whatever; the exit code of the command."""
    reports, report = os.pipe()
    life, our_life = os.pipe()
    said = _file_without_name()
    pid = os.fork()
    if pid == 0:
        os.close(reports)
        os.close(our_life)
        os.dup2(said, 2)
        _be_the_screen(screen, Report(report, life))
    os.close(report)
    os.close(life)
    watch = Supervisor(pid, reports)
    try:
        status = watch.wait()
    finally:
        terminal.give_back(has_left=watch.has_left)
    return watch.conclude(status, said)


def _be_the_screen(screen: Work, report: Report) -> None:
    """Never returns: what the supervisor had on its stack is not ours."""
    code = 1
    try:
        code = screen(report)
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(code)


def _file_without_name() -> int:
    """In memory where the system can, else a file that is deleted already."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("atomic-screen")
    import tempfile

    number, name = tempfile.mkstemp()
    os.unlink(name)
    return number


class Supervisor:
    """Waits for one screen: no timer while all is well."""

    def __init__(self, pid: int, reports: int) -> None:
        self.has_left = False  # the screen has put the terminal back itself
        self.ways: dict[str, str] = {}
        self.last_word: str | None = None
        self._pid, self._reports = pid, reports
        self._number = 0  # the signal that ended it
        self._was_left = False  # by Ctrl+C twice
        self._deadline: float | None = None
        self._unread = b""
        os.set_blocking(reports, False)

    def wait(self) -> int:
        """Until the screen has gone; its status, as waitpid gives it."""
        woken = self._hear_signals()
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._reports, select.POLLIN)
        while True:
            ready = dict(poll.poll(self._patience()))
            if woken in ready:
                os.read(woken, 4096)
            if self._reports in ready and not self._read_reports():
                poll.unregister(self._reports)
            if (status := self._look()) is not None:
                self._read_reports()
                return status
            if self._deadline is not None and monotonic() >= self._deadline:
                os.kill(self._pid, signal.SIGKILL)
                self._deadline = None

    def _hear_signals(self) -> int:
        """A descriptor that is readable after each signal: poll would sleep on otherwise."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        for number in _FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup
                signal.signal(number, self._forward)
        return woken

    def _patience(self) -> int | None:
        return None if self._deadline is None else max(0, int((self._deadline - monotonic()) * 1000) + 1)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        """Ask the screen to end in order; if it does not within the grace, it is killed."""
        self._number = self._number or number
        self._deadline = self._deadline or monotonic() + GRACE
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return

    def _look(self) -> int | None:
        """The screen's status if it has ended. One that has suspended itself takes us along: the shell waits for us."""
        pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if not os.WIFSTOPPED(status):
            return status
        self._read_reports()
        if self.has_left:
            os.kill(os.getpid(), signal.SIGSTOP)
        return None

    def _read_reports(self) -> bool:
        """Take in what the screen has said; False: it will say nothing more."""
        while True:
            try:
                piece = os.read(self._reports, 64 * 1024)
            except BlockingIOError:
                return True
            if not piece:
                return False
            *lines, self._unread = (self._unread + piece).split(b"\n")
            for line in lines:
                self._hear(line.decode("utf-8", "replace").split("\t"))

    def _hear(self, words: list[str]) -> None:
        match [word.replace(_SPLIT, "\n") for word in words]:
            case ["shown"]:
                self.has_left = False
            case ["left"]:
                self.has_left = True
            case ["ends"] if self._deadline is not None and not self._was_left:
                self._deadline = monotonic() + GRACE_TO_PAUSE
            case ["leave"]:
                self._was_left = True
                self._deadline = min(self._deadline or float("inf"), monotonic() + AT_ONCE)
            case ["way", key, text]:
                self.ways[key] = text
            case ["last", text]:
                self.last_word = text
            case _:
                pass  # half a line of one that was killed while it wrote

    def conclude(self, status: int, said: int) -> int:
        """Tell the person what happened and how to go on; the exit code."""
        lines = [self._trouble(status, _text_of(said)), *how_to_go_on(self.last_word, self.ways)]
        tell("".join(f"{line}\n" for line in lines if line))
        return self._exit_code(status)

    def _trouble(self, status: int, said: str) -> str:
        """What went wrong, in one line; all that was said for those who look for mistakes."""
        if self._number:
            return ""
        if os.WIFSIGNALED(status):
            why = "did not answer and was ended" if self._was_left else f"was ended by {_name_of(os.WTERMSIG(status))}"
            return f"atomic: the screen {why}"
        if os.environ.get("ATOMIC_DEBUG", "") not in ("", "0"):
            return said.rstrip()
        if os.WEXITSTATUS(status) != 1:
            return ""
        last = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("NOTE")]
        return f"atomic: the screen failed: {last[-1] if last else 'it did not say why'} (ATOMIC_DEBUG=1 shows where)"

    def _exit_code(self, status: int) -> int:
        if self._number:
            return SIGNALLED + self._number
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        if self._was_left:
            return SIGNALLED + signal.SIGINT
        return SIGNALLED + os.WTERMSIG(status) if os.WTERMSIG(status) in _FORWARDED else 1


def _wake(number: int, frame: FrameType | None) -> None:
    """That there is a handler is enough."""


def how_to_go_on(last_word: str | None, ways: dict[str, str]) -> list[str]:
    """The engine's last word if it had one, else what the screen knew."""
    if last_word is not None:
        return last_word.splitlines()
    return [text for text in ways.values() if text]


def tell(text: str) -> None:
    """Write to standard error what a terminal only shows."""
    try:
        os.write(2, harmless(text).encode("utf-8", "replace"))
    except OSError:
        return  # nobody listens


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text_of(said: int) -> str:
    """The end of what was written to a file."""
    size = os.fstat(said).st_size
    return os.pread(said, _MOST_SHOWN, max(0, size - _MOST_SHOWN)).decode("utf-8", "replace")
