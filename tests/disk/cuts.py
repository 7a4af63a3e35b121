"""Cut the power at many points of a traced run and open the journal that is left.

The ledger decides which rows were promised. When a step starts, the records of all
steps before it must be safe. When a caller learns that the run is paused or completed,
the whole run must be safe.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from atomic.graph.engine.journal import Row, RowKind, StepBody, decode_body, step_id_of
from atomic.tasks import TaskList, TaskStatus
from atomic.workflows import AtomicError, MemoryJournal, RunStatus, SqliteJournal
from tests.disk.cases import Case, Place, Rows, read_rows
from tests.disk.disk import Disk, Fate, Image, relative, write_image
from tests.disk.order import ledger_lines, statuses_in, task_of
from tests.disk.workflow import RUN_ID, DiskState, all_steps, disk_graph, make_tasks, needs, run_to_the_end

# The number of operations before the cut, in order, and the fate of unsynced data.
Places = Iterable[tuple[int, Fate]]


@dataclass(frozen=True, slots=True)
class Cut:
    """The remaining files of a run, and how many rows its journal must have."""

    at: int
    fate: Fate
    image: Image
    promised: int


@dataclass(slots=True)
class Tally:
    """Counts over all cuts; `problems` must stay empty."""

    cuts: int = 0
    fates: Counter[str] = field(default_factory=Counter[str])
    promised: int = 0  # rows, over all cuts
    unpromised: int = 0  # rows that survived without a promise
    recovered: int = 0  # torn journals that were repaired
    from_nothing: int = 0  # cuts before the first row
    steps_run: int = 0  # after cuts
    # Steps that had begun before the cut and begin as attempt 1 again.
    forgotten: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(self.fates.items()))
        return (
            f"{self.cuts} power cuts ({fates}), {len(self.problems)} problems: {self.promised} promised rows and "
            f"{self.unpromised} others found, {self.recovered} torn journals recovered, {self.from_nothing} runs "
            f"restarted, {self.steps_run} steps run after cuts, {len(self.forgotten)} of them with a forgotten attempt"
        )


def cuts(case: Case, places: Places, seed: int, *, promised: int = 0) -> Iterator[Cut]:
    """Yield images of the disk at these places.

    `promised` is the number of rows that were promised before the trace began.
    """
    choose = Random(seed)
    disk = Disk(case.trace)
    done = 0
    promised_at = promises(case, promised)
    for at, fate in places:
        for op in case.trace.ops[done:at]:
            disk.do(op)
        done = at
        image = relative(disk.image(fate, choose), case.place.run)
        yield Cut(at, fate, _with_random_index(image, fate, choose), promised_at[at])


def _with_random_index(image: Image, fate: Fate, choose: Random) -> Image:
    """Replace SQLite's index of the log, which is never synced, by arbitrary bytes."""
    kept: Image = {}
    for path, content in image.items():
        if not path.endswith("-shm"):
            kept[path] = content
        elif fate is Fate.TORN:
            kept[path] = choose.randbytes(choose.choice((0, 100, 32768)))
    return kept


def promises(case: Case, at_first: int) -> list[int]:
    """Return how many rows are promised after each number of operations."""
    rows_of, ends = _row_numbers(case.rows)
    ends = [number for number in ends if number > at_first]
    waits_for = needs()
    promised = [at_first] * (len(case.trace.ops) + 1)
    for words, at in ledger_lines(case.trace, str(case.place.ledger)):
        if words[0] == "start":
            rows = max((rows_of[before] for before in waits_for[words[1]]), default=1)
        else:
            rows = ends.pop(0)
        for place in range(at + 1, len(promised)):
            promised[place] = max(promised[place], rows)
    return promised


def _row_numbers(rows: Rows) -> tuple[dict[str, int], list[int]]:
    """Return the row that finished each step and the rows that ended the run, from 1."""
    steps: dict[str, int] = {}
    ends: list[int] = []
    for number, (_, kind, step, body, _) in enumerate(rows, 1):
        if kind == RowKind.STEP:
            found = decode_body(Row(kind, step, body), StepBody)
            steps[step_id_of(RUN_ID, found.node_id, found.n)] = number
        elif kind == RowKind.ENDED:
            ends.append(number)
    return steps, ends


def values_of(state: DiskState) -> dict[str, Any]:
    """Return the state without its clock."""
    return {name: getattr(state, name) for name in ("prompt", "marks", "texts", "rounds", "outputs")}


def expected_values(folder: Path) -> dict[str, Any]:
    """Return the final values of an undisturbed run that uses no disk."""
    make_tasks(folder / "tasks.json")
    compiled = disk_graph(folder / "tasks.json", lambda step_id, attempt: None)
    result = asyncio.run(run_to_the_end(compiled, MemoryJournal(), lambda status: None))
    assert result.status is RunStatus.COMPLETED
    return values_of(result.state)


class Checker:
    """Opens the files that a cut left, and resumes the run."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.tally = Tally()
        self._case = case
        self._folder = folder
        self._expected = expected_values(folder)

    def check(self, cut: Cut) -> None:
        place = Place(self._folder / "cut", self._case.place.inner)
        place.run.mkdir(parents=True)
        write_image(cut.image, place.run)
        self.tally.cuts += 1
        self.tally.fates[cut.fate.value] += 1
        try:
            self._read_tasks(cut, place)
            self._open(cut, place)
        except (AssertionError, AtomicError, ValueError) as error:  # ValueError: invalid JSON
            self.tally.problems.append(f"cut after {cut.at} operations, the rest {cut.fate}: {error}")
        shutil.rmtree(place.base)

    def _read_tasks(self, cut: Cut, place: Place) -> None:
        """Check that the task list shows every worker that had begun."""
        statuses = statuses_in(place.tasks.read_bytes())
        for step, _ in self._begun_before(cut):
            if (task := task_of(step)) is not None:
                assert statuses[task] != "pending", f"the list of tasks does not know that {task} was begun"

    def _open(self, cut: Cut, place: Place) -> None:
        with SqliteJournal(place.journal) as journal:
            rows = read_rows(place.journal)
            assert rows == self._case.rows[: len(rows)], "the rows are not a prefix of the written ones"
            assert len(rows) >= cut.promised, f"{cut.promised - len(rows)} of {cut.promised} promised rows are lost"
            self.tally.promised += cut.promised
            self.tally.unpromised += len(rows) - cut.promised
            self.tally.recovered += journal.recovered is not None
            self.tally.from_nothing += not rows
            recorded = {record.step_id for record in journal.records(RUN_ID)} if rows else set[str]()
            self._resume(cut, place, journal, recorded)

    def _resume(self, cut: Cut, place: Place, journal: SqliteJournal, recorded: set[str]) -> None:
        begun: dict[str, int] = {}

        def witness(step_id: str, attempt: int) -> None:
            assert step_id not in begun, f"{step_id} ran twice"
            begun[step_id] = attempt

        compiled = disk_graph(place.tasks, witness)
        result = asyncio.run(run_to_the_end(compiled, journal, lambda status: None))
        assert result.status is RunStatus.COMPLETED, f"the run is {result.status}: {result.error}"
        assert values_of(result.state) == self._expected, "the final state is wrong"
        assert not recorded & begun.keys(), f"recorded steps ran again: {sorted(recorded & begun.keys())}"
        finished = [record.step_id for record in journal.records(RUN_ID)]
        assert sorted(finished) == sorted(all_steps()), "the records are not one complete run"
        left = [task.id for task in TaskList.read(place.tasks).tasks if task.status is not TaskStatus.COMPLETED]
        assert not left, f"the list of tasks does not know that {', '.join(left)} are done"
        self.tally.steps_run += len(begun)
        before = [step for step, attempt in self._begun_before(cut) if begun.get(step, attempt + 1) <= attempt]
        self.tally.forgotten += [f"{step}, cut after {cut.at} operations" for step in before]

    def _begun_before(self, cut: Cut) -> Iterator[tuple[str, int]]:
        for words, at in ledger_lines(self._case.trace, str(self._case.place.ledger)):
            if words[0] == "start" and at < cut.at:
                yield words[1], int(words[2])


def check_all(case: Case, places: Places, seed: int = 0, *, promised: int = 0) -> Tally:
    with temporary_folder() as folder:
        checker = Checker(case, folder)
        for cut in cuts(case, places, seed, promised=promised):
            checker.check(cut)
        return checker.tally


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Yield a folder in memory if possible: the checks sync thousands of files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name).resolve()


def some_places(last: int, number: int, seed: int) -> list[tuple[int, Fate]]:
    """Return cuts from the first to the last operation; half of them tear sectors."""
    choose = Random(seed)
    fates = [Fate.DROPPED, Fate.KEPT, Fate.TORN, Fate.TORN]
    return [(last * index // (number - 1), choose.choice(fates)) for index in range(number)]


def all_places(last: int, *, every: int = 1, torn: int = 1) -> list[tuple[int, Fate]]:
    """Return every place, with unsynced data dropped, kept, and torn `torn` times."""
    fates = [Fate.DROPPED, Fate.KEPT, *[Fate.TORN] * torn]
    return [(at, fate) for at in range(0, last + 1, every) for fate in fates]
