"""Cut the power at many places of a traced run, and see what the journal makes of the disk that is left.

What counts as promised is decided by the ledger: a step that started had been told that all before it is safe, and so
had whoever was told that the run is paused or completed.
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

Places = Iterable[tuple[int, Fate]]  # after how many operations, in order, and what becomes of the rest


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of the run's folder, and how many rows the journal in it must have."""

    at: int
    fate: Fate
    image: Image
    promised: int


@dataclass(slots=True)
class Tally:
    """What the cuts did; `problems` must stay empty."""

    cuts: int = 0
    fates: Counter[str] = field(default_factory=Counter[str])
    promised: int = 0  # rows, over all cuts
    unpromised: int = 0  # rows that survived although nobody had been told
    recovered: int = 0  # journals that were found torn and were repaired
    from_nothing: int = 0  # cuts before the run was recorded at all
    steps_run: int = 0  # after cuts
    forgotten: list[str] = field(default_factory=list[str])  # steps that had begun before and begin as attempt 1 again
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(self.fates.items()))
        return (
            f"{self.cuts} power cuts ({fates}), {len(self.problems)} problems: {self.promised} promised rows and "
            f"{self.unpromised} others found, {self.recovered} torn journals recovered, {self.from_nothing} runs begun "
            f"anew, {self.steps_run} steps run after cuts, {len(self.forgotten)} of them without knowing that they had "
            "begun before"
        )


def cuts(case: Case, places: Places, seed: int, *, promised: int = 0) -> Iterator[Cut]:
    """Images of the disk at these places. So many rows were promised before the trace began."""
    choose, disk, done = Random(seed), Disk(case.trace), 0
    promised_at = promises(case, promised)
    for at, fate in places:
        for op in case.trace.ops[done:at]:
            disk.do(op)
        done = at
        image = relative(disk.image(fate, choose), case.place.run)
        yield Cut(at, fate, _with_any_index(image, fate, choose), promised_at[at])


def _with_any_index(image: Image, fate: Fate, choose: Random) -> Image:
    """SQLite's index of the log is written through memory and never synced: after a cut it may hold anything."""
    kept: Image = {}
    for path, content in image.items():
        if not path.endswith("-shm"):
            kept[path] = content
        elif fate is Fate.TORN:
            kept[path] = choose.randbytes(choose.choice((0, 100, 32768)))
    return kept


def promises(case: Case, at_first: int) -> list[int]:
    """For each number of operations, how many rows somebody relies on."""
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
    """Which row, counted from 1, finished each step, and which ones said how the run ended."""
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
    """The state without its clock."""
    return {name: getattr(state, name) for name in ("prompt", "marks", "texts", "rounds", "outputs")}


def expected_values(folder: Path) -> dict[str, Any]:
    """What an undisturbed run without any disk ends with."""
    make_tasks(folder / "tasks.json")
    compiled = disk_graph(folder / "tasks.json", lambda step_id, attempt: None)
    result = asyncio.run(run_to_the_end(compiled, MemoryJournal(), lambda status: None))
    assert result.status is RunStatus.COMPLETED
    return values_of(result.state)


class Checker:
    """Opens what a cut has left, and lets the run go on."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.tally = Tally()
        self._case, self._folder = case, folder
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
        except (AssertionError, AtomicError, ValueError) as error:  # ValueError: a list of tasks that is no JSON
            self.tally.problems.append(f"cut after {cut.at} operations, the rest {cut.fate}: {error}")
        shutil.rmtree(place.base)

    def _read_tasks(self, cut: Cut, place: Place) -> None:
        """A worker that had begun was told that the list says so."""
        statuses = statuses_in(place.tasks.read_bytes())
        for step, _ in self._begun_before(cut):
            if (task := task_of(step)) is not None:
                assert statuses[task] != "pending", f"the list of tasks does not know that {task} was begun"

    def _open(self, cut: Cut, place: Place) -> None:
        with SqliteJournal(place.journal) as journal:
            rows = read_rows(place.journal)
            assert rows == self._case.rows[: len(rows)], "the rows are no prefix of what was written"
            assert len(rows) >= cut.promised, f"{cut.promised - len(rows)} of {cut.promised} promised rows are lost"
            self.tally.promised += cut.promised
            self.tally.unpromised += len(rows) - cut.promised
            self.tally.recovered += journal.recovered is not None
            self.tally.from_nothing += not rows
            recorded = {record.step_id for record in journal.records(RUN_ID)} if rows else set[str]()
            self._go_on(cut, place, journal, recorded)

    def _go_on(self, cut: Cut, place: Place, journal: SqliteJournal, recorded: set[str]) -> None:
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
        assert sorted(finished) == sorted(all_steps()), "the record is not that of one whole run"
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
    with workshop() as folder:
        checker = Checker(case, folder)
        for cut in cuts(case, places, seed, promised=promised):
            checker.check(cut)
        return checker.tally


@contextmanager
def workshop() -> Generator[Path]:
    """A folder in memory where there is one: thousands of files are synced, and nobody pulls this plug."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name).resolve()


def some_places(last: int, number: int, seed: int) -> list[tuple[int, Fate]]:
    """Places spread from the first to the last operation; what is torn is the hardest, so there is most of it."""
    choose = Random(seed)
    fates = [Fate.DROPPED, Fate.KEPT, Fate.TORN, Fate.TORN]
    return [(last * index // (number - 1), choose.choice(fates)) for index in range(number)]


def all_places(last: int, *, every: int = 1, torn: int = 1) -> list[tuple[int, Fate]]:
    """Every place, with what was not synced dropped, kept, and torn in so many ways."""
    fates = [Fate.DROPPED, Fate.KEPT, *[Fate.TORN] * torn]
    return [(at, fate) for at in range(0, last + 1, every) for fate in fates]
