"""Facts about a run of Ralph from outside: run folder, ledger, processes, report."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from atomic.workflows import SqliteJournal
from tests.torture.acp_agent import DRAFTS, FEWER_LAYERS, agent_number, plan

PLANNED = frozenset(str(task["id"]) for task in plan())
PLANNED_IN_WORKSPACES = frozenset(str(task["id"]) for task in plan(FEWER_LAYERS))
WORKING = ("worker", "fixer")
ROUNDS = 2  # of review, in a run without kills


class Entry(msgspec.Struct, frozen=True):
    """A line of the ledger."""

    # begin, end; early: a blocker's file is missing; commit; draft: an uncommitted file;
    # tidy: the agent deletes its draft
    what: str
    role: str
    task: str
    attempt: int
    agent: int  # a number of its process
    text: str = ""  # of a draft, or the name of a commit


class Ledger:
    """The turns that the agents themselves recorded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def mark(self) -> int:
        """The current size."""
        return self.path.stat().st_size if self.path.exists() else 0

    def since(self, mark: int) -> list[Entry]:
        if not self.path.exists():
            return []
        lines = self.path.read_bytes()[mark:].split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=Entry) for line in lines]


@dataclass
class Known:
    """The content of a run's folder: finished tasks and recorded turns."""

    completed: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()  # by evidence that passed
    steps: frozenset[str] = frozenset()
    turns: Counter[str] = field(default_factory=Counter[str])  # of workers and fixers, by task
    plans: int = 0
    reviews: int = 0

    @classmethod
    def of(cls, session: Path | None) -> Known:
        if session is None or not (session / "journal.db").exists():
            return cls()
        known = cls(completed=frozenset(id for id, status in statuses(session).items() if status == "completed"))
        known.proven = frozenset(id for id, proof in evidence(session).items() if proof["status"] == "passed")
        known._read_journal(session)
        return known

    def _read_journal(self, session: Path) -> None:
        with SqliteJournal(session / "journal.db") as journal:
            if not any(run.execution_id == session.name for run in journal.list()):
                return
            records = [record for record in journal.records(session.name) if record.step is not None]
        self.steps = frozenset(record.step_id for record in records)
        for record in records:
            self.turns.update(list(record.update.get("broken", ())))  # a mapping would be read as counts
            self.plans += "plan_problem" in record.update or "planned" in record.update
            self.reviews += len(record.update.get("reviews", ()))

    def repeated_by(self, entries: Iterable[Entry], unheard: Collection[int] = ()) -> list[str]:
        """Return the turns that ran although they were recorded, or their task was done.

        An agent writes "end" before it sends its answer. If it or Atomic is killed in between,
        Atomic never receives the answer and must ask again, which is not a repetition. `unheard`
        has the numbers of such agents.
        """
        listed = list(entries)
        begun = [entry for entry in listed if entry.what == "begin"]
        again = [
            f"{entry.role} {entry.task} attempt {entry.attempt}"
            for entry in begun
            if (entry.role in WORKING and (entry.task in self.completed or entry.attempt <= self.turns[entry.task]))
            or (entry.role == "planner" and entry.attempt <= self.plans)
        ]
        reviewed = sum(
            entry.role == "reviewer" and entry.what == "end" and entry.agent not in unheard for entry in listed
        )
        return again + ["reviewer"] * max(0, reviewed - max(0, ROUNDS - self.reviews))


def session_in(home: Path) -> Path | None:
    """Return the only session, or None if the run was killed before it existed."""
    found = list((home / "sessions").glob("*/session.json"))
    assert len(found) < 2, found
    return found[0].parent if found else None


def record_of(session: Path) -> Mapping[str, Any]:
    return msgspec.json.decode((session / "session.json").read_bytes())


def statuses(session: Path) -> dict[str, str]:
    """Return the status of each task."""
    path = session / "tasks.json"
    tasks: list[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["tasks"] if path.exists() else []
    return {task["id"]: task["status"] for task in tasks}


def evidence(session: Path) -> dict[str, Mapping[str, Any]]:
    """Return the evidence of each task."""
    proofs = [msgspec.json.decode(path.read_bytes()) for path in (session / "evidence").glob("*.json")]
    return {proof["task"]: proof for proof in proofs}


# Processes

Process = tuple[int, int]  # id and start time: ids are reused


def alive(pid: int) -> Process | None:
    """Return the process, or None if it has ended or is a zombie."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if facts[0] in "ZX" else (pid, int(facts[19]))


def family(home: Path, root: int = 0) -> Iterator[Process]:
    """Yield processes with this home folder in their environment or below `root`."""
    parents = dict(_parents())
    for pid in parents:
        if (_has_home(pid, home) or _is_below(pid, root, parents)) and (found := alive(pid)) is not None:
            yield found


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # the process has ended
            continue


def number_of(pid: int) -> int:
    """Return the number of an agent, or 0 if the process is none, or has ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return 0
    marks = [one.decode().partition("=")[2] for one in variables if one.startswith(b"ATOMIC_MARK=")]
    return agent_number(marks[0]) if marks else 0


def _has_home(pid: int, home: Path) -> bool:
    try:
        return f"HOME={home}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _is_below(pid: int, root: int, parents: Mapping[int, int]) -> bool:
    while pid > 1 and pid in parents:
        if (pid := parents[pid]) == root:
            return root > 1
    return False


def agents(home: Path) -> list[int]:
    """Return the ids of the running agents."""
    return [pid for pid, _ in family(home) if b"acp_agent.py" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Orphans:
    """Processes that must end within seconds of the process that started them."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._limits: dict[Process, float] = {}

    def expect_end_of(self, processes: Iterable[Process]) -> None:
        for process in processes:
            self._limits.setdefault(process, time.monotonic() + self._patience)

    def left(self) -> list[int]:
        """Return the ids of processes that outlive their limit."""
        over: list[int] = []
        while waiting := [process for process in self._limits if alive(process[0]) == process]:
            over = [pid for pid, start in waiting if time.monotonic() > self._limits[pid, start]]
            if len(over) == len(waiting):
                return over
            time.sleep(0.05)
        return []


# Workspaces


def lost_work(entries: Collection[Entry], git: Callable[..., str]) -> list[str]:
    """Return commits and drafts of agents that no ref of the user's repository has.

    A draft that its agent has deleted itself does not count.
    """
    tidy = {entry.agent for entry in entries if entry.what == "tidy"}
    commits = {entry.text for entry in entries if entry.what == "commit"}
    drafts = {entry.text for entry in entries if entry.what == "draft" and entry.agent not in tidy}
    listed = git("rev-list", "--objects", "--all").splitlines()
    names = {line.split(" ")[0] for line in listed}
    blobs = [line.split(" ")[0] for line in listed if f" {DRAFTS}/" in line and line.endswith(".txt")]
    kept = {git("cat-file", "blob", blob).strip() for blob in blobs}
    return sorted(commits - names) + sorted(drafts - kept)


def left_folders(home: Path) -> list[str]:
    """Return what is left of workspaces and temporary folders."""
    return sorted(str(path.relative_to(home)) for path in (home / "workspaces").glob("*"))


def processes_in(folder: Path) -> Iterator[Process]:
    """Yield processes whose command line names a folder, as those of private views do."""
    for pid, _ in _parents():
        if str(folder).encode() in _command(pid) and (found := alive(pid)) is not None:
            yield found


# The report


_MASKS = (
    (r"(?ms)^## Cost and time by role.*?(?=^## |\Z)", ""),  # tokens, times, calls and attempts
    (r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "ID"),
    (r"\b[0-9a-f]{40}\b", "HASH"),
    (r"\b[0-9a-f]{8}\b", "BRANCH"),  # atomic/ID, and the short id of the run
    (r"(?<=exit code 0, )[^)]*", "TIME"),
    # Of tasks that are ready together, the one that lands first is not merged.
    (r"(?m)^- After merging: .*\n", ""),
    # Six workers share a checkout, so a check may fail, or fail once, because of another.
    (re.escape(", **but only the second time: it is flaky**"), ""),
)


def masked(report: str, folder: Path) -> str:
    """Return the report without the parts that differ between two good runs."""
    report = report.replace(str(folder), "FOLDER")
    for pattern, word in _MASKS:
        report = re.sub(pattern, word, report)
    return report
