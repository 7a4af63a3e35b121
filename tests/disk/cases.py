"""A traced run of the workflow: its folders, its trace and its final rows."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.disk.disk import Image, files_in, write_image
from tests.disk.trace import Trace, record
from tests.disk.workflow import make_tasks

Rows = list[tuple[Any, ...]]

_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class Place:
    """Paths of a run's files; the journal must create the folders in `inner` itself."""

    base: Path
    inner: str = ""

    @property
    def run(self) -> Path:
        return self.base / "run"

    @property
    def journal(self) -> Path:
        return self.run / self.inner / "journal.db"

    @property
    def tasks(self) -> Path:
        """The task list, in its own folder so that SQLite does not sync that folder too."""
        return self.run / "tasks" / "tasks.json"

    @property
    def ledger(self) -> Path:
        return self.base / "ledger" / "ledger.txt"


@dataclass(frozen=True, slots=True)
class Case:
    place: Place
    trace: Trace
    found: Image  # files after the process ended
    rows: Rows  # all rows of the finished run


@contextmanager
def traced(fault: str = "none", *, inner: str = "", image: Image | None = None) -> Generator[Case]:
    """Trace a run of the workflow, new or resumed from an image of a disk."""
    with tempfile.TemporaryDirectory(prefix="atomic-disk-") as name:
        place = Place(Path(name).resolve(), inner)
        place.run.mkdir()
        place.ledger.parent.mkdir()
        if image is None:
            place.tasks.parent.mkdir()
            make_tasks(place.tasks)
        else:
            write_image(image, place.run)
        arguments = [str(place.journal), str(place.tasks), str(place.ledger), fault]
        trace = record(str(_WORKER), arguments, [place.run, place.ledger.parent])
        assert trace.code == 0, "the traced run failed; its message is on standard error"
        found = files_in(trace.folders)
        yield Case(place, trace, found, read_rows(place.journal))


def read_rows(journal: Path) -> Rows:
    """Return all rows of a journal, read without Atomic."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT key, kind, step, body, crc FROM rows ORDER BY key").fetchall()
