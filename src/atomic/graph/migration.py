"""Carry a recorded state over to a newer version of its class."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.graph.errors import StateError
from atomic.graph.journal import MigratedBody, Row, RowKind, encode_row
from atomic.graph.past import Past, SnapshotBody, jumps_of
from atomic.graph.program import Program
from atomic.graph.reducers import ReducerFunction, find_reducer, identity_of, is_same
from atomic.graph.replay import Replay, first_values
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
    old = _fold_plain(past, replay.trunk, program)
    spec = program.spec
    values = spec.start(_migrated(migrate_state, old, old_version, version), past.start.execution_id)
    tip = tips[0]
    snapshot = SnapshotBody(
        values, past.updated, past.counts, past.steps, past.counted, [], tip.op.id if tip.op else "",
        tip.goto, tip.loops, tip.key, sorted(jumps_of(past)),
    )  # fmt: skip
    body = MigratedBody(time.time(), version, spec.reducer_identities(), msgspec.msgpack.encode(snapshot))
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


def _fold_plain(past: Past, entries: Sequence[Entry], program: Program) -> Values:
    values = first_values(past, program)
    names, spec = past.reducers, program.spec
    # A run that stopped has left the values of the fields that only their author's code can fold.
    known = (past.ended.folded if past.ended is not None else None) or {}
    for entry in entries:
        for name, update in entry.update.items():
            reducer = find_reducer(names.get(name, "replace"))
            if reducer is not None:
                values[name] = reducer(values[name], update)
            elif name not in known:
                values[name] = _own_reducer(names[name], spec, name)(values[name], update)
    return {**values, **known}


def _own_reducer(recorded: str, spec: StateSpec[Any], name: str) -> ReducerFunction:
    """A reducer of the author's that is still the one that the run was recorded with. Raises StateError."""
    field = spec.fields.get(name)
    if field is not None and is_same(recorded, identity_of(field.reducer)):
        return field.reducer
    old = recorded.partition("@")[0].removeprefix("custom:")
    reason = (
        f"its reducer {old} is another one now or gone, and the run was killed before it left a value. "
        "Resume it once with the old code until it pauses or fails, then with this"
    )
    raise StateError(name, reason)
