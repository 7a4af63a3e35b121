"""A journal whose rows are without secrets before they are written.

Rows are msgpack, so they are taken apart, cleaned and put together again. The engine's own state keeps the real values
until its process ends; who resumes finds the mark in their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from atomic.graph.journal import History, Journal, Records, Row, RowKind, RunLog, Runs
from atomic.redact import SECRET_WORDS, Redactor
from atomic.sessions.errors import Recovery

_SUSPECT = re.compile("|".join((*SECRET_WORDS, "PASS", "PWD", "JWT", "WEBHOOK")), re.IGNORECASE)
# Where a row holds msgpack inside of msgpack, and where names of fields stand that are no one's secret.
_NESTED = {RowKind.JOINED: (3,), RowKind.STEP: (15,), RowKind.MIGRATED: (3,)}
_NAMES = {RowKind.START: (4,), RowKind.MIGRATED: (2,), RowKind.OPENED: (7,)}


class RedactingJournal:
    """A journal that cleans what is written to another."""

    def __init__(self, journal: Journal, redactor: Redactor) -> None:
        self.inner, self._redactor = journal, redactor

    @property
    def recovered(self) -> Recovery | None:
        """What was lost, if the file was damaged."""
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
        self._log, self._redactor = log, redactor

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        self._log.append([clean_row(row, self._redactor) for row in rows], sync=sync)

    def snapshot(self, step: int, body: bytes) -> None:
        self._log.snapshot(step, _clean_packed(body, self._redactor))

    def release(self) -> None:
        self._log.release()


def clean_row(row: Row, redactor: Redactor) -> Row:
    """The row without secrets; the same one where there are none."""
    if not _is_suspect(row.body, redactor):
        return row
    parts = cast("list[Any]", msgspec.msgpack.decode(row.body))
    nested, names = _NESTED.get(RowKind(row.kind), ()), _NAMES.get(RowKind(row.kind), ())
    for place, part in enumerate(parts):
        if place in nested:
            parts[place] = _clean_nested(part, redactor)
        elif place not in names:
            parts[place] = _clean(part, redactor)
    return row._replace(body=msgspec.msgpack.encode(parts))


def _is_suspect(body: bytes, redactor: Redactor) -> bool:
    """A quick look. Texts stand in msgpack as they are; names like `token` make their values suspect."""
    text = body.decode("utf-8", "replace")
    return _SUSPECT.search(text) is not None or bool(redactor.spans(text))


def _clean_nested(part: Any, redactor: Redactor) -> Any:
    if isinstance(part, bytes):
        return _clean_packed(part, redactor)
    return [_clean_packed(one, redactor) for one in cast("list[bytes]", part)] if isinstance(part, list) else part


def _clean_packed(body: bytes, redactor: Redactor) -> bytes:
    if not _is_suspect(body, redactor):
        return body
    return msgspec.msgpack.encode(_clean(msgspec.msgpack.decode(body), redactor))


def _clean(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        return redactor.text(text).encode("utf-8", "surrogateescape")
    return redactor.data(value)
