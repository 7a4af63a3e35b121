"""Kill Ralph, its agents or both at random moments, and count what breaks.

    python tests/torture/ralph.py --runs 200 --seed 7 --isolate overlay

Each case is `atomic run ralph` with six workers in its own repository. It is killed with
SIGKILL one to three times, at a random time or when it does a certain thing, and resumed until
the run ends. With `--isolate none` all workers share the checkout. The counts come from
outside: the agents' ledger, the run's folder, the repository, the checkout and the processes.
All of them except kills, resumes and stalls must be zero.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

import atomic
from tests.support.checkouts import checkout_state
from tests.torture.acp_agent import GATE, PAUSE
from tests.torture.ralph_facts import (
    PLANNED,
    PLANNED_IN_WORKSPACES,
    Known,
    Ledger,
    Orphans,
    agents,
    evidence,
    family,
    left_folders,
    lost_work,
    masked,
    number_of,
    processes_in,
    record_of,
    session_in,
    statuses,
)

AGENT = Path(__file__).with_name("acp_agent.py")
SOURCE = Path(atomic.__file__).parents[1]
GOAL = "Write the parts, each in a file of its own."
FLAGS = ("--workers", "6", "--max-iterations", "0", "--agent", "acp:torture", "--verify", GATE)
KINDS = ("overlay", "clone", "none")
PATIENCE = 900.0  # seconds; a process that takes longer hangs
ORPHANED = 10.0  # seconds until the last child of a killed process must be dead
MOST_LIVES = 12

Victim = Literal["atomic", "agent", "both"]
VICTIMS: tuple[Victim, ...] = ("atomic", "agent", "both")
# Files and folders that exist for a moment, below the folder of the case. They show what
# Atomic does; the number says how many of them a kill waits for.
_SPACES = "home/.atomic/workspaces"
SIGHTS: Mapping[str, tuple[str, int]] = {
    "self-test": (f"{_SPACES}/atomic-test-*", 1),
    "set-up": (f"{_SPACES}/*/base.unfinished", 1),
    "workspace": (f"{_SPACES}/*/task-*/exchange", 10),
    "check": (f"{_SPACES}/*/temporary/check-*/owner", 10),
    "rebase": (f"{_SPACES}/*/temporary/merge-*/owner", 5),
    "parking": (f"{_SPACES}/*/task-*/exchange/out.bundle*", 10),
    "parked": ("project/.git/refs/atomic/*/*/*", 10),
    "branch": ("project/.git/refs/heads/atomic/*", 1),
    "landed": ("project/.git/refs/atomic/*/*/*-merged", 5),
}


@dataclass(frozen=True)
class Kill:
    """Who is killed when: at a part of the usual time, or when the n-th sight is there."""

    moment: float
    victim: Victim
    sight: str = ""
    number: int = 1


@dataclass
class Tally:
    """Counts over all runs; those after `stalls` must stay zero."""

    runs: int = 0
    kills: int = 0
    resumes: int = 0
    stalls: int = 0  # ends with a request for the user, after repeated kills of agents
    lost: int = 0
    repeated: int = 0
    orphans: int = 0
    wrong_ends: int = 0
    wrong_reports: int = 0
    touched: int = 0  # files of the user's checkout
    left: int = 0  # folders of workspaces

    def add(self, other: Tally) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def clean(self) -> bool:
        return not any(getattr(self, name) for name in _MUST_BE_ZERO)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.kills} kills, {self.resumes} resumes, {self.stalls} stalls: {self.lost} lost, "
            f"{self.repeated} repeated, {self.orphans} orphans, {self.wrong_ends} wrong ends, "
            f"{self.wrong_reports} wrong reports, {self.touched} touched, {self.left} left behind"
        )


_MUST_BE_ZERO = ("lost", "repeated", "orphans", "wrong_ends", "wrong_reports", "touched", "left")


class Stage:
    """A home folder, a repository, and the agents' ledger outside of both."""

    def __init__(self, folder: Path, *, pause: float = PAUSE, isolate: str = "none") -> None:
        self.folder = folder
        self.isolate = isolate
        self.home = folder / "home"
        self.project = folder / "project"
        self.atomic_home = self.home / ".atomic"
        for made in (self.atomic_home, self.project, folder / "ledger"):
            made.mkdir(parents=True)
        self.ledger = Ledger(folder / "ledger" / "turns.jsonl")
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-I", "-S", str(AGENT), str(self.ledger.path), str(pause)]
        if self.is_isolated:
            command.append("--drafts")
        (self.atomic_home / "config.toml").write_text(
            f"[acp.torture]\ncommand = {msgspec.json.encode(command).decode()}\n"
        )
        self._make_repository()

    @property
    def is_isolated(self) -> bool:
        return self.isolate != "none"

    @property
    def planned(self) -> frozenset[str]:
        return PLANNED_IN_WORKSPACES if self.is_isolated else PLANNED

    @property
    def commit(self) -> str:
        """Return the name of the last commit of the run."""
        session = self.session
        return f"atomic/{session.name[:8]}" if self.is_isolated and session is not None else "HEAD"

    def _make_repository(self) -> None:
        (self.project / "README.md").write_text("Parts.\n")
        self.git("init", "--quiet", "--initial-branch=main")
        with (self.project / ".git" / "config").open("a") as config:
            config.write(
                "[user]\n\tname = T\n\temail = t@example.com\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
            )
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Begin")
        if self.is_isolated:
            (self.project / "draft.txt").write_text("The user's own, not committed.\n")
            (self.project / "README.md").write_text("Parts, and the user's own change.\n")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.project, env=self.env, check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    @property
    def session(self) -> Path | None:
        return session_in(self.atomic_home)

    def next_command(self) -> list[str]:
        session = self.session
        words = ["run", "ralph", *FLAGS, "--isolate", self.isolate, "--json", GOAL]
        if session is not None:
            words = ["resume", session.name, "--json"]
        return [sys.executable, "-m", "atomic", *words]


class Life:
    """One process of the run, from its start until it ends or is killed."""

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage = stage
        self.mark = stage.ledger.mark
        self.known = Known.of(stage.session)
        self._out = stage.folder / f"out-{number}.jsonl"
        self._err = stage.folder / f"err-{number}.txt"
        self.is_killed = False
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                stage.next_command(), cwd=stage.project, env=stage.env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def runs_until(self, folder: Path, sight: str, number: int) -> bool:
        """Wait until so many files were seen; return False if the process ends first."""
        seen: set[Path] = set()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(FileNotFoundError):  # a folder was removed meanwhile
                seen.update(folder.glob(sight))
            if len(seen) >= number:
                return True
            time.sleep(0.001)
        return False

    def runs_for(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.is_killed = True

    @property
    def last_event(self) -> Mapping[str, Any]:
        lines = self._out.read_bytes().splitlines()
        return msgspec.json.decode(lines[-1]) if lines else {}

    @property
    def complaint(self) -> str:
        return f"{self.last_event.get('message', '')}\n{self._err.read_text()[-2000:]}".strip()


class Case:
    """One run, its kills, and the facts about it that are visible from outside."""

    def __init__(self, folder: Path, seed: int, isolate: str, reference: str | None) -> None:
        self.stage = Stage(folder, isolate=isolate)
        self._before = checkout_state(self.stage.project)
        self.seed = seed
        self._reference = reference
        self.tally = Tally(runs=1)
        self.orphans = Orphans(ORPHANED)
        self._lives = 0
        self._agents_killed = 0
        self._unheard: set[int] = set()  # agents whose answers Atomic may have missed

    def complain(self, *words: object) -> None:
        print(f"seed {self.seed}:", *words, file=sys.stderr, flush=True)

    # Processes of the run

    def begin_life(self) -> Life:
        life = Life(self.stage, self._lives)
        self._lives += 1
        self.tally.resumes += "resume" in life.process.args  # pyright: ignore[reportOperatorIssue]  # a list here
        return life

    def play(self, kills: Sequence[Kill], usual: float) -> None:
        """Run through all kills, then until the run ends."""
        life = self.begin_life()
        for kill in kills:
            left = 1 - len(life.known.completed) / (len(self.stage.planned) + 1)
            if kill.sight:
                is_alive = life.runs_until(self.stage.folder, SIGHTS[kill.sight][0], kill.number)
            else:
                is_alive = life.runs_for(kill.moment * usual * max(left, 0.25))
            if not is_alive:
                break
            self._strike(life, kill.victim)
            if life.is_killed:
                self._check_turns(life)
                life = self.begin_life()
        while not self._wait_for_end(life):
            life = self.begin_life()

    def _strike(self, life: Life, victim: Victim) -> None:
        if victim != "atomic" and (agent := self._find_agent(life)):
            self._agents_killed += 1
            self._unheard.add(number_of(agent))
            self.tally.kills += victim == "agent"
            os.kill(agent, signal.SIGKILL)
        if victim != "agent":
            self.orphans.expect_end_of(family(self.stage.home, life.process.pid))
            self.orphans.expect_end_of(processes_in(self.stage.folder))
            self.tally.kills += life.process.poll() is None
            life.kill()
            # On a busy machine its agents survive briefly and write into the next process's ledger.
            self._unheard.update(number_of(pid) for pid, _ in family(self.stage.home))

    def _find_agent(self, life: Life) -> int:
        """Return the id of a running agent, or 0 if none starts within two seconds."""
        until = time.monotonic() + 2
        while time.monotonic() < until and life.process.poll() is None:
            if found := agents(self.stage.home):
                return random.Random(self.seed).choice(found)
            time.sleep(0.005)
        return 0

    def _wait_for_end(self, life: Life) -> bool:
        """Wait until the process ends; return False if the run must be resumed."""
        if life.runs_for(PATIENCE):
            self.orphans.expect_end_of(family(self.stage.home, life.process.pid))
            life.kill()
            self.complain(f"it hung: {life.complaint}")
            self.tally.wrong_ends += 1
        self._check_turns(life)
        code = life.process.returncode
        if code != 0 and not life.is_killed:
            self.tally.stalls += 1
            if not self._agents_killed:
                self.tally.wrong_ends += 1
            self.complain(f"exit code {code}: {life.complaint}")
        self._check_last_event(life)
        return code == 0 or self._lives >= MOST_LIVES

    # Checks

    def _check_turns(self, life: Life) -> None:
        """Compare the turns of this process with the records that existed before it."""
        entries = self.stage.ledger.since(life.mark)
        again = life.known.repeated_by(entries, self._unheard)
        early = [entry.task for entry in entries if entry.what == "early"]
        now = Known.of(self.stage.session)
        gone = sorted((life.known.steps - now.steps) | (life.known.completed - now.completed))
        self.tally.repeated += len(again)
        self.tally.lost += len(early) + len(gone)
        for word, found in (("repeated", again), ("started without its blockers", early), ("lost", gone)):
            if found:
                self.complain(f"{word}: {found}")

    def _check_last_event(self, life: Life) -> None:
        """Check that the last event agrees with the exit code and the session's status."""
        session = self.stage.session
        if life.is_killed or session is None:
            return
        record = record_of(session)
        last = life.last_event
        code = life.process.returncode
        told = last.get("type"), last.get("status"), last.get("exit_code")
        if told != ("run_ended", record["status"], code) or (record["status"] == "completed") != (code == 0):
            self.tally.wrong_ends += 1
            self.complain(f"exit code {code}, session {record['status']}, told {told}: {life.complaint}")

    def check_end(self) -> None:
        session = self.stage.session
        if session is None:
            self.tally.lost += len(self.stage.planned)
            self.complain("there is no session")
            return
        undone = self._undone(session)
        self.tally.lost += len(undone)
        if undone:
            self.complain(f"not done: {undone}")
        if undone and record_of(session)["status"] == "completed":
            self.tally.wrong_ends += 1
        self._check_report(session)
        left = self._left_alive()
        self.tally.orphans += len(left)
        if self.stage.is_isolated:
            self._check_workspaces()

    def _check_workspaces(self) -> None:
        """Check the user's checkout, the work of all agents, and the folders."""
        touched = self._before.changes_to(checkout_state(self.stage.project))
        lost = lost_work(self.stage.ledger.since(0), self.stage.git)
        left = left_folders(self.stage.atomic_home)
        self.tally.touched += len(touched)
        self.tally.lost += len(lost)
        self.tally.left += len(left)
        for word, found in (("touched", touched), ("lost work", lost), ("left behind", left)):
            if found:
                self.complain(f"{word}: {found}")

    def _undone(self, session: Path) -> list[str]:
        """Return the tasks that are not completed, not proven, or not in the last commit."""
        done = statuses(session)
        proofs = evidence(session)
        committed = set(self.stage.git("ls-tree", "--name-only", self.stage.commit, "work/").split())
        changed = "" if self.stage.is_isolated else self.stage.git("status", "--porcelain")
        if changed:
            self.complain(f"not committed: {changed}")
        return sorted(
            id
            for id in self.stage.planned | done.keys()
            if done.get(id) != "completed"
            or not self._is_proven(id, proofs.get(id, {}))
            or (id in self.stage.planned and f"work/{id}.txt" not in committed)
            or f"work/{id}.txt" in changed
        )

    def _is_proven(self, task: str, proof: Mapping[str, Any]) -> bool:
        """Return whether evidence exists for an attempt that really took place."""
        ended = {(entry.task, entry.attempt) for entry in self.stage.ledger.since(0) if entry.what == "end"}
        return proof.get("status") == "passed" and (task, proof.get("attempt")) in ended

    def _check_report(self, session: Path) -> None:
        path = session / "report.md"
        self.report = masked(path.read_text(), self.stage.folder) if path.exists() else "there is no report"
        if self._reference is not None and self.report != self._reference:
            self.tally.wrong_reports += 1
            self.complain(f"another report:\n{_difference(self._reference, self.report)}")

    def _left_alive(self) -> list[int]:
        self.orphans.expect_end_of(family(self.stage.home))
        self.orphans.expect_end_of(processes_in(self.stage.folder))
        left = self.orphans.left()
        for pid in left:
            self.complain(f"process {pid} is left: {Path(f'/proc/{pid}/cmdline').read_bytes()}")
            os.kill(pid, signal.SIGKILL)
        return left


def _difference(one: str, other: str) -> str:
    import difflib

    return "\n".join(
        difflib.unified_diff(one.splitlines(), other.splitlines(), "undisturbed", "killed", lineterm="", n=0)
    )


def choose_kills(seed: int, isolate: str) -> list[Kill]:
    """Return one to three kills; with workspaces half of them wait for a sight."""
    choose = random.Random(seed)
    kills: list[Kill] = []
    for _ in range(choose.randint(1, 3)):
        kill = Kill(choose.random(), choose.choice(VICTIMS))
        if isolate != "none" and choose.random() < 0.5:
            sight = choose.choice(list(SIGHTS))
            kill = replace(kill, sight=sight, number=choose.randint(1, SIGHTS[sight][1]))
        kills.append(kill)
    return kills


def run_case(seed: int, isolate: str, usual: float, reference: str, keep: Path | None) -> Tally:
    """Run one case with one to three kills."""
    kills = choose_kills(seed, isolate)
    with tempfile.TemporaryDirectory(prefix="atomic-torture-") as folder:
        case = Case(Path(folder).resolve(), seed, isolate, reference)
        case.play(kills, usual)
        case.check_end()
        if not case.tally.clean:
            case.complain(f"kills: {kills}")
        if keep is not None and (case.tally.stalls or not case.tally.clean):
            shutil.copytree(folder, keep / f"seed-{seed}", symlinks=True, dirs_exist_ok=True)
        return case.tally


def undisturbed(seed: int, isolate: str) -> tuple[float, str]:
    """Return the duration and the report of a run without kills."""
    with tempfile.TemporaryDirectory(prefix="atomic-torture-") as folder:
        case = Case(Path(folder).resolve(), seed, isolate, None)
        begin = time.monotonic()
        case.play([], 0.0)
        usual = time.monotonic() - begin
        case.check_end()
        if not case.tally.clean or case.tally.stalls:
            raise SystemExit(f"an undisturbed run is not clean: {case.tally}")
        return usual, case.report


def torture(
    runs: int, seed: int, *, isolate: str = "none", jobs: int = 2, keep: Path | None = None, report: bool = False
) -> Tally:
    """Run all cases; a seed determines the kills, as far as timing allows."""
    usual, reference = undisturbed(seed, isolate)
    run = partial(run_case, isolate=isolate, usual=usual, reference=reference, keep=keep)
    total = Tally()
    with ProcessPoolExecutor(jobs) as pool:
        cases = pool.map(run, seeds(runs, seed))
        for done, tally in enumerate(cases, 1):
            total.add(tally)
            if report and done % 10 == 0:
                print(f"  {total}", flush=True)
    return total


def seeds(runs: int, seed: int) -> Iterator[int]:
    yield from (seed * 1_000_003 + number for number in range(runs))


def _shares(isolate: str, runs: int) -> Iterator[tuple[str, int]]:
    """Yield each kind with its number of runs. Most have workspaces, as most users do."""
    if isolate != "all":
        yield isolate, runs
        return
    shared = runs // 10
    clones = (runs - shared) // 2
    yield from (("overlay", runs - shared - clones), ("clone", clones), ("none", shared))


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill Ralph and its agents at random instants; count what that broke.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--isolate", choices=[*KINDS, "all"], default="all", help="one kind, or the runs in equal parts"
    )
    parser.add_argument("--keep", type=Path, help="copy the folders of runs that went wrong to this one")
    options = parser.parse_args()
    begin = time.monotonic()
    total = Tally()
    for isolate, runs in _shares(options.isolate, options.runs):
        print(f"{isolate}:", flush=True)
        found = torture(runs, options.seed, isolate=isolate, jobs=options.jobs, keep=options.keep, report=True)
        print(f"  {found}", flush=True)
        total.add(found)
    print(f"{total}\nseed {options.seed}, {time.monotonic() - begin:.0f} s")
    return 0 if total.clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
