"""Watch the screen: restore the terminal however it ends, and print how to resume.

The screen is a child process, forked before any thread starts. Two pipes connect them.
The screen sends reports on one. Nothing is sent on the other; its end tells the screen
that the supervisor died. Standard error of the screen goes to an unnamed file, so that
it cannot disturb the display, and is printed afterwards.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from time import monotonic
from types import FrameType

from atomic.base.errors import ExitCode, signal_name
from atomic.base.terminal import harmless
from atomic.tui.terminal import Terminal

GRACE = 4.0  # seconds for the screen to end in order after a signal
GRACE_TO_PAUSE = 9.0  # seconds for a screen that confirmed the signal: it pauses its workflows first
AT_ONCE = 1.0  # seconds after Ctrl+C twice until the screen is killed
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_SPLIT = "\x1e"  # replaces line ends inside a report
_MOST_SHOWN = 16 * 1024


class Report:
    """Reports from the screen to its supervisor: short lines that outlive it.

    Thread-safe.
    """

    def __init__(self, out: int, supervisor: int) -> None:
        self._out = out
        self.supervisor = supervisor  # readable once the supervisor has died
        self.ways: dict[str, str] = {}
        self.last_word: str | None = None
        self.has_left = False
        self.is_orphan = False  # the supervisor was killed

    def shown(self, is_shown: bool) -> None:
        """Report whether the terminal has our modes."""
        self.has_left = not is_shown
        self._say("shown" if is_shown else "left")

    def leave(self) -> None:
        """Report Ctrl+C twice: the screen must end within a second."""
        self._say("leave")

    def ends(self) -> None:
        """Confirm a signal: the screen ends in order."""
        self._say("ends")

    def way(self, key: str, text: str) -> None:
        """Report how to resume something.

        An empty text means that there is nothing to resume.
        """
        if self.ways.get(key, "") != text:
            self.ways[key] = text
            self._say("way", key, text)

    def last(self, text: str) -> None:
        """Report the engine's final message, which replaces the resume hints."""
        self.last_word = text
        self._say("last", text)

    def _say(self, *words: str) -> None:
        line = "\t".join(word.replace("\t", " ").replace("\n", _SPLIT) for word in words)
        try:
            os.write(self._out, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            return  # the supervisor has died


Work = Callable[[Report], int]  # runs the screen in the child and returns its exit code


def supervise(terminal: Terminal, screen: Work) -> int:
    """Run the screen in a child process until it ends and return the exit code."""
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
    """Run the screen and exit. Never returns: the stack belongs to the supervisor."""
    code: int = ExitCode.FAILED
    try:
        code = screen(report)
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else ExitCode.FAILED
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(code)


def _file_without_name() -> int:
    """Return a file descriptor in memory if the system can, or of a deleted file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("atomic-screen")
    import tempfile

    number, name = tempfile.mkstemp()
    os.unlink(name)
    return number


class Supervisor:
    """Waits for one screen. Has no timer unless the screen is about to end."""

    def __init__(self, pid: int, reports: int) -> None:
        self.has_left = False  # the screen has restored the terminal itself
        self.ways: dict[str, str] = {}
        self.last_word: str | None = None
        self._pid = pid
        self._reports = reports
        self._number = 0  # the signal that ended the screen
        self._was_left = False  # by Ctrl+C twice
        self._deadline: float | None = None
        self._unread = b""
        os.set_blocking(reports, False)

    def wait(self) -> int:
        """Wait until the screen has ended and return its waitpid status."""
        woken = self._hear_signals()
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._reports, select.POLLIN)
        while True:
            patience = None
            if self._deadline is not None:
                patience = max(0, int((self._deadline - monotonic()) * 1000) + 1)
            ready = dict(poll.poll(patience))
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
        """Return a descriptor that is readable after each signal, so that poll wakes
        up.
        """
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it only has to exist
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
                signal.signal(number, self._forward)
        return woken

    def _forward(self, number: int, frame: FrameType | None) -> None:
        """Forward a signal to the screen. It is killed if it does not end in time."""
        self._number = self._number or number
        self._deadline = self._deadline or monotonic() + GRACE
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return

    def _look(self) -> int | None:
        """Return the status of the screen if it has ended.

        If the screen suspended itself, stop this process too, because the shell waits
        for it.
        """
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
        """Process the reports. Return False if there will be no more."""
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
                pass  # a partial line from a screen that was killed

    def conclude(self, status: int, said: int) -> int:
        """Print what happened and how to resume, and return the exit code."""
        size = os.fstat(said).st_size
        text = os.pread(said, _MOST_SHOWN, max(0, size - _MOST_SHOWN)).decode("utf-8", "replace")
        lines = [self._trouble(status, text), *resume_hints(self.last_word, self.ways)]
        tell("".join(f"{line}\n" for line in lines if line))
        return self._exit_code(status)

    def _trouble(self, status: int, said: str) -> str:
        """Return the problem in one line, or all captured output if ATOMIC_DEBUG is
        set.
        """
        if self._number:
            return ""
        if os.WIFSIGNALED(status):
            why = (
                "did not answer and was ended" if self._was_left else f"was ended by {signal_name(os.WTERMSIG(status))}"
            )
            return f"atomic: the screen {why}"
        if os.environ.get("ATOMIC_DEBUG", "") not in ("", "0"):
            return said.rstrip()
        if os.WEXITSTATUS(status) != ExitCode.FAILED:
            return ""
        last = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("NOTE")]
        return f"atomic: the screen failed: {last[-1] if last else 'it did not say why'} (ATOMIC_DEBUG=1 shows where)"

    def _exit_code(self, status: int) -> int:
        if self._number:
            return ExitCode.SIGNALLED + self._number
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        if self._was_left:
            return ExitCode.SIGNALLED + signal.SIGINT
        if os.WTERMSIG(status) in SIGNALS:
            return ExitCode.SIGNALLED + os.WTERMSIG(status)
        return ExitCode.FAILED


def resume_hints(last_word: str | None, ways: dict[str, str]) -> list[str]:
    """Return the engine's final message if there is one, otherwise the known resume
    hints.
    """
    if last_word is not None:
        return last_word.splitlines()
    return [text for text in ways.values() if text]


def tell(text: str) -> None:
    """Write cleaned text to standard error."""
    try:
        os.write(2, harmless(text).encode("utf-8", "replace"))
    except OSError:
        return  # standard error is closed
