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
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from atomic.base.errors import AtomicError
from atomic.processes import ExecError, find_marked, new_mark
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.folders import remove_tree
from atomic.workspaces.views import open_overlay

_TEST = "cat given && echo changed > given && echo new > written && { setsid sleep 3600 >/dev/null 2>&1 & }"
_SECONDS = 30.0


class IsolationKind(StrEnum):
    """Where workers work."""

    OVERLAY = "overlay"
    CLONE = "clone"
    NONE = "none"


class Isolation(msgspec.Struct, frozen=True):
    """A kind that works here, and why the kinds before it do not.

    `own_user`: overlays need a user namespace.
    """

    kind: IsolationKind
    own_user: bool = False
    reasons: tuple[str, ...] = ()


class IsolationError(AtomicError):
    """The kind that the user asked for does not work here."""


async def choose_isolation(wanted: str, folder: Path, project: Path) -> Isolation:
    """Return the kind to use. `folder` will hold the layers.

    `wanted` is a kind, `auto`, or `worktree`, which means `clone`. Raises
    IsolationError if that kind does not work here.
    """
    if wanted in ("clone", "worktree"):
        return Isolation(IsolationKind.CLONE)
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
    return Isolation(IsolationKind.CLONE, False, tuple(f"overlay: {reason}" for reason in reasons))


def _ways() -> Sequence[bool]:
    """Return whether to try with a user namespace: root may need none."""
    return (False, True) if os.geteuid() == 0 else (True,)


async def try_overlay(folder: Path, project: Path, *, own_user: bool) -> str:
    """Return why overlays do not work, or an empty text if they do."""
    if sys.platform != "linux":
        return "it needs Linux"
    reason = _misplaced(folder, project)
    if reason:
        return reason
    test = await asyncio.to_thread(_make_test_folder, folder)
    try:
        return await _try_in(test, own_user=own_user)
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
    return Path(tempfile.mkdtemp(prefix="self-test-", dir=folder))


async def _try_in(test: Path, *, own_user: bool) -> str:
    for name in ("lower", "root"):
        (test / name).mkdir()
    (test / "lower" / "given").write_text("base\n", encoding="ascii")
    (test / "root" / "given").write_text("project\n", encoding="ascii")
    mark = new_mark()
    try:
        async with open_overlay(test / "root", test / "lower", test / "layer", own_user=own_user) as view:
            done = await view.run("sh", "-c", _TEST, env={**os.environ, **mark}, timeout=_SECONDS)
    except (WorkspaceError, ExecError) as error:
        return str(error)
    if done.exit_code != 0 or not done.stdout.startswith("base\n"):
        return f"a program in it could not read and write files: {done.stderr.strip() or done.stdout.strip()}"
    if (test / "root" / "written").exists() or (test / "root" / "given").read_text(encoding="ascii") != "project\n":
        return "a write inside of it was seen outside"
    if find_marked(mark):
        return "a program in it did not end with it"
    return ""
