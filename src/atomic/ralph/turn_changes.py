"""The changes that the turns of a task made, without changes between the turns.

A `Span` is a pair of snapshots around one turn. Between two spans no agent of the task
works: changes there come from the user or from a check, and are not in the task's
evidence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from atomic.git import ChangeStatus, FileChange, FolderSnapshot, SnapshotStore, find_repository
from atomic.ralph.run_folder import Ralph, RunFolder, has_answer
from atomic.ralph.state import Span

ResultT = TypeVar("ResultT")
ALIVE = "alive"  # a file of the session's folder that is touched while a turn or a check runs
TOUCH_INTERVAL = 1.0  # seconds
SLACK = 2.0  # seconds after the last touch in which the turn may still have run
_SPANS = "spans"
_CACHES = ("__pycache__/", ".pyc")


class _Cut(msgspec.Struct, frozen=True):
    """A turn of a step that has not ended, as the journal has it."""

    before: FolderSnapshot
    after: FolderSnapshot | None = None
    files: tuple[str, ...] | None = None


async def watch_turn(ctx: Ralph, run: RunFolder, turn: Callable[[], Awaitable[ResultT]]) -> tuple[ResultT, list[Span]]:
    """Run one turn. Return its result and the spans of this step, including earlier
    attempts that were cut off.
    """
    kept = msgspec.convert(ctx.remembered(_SPANS, []), list[_Cut])
    earlier = [await _closed(run, cut) for cut in kept]
    if has_answer(ctx):
        return await turn(), earlier
    before = await run.snapshots.take()
    await ctx.remember(_SPANS, [*earlier, _Cut(before)])
    try:
        with keep_alive(run.session):
            result = await turn()
    finally:
        after = await run.snapshots.take() if run.cwd.is_dir() else before
        await ctx.remember(_SPANS, [*earlier, Span(before, after)])
    return result, [*earlier, Span(before, after)]


async def _closed(run: RunFolder, cut: _Cut) -> Span:
    """Return the span of a turn that was cut off.

    After a kill the times of changes decide which belong to it.
    """
    if cut.after is not None:
        return Span(cut.before, cut.after, cut.files)
    now = await run.snapshots.take()
    end = last_sign_of_life(run.session)
    changed = await run.snapshots.changes(cut.before, now)
    root, head = await asyncio.to_thread(_root_and_head, run.cwd)
    files = tuple(one.path for one in changed if changed_at(root / one.path) <= end)
    if head is not None and changed_at(head) > end:
        now = msgspec.structs.replace(now, head=cut.before.head)
    return Span(cut.before, now, files)


def _root_and_head(cwd: Path) -> tuple[Path, Path | None]:
    """Return the root of the paths of changes, and the file that changes whenever HEAD
    moves.
    """
    repository = find_repository(cwd)
    return (cwd, None) if repository is None else (repository.root, repository.git_dir / "logs" / "HEAD")


def changed_at(path: Path) -> float:
    """Return when a file was last changed in any way, or its folder if the file is
    gone.
    """
    for place in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            return place.lstat().st_ctime
    return 0.0


def changed_after(root: Path, paths: Iterable[str], end: float) -> set[str]:
    """Return the files that were changed after this time, or deleted from a folder that
    was.
    """
    return {path for path in paths if changed_at(root / path) > end}


def last_sign_of_life(session: Path) -> float:
    """Return until when a turn that was killed may have run, in seconds since 1970."""
    try:
        return (session / ALIVE).stat().st_mtime + SLACK
    except FileNotFoundError:  # killed before the first touch
        return 0.0


@contextmanager
def keep_alive(session: Path) -> Generator[None]:
    """Touch the session's `alive` file until the end, so that a resume knows when a
    kill happened.

    Turns and checks that run at the same time share one task, which ends with the last
    of them.
    """
    key = asyncio.get_running_loop(), session
    toucher = _touchers.get(key)
    if toucher is None:
        toucher = _touchers[key] = _Toucher(asyncio.create_task(_keep_touching(session / ALIVE)))
    toucher.users += 1
    try:
        yield
    finally:
        toucher.users -= 1
        if not toucher.users:
            del _touchers[key]
            toucher.task.cancel()


class _Toucher:
    """The task that touches a session's `alive` file, and the number of turns and
    checks that need it.
    """

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.users = 0


_touchers: dict[tuple[asyncio.AbstractEventLoop, Path], _Toucher] = {}


async def _keep_touching(path: Path) -> None:
    while True:
        _touch(path)
        await asyncio.sleep(TOUCH_INTERVAL)


def _touch(path: Path) -> None:
    with suppress(OSError):  # a full disk ends a run elsewhere, with a better message
        path.touch(mode=0o600)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans, joining those between which nothing has changed."""
    result: list[Span] = []
    for span in spans:
        last = result[-1] if result else None
        if last is not None and last.after == span.before and last.files is None and span.files is None:
            result[-1] = Span(last.before, span.after)
        else:
            result.append(span)
    return result


async def changes_of(snapshots: SnapshotStore, spans: Sequence[Span]) -> list[FileChange]:
    """Return the files that turns have changed, sorted by path, without Python caches."""
    changes: dict[str, FileChange] = {}
    for span in joined(spans):
        for one in await snapshots.changes(span.before, span.after):
            if (span.files is None or one.path in span.files) and not is_cache(one.path):
                _add(changes, one)
    return [changes[path] for path in sorted(changes)]


def _add(changes: dict[str, FileChange], new: FileChange) -> None:
    old = changes.pop(new.path, None)
    if old is None:
        changes[new.path] = new
    elif (old.status, new.status) != ("added", "deleted"):
        statuses: dict[str, ChangeStatus] = {"added": "added", "deleted": "modified", "modified": new.status}
        insertions = old.insertions + new.insertions
        deletions = old.deletions + new.deletions
        changes[new.path] = FileChange(new.path, statuses[old.status], insertions, deletions)


def is_cache(path: str) -> bool:
    """Return whether a file is a Python cache."""
    return path.endswith(_CACHES[1]) or _CACHES[0] in f"{path}/"


async def has_committed(run: RunFolder, spans: Iterable[Span]) -> bool:
    """Return whether turns have committed a change of a file."""
    repository = find_repository(run.cwd)
    for span in spans:
        old = span.before.head
        new = span.after.head
        if repository is None or new is None or old == new:
            continue
        if old is None or await repository.differing(old, new):
            return True
    return False


def has_moved(spans: Iterable[Span]) -> bool:
    """Return whether HEAD moved during a turn."""
    return any(span.before.head != span.after.head for span in spans)
