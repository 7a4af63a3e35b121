"""Facts: named values that a run keeps in its journal.

A workflow keeps here what a later process must be able to trust: every program of the
user, agents included, can change the session's folder. The values are rows of a
separate log in `journal.db`, with the same chain, fence and recovery as the run itself.

A value whose name ends in `.json` has a copy of that name in the session's folder, for
people. Copies are compared and written again, but never read back.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.files import replace_file
from atomic.base.redaction import Redactor
from atomic.base.untrusted_files import read_bounded
from atomic.graph.engine.errors import RunNotFoundError
from atomic.graph.engine.journal import (
    FACTS,
    FACTS_SUFFIX,
    Journal,
    PartBody,
    RowKind,
    RunLog,
    StartBody,
    decode_body,
    encode_row,
)
from atomic.sessions.files import make_folder

CHANGED_COPIES = "changed_copies"  # the names of all copies that were ever found changed
_UNWRITTEN_COPIES = "unwritten_copies"  # the names whose last copy could not be written
_COPIED = ".json"


class Facts(Mapping[str, Any]):
    """The values by name, as plain data.

    Readable at any time, writable while the journal is open.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor
        self._values: dict[str, Any] = {}
        self._before: dict[
            str, Any
        ] = {}  # the value before: its copy is still there after a kill between value and copy
        self._log: RunLog | None = None
        self._journal: Journal | None = None
        self._id = ""

    def open(self, journal: Journal, run: str) -> None:
        """Acquire the facts of a run and read them.

        Raises RunOwnedError, JournalError.
        """
        id = f"{run}{FACTS_SUFFIX}"
        self._journal = journal
        self._id = id
        try:
            self._log = journal.acquire(id)
        except RunNotFoundError:
            start = StartBody(id, FACTS, time.time(), 1, {}, {})
            self._log = journal.create(id, encode_row(RowKind.START, start))
            return
        for row in journal.history(id).rows:
            body = decode_body(row, PartBody)
            self._replace(body.key, msgspec.msgpack.decode(body.value))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def set(self, name: str, value: Any) -> None:
        """Replace a value, without secrets; it is on the disk when this returns.

        Raises RunOwnedError, JournalError.
        """
        assert self._log is not None, "the journal is not open"
        plain = self._redactor.data(msgspec.to_builtins(value))
        if name in self._values:
            self._note_if_changed(name)
        packed = msgspec.Raw(msgspec.msgpack.encode(plain))
        self._log.append([encode_row(RowKind.PART, PartBody("", name, time.time(), packed))])
        self._replace(name, plain)
        if name.endswith(_COPIED):
            self._write_copy(name)

    def close(self) -> None:
        """Give up ownership; the values stay readable."""
        if self._log is not None:
            self._log.release()

    def check_rows(self) -> None:
        """Raise JournalError if the journal has lost rows that were written to it."""
        if self._journal is not None:
            self._journal.history(self._id)

    def restore_copies(self) -> list[str]:
        """Write copies that differ from the journal again, and return all names that
        ever differed.
        """
        for name in [name for name in self._values if name.endswith(_COPIED)]:
            self._note_if_changed(name)
            if not self._is_copied(name, self._values[name]):
                self._write_copy(name)
        return list(self._values.get(CHANGED_COPIES, ()))

    def before(self, name: str) -> Any:
        """Return the value before the last change; None if there was none."""
        return self._before.get(name)

    def note_changed(self, copy: str) -> None:
        """Keep that another program changed a copy."""
        known: list[str] = self._values.get(CHANGED_COPIES, [])
        if copy not in known:
            self.set(CHANGED_COPIES, sorted([*known, copy]))

    def note_written(self, copy: str, *, is_written: bool) -> None:
        """Keep whether a copy could be written: an unwritten one is outdated, not
        changed by others.
        """
        if is_written == self.is_unwritten(copy):
            unwritten: list[str] = self._values.get(_UNWRITTEN_COPIES, [])
            self.set(_UNWRITTEN_COPIES, sorted({*unwritten} ^ {copy}))

    def is_unwritten(self, copy: str) -> bool:
        """Return whether a copy could not be written when its value changed last."""
        return copy in self._values.get(_UNWRITTEN_COPIES, ())

    def _replace(self, name: str, value: Any) -> None:
        self._before[name] = self._values.get(name)
        self._values[name] = value

    def _note_if_changed(self, name: str) -> None:
        if not name.endswith(_COPIED) or self.is_unwritten(name):
            return
        if self._is_copied(name, self._values[name]) or self._is_copied(name, self._before[name]):
            return
        self.note_changed(name)

    def _is_copied(self, name: str, value: Any) -> bool:
        """Return whether the copy has this value.

        For None, whether there is no copy.
        """
        path = self._folder / name
        if value is None:
            return not os.path.lexists(path)
        expected = _encoded(value)
        try:
            status = path.lstat()
            # Another program may have put a pipe or a huge file in its place.
            is_plain = stat.S_ISREG(status.st_mode) and status.st_size == len(expected)
            return is_plain and read_bounded(path, len(expected)) == expected
        except OSError:
            return False

    def _write_copy(self, name: str) -> None:
        path = self._folder / name
        try:
            make_folder(str(path.parent))
            replace_file(path, _encoded(self._values[name]))
            is_written = True
        except OSError:  # the journal has the value, so the run continues
            is_written = False
        self.note_written(name, is_written=is_written)


def is_facts(id: str) -> bool:
    """Return whether an id of a journal is that of the facts of a run."""
    return id.endswith(FACTS_SUFFIX)


def run_of(id: str) -> str:
    """Return the run whose facts these are."""
    return id.removesuffix(FACTS_SUFFIX)


def read_facts(journal: Path, run: str) -> dict[str, Any]:
    """Return the facts of a run without owning it; empty if it has none.

    Raises JournalError.
    """
    from atomic.sessions.journal import SqliteJournal

    with SqliteJournal(journal) as opened:
        return find_facts(opened, run) or {}


def read_last_two(journal: Path, run: str, *names: str) -> tuple[dict[str, tuple[Any, Any]], str]:
    """Return values with the ones before them, without owning the run, and a message.

    A value that was never set is missing; one that was set once was None before. The
    message is empty unless the journal was damaged and recovered. Raises JournalError.
    """
    from atomic.sessions.journal import SqliteJournal

    found: dict[str, tuple[Any, Any]] = {}
    with SqliteJournal(journal) as opened:
        with suppress(RunNotFoundError):
            for row in opened.history(f"{run}{FACTS_SUFFIX}").rows:
                body = decode_body(row, PartBody)
                if body.key in names:
                    before, _ = found.get(body.key, (None, None))
                    found[body.key] = msgspec.msgpack.decode(body.value), before
        # Last, because damage to a row is found when the row is read.
        return found, "" if opened.recovered is None else opened.recovered.message


def find_facts(journal: Journal, run: str) -> dict[str, Any] | None:
    """Return the facts of a run; None if the journal has none for it.

    Raises JournalError.
    """
    try:
        rows = journal.history(f"{run}{FACTS_SUFFIX}").rows
    except RunNotFoundError:
        return None
    bodies = [decode_body(row, PartBody) for row in rows]
    return {body.key: msgspec.msgpack.decode(body.value) for body in bodies}


def _encoded(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"
