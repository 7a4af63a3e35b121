"""The process that owns a run, whether it still exists, and the renewal of its leases.

A dead process is noticed at once, a hanging one when it no longer renews its lease.
Wall clocks jump, so ages are measured with the clock of the boot if both processes
share it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from atomic.sessions.durability import LogKeeper

RENEW_SECONDS = 5.0
STALE_SECONDS = 15.0
# The longest time that a caller waits for the end of the thread that renews leases.
_LOCK_SECONDS = 1.0

# Two readings of one clock on two processors may differ a little.
_CLOCK_SLACK = 1.0


class Owner(msgspec.Struct, frozen=True):
    """A process that owns a run, with the times of its last renewal.

    In the order of the columns.

    boot: empty if the system has no boot id
    space: the namespace in which the pid is valid
    born: the start time of the process, because a pid is reused
    """

    host: str
    boot: str
    space: str
    pid: int
    born: str
    token: str
    ticked: float
    renewed: float

    @classmethod
    def this_process(cls, token: str) -> Owner:
        ticked, renewed = clocks()
        pid = os.getpid()
        boot, space, born = _identity(pid)
        return cls(
            host=os.uname().nodename, boot=boot, space=space, pid=pid, born=born, token=token,
            ticked=ticked, renewed=renewed,
        )  # fmt: skip

    @classmethod
    def from_columns(cls, columns: tuple[Any, ...]) -> Owner | None:
        """Return the owner from the columns of a run; None if it has none.

        Raises ValueError for bad columns.
        """
        if all(column is None for column in columns):
            return None
        expected = (str, str, str, int, str, str, float, float)
        if any(type(column) is not kind for column, kind in zip(columns, expected, strict=True)):
            raise ValueError("its owner cannot be read")
        return cls(*columns)

    @property
    def columns(self) -> tuple[str | int | float, ...]:
        return (self.host, self.boot, self.space, self.pid, self.born, self.token, self.ticked, self.renewed)

    def is_alive(self) -> bool:
        """Return whether the owner may still write: its process exists and renewed its
        lease in time.
        """
        me = Owner.this_process("")
        same_host = self.host == me.host
        same_boot = self.boot == me.boot
        if same_host and not same_boot and self.boot and me.boot:
            return False  # the machine was rebooted
        if same_boot and (self.boot or same_host) and self.space == me.space and not _exists(self.pid, self.born):
            return False
        if same_boot and self.boot:
            # A time in the future is not of this boot, so the file is wrong.
            return -_CLOCK_SLACK <= me.ticked - self.ticked <= STALE_SECONDS
        return me.renewed - self.renewed <= STALE_SECONDS

    def is_this_process(self) -> bool:
        me = Owner.this_process("")
        return (self.host, self.boot, self.space, self.pid, self.born) == (me.host, me.boot, me.space, me.pid, me.born)


@lru_cache(maxsize=1)  # constant in a process; a forked child has another pid
def _identity(pid: int) -> tuple[str, str, str]:
    """Return what identifies this process: the boot, its pid namespace, its start time."""
    return _text_of("/proc/sys/kernel/random/boot_id"), _namespace(), _born(pid) or ""


def clocks() -> tuple[float, float]:
    """Return the time of the boot clock, which includes suspend, and of the wall clock."""
    now = time.time()
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME), now
    return now, now


def _exists(pid: int, born: str) -> bool:
    if pid <= 0:
        return False
    found = _born(pid)
    if found is not None:
        return found == born
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # of another user; the lease decides
    except (ProcessLookupError, OverflowError):
        return False
    # A zombie; or there is no /proc, and the lease decides.
    return not os.path.exists("/proc/self/stat")


def _born(pid: int) -> str | None:
    """Return the start time of a process in ticks of this boot.

    None if it is gone or a zombie.
    """
    text = _text_of(f"/proc/{pid}/stat")
    # The program name is in parentheses and may itself contain blanks and parentheses.
    fields = text[text.rfind(")") + 1 :].split()
    if len(fields) < 20 or fields[0] in "ZXx":
        return None
    return fields[19]


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def mark_of_this_process() -> str:
    """Return a text that identifies this process among all machines and times."""
    me = Owner.this_process("")
    return "|".join((me.host, me.boot, me.space, me.born))


def is_running(pid: int, mark: str) -> bool:
    """Return whether a process still exists.

    One that cannot be seen from here counts as existing.
    """
    if not mark:
        return _exists(pid, _born(pid) or "")  # only its pid is known
    me = Owner.this_process("")
    host, boot, space, born = (*mark.split("|"), "", "", "", "")[:4]
    if host == me.host and boot and me.boot and boot != me.boot:
        return False  # the machine was rebooted
    if (boot, space) != (me.boot, me.space):
        return True
    return _exists(pid, born)


class Leases:
    """Renews the leases of the added runs of one journal, in a thread.

    A thread and not a task, because a node that blocks the event loop for a minute must
    not lose the run.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._runs: dict[int, int] = {}
        # Only the thread writes this, and only callers write `_runs`, so no lock is
        # needed.
        self._fenced: set[tuple[int, int]] = set()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def add(self, number: int, fence: int) -> None:
        self._runs[number] = fence
        self.resume()

    def remove(self, number: int) -> None:
        self._runs.pop(number, None)
        if not self._runs:
            self.pause()

    def pause(self) -> None:
        """End the thread and close its connection; the runs are remembered."""
        thread = self._thread
        self._thread = None
        if thread is not None:
            self._stopped.set()
            # The garbage collector may call this in the thread itself.
            if thread is not threading.current_thread():
                thread.join()

    def resume(self) -> None:
        if self._runs and self._thread is None:
            self._stopped = threading.Event()
            self._thread = threading.Thread(
                target=self._renew_until, args=(self._stopped,), name="atomic-leases", daemon=True
            )
            self._thread.start()

    def _renew_until(self, stopped: threading.Event) -> None:
        from atomic.sessions.durability import LogKeeper

        keeper = LogKeeper(self._path)
        while not stopped.wait(RENEW_SECONDS):
            self._renew(keeper)

    def _renew(self, keeper: LogKeeper) -> None:
        from atomic.sessions.durability import SQLITE_ERRORS, connect

        # A failure does not end the run: the next renewal tries again, and the fence
        # protects the file.
        try:
            connection = connect(self._path, seconds=_LOCK_SECONDS)
        except SQLITE_ERRORS:
            return
        try:
            # A lease need not survive a power cut: it belongs to this boot.
            connection.executescript("PRAGMA synchronous=NORMAL; BEGIN IMMEDIATE;")
            for number, fence in set(self._runs.items()) - self._fenced:
                sql = "UPDATE runs SET ticked = ?, renewed = ? WHERE number = ? AND fence = ?"
                if connection.execute(sql, (*clocks(), number, fence)).rowcount == 0:
                    # Another process took it over.
                    self._fenced.add((number, fence))
            connection.execute("COMMIT")
            # A run may wait for days while only leases are written.
            keeper.wrote(connection)
        except SQLITE_ERRORS:
            pass
        finally:
            connection.close()
