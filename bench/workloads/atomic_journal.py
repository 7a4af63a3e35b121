"""Atomic with its SQLite journal: durable steps, bytes on disk, resuming, and what must not grow."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Annotated, Any

from bodies import DURABLE, RECORD, expect, more
from measure import Metrics, bytes_on_disk

from atomic.sessions.durability import CHECKPOINT_PAGES
from atomic.workflows import CompiledGraph, Node, NodeContext, RunStatus, SqliteJournal, State, graph, node, reducers

LONG_RUN = 10 * DURABLE
UNCHANGED_STEPS = 300
RESUMES = 5
BENCH = Path(__file__).resolve().parents[1]
FRESH = "import sys; from workloads.atomic_journal import resume; print(resume(sys.argv[1], sys.argv[2])[1])"

# In the order in which a new database must be given them.
PRAGMAS = (
    "page_size",
    "auto_vacuum",
    "locking_mode",
    "journal_mode",
    "synchronous",
    "wal_autocheckpoint",
    "journal_size_limit",
    "cache_size",
    "mmap_size",
    "temp_store",
)


class Log(State):
    """A list to which every step adds a kilobyte."""

    log: Annotated[list[str], reducers.concat] = []


class Ballast(State):
    """A number that every step raises, next to a text that never changes."""

    n: int = 0
    ballast: str = ""


class Stopped(Exception):
    """Ends a run in the middle, as a kill would: the step is not recorded."""


class Growing:
    """A loop of steps that add a kilobyte each; `stop` is where it breaks off, `end` where it is done."""

    def __init__(self, end: int, stop: int = -1) -> None:
        self.end = end
        self.stop = stop
        self.started: list[float] = []  # CPU time at the start of each step
        body: Node[Log] = node("grow", self.grow)
        builder = graph(Log).loop([body], until=lambda s: len(s.log) >= self.end, max_iterations=0)
        self.graph: CompiledGraph[Log] = builder.compile(max_steps=0)

    async def grow(self, ctx: NodeContext[Log]) -> dict[str, list[str]]:
        self.started.append(process_time())
        if len(ctx.state.log) == self.stop:
            raise Stopped
        return {"log": [RECORD]}


def run_growing(path: Path, steps: int) -> float:
    """Return the CPU µs per step of a whole run, without opening the journal."""
    growing = Growing(steps)

    async def run(journal: SqliteJournal) -> float:
        start = process_time()
        result = await growing.graph.run(journal=journal)
        spent = process_time() - start
        expect((result.status, len(result.state.log)), (RunStatus.COMPLETED, steps))
        return spent / steps * 1e6

    with SqliteJournal(path) as journal:
        return asyncio.run(run(journal))


def cut(path: Path) -> str:
    """Record a run that stops after the usual number of steps."""
    growing = Growing(DURABLE + 1, stop=DURABLE)
    with SqliteJournal(path) as journal:
        result = asyncio.run(growing.graph.run(journal=journal))
    expect(result.status, RunStatus.FAILED)
    return result.execution_id


def resume(path: Path | str, execution_id: str) -> tuple[float, float]:
    """Return the CPU ms from opening the journal until a step starts, and until it is recorded."""
    growing = Growing(DURABLE + 1)

    async def run() -> tuple[float, float]:
        start = process_time()
        with SqliteJournal(path) as journal:
            result = await growing.graph.resume(journal, execution_id)
            end = process_time()
        expect((result.status, len(result.state.log)), (RunStatus.COMPLETED, DURABLE + 1))
        return (growing.started[0] - start) * 1e3, (end - start) * 1e3

    return asyncio.run(run())


def copies(folder: Path, name: str) -> list[Path]:
    """Return copies of the run that was cut."""
    made = [folder / f"{name}-{i}.db" for i in range(RESUMES)]
    return [Path(shutil.copy(folder / "cut.db", copy)) for copy in made]


def resume_fresh(path: Path, execution_id: str) -> float:
    """Resume in a new process, which loads on the way what a resume needs besides `atomic.workflows`."""
    command = [sys.executable, "-c", FRESH, str(path), execution_id]
    return float(subprocess.run(command, cwd=BENCH, check=True, stdout=subprocess.PIPE, text=True).stdout)


def durable(folder: Path, _: dict[str, Any]) -> Metrics:
    run_growing(folder / "warm-up.db", DURABLE // 10)
    step = run_growing(folder / "run.db", DURABLE)
    run_growing(folder / "double.db", 2 * DURABLE)
    execution_id = cut(folder / "cut.db")
    resumed = [resume(copy, execution_id) for copy in copies(folder, "warm")][1:]  # the first one warms up
    fresh = [resume_fresh(copy, execution_id) for copy in copies(folder, "fresh")]
    return {
        "durable": {"SqliteJournal": step},
        "bytes": {"SqliteJournal": bytes_on_disk(folder / "run.db")},
        "bytes_2000": {"SqliteJournal": bytes_on_disk(folder / "double.db")},
        "resume_start": {"SqliteJournal": min(start for start, _ in resumed)},
        "resume": {"SqliteJournal": min(end for _, end in resumed)},
        "resume_fresh": {"SqliteJournal": min(fresh)},
    }


def step_starts(path: Path, steps: int, ballast: str = "") -> list[float]:
    """Return the CPU time at the start of each durable step, whose updates have equal sizes."""
    started: list[float] = []

    async def count(ctx: NodeContext[Ballast]) -> dict[str, int]:
        started.append(process_time())
        return {"n": more(ctx.state.n)}

    body: Node[Ballast] = node("count", count)
    compiled = graph(Ballast).loop([body], until=lambda s: s.n >= steps, max_iterations=0).compile(max_steps=0)
    with SqliteJournal(path) as journal:
        result = asyncio.run(compiled.run({"ballast": ballast}, journal=journal))
    expect((result.status, result.state.n), (RunStatus.COMPLETED, steps))
    return started


def per_step(started: list[float]) -> float:
    return (started[-1] - started[0]) / (len(started) - 1) * 1e6


def long_run(folder: Path, _: dict[str, Any]) -> Metrics:
    started = step_starts(folder / "run.db", LONG_RUN)
    early = started[:DURABLE]
    late = started[-DURABLE:]
    return {"early_step": {"SqliteJournal": per_step(early)}, "late_step": {"SqliteJournal": per_step(late)}}


def unchanged(folder: Path, _: dict[str, Any]) -> Metrics:
    def beside(size: int) -> dict[str, float]:
        path = folder / f"{size}.db"
        return {"SqliteJournal": per_step(step_starts(path, UNCHANGED_STEPS, "x" * size))}

    step_starts(folder / "warm-up.db", DURABLE // 10)
    sizes = {"unchanged_10k": 10_000, "unchanged_100k": 100_000, "unchanged_1m": 1_000_000}
    return {metric: beside(size) for metric, size in sizes.items()}


def pragmas(folder: Path, _: dict[str, Any]) -> dict[str, Any]:
    """Ask the journal's own connection: some settings are of the connection and not in the file."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **options))
        return connections[-1]

    sqlite3.connect = watched
    with SqliteJournal(folder / "pragmas.db") as journal:
        asyncio.run(Growing(1).graph.run(journal=journal))
        writer = next(connection for connection in connections if _is_open(connection))
        found = {name: writer.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    return found | {"wal_autocheckpoint": CHECKPOINT_PAGES}  # Atomic copies its log itself, as often


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA page_size")
    except sqlite3.ProgrammingError:  # one that only looked whether the file is well
        return False
    return True


JOBS: dict[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    "durable": durable,
    "long_run": long_run,
    "unchanged": unchanged,
    "pragmas": pragmas,
}
