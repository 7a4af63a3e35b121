"""A program in a new terminal window, for tests that type and read the screen.

Closing the window ends all its processes.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from tests.support.emulator import Emulator
from tests.support.processes import kill
from tests.support.waits import HANG

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


def terminal_environment(home: Path) -> dict[str, str]:
    """Return the environment of a terminal, with the code under test and these tests."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


class Window:
    """A terminal window: its keyboard, its screen and its processes."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path,
        columns: int = 80,
        rows: int = 24,
        background: str = "1e1e/1e1e/1e1e",
        answers: bool = True,
        ahead: bytes = b"",
    ) -> None:
        self.emulator = Emulator(columns, rows, background)
        self.log = bytearray()
        # The time of each read, and the length of the log after it.
        self.arrivals: list[tuple[float, int]] = []
        self._answers = answers
        self._changed = threading.Condition()
        self._is_closed = False
        self._keyboard, self._screen = os.openpty()
        self._size(columns, rows)
        self.before: list[Any] = termios.tcgetattr(self._screen)
        if ahead:
            os.write(self._keyboard, ahead)
        self.began = perf_counter()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **env},
            cwd=cwd, stdin=self._screen, stdout=self._screen, stderr=self._screen, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, text: str | bytes) -> None:
        os.write(self._keyboard, text.encode() if isinstance(text, str) else text)

    def resize(self, columns: int, rows: int) -> None:
        with self._changed:
            self.emulator.resize(columns, rows)
        self._size(columns, rows)

    def hang_up(self) -> None:
        """Close the terminal, as when the user closes the window."""
        self._stop_reading()
        os.close(self._keyboard)
        self._keyboard = -1

    @property
    def text(self) -> str:
        with self._changed:
            return self.emulator.text

    @property
    def lines(self) -> list[str]:
        with self._changed:
            return self.emulator.lines

    def shows(self, words: str, *, timeout: float = HANG) -> float:
        """Wait until a line of the screen has `words`; return the time."""
        return self.wait(lambda: self.emulator.has(words), f"{words!r} on the screen", timeout)

    def lacks(self, words: str, *, timeout: float = HANG) -> float:
        """Wait until no line of the screen has `words`; return the time."""
        return self.wait(lambda: not self.emulator.has(words), f"{words!r} to go", timeout)

    def wait(self, condition: Callable[[], object], what: str, timeout: float = HANG) -> float:
        """Wait until `condition` is true and return when the last bytes arrived."""
        end = monotonic() + timeout
        with self._changed:
            while not condition():
                left = end - monotonic()
                if left <= 0:
                    raise AssertionError(f"no {what} after {timeout} s:\n{self.emulator.text}")
                # A program can end without a last byte.
                self._changed.wait(min(left, 0.2))
            return self.arrivals[-1][0] if self.arrivals else self.began

    def exit_code(self, *, timeout: float = HANG) -> int:
        """Wait for the end of the program and its output; return its exit code."""
        code = self.process.wait(timeout)
        self._drain()
        return code

    def children(self) -> list[int]:
        """Return the process ids of the program and its descendants."""
        return tree(self.process.pid)

    def terminal_attributes(self) -> list[Any]:
        return termios.tcgetattr(self._screen)

    def unread(self) -> int:
        """Return the number of bytes that the next program would read."""
        buffer = bytearray(4)
        fcntl.ioctl(self._screen, termios.FIONREAD, buffer)
        return struct.unpack("i", buffer)[0]

    def modes_left(self) -> set[int]:
        """Return the terminal modes that differ from the start."""
        return self.emulator.modes ^ {7, 25}

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for pid in {*tree(self.process.pid), *_of_session(self.process.pid)}:
            kill(pid)
        self.process.wait()
        self._stop_reading()
        for number in (self._keyboard, self._screen):
            if number >= 0:
                os.close(number)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        while not self._is_closed:
            if not select.select([self._keyboard], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self._keyboard, 64 * 1024)
            except OSError:
                return
            self._take(data, perf_counter())

    def _take(self, data: bytes, now: float) -> None:
        with self._changed:
            self.log += data
            self.arrivals.append((now, len(self.log)))
            self.emulator.feed(data)
            answers, self.emulator.answers = self.emulator.answers, b""
            if answers and self._answers:
                os.write(self._keyboard, answers)
            self._changed.notify_all()

    def _drain(self) -> None:
        """Wait until the reader has read all output."""
        self.wait(lambda: not select.select([self._keyboard], [], [], 0)[0], "end of output")

    def _stop_reading(self) -> None:
        self._is_closed = True
        self._reader.join(5)


@contextmanager
def window(command: Sequence[str | Path], **options: Any) -> Generator[Window]:
    """Open a window, and close it with all its processes on exit."""
    one = Window(command, **options)
    try:
        yield one
    finally:
        one.close()


def tree(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    found: list[int] = []
    todo = [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                todo += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            found.remove(one)
    return found


def _of_session(leader: int) -> list[int]:
    """Return the processes of a session, including those without a parent."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _stat(pid, 3) == leader]


def _stat(pid: int, field: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the user and system time of processes and of their reaped children."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
