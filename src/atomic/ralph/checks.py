"""Checks: the commands that decide whether work is good. Atomic runs them itself.

The checks of one commit run one at a time; those of several workers run at once. They
get no credentials. A check blocks a task if it has passed once, before the run or
since. At the end of a run all checks must pass, except those that the user ignores.
Stored data and `atomic.loading` call a check a gate.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from atomic.loading.project_check import CheckCommand
from atomic.processes import ExecTimeoutError, execute, new_mark
from atomic.providers.environment import CHECK_VARIABLES, child_environment
from atomic.ralph import files_above
from atomic.ralph.evidence import CheckResult
from atomic.ralph.test_results import RunnerResults, read_results
from atomic.sessions.facts import Facts
from atomic.workspaces import View

TAIL = 8 * 1024  # bytes of a check's output that are kept
MAX_READ = 4 * 1024 * 1024  # bytes of an output in which results of tests are looked for
FACT = "gates.json"
KILLED = -9  # the exit code of a check that took too long
NOT_EXECUTABLE = 126  # exit code of sh
NOT_FOUND = 127  # exit code of sh
SIGNAL = 128  # exit codes of sh above it name the signal that ended a program
NOT_COUNTED = 125  # in place of the exit code, as `git bisect run` reads it


class _Output:
    """The hash and the end of a check's output, and the results of tests in it."""

    def __init__(self) -> None:
        self.hash = sha256()
        self._tail = bytearray()
        self._is_cut = False
        self._whole: bytearray | None = bytearray()

    def add(self, data: bytes) -> None:
        self.hash.update(data)
        if self._whole is not None:
            self._whole += data
            if len(self._whole) > MAX_READ:
                self._whole = None
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

    def results(self) -> RunnerResults | None:
        """Return the results of tests; None if the output is not that of a known runner."""
        return None if self._whole is None else read_results(self._whole.decode("utf-8", "replace"))

    def _cut(self) -> None:
        del self._tail[:-TAIL]
        self._is_cut = True


_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title, a link
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # a colour, a move
    r"|\x1b[ -/]*[0-~]?"
)
# Control characters and changes of the writing direction, except tab and new line.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def readable(data: bytes) -> str:
    """Return a program's output as text, without control characters."""
    text = _SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\ufffd", text)


class _Slots:
    """Lets checks run at the same time, or one alone.

    Two checks in one checkout would use the same files. In workspaces they may still
    use the same ports, so one that fails is run again alone.
    """

    def __init__(self) -> None:
        self._running = 0
        self._is_alone = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, *, alone: bool) -> AsyncGenerator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_alone and not (alone and self._running))
            self._running += 1
            self._is_alone = alone
        try:
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._is_alone = False
                self._changed.notify_all()


_all_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = WeakKeyDictionary()


def _slots() -> _Slots:
    """Return the slots of all checks of this process."""
    return _all_slots.setdefault(asyncio.get_running_loop(), _Slots())


async def _run(command: str, cwd: Path, timeout: float, passed: Sequence[str], view: View | None) -> CheckResult:
    """Run a check once.

    Raises ExecError if it cannot be started, because the folder is gone.

    It gets the user's environment without secrets, and the secrets that `passed` names.
    The caller completes the result: it knows the baseline, and whether a failure
    blocks.
    """
    output = _Output()
    began = monotonic()
    mark = new_mark()
    environment = child_environment(passed=passed, extra={**CHECK_VARIABLES, **mark})
    words = ("sh", "-c", command)
    try:
        if view is None:
            done = await execute(*words, cwd=cwd, env=environment, timeout=timeout, on_output=output.add, mark=mark)
        else:
            place = view.path_of(cwd)
            environment = {**environment, "PWD": str(place)}
            done = await view.run(*words, cwd=place, env=environment, timeout=timeout, on_output=output.add)
        exit_code = done.exit_code
        timed_out = False
    except ExecTimeoutError:
        exit_code = KILLED
        timed_out = True
    seconds = round(monotonic() - began, 3)
    digest = output.hash.hexdigest()
    tests = None if timed_out else await asyncio.to_thread(output.results)
    return CheckResult(command, exit_code, seconds, timed_out, digest, output.tail(), None, blocking=False, tests=tests)


def ended_by_itself(result: CheckResult) -> bool:
    """Return whether a check failed without a signal and within its time."""
    is_signal = result.exit_code < 0 or result.exit_code > SIGNAL  # of the shell, or of a program that it ran
    return result.exit_code != 0 and not result.timed_out and not is_signal


def _explain_steered(paths: Sequence[str], exit_code: int) -> str:
    named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return (
        f"This result does not count (exit code {exit_code}): {named}, above the project, is not as it was when the run"
        " began, and decides what checks do. Put it back as it was, or remove it if it is new. If it has to stay,"
        " start a new run."
    )


class _Record(msgspec.Struct, frozen=True):
    """The fact `gates.json`."""

    chosen: Sequence[CheckCommand] = msgspec.field(default=(), name="gates")
    baseline: Mapping[str, int] = {}  # exit codes before the first change, by command
    passed_once: Sequence[str] = ()
    ignored: Sequence[str] = ()  # red before the run, and the user ignores them
    late: Sequence[str] = ()  # chosen after the start, without a baseline
    leftovers: Sequence[str] = ()  # files that the checks write
    deleted: Sequence[str] = ()  # committed files that the checks have deleted
    refused: Sequence[str] = ()  # checks of a project that the user has not approved
    tests: Mapping[str, RunnerResults] = {}  # by command: the tests before the first change
    tolerant: Sequence[str] = ()  # checks whose tests that failed before the run may fail


class CheckHistory:
    """The checks of a session, their results before the first change, and which have
    passed since.
    """

    def __init__(self, facts: Mapping[str, Any], variables: Sequence[str] = ()) -> None:
        self._facts = facts  # a report only reads them
        self._variables = variables  # passed to checks although they look like secrets

    @property
    def chosen(self) -> Sequence[CheckCommand]:
        return self._read().chosen

    @property
    def commands(self) -> list[str]:
        return [check.command for check in self.chosen]

    @property
    def baseline(self) -> Mapping[str, int]:
        """Return the exit codes before the first change, by command."""
        return self._read().baseline

    @property
    def passed_once(self) -> set[str]:
        return set(self._read().passed_once)

    def choose(self, checks: Iterable[CheckCommand]) -> None:
        """Set the checks of the session; a command counts once. Their results stay."""
        unique: dict[str, CheckCommand] = {}
        for check in checks:
            unique.setdefault(check.command, check)
        self._write(msgspec.structs.replace(self._read(), chosen=tuple(unique.values())))

    def is_blocking(self, command: str) -> bool:
        """Return whether a failure of the check blocks a task: it passed before the
        first change, or since.
        """
        record = self._read()
        if command in record.passed_once or command in record.tolerant:
            return True
        return command not in record.late and record.baseline.get(command, 0) == 0

    def must_pass(self, command: str) -> bool:
        """Return whether the run is done only if this check is green at the end."""
        return command not in self._read().ignored or self.is_blocking(command)

    @property
    def ignored(self) -> Sequence[str]:
        """Return the checks that were red before the run, that the user ignores, and
        that have not passed since.
        """
        return [command for command in self._read().ignored if not self.is_blocking(command)]

    def ignore(self, commands: Iterable[str]) -> None:
        """Ignore these checks until they pass once."""
        self._write(msgspec.structs.replace(self._read(), ignored=tuple(commands)))

    @property
    def tests_before(self) -> Mapping[str, RunnerResults]:
        """Return the tests of each check before the first change, where they are known."""
        return self._read().tests

    @property
    def tolerant(self) -> Sequence[str]:
        """Return the checks that may fail as before the run: with the same exit code, and
        only the same tests.
        """
        return [command for command in self._read().tolerant if command not in self._read().passed_once]

    def tolerate(self, commands: Iterable[str]) -> None:
        """Let the tests of these checks fail that failed before the run."""
        self._write(msgspec.structs.replace(self._read(), tolerant=tuple(commands)))

    def _is_tolerated(self, result: CheckResult) -> bool:
        """Return whether a check ended as before the run, and the failures that can be read
        are all known: at least one test, and targets of make.
        """
        before = self.tests_before.get(result.command)
        tests = result.tests
        if before is None or tests is None or result.command not in self.tolerant:
            return False
        if result.exit_code != self.baseline.get(result.command) or not ended_by_itself(result):
            return False
        if tests.runner != before.runner or not tests.failed or not {*tests.failed} <= {*before.failed}:
            return False
        return before.failed_targets is None or {*(tests.failed_targets or ())} <= {*before.failed_targets}

    @property
    def leftovers(self) -> Sequence[str]:
        """Return the files that the checks write."""
        return self._read().leftovers

    def note_leftovers(self, paths: Iterable[str]) -> None:
        record = self._read()
        if new := {*paths}.difference(record.leftovers):
            self._write(msgspec.structs.replace(record, leftovers=tuple(sorted(new.union(record.leftovers)))))

    @property
    def deleted(self) -> Sequence[str]:
        """Return the committed files that checks have deleted."""
        return self._read().deleted

    def note_deleted(self, paths: Iterable[str]) -> None:
        record = self._read()
        if new := {*paths}.difference(record.deleted):
            self._write(msgspec.structs.replace(record, deleted=tuple(sorted(new.union(record.deleted)))))

    @property
    def late(self) -> Sequence[str]:
        """Return the checks that were chosen after the start."""
        return self._read().late

    @property
    def is_learning(self) -> bool:
        """Return whether a check without a baseline has not passed yet: the files that
        it writes are not known.
        """
        record = self._read()
        return any(command not in record.passed_once for command in record.late)

    @property
    def refused(self) -> Sequence[str]:
        """Return the checks that were found later and are not run, because the project
        is not approved.
        """
        return self._read().refused

    def refuse(self, command: str) -> bool:
        """Record a check that is not run. Return whether that is new."""
        record = self._read()
        if command in record.refused:
            return False
        self._write(msgspec.structs.replace(record, refused=(*record.refused, command)))
        return True

    def add_late(self, check: CheckCommand) -> None:
        """Choose a check after the start: it blocks tasks after its first pass, and
        must be green at the end.
        """
        record = self._read()
        chosen = (*record.chosen, check)
        self._write(msgspec.structs.replace(record, chosen=chosen, late=(*record.late, check.command)))

    async def take_baseline(
        self, cwd: Path, timeout: float, *, again: bool = False, view: View | None = None
    ) -> list[CheckResult]:
        """Run each check once, before anything has changed, and return the results.

        Known results stay, because files may have changed before a resume. `again`:
        nothing has changed yet, so red checks are run once more.
        """
        results: list[CheckResult] = []
        for command in self.commands:
            async with _slots().take(alone=True):
                known = self.baseline.get(command)
                if known == 0 or (known is not None and not again):
                    continue
                result = await _run(command, cwd, timeout, self._variables, view)
                record = self._read()
                baseline = {**record.baseline, command: result.exit_code}
                tests = record.tests if result.tests is None else {**record.tests, command: result.tests}
                self._write(msgspec.structs.replace(record, baseline=baseline, tests=tests))
                results.append(msgspec.structs.replace(result, baseline_exit_code=result.exit_code))
        return results

    def forget_baseline(self) -> None:
        """Let `take_baseline` run all checks: the run begins with other files."""
        self._write(msgspec.structs.replace(self._read(), baseline={}, tests={}, tolerant=()))

    async def note_files_above(self, places: Sequence[Path]) -> None:
        """Record the files above the project that decide what checks do."""
        assert isinstance(self._facts, Facts)
        self._facts.set(files_above.FACT, await asyncio.to_thread(files_above.find_files_above, places))

    async def _changed_above(self, view: View | None) -> list[str]:
        found = self._facts.get(files_above.FACT)
        if found is None:  # the run began with an older version
            return []
        start = msgspec.convert(found, files_above.FilesAbove)
        return await asyncio.to_thread(files_above.changed_since, start, [] if view is None else [view.root])

    async def _run(self, command: str, cwd: Path, timeout: float, view: View | None) -> CheckResult:
        """Run a check once. It does not count if a file above the project has changed."""
        changed = {*await self._changed_above(view)}
        result = await _run(command, cwd, timeout, self._variables, view)
        changed.update(await self._changed_above(view))
        if not changed:
            return result
        tail = f"{_explain_steered(sorted(changed), result.exit_code)}\n\n{result.output_tail}"
        return msgspec.structs.replace(
            result, exit_code=NOT_COUNTED, steered=tuple(sorted(changed)), output_tail=tail, tests=None
        )

    async def check(self, cwd: Path, timeout: float, *, view: View | None = None) -> list[CheckResult]:
        """Run all checks.

        One that fails, but did not time out, is run once more on the same files.
        """
        return [await self._check(command, cwd, timeout, view) for command in self.commands]

    async def check_once(self, cwd: Path, timeout: float, view: View) -> list[CheckResult]:
        """Run all checks for information: nothing is recorded."""
        results: list[CheckResult] = []
        for command in self.commands:
            async with _slots().take(alone=False):
                result = await self._run(command, cwd, timeout, view)
            results.append(msgspec.structs.replace(result, baseline_exit_code=self.baseline.get(command)))
        return results

    async def _check(self, command: str, cwd: Path, timeout: float, view: View | None) -> CheckResult:
        is_flaky = False
        async with _slots().take(alone=view is None):
            result = await self._run(command, cwd, timeout, view)
        is_final = result.exit_code == 0 or result.timed_out or result.steered
        if not is_final and not self._is_tolerated(result):
            async with _slots().take(alone=True):
                result = await self._run(command, cwd, timeout, view)
            is_flaky = result.exit_code == 0
        record = self._read()
        if result.exit_code == 0 and command not in record.passed_once:
            self._write(msgspec.structs.replace(record, passed_once=(*record.passed_once, command)))
        return msgspec.structs.replace(
            result,
            baseline_exit_code=record.baseline.get(command),
            blocking=self.is_blocking(command),
            flaky=is_flaky,
            tolerated=self._is_tolerated(result),
        )

    def _read(self) -> _Record:
        # Read each time: parallel tasks have their own objects on the same facts.
        return msgspec.convert(self._facts.get(FACT, {}), _Record)

    def _write(self, record: _Record) -> None:
        assert isinstance(self._facts, Facts)
        self._facts.set(FACT, record)
