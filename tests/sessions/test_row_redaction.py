"""No secret reaches a journal, not even inside a packed value of a row."""

from __future__ import annotations

import msgspec
import pytest

from atomic.base.redaction import Redactor
from atomic.graph.engine.journal import Row, RowKind
from atomic.sessions.row_redaction import RowRedaction


@pytest.mark.parametrize(("kind", "at"), [(RowKind.JOINED, 3), (RowKind.STEP, 15), (RowKind.MIGRATED, 3)])
def test_secrets_inside_packed_values_of_rows_and_in_snapshots_are_removed(kind: RowKind, at: int) -> None:
    redaction = RowRedaction(Redactor(["hunter2hunter2"]))
    packed = msgspec.msgpack.encode({"said": "it is hunter2hunter2"})
    clean = redaction.packed(packed)
    assert msgspec.msgpack.decode(clean) != msgspec.msgpack.decode(packed)
    assert b"hunter2hunter2" not in clean
    assert redaction.packed(clean) == clean
    for value, expected in ((packed, clean), ([packed, clean], [clean, clean]), (None, None)):
        parts = [b"hunter2hunter2", *["plain"] * (at - 1), value]
        found = msgspec.msgpack.decode(redaction.row(Row(kind, 1, msgspec.msgpack.encode(parts))).body)
        assert found[-1] == expected
        assert b"hunter2hunter2" not in found[0]


def test_names_of_fields_are_not_redacted() -> None:
    redaction = RowRedaction(Redactor(["hunter2hunter2"]))
    parts = ["hunter2hunter2", 0, 0, 0, {"hunter2hunter2": 1}]
    found = msgspec.msgpack.decode(redaction.row(Row(RowKind.START, None, msgspec.msgpack.encode(parts))).body)
    assert found[4] == {"hunter2hunter2": 1}
    assert found[0] != "hunter2hunter2"
