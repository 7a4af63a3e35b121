"""Carry a recorded state over to a newer version of its class."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.graph.errors import StateError
from atomic.graph.journal import MigratedBody, Row, RowKind, encode_row
from atomic.graph.past import Past, SnapshotBody
from atomic.graph.program import Program
from atomic.graph.reducers import find_reducer, name_of
from atomic.graph.replay import Replay
from atomic.graph.run import Entry, Place
from atomic.graph.state import StateSpec, Values, describe_error

if TYPE_CHECKING:
    from atomic.graph.builder import MigrateState


def migrated_row(past: Past, place: Place, program: Program, migrate_state: MigrateState | None, version: int) -> Row:
    """Fold the old data by the reducers that the journal names, and let the author's function carry it over.

    Raises StateError where that cannot be done.
    """
    old_version = past.state_version
    if old_version > version:
        reason = f"the run was recorded with state version {old_version}, this code has {version}; use newer code"
        raise StateError("state_version", reason)
    if migrate_state is None:
        reason = f"the run has version {old_version}, the code {version}; give migrate_state(old, from_version)"
        raise StateError("state_version", reason)
    past.raw = True
    replay = Replay(past, place, program)
    past.raw = False
    tips = list(replay.tips.values())
    if len(tips) != 1 or tips[0].remaining is not None or tips[0].opened is not None:
        reason = f"branches of the run are open; let them meet with the code of version {old_version} first"
        raise StateError("state_version", reason)
    names = past.migrated.reducers if past.migrated is not None else past.start.reducers
    old = _fold_plain(past.first_values(), replay.trunk, names, program.spec)
    spec = program.spec
    values = spec.start(_migrated(migrate_state, old, old_version, version), past.start.execution_id)
    tip = tips[0]
    snapshot = SnapshotBody(
        values, past.updated, past.counts, past.steps, past.counted, [], tip.op.id if tip.op else "",
        tip.goto, tip.loops, tip.key,
    )  # fmt: skip
    body = MigratedBody(time.time(), version, spec.reducer_names(), msgspec.msgpack.encode(snapshot))
    return encode_row(RowKind.MIGRATED, body)


def _migrated(migrate_state: MigrateState, old: Values, old_version: int, version: int) -> Values:
    try:
        new: Any = migrate_state(old, old_version)
    except Exception as error:  # a user's function: whatever it raises is why the run cannot be carried over
        reason = f"migrate_state from version {old_version} to {version} raised {describe_error(error)}"
        raise StateError("state_version", reason) from error
    if not isinstance(new, dict):
        raise StateError("state_version", f"migrate_state returned {new!r:.60}; it returns a dict")
    return cast("Values", new)


def _fold_plain(values: Values, entries: Sequence[Entry], names: dict[str, str], spec: StateSpec[Any]) -> Values:
    values = dict(values)
    for entry in entries:
        for name, update in entry.update.items():
            reducer = find_reducer(names.get(name, "replace"))
            if reducer is None:
                own = spec.fields.get(name)
                if own is None or name_of(own.reducer) != names[name]:
                    reason = f"its reducer {names[name]} is not in this code any more, so the old run cannot be folded"
                    raise StateError(name, reason)
                values[name] = own.reducer(values[name], update)
            else:
                values[name] = reducer(values[name], update)
    return values
