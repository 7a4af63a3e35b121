"""A damaged journal yields a valid prefix of every run or a clear refusal.

The files come from a process that was killed with SIGKILL, so the log is not in the
database yet.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from atomic.graph.engine.errors import JournalError, RunNotFoundError, RunOwnedError
from atomic.graph.engine.journal import Row
from atomic.sessions import SqliteJournal
from tests.sessions.processes import HERE, environment
from tests.sessions.rows import RUN_IDS, position, reference_rows, snapshot_of, step_row

ORIGINALS = {name: reference_rows(name) for name in RUN_IDS}
PAGE = 8192
FRAME = PAGE + 24
STATES = ("log", "both", "copied", "closed")

Files = dict[str, bytes]  # the database under "", the log under "-wal"


@dataclass(frozen=True)
class Mutant:
    name: str
    files: Files
    # A log that ends between two frames looks complete.
    invisible: bool = False


@pytest.fixture(
    scope="module",
    params=[pytest.param(state, marks=() if state in ("log", "closed") else pytest.mark.ci) for state in STATES],
)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return killed_files(tmp_path_factory.mktemp("killed"), request.param)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder in memory if possible, because thousands of files are synced."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def killed_files(folder: Path, state: str) -> Files:
    path = folder / "journal.db"
    writer = [sys.executable, str(HERE / "writer.py"), str(path), state]
    assert subprocess.run(writer, env=environment(), check=False).returncode == -signal.SIGKILL
    return files_at(path)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def zeroed(data: bytes, start: int, length: int) -> bytes:
    return data[:start] + bytes(len(data[start : start + length])) + data[start + length :]


def swapped(data: bytes, one: int, other: int, size: int, offset: int = 0) -> bytes:
    parts = [data[at : at + size] for at in range(offset, len(data), size)]
    parts[one], parts[other] = parts[other], parts[one]
    return data[:offset] + b"".join(parts)


def spread(total: int, count: int) -> Iterator[int]:
    """Return `count` places, evenly from the first to the last."""
    for index in range(count):
        yield index * (total - 1) // max(1, count - 1)


def mutants(files: Files, scale: float) -> Iterator[Mutant]:
    database = files[""]
    log = files["-wal"]

    def changed(name: str, **parts: bytes) -> Mutant:
        new = {"": parts.get("database", database), "-wal": parts.get("log", log)}
        end = len(new["-wal"])
        between = end < len(log) and (end == 0 or (end - 32) % FRAME == 0)
        return Mutant(name, new, invisible="log" in parts and between)

    for block in spread(len(database) // 64, int(64 * scale)):
        bit = block * 512 + block * 7 % 512
        yield changed(f"bit {bit} of the database", database=flipped(database, bit))
    for size in spread(len(database), int(22 * scale)):
        yield changed(f"database cut at {size}", database=database[:size])
    for page in spread(len(database) // PAGE, int(8 * scale)):
        yield changed(f"page {page} zero", database=zeroed(database, page * PAGE, PAGE))
        yield changed(f"512 bytes of page {page} zero", database=zeroed(database, page * PAGE + 512, 512))
        yield changed(
            f"pages {page} and 4 swapped", database=swapped(database, page, min(3, len(database) // PAGE - 1), PAGE)
        )
    for byte in (0, 17, 18, 19, 24, 30, 35, 43, 47, 59, 63, 69, 100, 103, 105):
        yield changed(f"byte {byte} of the database", database=flipped(database, byte * 8))
    yield changed("an empty database", database=b"")
    yield changed("junk after the database", database=database + os.urandom(3 * PAGE))
    yield changed("a database of zeros", database=bytes(len(database)))
    if not log:
        return
    for block in spread(len(log) // 64, int(52 * scale)):
        bit = block * 512 + block * 11 % 512
        yield changed(f"bit {bit} of the log", log=flipped(log, bit))
    for size in spread(len(log), int(22 * scale)):
        yield changed(f"log cut at {size}", log=log[:size])
    frames = (len(log) - 32) // FRAME
    for frame in spread(frames, int(6 * scale)):
        yield changed(f"frame {frame} zero", log=zeroed(log, 32 + frame * FRAME, FRAME))
        yield changed(f"frames {frame} and 5 swapped", log=swapped(log, frame, 5, FRAME, offset=32))
    for byte in (0, 4, 8, 15, 17, 23, 31):
        yield changed(f"byte {byte} of the log's header", log=flipped(log, byte * 8 + 3))
    last = 32 + (frames - 1) * FRAME
    for byte in (0, 5, 8, 12, 16, 20, 24, 5000):
        yield changed(f"byte {byte} of the last frame", log=flipped(log, (last + byte) * 8 + 1))
    yield changed("junk after the log", log=log + os.urandom(FRAME))


def wrecks(files: Files, count: int) -> Iterator[Mutant]:
    """Make several kinds of damage at once, also large ones and moved bytes."""
    generator = random.Random(7)
    for index in range(count):
        wreck = dict(files)
        for _ in range(generator.choice((2, 5, 20))):
            part = generator.choice([name for name, data in files.items() if data])
            data = bytearray(wreck[part])
            start = generator.randrange(len(data))
            other = generator.randrange(len(data))
            size = generator.choice((1, 16, 512, PAGE))
            match generator.choice(("flip", "write", "copy", "insert")):
                case "flip":
                    data[start] ^= 1 << generator.randrange(8)
                case "write":
                    data[start : start + size] = generator.randbytes(len(data[start : start + size]))
                case "copy":
                    data[start : start + size] = data[other : other + len(data[start : start + size])]
                case _:
                    data[start:start] = generator.randbytes(size)
            wreck[part] = bytes(data)
        # A frame with an overwritten header looks like one from before the log's last restart.
        yield Mutant(f"wreck {index}", wreck, invisible=True)


def check_mutant(folder: Path, mutant: Mutant) -> str:
    """Open, read, resume and write; return the result as a word."""
    path = folder / "journal.db"
    for suffix, data in mutant.files.items():
        Path(f"{path}{suffix}").write_bytes(data)
    try:
        journal = SqliteJournal(path)
    except JournalError as error:
        copies = [path, Path(error.kept_as)] if error.kept_as else [path]
        check_copies(copies, mutant)
        return "refused"
    with journal:
        lengths = {name: length_of(journal, name) for name in RUN_IDS}
        is_shorter = any(length != len(ORIGINALS[name]) for name, length in lengths.items())
        kept = [file for file in folder.glob("journal.db.damaged-*") if not file.name.endswith(("-wal", "-shm"))]
        assert kept or not is_shorter or mutant.invisible, "no copy of the lost rows"
        assert journal.recovered is None or Path(journal.recovered.kept_as) in kept
        check_copies(kept, mutant)
        goes_on(journal, lengths)
    with SqliteJournal(path) as journal:  # a recovered journal stays valid
        assert journal.recovered is None
        for name, length in lengths.items():
            if length:
                assert journal.history(name).rows[-1:] == [extra_row(length)]
    if is_shorter:
        return "cut"
    return "recovered" if kept else "whole"


def check_copies(copies: list[Path], mutant: Mutant) -> None:
    for copy in copies:
        assert files_at(copy) == mutant.files, f"{copy.name} differs from the damaged files"


def length_of(journal: SqliteJournal, name: str) -> int:
    """Count the rows of a run, 0 if it is lost; fail unless they are a prefix."""
    try:
        history = journal.history(name)
    except (RunNotFoundError, JournalError):
        return 0
    length = position(history, ORIGINALS[name], snapshot_of(name))
    assert length is not None, f"{name} is not a prefix of the written rows"
    try:
        records = journal.records(name)
    except JournalError:
        records = None
    steps = [row.step for row in ORIGINALS[name][:length] if row.step]
    # Rows before a snapshot may be lost: they are not shown, but the run can continue.
    assert [record.step for record in records] == steps if records is not None else history.snapshot is not None
    return length


def goes_on(journal: SqliteJournal, lengths: dict[str, int]) -> None:
    listed = {info.execution_id: info for info in journal.list()}
    for name, length in lengths.items():
        if not length:
            continue
        assert listed[name].graph == "reference"
        before = journal.history(name)
        try:
            log = journal.acquire(name)
        except RunOwnedError:  # its dead owner may seem alive on another machine for 15 seconds
            lengths[name] = 0
            continue
        log.append([extra_row(length)])
        log.release()
        after = journal.history(name)
        assert after == before._replace(rows=[*before.rows, extra_row(length)])


def extra_row(length: int) -> Row:
    return step_row(1000 + length, n=length)


def files_at(path: Path) -> Files:
    """Return the database and its log; a missing log is empty."""
    log = Path(f"{path}-wal")
    return {"": path.read_bytes(), "-wal": log.read_bytes() if log.exists() else b""}


def run_mutants(made: Iterator[Mutant], folder: Path) -> dict[str, int]:
    outcomes: dict[str, int] = {}
    for index, mutant in enumerate(made):
        place = folder / str(index)
        place.mkdir()
        try:
            outcome = check_mutant(place, mutant)
        except BaseException as error:
            error.add_note(f"with {mutant.name}")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(place)
    return outcomes


@pytest.mark.parametrize(("share", "least"), [(0.3, 30), pytest.param(1.0, 100, marks=pytest.mark.ci)])
def test_every_damage_leaves_a_prefix_or_a_refusal(killed: Files, folder: Path, share: float, least: int) -> None:
    outcomes = run_mutants(mutants(killed, share), folder)
    assert sum(outcomes.values()) >= (2 * least if killed["-wal"] else least)
    assert {"whole", "recovered"} <= set(outcomes)


def test_a_run_that_is_owned_before_it_is_read_is_recovered_too(killed: Files, folder: Path) -> None:
    for index, mutant in enumerate(mutants(killed, 0.3)):
        path = folder / str(index) / "journal.db"
        path.parent.mkdir()
        for suffix, data in mutant.files.items():
            Path(f"{path}{suffix}").write_bytes(data)
        with suppress(JournalError), SqliteJournal(path) as journal:
            for name in RUN_IDS:
                with suppress(RunNotFoundError, RunOwnedError):
                    resume(journal, name)


def resume(journal: SqliteJournal, name: str) -> None:
    """Resume like an engine: own the run, read it, continue after its last row."""
    log = journal.acquire(name)
    before = journal.history(name)
    length = position(before, ORIGINALS[name], snapshot_of(name))
    assert length is not None
    log.append([extra_row(length), extra_row(length + 1)])
    added = [extra_row(length), extra_row(length + 1)]
    assert journal.history(name) == before._replace(rows=[*before.rows, *added])
    log.release()


@pytest.mark.full
def test_every_damage_leaves_a_prefix_or_a_refusal_at_many_places(killed: Files, folder: Path) -> None:
    outcomes = run_mutants(mutants(killed, 6.0), folder)
    assert sum(outcomes.values()) >= (1000 if killed["-wal"] else 600)


@pytest.mark.full
def test_a_wreck_leaves_a_prefix_or_a_refusal(killed: Files, folder: Path) -> None:
    run_mutants(wrecks(killed, 250), folder)
