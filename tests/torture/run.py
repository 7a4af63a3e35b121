"""Kill a workflow at random moments until it is done, and count what breaks.

    python tests/torture/run.py --runs 200 --seed 7

Each run is a child process that is killed with SIGKILL one to three times and resumed until
it ends. The report counts kills, resumes, lost results, recorded steps that ran again and
wrong final states; the last three must be zero.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from atomic.workflows import RunStatus, SqliteJournal
from tests.torture.reference import Ledger, expected, make_tasks, reference_graph

RUN_ID = "run"
PATIENCE = 60.0  # a child that takes longer than this hangs


@dataclass
class Tally:
    """Counts over all runs; the last four must stay zero."""

    runs: int = 0
    kills: int = 0
    resumes: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: int = 0
    crashed: int = 0

    def add(self, other: Tally) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def clean(self) -> bool:
        return not (self.lost or self.repeated or self.wrong or self.crashed)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.kills} kills, {self.resumes} resumes: {self.lost} lost results, "
            f"{self.repeated} recorded steps that ran again, {self.wrong} wrong final states, {self.crashed} crashes"
        )


class Case:
    """One run of the reference workflow, and the facts that are visible from outside."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.run_dir = folder / "run"
        self.ledger_dir = folder / "ledger"
        self.run_dir.mkdir()
        self.ledger_dir.mkdir()
        self.journal = self.run_dir / "journal.db"
        self.ledger = self.ledger_dir / "ledger.txt"
        self.seed = seed
        self.tasks = self.run_dir / "tasks.json"
        make_tasks(self.tasks, seed)
        self.recorded: set[str] = set()
        self.tally = Tally(runs=1)

    def start(self) -> int:
        """Start or resume the run in a child process."""
        pid = os.fork()
        if pid:
            return pid
        try:
            asyncio.run(self.work())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    async def work(self) -> None:
        compiled = reference_graph(Ledger(self.ledger))
        with SqliteJournal(self.journal) as journal:
            if any(run.execution_id == RUN_ID for run in journal.list()):
                result = await compiled.resume(journal, RUN_ID)
            else:
                result = await compiled.run({"tasks_path": str(self.tasks)}, journal=journal, execution_id=RUN_ID)
            while result.status is RunStatus.PAUSED:
                answers = {question.id: "yes" for question in result.questions}
                result = await compiled.resume(journal, RUN_ID, answers=answers)
            if result.status is not RunStatus.COMPLETED:
                raise RuntimeError(f"{result.status}: {result.error}")

    def check(self) -> None:
        """Compare the journal with its earlier content, and the ledger with the journal."""
        now = self._recorded_now()
        self.tally.lost += len(self.recorded - now)
        self.recorded |= now

    def _recorded_now(self) -> set[str]:
        if not self.journal.exists():
            return set()
        with SqliteJournal(self.journal) as journal:
            if not any(run.execution_id == RUN_ID for run in journal.list()):
                return set()
            return {record.step_id for record in journal.records(RUN_ID)}

    def mark(self) -> int:
        """Return the size of the ledger; no recorded step may begin after it."""
        return self.ledger.stat().st_size if self.ledger.exists() else 0

    def count_repeated(self, mark: int, recorded: set[str]) -> None:
        with self.ledger.open() as lines:
            lines.seek(mark)
            begun = [line.split()[1] for line in lines if line.startswith("start ")]
        self.tally.repeated += sum(step_id in recorded for step_id in begun)

    def check_end(self) -> None:
        with SqliteJournal(self.journal) as journal:
            compiled = reference_graph(Ledger(self.ledger))
            state = compiled.load(journal, RUN_ID)
            status = next(run.status for run in journal.list() if run.execution_id == RUN_ID)
        found = {name: getattr(state, name) for name in expected("")}
        if found != expected(str(self.tasks)) or status != "completed":
            self.tally.wrong += 1
            print(f"wrong final state: {status} {found}", file=sys.stderr)
        self.check_attempts()

    def check_attempts(self) -> None:
        """Check that the attempts of each step count up: 1, 2, 3."""
        attempts: dict[str, list[int]] = {}
        for line in self.ledger.read_text().splitlines():
            word, step_id, attempt = line.split()
            if word == "start":
                attempts.setdefault(step_id, []).append(int(attempt))
        for step_id, numbers in attempts.items():
            if any(later <= earlier for earlier, later in pairwise(numbers)):
                self.tally.wrong += 1
                print(f"attempts of {step_id} do not count up: {numbers}", file=sys.stderr)


def run_case(kind: type[Case], usual: float, seed: int) -> Tally:
    """Run one case with one to three kills."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="atomic-torture-") as folder:
        case = kind(Path(folder), seed)
        for delay in [choose.uniform(0, usual) for _ in range(choose.randint(1, 3))]:
            if not run_and_kill(case, delay):
                break
        run_and_kill(case, None)
        case.check_end()
        return case.tally


def run_and_kill(case: Case, delay: float | None) -> bool:
    """Start the run, kill it after `delay`, check it. Return False if it ended by itself."""
    mark = case.mark()
    recorded = set(case.recorded)
    if recorded:
        case.tally.resumes += 1
    pid = case.start()
    killed = False
    if delay is not None:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    killed = wait_for(pid, case)
    case.tally.kills += killed
    if case.ledger.exists():
        case.count_repeated(mark, recorded)
    case.check()
    return killed


def wait_for(pid: int, case: Case) -> bool:
    """Return whether the child was killed; count a hang or a failure as a crash."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if os.WIFSIGNALED(status):
                return True
            case.tally.crashed += os.WEXITSTATUS(status) != 0
            return False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    case.tally.crashed += 1
    print("a child hung and was killed", file=sys.stderr)
    return False


def usual_seconds(kind: type[Case], seed: int) -> float:
    """Measure an undisturbed run, to spread the kills over its whole duration."""
    with tempfile.TemporaryDirectory(prefix="atomic-torture-") as folder:
        case = kind(Path(folder), seed)
        begin = time.monotonic()
        run_and_kill(case, None)
        case.check_end()
        if not case.tally.clean:
            raise SystemExit(f"an undisturbed run is not clean: {case.tally}")
        return time.monotonic() - begin


def torture(runs: int, seed: int, *, jobs: int = 2, report: bool = False, kind: type[Case] = Case) -> Tally:
    """Run all cases; a seed determines the kills, as far as timing allows."""
    usual = usual_seconds(kind, seed)
    total = Tally()
    with ProcessPoolExecutor(jobs) as pool:
        for done, tally in enumerate(pool.map(partial(run_case, kind, usual), seeds(runs, seed)), 1):
            total.add(tally)
            if report and done % 50 == 0:
                print(f"  {total}", flush=True)
    return total


def seeds(runs: int, seed: int) -> Iterator[int]:
    yield from (seed * 1_000_003 + number for number in range(runs))


def main(kind: type[Case] = Case) -> int:
    parser = argparse.ArgumentParser(description="Kill a workflow at random instants and count what that broke.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    begin = time.monotonic()
    total = torture(options.runs, options.seed, jobs=options.jobs, report=True, kind=kind)
    print(f"{total}\nseed {options.seed}, {time.monotonic() - begin:.0f} s")
    return 0 if total.clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
