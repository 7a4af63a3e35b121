"""Migrate a recorded state to a newer version of its class."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.graph.engine.errors import StateError
from atomic.graph.engine.history import RunHistory, SnapshotBody, jumps_of
from atomic.graph.engine.journal import MigratedBody, Row, RowKind, encode_row
from atomic.graph.engine.program import Program
from atomic.graph.engine.reducers import ReducerFunction, find_reducer, identity_of, is_same
from atomic.graph.engine.replay import Replay, first_values
from atomic.graph.engine.run import Entry, Scope
from atomic.graph.engine.state import StateSpec, Values, describe_error

if TYPE_CHECKING:
    from atomic.graph.engine.builder import MigrateState


def migrated_row(
    history: RunHistory, scope: Scope, program: Program, migrate_state: MigrateState | None, version: int
) -> Row:
    """Fold the old data with the recorded reducers and migrate it with the author's function.

    Raise StateError if that is not possible.
    """
    old_version = history.state_version
    if old_version > version:
        reason = f"the run was recorded with state version {old_version}, this code has {version}; use newer code"
        raise StateError("state_version", reason)
    if migrate_state is None:
        reason = f"the run has version {old_version}, the code {version}; give migrate_state(old, from_version)"
        raise StateError("state_version", reason)
    history.raw = True
    replay = Replay(history, scope, program)
    history.raw = False
    tips = list(replay.tips.values())
    if len(tips) != 1 or tips[0].remaining is not None or tips[0].opened is not None:
        reason = (
            f"branches of the run are open; resume it with the code of version {old_version} until they have joined"
        )
        raise StateError("state_version", reason)
    old = _fold_plain(history, replay.trunk, program)
    spec = program.spec
    values = spec.start(_migrated(migrate_state, old, old_version, version), history.start.execution_id)
    tip = tips[0]
    snapshot = SnapshotBody(
        values, history.updated, history.counts, history.steps, history.counted, [], tip.op.id if tip.op else "",
        tip.goto, tip.loops, tip.key, sorted(jumps_of(history)),
    )  # fmt: skip
    body = MigratedBody(time.time(), version, spec.reducer_identities(), msgspec.msgpack.encode(snapshot))
    return encode_row(RowKind.MIGRATED, body)


def _migrated(migrate_state: MigrateState, old: Values, old_version: int, version: int) -> Values:
    try:
        new: Any = migrate_state(old, old_version)
    except Exception as error:  # the author's function; anything it raises refuses the migration
        reason = f"migrate_state from version {old_version} to {version} raised {describe_error(error)}"
        raise StateError("state_version", reason) from error
    if not isinstance(new, dict):
        raise StateError("state_version", f"migrate_state returned {new!r:.60}; it returns a dict")
    return cast("Values", new)


def _fold_plain(history: RunHistory, entries: Sequence[Entry], program: Program) -> Values:
    values = first_values(history, program)
    names = history.reducers
    spec = program.spec
    # A run that stopped recorded the values of the fields that only the author's
    # reducers can fold.
    known = (history.ended.folded if history.ended is not None else None) or {}
    for entry in entries:
        for name, update in entry.update.items():
            reducer = find_reducer(names.get(name, "replace"))
            if reducer is not None:
                values[name] = reducer(values[name], update)
            elif name not in known:
                values[name] = _own_reducer(names[name], spec, name)(values[name], update)
    return {**values, **known}


def _own_reducer(recorded: str, spec: StateSpec[Any], name: str) -> ReducerFunction:
    """Return an author's reducer that has not changed since the run. Raise StateError."""
    field = spec.fields.get(name)
    if field is not None and is_same(recorded, identity_of(field.reducer)):
        return field.reducer
    old = recorded.partition("@")[0].removeprefix("custom:")
    reason = (
        f"its reducer {old} was changed or removed, and the run was killed before it recorded a value. "
        "Resume it once with the old code until it pauses or fails, then with this code"
    )
    raise StateError(name, reason)
