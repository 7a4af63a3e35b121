"""Removes secrets from the rows and snapshots of a journal before they are written.

Rows are msgpack, so they are decoded, redacted and encoded again. The state in memory
keeps the real values until the process ends; a resumed run has the redaction mark
instead.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from atomic.base.redaction import SECRET_WORDS, Redactor
from atomic.graph.engine.journal import Row, RowKind

_SUSPECT = re.compile("|".join((*SECRET_WORDS, "PASS", "PWD", "JWT", "WEBHOOK")), re.IGNORECASE)
# The positions of nested msgpack in a row, and of field names, which are never secret.
_NESTED = {RowKind.JOINED: (3,), RowKind.STEP: (15,), RowKind.MIGRATED: (3,)}
_NAMES = {RowKind.START: (4,), RowKind.MIGRATED: (2,), RowKind.OPENED: (7,)}


class RowRedaction:
    """Redacts what a journal writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def row(self, row: Row) -> Row:
        """Return the row without secrets; the same object if it has none."""
        if not self._is_suspect(row.body):
            return row
        parts = cast("list[Any]", msgspec.msgpack.decode(row.body))
        nested = _NESTED.get(RowKind(row.kind), ())
        names = _NAMES.get(RowKind(row.kind), ())
        for position, part in enumerate(parts):
            if position in names:
                continue
            if position not in nested:
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
