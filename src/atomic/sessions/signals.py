"""The signals of a run in its journal: a log of their own, in which every process may
write.

A log has the tables, the chain of checksums and the recovery of a run, and its id is
that of the run with `/signals` added. It has no owner: each signal is one transaction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from atomic.graph.engine.journal import (
    SIGNALS,
    SIGNALS_SUFFIX,
    RowKind,
    SignalBody,
    Signals,
    StartBody,
    decode_body,
    encode_row,
    is_run,
)
from atomic.graph.engine.sent_signals import signal_body
from atomic.sessions.chain import End, link

if TYPE_CHECKING:
    from atomic.sessions.journal_file import JournalFile
    from atomic.sessions.row_redaction import RowRedaction
    from atomic.sessions.tables import Run, Tables

_AFTER = "after"  # in the first row of the log: the number of the last signal of the run that was copied


def is_signals(id: str) -> bool:
    """Return whether an id is that of the signals of a run."""
    return id.endswith(SIGNALS_SUFFIX)


def send_signal(tables: Tables, execution_id: str, name: str, packed: bytes, redaction: RowRedaction | None) -> None:
    """Add a signal to those of a run."""
    log = _find(tables, execution_id) or _begin(tables, execution_id)
    body = signal_body(name, packed, after=_last_number(tables, log))
    row = encode_row(RowKind.SIGNAL, body)
    tables.add(log, row if redaction is None else redaction.row(row))


def delete_signals(tables: Tables, execution_id: str) -> None:
    """Remove the signals of a run."""
    log = _find(tables, execution_id)
    if log is not None:
        tables.delete(log)


def leave_signals(tables: Tables, execution_id: str, copy: str) -> None:
    """Let the numbers of a copy's signals follow those of the original, whose signals
    stay there: a copied step may have received some of them.
    """
    log = _find(tables, execution_id)
    if log is not None:
        _begin(tables, copy, after=_last_number(tables, log))


class SentSignals:
    """Reads the signals of a run one after the other."""

    def __init__(self, file: JournalFile, execution_id: str) -> None:
        self._file = file
        self._of = execution_id
        self._seen: tuple[int, int] | None = None  # the version of the file at the last look
        self._log: Run | None = None
        self._end: End | None = None

    def new(self) -> Signals:
        """Return the signals that this has not returned yet. Raises DamagedError."""
        version = (self._file.version, self._file.signals_sent)
        if version == self._seen:
            return []
        found: Signals = []
        with self._file.reading() as tables:
            if self._log is None:
                self._log = _find(tables, self._of)
                if self._log is not None:
                    self._end = tables.start(self._log)[1]
            if self._log is not None and self._end is not None:
                for row in tables.rows(self._log, self._end):
                    seq = self._end.seq + 1
                    self._end = End(seq, link(self._end.crc, seq, *row))
                    found.append(decode_body(row, SignalBody))
        self._seen = version
        return found


def _find(tables: Tables, execution_id: str) -> Run | None:
    """Return the log of a run's signals, if there is one."""
    log = tables.find(_id(execution_id))
    # An earlier version could give this id to a run.
    return None if log is None or is_run(tables.start(log)[0]) else log


def _id(execution_id: str) -> str:
    return f"{execution_id}{SIGNALS_SUFFIX}"


def _begin(tables: Tables, execution_id: str, *, after: int = 0) -> Run:
    id = _id(execution_id)
    start = StartBody(id, SIGNALS, time.time(), 1, {}, {_AFTER: after})
    run, _ = tables.insert(id, [encode_row(RowKind.START, start)], None)
    return run


def _last_number(tables: Tables, log: Run) -> int:
    last = next(iter(tables.newest_first(log)))
    if last.kind == RowKind.SIGNAL:
        return decode_body(last, SignalBody).number
    return tables.start(log)[0].values[_AFTER]
