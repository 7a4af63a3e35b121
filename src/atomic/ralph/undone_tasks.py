"""Finished tasks whose changes the user has taken back while no agent worked."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from atomic.git import FolderSnapshot
from atomic.ralph.run_folder import RunFolder

_FACT = "undone"


def undone_tasks(facts: Mapping[str, Any]) -> list[str]:
    """Return the finished tasks whose changes were gone when no turn had run."""
    return facts.get(_FACT, [])


async def note_undone_tasks(
    run: RunFolder, before: FolderSnapshot, now: FolderSnapshot, *, by_user: Set[str] | None = None
) -> None:
    """Record finished tasks whose changes are gone.

    No turn has run since `before`, or only the files in `by_user` have changed while
    none ran.
    """
    changed = await _changed_paths(run, before, now)
    if by_user is not None:
        changed &= by_user
    undone = undone_tasks(run.facts)
    for id, proof in run.evidence.items():
        spans = run.spans(id)
        files = {*proof.changed_files}
        if id in undone or proof.status != "passed" or not spans or files.isdisjoint(changed):
            continue
        if files.isdisjoint(await _changed_paths(run, spans[0].before, now)):
            undone = [*undone, id]
            run.facts.set(_FACT, undone)
            run.say(f"the changes of task {id} were undone while no agent worked; the run does not do it again")


async def _changed_paths(run: RunFolder, before: FolderSnapshot, after: FolderSnapshot) -> set[str]:
    return {one.path for one in await run.snapshots.changes(before, after)}
