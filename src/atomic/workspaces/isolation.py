"""Choose how workspaces are kept apart, by trying it.

The test of a kind takes a moment: a view is made over a small folder, a file of the
base is read in it, a file is written in it that must not be seen outside, and a child
that would stay must end with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from atomic.base.errors import AtomicError
from atomic.processes import ExecError, find_marked, new_mark
from atomic.processes.temporary_folders import find_leftovers, temporary_prefix
from atomic.workspaces.errors import ViewError
from atomic.workspaces.folders import remove_tree
from atomic.workspaces.views import View, open_guarded, open_overlay

_STAYS = "{ setsid sleep 3600 >/dev/null 2>&1 & }"
_OVERLAY_TEST = f"cat given && echo changed > given && echo new > written && {_STAYS}"
_GUARD_TEST = f'cat given && echo changed > given && test ! -w "$0" && {_STAYS}'
_SECONDS = 30.0


class IsolationKind(StrEnum):
    """Where workers work."""

    OVERLAY = "overlay"
    CLONE = "clone"
    NONE = "none"


class Isolation(msgspec.Struct, frozen=True):
    """A kind that works here, and why the kinds before it do not.

    `own_user`: private views need a user namespace. `guarded`: a clone is used in a
    private view, in which nothing can write to the user's checkout.
    """

    kind: IsolationKind
    own_user: bool = False
    reasons: tuple[str, ...] = ()
    guarded: bool = False


class IsolationError(AtomicError):
    """The kind that the user asked for does not work here."""


async def choose_isolation(wanted: str, folder: Path, project: Path) -> Isolation:
    """Return the kind to use. `folder` will hold the layers.

    `wanted` is a kind, `auto`, or `worktree`, which means `clone`. Raises
    IsolationError if that kind does not work here.
    """
    if wanted in ("clone", "worktree"):
        return await _choose_clone(folder, project)
    if wanted == "none":
        return Isolation(IsolationKind.NONE)
    reasons: list[str] = []
    for own_user in _ways():
        reason = await try_overlay(folder, project, own_user=own_user)
        if not reason:
            return Isolation(IsolationKind.OVERLAY, own_user, ())
        if reason not in reasons:
            reasons.append(reason)
    if wanted == "overlay":
        raise IsolationError(f"--isolate overlay does not work here: {'; '.join(reasons)}. Give --isolate clone")
    return await _choose_clone(folder, project, tuple(f"overlay: {reason}" for reason in reasons))


async def _choose_clone(folder: Path, project: Path, reasons: tuple[str, ...] = ()) -> Isolation:
    for own_user in _ways():
        if not await try_guard(folder, project, own_user=own_user):
            return Isolation(IsolationKind.CLONE, own_user, reasons, guarded=True)
    return Isolation(IsolationKind.CLONE, False, reasons)


def _ways() -> Sequence[bool]:
    """Return whether to try with a user namespace: root may need none."""
    return (False, True) if os.geteuid() == 0 else (True,)


async def try_overlay(folder: Path, project: Path, *, own_user: bool) -> str:
    """Return why overlays do not work, or an empty text if they do."""
    return await _try(folder, project, lambda test: _try_overlay_in(test, own_user=own_user))


async def try_guard(folder: Path, project: Path, *, own_user: bool) -> str:
    """Return why a copy cannot be used with a read-only checkout, or an empty text."""
    return await _try(folder, project, lambda test: _try_guard_in(test, project, own_user=own_user))


async def _try(folder: Path, project: Path, test_in: Callable[[Path], Awaitable[str]]) -> str:
    if sys.platform != "linux":
        return "it needs Linux"
    reason = _misplaced(folder, project)
    if reason:
        return reason
    test = await asyncio.to_thread(_make_test_folder, folder)
    try:
        return await test_in(test)
    except ViewError as error:
        return error.reason
    except ExecError as error:
        return str(error)
    finally:
        await asyncio.to_thread(remove_tree, test)


def _misplaced(folder: Path, project: Path) -> str:
    """Return which folder would not be seen inside of a view, if there is one."""
    real = Path(os.path.realpath(project))
    for name, needed in (("", folder), ("TMPDIR=", Path(tempfile.gettempdir()))):
        if Path(os.path.realpath(needed)).is_relative_to(real):
            return f"{name}{needed} is inside of the project"
    if real.is_relative_to(os.path.realpath(folder)):
        return f"the project is inside of {folder}"
    return ""


def _make_test_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for killed in find_leftovers(str(folder)):
        remove_tree(Path(killed))
    return Path(tempfile.mkdtemp(prefix=temporary_prefix("test"), dir=folder))


async def _try_overlay_in(test: Path, *, own_user: bool) -> str:
    for name in ("lower", "root"):
        (test / name).mkdir()
    (test / "lower" / "given").write_text("base\n", encoding="ascii")
    (test / "root" / "given").write_text("project\n", encoding="ascii")
    mark = new_mark()
    async with open_overlay(test / "root", test / "lower", test / "layer", own_user=own_user, mark=mark) as view:
        problem = await _run_test(view, _OVERLAY_TEST)
    if problem:
        return problem
    if (test / "root" / "written").exists() or (test / "root" / "given").read_text(encoding="ascii") != "project\n":
        return "a write inside of it was seen outside"
    return _find_survivors(mark)


async def _try_guard_in(test: Path, project: Path, *, own_user: bool) -> str:
    (test / "given").write_text("base\n", encoding="ascii")
    mark = new_mark()
    async with open_guarded(test, project, own_user=own_user, read_only=[project], mark=mark) as view:
        problem = await _run_test(view, _GUARD_TEST, str(project))
    return problem or _find_survivors(mark)


async def _run_test(view: View, script: str, *words: str) -> str:
    """Run a test in a view and return its problem. A process of the test may outlive it."""
    done = await view.run("sh", "-c", script, *words, timeout=_SECONDS)
    if done.exit_code != 0 or not done.stdout.startswith("base\n"):
        return f"a program in it could not read and write files: {done.stderr.strip() or done.stdout.strip()}"
    return ""


def _find_survivors(mark: Mapping[str, str]) -> str:
    return "a program in it did not end with it" if find_marked(mark) else ""
