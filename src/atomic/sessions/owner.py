"""Who owns a run, and whether that process is still there.

A process that has gone is noticed at once; one that hangs is noticed when it no longer renews its lease.
Wall clocks are set and jump, so ages are measured with the clock of the boot wherever both sides share one.
"""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from typing import Any

import msgspec

RENEW_SECONDS = 5.0
STALE_SECONDS = 15.0

# Two readings of one clock on two processors may differ a little.
_CLOCK_SLACK = 1.0


class Owner(msgspec.Struct, frozen=True):
    """A process that holds a run, with the times of its last sign of life; the order is that of the columns."""

    host: str
    boot: str  # empty where the system does not tell
    space: str  # process ids mean something inside one namespace only
    pid: int
    born: str  # a pid is used again; pid and birth together are not
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
        """Read the columns of a run; None where nobody owns it. Raises ValueError where they make no sense."""
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
        """Whether the owner may still write: its process exists and renewed its lease in time."""
        me = Owner.this_process("")
        same_host, same_boot = self.host == me.host, self.boot == me.boot
        if same_host and not same_boot and self.boot and me.boot:
            return False  # the machine was started again, nothing of that time is left
        if same_boot and (self.boot or same_host) and self.space == me.space and not _exists(self.pid, self.born):
            return False
        if same_boot and self.boot:
            # A time to come is no time of this boot: then the file does not say the truth.
            return -_CLOCK_SLACK <= me.ticked - self.ticked <= STALE_SECONDS
        return me.renewed - self.renewed <= STALE_SECONDS

    def is_this_process(self) -> bool:
        me = Owner.this_process("")
        return (self.host, self.boot, self.space, self.pid, self.born) == (me.host, me.boot, me.space, me.pid, me.born)


@lru_cache(maxsize=1)  # a process keeps it; a child of it has another id
def _identity(pid: int) -> tuple[str, str, str]:
    """What tells this process from others: the boot, its namespace, its birth."""
    return _text_of("/proc/sys/kernel/random/boot_id"), _namespace(), _born(pid) or ""


def clocks() -> tuple[float, float]:
    """Now, by the clock of this boot (it goes on while the machine sleeps) and by the one on the wall."""
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
        return True  # somebody else's and hidden from us, but there it is: the lease decides
    except (ProcessLookupError, OverflowError):
        return False
    # Dead but not yet collected by its parent; or there is no /proc, and the lease decides.
    return not os.path.exists("/proc/self/stat")


def _born(pid: int) -> str | None:
    """When a process began, in ticks of this boot; None if it is not there, or dead and only not yet collected."""
    text = _text_of(f"/proc/{pid}/stat")
    # The name of the program stands in parentheses and may contain blanks and parentheses itself.
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
    """A text that tells this process from every other, of any machine and at any time."""
    me = Owner.this_process("")
    return "|".join((me.host, me.boot, me.space, me.born))


def is_running(pid: int, mark: str) -> bool:
    """Whether the process is still there; one that cannot be seen from here is taken to be."""
    if not mark:
        return _exists(pid, _born(pid) or "")  # its number is all that is known
    me = Owner.this_process("")
    host, boot, space, born = (*mark.split("|"), "", "", "", "")[:4]
    if host == me.host and boot and me.boot and boot != me.boot:
        return False  # the machine was started again
    if (boot, space) != (me.boot, me.space):
        return True
    return _exists(pid, born)
