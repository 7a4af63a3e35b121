"""Gates: the commands that say whether work is good. The engine runs them, outside of the agents.

They run one at a time, without anybody's credentials, on the files as they are. A gate that failed before the run began
does not block until it has passed once.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from atomic.processes import ExecTimeoutError, execute
from atomic.sessions.facts import Facts
from atomic.workflows.project_gate import Gate
from atomic.workflows.ralph.evidence import GateResult

TAIL = 8 * 1024  # bytes of what a gate says that are kept
FACT = "gates.json"
KILLED = -9  # the exit code of a gate that took too long
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR")


# Running --------------------------------------------------------------------------------------------------------------


class _Run(msgspec.Struct, frozen=True):
    """How one run of a gate ended."""

    exit_code: int
    seconds: float
    timed_out: bool
    output_sha256: str
    output_tail: str

    def result(self, command: str, *, baseline: int | None, blocking: bool, flaky: bool) -> GateResult:
        said = self.output_sha256, self.output_tail
        return GateResult(command, self.exit_code, self.seconds, self.timed_out, *said, baseline, blocking, flaky)


class _Output:
    """Hears all that a gate says and keeps its hash and its end."""

    def __init__(self) -> None:
        self.hash = sha256()
        self._tail = bytearray()
        self._is_cut = False

    def hear(self, data: bytes) -> None:
        self.hash.update(data)
        self._tail += data
        if len(self._tail) > 2 * TAIL:
            self._cut()

    def tail(self) -> str:
        if len(self._tail) > TAIL:
            self._cut()
        data = bytes(self._tail)
        if self._is_cut:  # the first line may lack its beginning
            data = data.partition(b"\n")[2] or data
        return readable(data)

    def _cut(self) -> None:
        del self._tail[:-TAIL]
        self._is_cut = True


_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title, a link
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # a colour, a move
    r"|\x1b[ -/]*[0-~]?"
)
# What a terminal would obey, and what turns the direction of writing; not the tab and the new line.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def readable(data: bytes) -> str:
    """What a program said as text for people: nothing of it moves a cursor, colours or hides anything."""
    text = _SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\ufffd", text)


_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def _one_at_a_time() -> asyncio.Lock:
    """The lock of all gates of this process: two would use the same ports, files and processors."""
    return _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


async def _run(command: str, cwd: Path, timeout: float) -> _Run:
    """Run a gate once. Raises ExecError if it cannot be started, because the folder is gone."""
    output, began = _Output(), monotonic()
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        done = await execute("sh", "-c", command, cwd=cwd, env=environment, timeout=timeout, hear=output.hear)
        exit_code, timed_out = done.exit_code, False
    except ExecTimeoutError:
        exit_code, timed_out = KILLED, True
    seconds = round(monotonic() - began, 3)
    return _Run(exit_code, seconds, timed_out, output.hash.hexdigest(), output.tail())


async def _run_twice(command: str, cwd: Path, timeout: float) -> tuple[_Run, bool]:
    """Run a gate, and once more if it fails; what it said last, and whether it is flaky."""
    first = await _run(command, cwd, timeout)
    if first.exit_code == 0 or first.timed_out:
        return first, False
    second = await _run(command, cwd, timeout)
    return second, second.exit_code == 0


# The session's book ---------------------------------------------------------------------------------------------------


class _Pages(msgspec.Struct, frozen=True):
    """What the fact holds."""

    gates: Sequence[Gate] = ()
    baseline: Mapping[str, int] = {}  # exit codes before the first change, by command
    passed_once: Sequence[str] = ()


class GateBook:
    """The gates of a session, how they were before the first change, and which have passed since."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts  # a report only reads them

    @property
    def gates(self) -> Sequence[Gate]:
        return self._read().gates

    @property
    def baseline(self) -> Mapping[str, int]:
        """Exit codes before the first change, by command."""
        return self._read().baseline

    @property
    def passed_once(self) -> set[str]:
        return set(self._read().passed_once)

    def choose(self, gates: Iterable[Gate]) -> None:
        """Set the gates of the session; a command counts once. What is known of them stays."""
        unique: dict[str, Gate] = {}
        for gate in gates:
            unique.setdefault(gate.command, gate)
        self._write(msgspec.structs.replace(self._read(), gates=tuple(unique.values())))

    def is_blocking(self, command: str) -> bool:
        """Whether the gate's failure is one of the work: it passed before the first change, or since."""
        pages = self._read()
        return pages.baseline.get(command, 0) == 0 or command in pages.passed_once

    async def take_baseline(self, cwd: Path, timeout: float) -> None:
        """Run each gate once. What is known already stays: after a resume the files are not as they were."""
        for gate in self.gates:
            async with _one_at_a_time():
                if gate.command not in self.baseline:
                    run = await _run(gate.command, cwd, timeout)
                    pages = self._read()
                    baseline = {**pages.baseline, gate.command: run.exit_code}
                    self._write(msgspec.structs.replace(pages, baseline=baseline))

    async def check(self, cwd: Path, timeout: float) -> list[GateResult]:
        """Run all gates. One that fails, but not by taking too long, is run once more on the same files."""
        return [await self._check(gate.command, cwd, timeout) for gate in self.gates]

    async def _check(self, command: str, cwd: Path, timeout: float) -> GateResult:
        async with _one_at_a_time():
            run, flaky = await _run_twice(command, cwd, timeout)
        if run.exit_code == 0:
            self._note_pass(command)
        return run.result(command, baseline=self.baseline.get(command), blocking=self.is_blocking(command), flaky=flaky)

    def _note_pass(self, command: str) -> None:
        pages = self._read()
        if command not in pages.passed_once:
            self._write(msgspec.structs.replace(pages, passed_once=(*pages.passed_once, command)))

    def _read(self) -> _Pages:
        # Each time anew: parallel tasks have books of their own on the same facts.
        return msgspec.convert(self._facts.get(FACT, {}), _Pages)

    def _write(self, pages: _Pages) -> None:
        assert isinstance(self._facts, Facts)
        self._facts.set(FACT, pages)
