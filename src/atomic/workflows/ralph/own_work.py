"""What the turns of a task have changed, and nothing that changed while no turn was under way.

A `Span` is a pair of snapshots around one turn. Between two spans no agent of the task has worked: what changes there
is the user's, or left by a check, and is not in the task's evidence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from atomic.git import FileChange, Picture, Pictures, find_repository
from atomic.git.pictures import ChangeStatus
from atomic.workflows.ralph.calls import has_answer
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.state import Span

ResultT = TypeVar("ResultT")
ALIVE = "alive"  # a file of the session's folder that is touched while a turn or a check runs
BEAT = 1.0  # seconds between two touches
SLACK = 2.0  # seconds after the last touch in which the turn may still have run
_SPANS = "spans"
_CACHES = ("__pycache__/", ".pyc")


class _Cut(msgspec.Struct, frozen=True):
    """A turn of a step that has not ended, as the journal has it."""

    before: Picture
    after: Picture | None = None
    files: tuple[str, ...] | None = None


async def watch_turn(ctx: Ralph, desk: Desk, turn: Callable[[], Awaitable[ResultT]]) -> tuple[ResultT, list[Span]]:
    """Run one turn; its result, and the spans of this step: those of earlier attempts that were cut, and this one."""
    earlier = await _earlier_spans(ctx, desk)
    if has_answer(ctx):
        return await turn(), earlier
    before = await desk.pictures.take()
    await ctx.remember(_SPANS, [*earlier, _Cut(before)])
    try:
        with beating(desk.session):
            result = await turn()
    finally:
        after = await desk.pictures.take() if desk.cwd.is_dir() else before
        await ctx.remember(_SPANS, [*earlier, Span(before, after)])
    return result, [*earlier, Span(before, after)]


async def _earlier_spans(ctx: Ralph, desk: Desk) -> list[Span]:
    kept = msgspec.convert(ctx.remembered(_SPANS, []), list[_Cut])
    return [await _closed(desk, cut) for cut in kept]


async def _closed(desk: Desk, cut: _Cut) -> Span:
    """The span of a turn that was cut. After a kill the time of each change decides whose it is."""
    if cut.after is not None:
        return Span(cut.before, cut.after, cut.files)
    now = await desk.pictures.take()
    end = last_sign_of_life(desk.session)
    changed = await desk.pictures.changes(cut.before, now)
    root, head = await asyncio.to_thread(_root_and_head, desk.cwd)
    files = tuple(one.path for one in changed if changed_at(root / one.path) <= end)
    moved = head is not None and changed_at(head) > end
    return Span(cut.before, msgspec.structs.replace(now, head=cut.before.head) if moved else now, files)


def _root_and_head(cwd: Path) -> tuple[Path, Path | None]:
    """The folder that paths of changes begin at, and the file that changes whenever HEAD moves."""
    repository = find_repository(cwd)
    return (cwd, None) if repository is None else (repository.root, repository.git_dir / "logs" / "HEAD")


def changed_at(path: Path) -> float:
    """When a file was last changed in any way; of one that is gone, when its folder was."""
    for place in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            return place.lstat().st_ctime
    return 0.0


def last_sign_of_life(session: Path) -> float:
    """Return until when a turn that was killed may have run, in seconds since 1970."""
    try:
        return (session / ALIVE).stat().st_mtime + SLACK
    except FileNotFoundError:  # killed before the first
        return 0.0


@contextmanager
def beating(session: Path) -> Generator[None]:
    """Touch the session's sign of life until the end, so that a resume knows when a kill came.

    Turns and checks that run at the same time share one task, which ends with the last of them.
    """
    key = asyncio.get_running_loop(), session
    beat = _beats.get(key)
    if beat is None:
        beat = _beats[key] = _Beat(asyncio.create_task(_keep_touching(session / ALIVE)))
    beat.users += 1
    try:
        yield
    finally:
        beat.users -= 1
        if not beat.users:
            del _beats[key]
            beat.task.cancel()


class _Beat:
    """The task that touches a session's sign of life, and the number of turns and checks that need it."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task, self.users = task, 0


_beats: dict[tuple[asyncio.AbstractEventLoop, Path], _Beat] = {}


async def _keep_touching(path: Path) -> None:
    while True:
        _touch(path)
        await asyncio.sleep(BEAT)


def _touch(path: Path) -> None:
    with suppress(OSError):  # a full disk ends a run elsewhere, with a better message
        path.touch(mode=0o600)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans, with those as one between which nothing has changed."""
    result: list[Span] = []
    for span in spans:
        last = result[-1] if result else None
        if last is not None and last.after == span.before and last.files is None and span.files is None:
            result[-1] = Span(last.before, span.after)
        else:
            result.append(span)
    return result


async def own_changes(pictures: Pictures, spans: Sequence[Span]) -> list[FileChange]:
    """The files that turns have changed, by their paths; caches of Python are none."""
    changes: dict[str, FileChange] = {}
    for span in joined(spans):
        for one in await pictures.changes(span.before, span.after):
            if (span.files is None or one.path in span.files) and not is_cache(one.path):
                _add(changes, one)
    return [changes[path] for path in sorted(changes)]


def _add(changes: dict[str, FileChange], new: FileChange) -> None:
    old = changes.pop(new.path, None)
    if old is None:
        changes[new.path] = new
    elif (old.status, new.status) != ("added", "deleted"):
        statuses: dict[str, ChangeStatus] = {"added": "added", "deleted": "modified", "modified": new.status}
        lines = old.insertions + new.insertions, old.deletions + new.deletions
        changes[new.path] = FileChange(new.path, statuses[old.status], *lines)


def is_cache(path: str) -> bool:
    """Whether a file is one that Python writes by itself."""
    return path.endswith(_CACHES[1]) or _CACHES[0] in f"{path}/"


async def has_committed(desk: Desk, spans: Iterable[Span]) -> bool:
    """Whether turns have committed something; a commit that changes no file is nothing."""
    repository = find_repository(desk.cwd)
    for span in spans:
        old, new = span.before.head, span.after.head
        if repository is None or new is None or old == new:
            continue
        if old is None or await repository.differing(old, new):
            return True
    return False


def has_moved(spans: Iterable[Span]) -> bool:
    """Whether another commit was checked out after a turn than before it."""
    return any(span.before.head != span.after.head for span in spans)
