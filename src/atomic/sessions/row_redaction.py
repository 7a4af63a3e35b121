"""Removes secrets from the rows and snapshots of a journal before they are written.

Rows are msgpack, so they are decoded, redacted and encoded again. The state in memory
keeps the real values until the process ends; a resumed run has the redaction mark
instead.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from atomic.base.redaction import ASSIGNED_WORDS, Redactor
from atomic.graph.engine.journal import JoinedBody, MigratedBody, OpenedBody, Row, RowKind, StartBody, StepBody

_SUSPECT = re.compile("|".join(ASSIGNED_WORDS), re.IGNORECASE)


def _position(body: type[msgspec.Struct], field: str) -> int:
    return body.__struct_fields__.index(field)


# The position of nested msgpack in a row, and that of field names, which are never
# secret.
_NESTED = {
    RowKind.JOINED: _position(JoinedBody, "update"),
    RowKind.STEP: _position(StepBody, "more"),
    RowKind.MIGRATED: _position(MigratedBody, "snapshot"),
}
_NAMES = {
    RowKind.START: _position(StartBody, "reducers"),
    RowKind.MIGRATED: _position(MigratedBody, "reducers"),
    RowKind.OPENED: _position(OpenedBody, "reducers"),
}


class RowRedaction:
    """Redacts what a journal writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def row(self, row: Row) -> Row:
        """Return the row without secrets; the same object if it has none."""
        if not self._is_suspect(row.body):
            return row
        parts = cast("list[Any]", msgspec.msgpack.decode(row.body))
        nested = _NESTED.get(RowKind(row.kind))
        names = _NAMES.get(RowKind(row.kind))
        for position, part in enumerate(parts):
            if position == names:
                continue
            if position != nested:
                parts[position] = self._value(part)
            elif isinstance(part, bytes):
                parts[position] = self.packed(part)
            elif isinstance(part, list):
                parts[position] = [self.packed(one) for one in cast("list[bytes]", part)]
        return row._replace(body=msgspec.msgpack.encode(parts))

    def packed(self, body: bytes) -> bytes:
        """Return a msgpack value without secrets."""
        if not self._is_suspect(body):
            return body
        return msgspec.msgpack.encode(self._value(msgspec.msgpack.decode(body)))

    def _is_suspect(self, body: bytes) -> bool:
        """Return whether a row may hold a secret: text is readable in msgpack, so a
        search is enough.
        """
        text = body.decode("utf-8", "replace")
        return _SUSPECT.search(text) is not None or bool(self._redactor.spans(text))

    def _value(self, value: Any) -> Any:
        if isinstance(value, bytes):
            text = value.decode("utf-8", "surrogateescape")
            return self._redactor.text(text).encode("utf-8", "surrogateescape")
        return self._redactor.data(value)
