"""Checks, which the code calls gates: the commands that say whether work is good. Atomic runs them itself.

They run one at a time, without anybody's credentials, on the files as they are. A check holds up a task if it has
passed once, before the run or since. At the end of a run all must pass but those that the user said to ignore.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from atomic.processes import ExecTimeoutError, execute, new_mark
from atomic.providers.environment import child_environment
from atomic.sessions.facts import Facts
from atomic.workflows.project_gate import Gate
from atomic.workflows.ralph.evidence import GateResult

TAIL = 8 * 1024  # bytes of what a gate says that are kept
FACT = "gates.json"
KILLED = -9  # the exit code of a gate that took too long
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit codes of sh
# No caches of Python that could hide a change, and none of the packages that agents may have installed for the user.
_EXTRA = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}


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


async def _run(command: str, cwd: Path, timeout: float, passed: Sequence[str]) -> _Run:
    """Run a check once. Raises ExecError if it cannot be started, because the folder is gone.

    It gets the user's variables but for secrets, and those secrets that `passed` names.
    """
    output, began, mark = _Output(), monotonic(), new_mark()
    environment = child_environment(passed=passed, extra={**_EXTRA, **mark})
    try:
        done = await execute(
            "sh", "-c", command, cwd=cwd, env=environment, timeout=timeout, hear=output.hear, mark=mark
        )
        exit_code, timed_out = done.exit_code, False
    except ExecTimeoutError:
        exit_code, timed_out = KILLED, True
    seconds = round(monotonic() - began, 3)
    return _Run(exit_code, seconds, timed_out, output.hash.hexdigest(), output.tail())


async def _run_twice(command: str, cwd: Path, timeout: float, passed: Sequence[str]) -> tuple[_Run, bool]:
    """Run a check, and once more if it fails; what it said last, and whether it is flaky."""
    first = await _run(command, cwd, timeout, passed)
    if first.exit_code == 0 or first.timed_out:
        return first, False
    second = await _run(command, cwd, timeout, passed)
    return second, second.exit_code == 0


# The session's book ---------------------------------------------------------------------------------------------------


class _Pages(msgspec.Struct, frozen=True):
    """What the fact holds."""

    gates: Sequence[Gate] = ()
    baseline: Mapping[str, int] = {}  # exit codes before the first change, by command
    passed_once: Sequence[str] = ()
    ignored: Sequence[str] = ()  # red before the run, and the user said not to count them
    late: Sequence[str] = ()  # chosen after the start: there is no baseline of them
    leftovers: Sequence[str] = ()  # files that the checks write, seen while nobody worked
    refused: Sequence[str] = ()  # checks of the project that nobody has approved


class GateBook:
    """The checks of a session, how they were before the first change, and which have passed since."""

    def __init__(self, facts: Mapping[str, Any], variables: Sequence[str] = ()) -> None:
        self._facts = facts  # a report only reads them
        self._variables = variables  # that checks get though they look like secrets

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
        """Whether the check's failure holds up a task: it passed before the first change, or since."""
        pages = self._read()
        if command in pages.passed_once:
            return True
        return command not in pages.late and pages.baseline.get(command, 0) == 0

    def must_pass(self, command: str) -> bool:
        """Whether the run is done only if this check is green at the end."""
        return command not in self._read().ignored or self.is_blocking(command)

    @property
    def ignored(self) -> Sequence[str]:
        """The checks that were red before the run, that the user said to ignore, and that have not passed since."""
        return [command for command in self._read().ignored if not self.is_blocking(command)]

    def ignore(self, commands: Iterable[str]) -> None:
        """Do not count these checks unless they pass once."""
        self._write(msgspec.structs.replace(self._read(), ignored=tuple(commands)))

    @property
    def leftovers(self) -> Sequence[str]:
        """Files that the checks write."""
        return self._read().leftovers

    def note_leftovers(self, paths: Iterable[str]) -> None:
        pages = self._read()
        if new := {*paths}.difference(pages.leftovers):
            self._write(msgspec.structs.replace(pages, leftovers=tuple(sorted(new.union(pages.leftovers)))))

    @property
    def late(self) -> Sequence[str]:
        """Checks that were chosen after the start."""
        return self._read().late

    @property
    def is_learning(self) -> bool:
        """Whether there is a check without a baseline that has not passed yet: what it writes is not known."""
        pages = self._read()
        return any(command not in pages.passed_once for command in pages.late)

    @property
    def refused(self) -> Sequence[str]:
        """Checks that were found later and are not run, because nobody has approved the project."""
        return self._read().refused

    def refuse(self, command: str) -> bool:
        """Note a check that is not run; whether that is new."""
        pages = self._read()
        if command in pages.refused:
            return False
        self._write(msgspec.structs.replace(pages, refused=(*pages.refused, command)))
        return True

    def add_late(self, gate: Gate) -> None:
        """Choose a check after the start: it holds up tasks from its first pass on, and must be green at the end."""
        pages = self._read()
        gates, late = (*pages.gates, gate), (*pages.late, gate.command)
        self._write(msgspec.structs.replace(pages, gates=gates, late=late))

    async def take_baseline(self, cwd: Path, timeout: float, *, again: bool = False) -> list[GateResult]:
        """Run each check once, before anything has changed; those that are red.

        What is known already stays: after a resume the files are not as they were. `again`: nothing has changed yet,
        and those that were red are run once more.
        """
        red: list[GateResult] = []
        for gate in self.gates:
            async with _one_at_a_time():
                known = self.baseline.get(gate.command)
                if known == 0 or (known is not None and not again):
                    continue
                run = await _run(gate.command, cwd, timeout, self._variables)
                pages = self._read()
                baseline = {**pages.baseline, gate.command: run.exit_code}
                self._write(msgspec.structs.replace(pages, baseline=baseline))
                if run.exit_code != 0:
                    red.append(run.result(gate.command, baseline=run.exit_code, blocking=False, flaky=False))
        return red

    async def check(self, cwd: Path, timeout: float) -> list[GateResult]:
        """Run all gates. One that fails, but not by taking too long, is run once more on the same files."""
        return [await self._check(gate.command, cwd, timeout) for gate in self.gates]

    async def _check(self, command: str, cwd: Path, timeout: float) -> GateResult:
        async with _one_at_a_time():
            run, flaky = await _run_twice(command, cwd, timeout, self._variables)
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
