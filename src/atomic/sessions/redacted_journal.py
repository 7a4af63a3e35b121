"""A journal that removes secrets from rows before it writes them.

Rows are msgpack, so they are decoded, redacted and encoded again. The state in memory
keeps the real values until the process ends; a resumed run has the redaction mark
instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from atomic.base.redaction import SECRET_WORDS, Redactor
from atomic.graph.engine.journal import History, Journal, Records, Row, RowKind, RunLog, Runs
from atomic.sessions.errors import Recovery

_SUSPECT = re.compile("|".join((*SECRET_WORDS, "PASS", "PWD", "JWT", "WEBHOOK")), re.IGNORECASE)
# The positions of nested msgpack in a row, and of field names, which are never secret.
_NESTED = {RowKind.JOINED: (3,), RowKind.STEP: (15,), RowKind.MIGRATED: (3,)}
_NAMES = {RowKind.START: (4,), RowKind.MIGRATED: (2,), RowKind.OPENED: (7,)}


class RedactingJournal:
    """A journal that redacts rows and writes them to another one."""

    def __init__(self, journal: Journal, redactor: Redactor) -> None:
        self.inner = journal
        self._redactor = redactor

    @property
    def recovered(self) -> Recovery | None:
        """Return the report of a recovery, if the file was damaged."""
        return getattr(self.inner, "recovered", None)

    def create(self, execution_id: str, start: Row) -> RunLog:
        clean = clean_row(start, self._redactor)
        return _RedactingLog(self.inner.create(execution_id, clean), self._redactor)

    def acquire(self, execution_id: str) -> RunLog:
        return _RedactingLog(self.inner.acquire(execution_id), self._redactor)

    def history(self, execution_id: str, *, at: int | None = None) -> History:
        return self.inner.history(execution_id, at=at)

    def list(self) -> Runs:
        return self.inner.list()

    def records(self, execution_id: str) -> Records:
        return self.inner.records(execution_id)

    def fork(self, execution_id: str, *, at: int | None = None) -> str:
        return self.inner.fork(execution_id, at=at)

    def delete(self, execution_id: str) -> None:
        self.inner.delete(execution_id)

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _RedactingLog:
    def __init__(self, log: RunLog, redactor: Redactor) -> None:
        self._log = log
        self._redactor = redactor

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        self._log.append([clean_row(row, self._redactor) for row in rows], sync=sync)

    def snapshot(self, step: int, body: bytes) -> None:
        self._log.snapshot(step, _clean_packed(body, self._redactor))

    def release(self) -> None:
        self._log.release()


def clean_row(row: Row, redactor: Redactor) -> Row:
    """Return the row without secrets; the same object if it has none."""
    if not _is_suspect(row.body, redactor):
        return row
    parts = cast("list[Any]", msgspec.msgpack.decode(row.body))
    nested = _NESTED.get(RowKind(row.kind), ())
    names = _NAMES.get(RowKind(row.kind), ())
    for position, part in enumerate(parts):
        if position in nested:
            parts[position] = _clean_nested(part, redactor)
        elif position not in names:
            parts[position] = _clean(part, redactor)
    return row._replace(body=msgspec.msgpack.encode(parts))


def _is_suspect(body: bytes, redactor: Redactor) -> bool:
    """Return whether a row may hold a secret: text is readable in msgpack, so a search
    is enough.
    """
    text = body.decode("utf-8", "replace")
    return _SUSPECT.search(text) is not None or bool(redactor.spans(text))


def _clean_nested(part: Any, redactor: Redactor) -> Any:
    if isinstance(part, bytes):
        return _clean_packed(part, redactor)
    if isinstance(part, list):
        return [_clean_packed(one, redactor) for one in cast("list[bytes]", part)]
    return part


def _clean_packed(body: bytes, redactor: Redactor) -> bytes:
    if not _is_suspect(body, redactor):
        return body
    return msgspec.msgpack.encode(_clean(msgspec.msgpack.decode(body), redactor))


def _clean(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        return redactor.text(text).encode("utf-8", "surrogateescape")
    return redactor.data(value)
