"""Start programs in a workspace.

A view lasts as long as its context. At its end all processes in it have ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from atomic.processes import ExecError, ExecResult, end_marked, execute, new_mark, running
from atomic.workspaces.errors import WorkspaceError

START_SECONDS = 30.0
_PROGRAM = Path(__file__).with_name("namespace.py")
# Isolated from the user's settings of Python, and without packages: it starts faster.
_PYTHON = (sys.executable, "-I", "-S", "-B")


class View:
    """A place where programs see the files of a workspace at `root`."""

    def __init__(
        self, root: Path, project: Path, *, first: int | None = None, mark: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self._project = project
        # The first process of the namespaces, if the view has some.
        self._first = first
        # A variable that programs must get, so that their children can be found.
        self.variables = dict(mark or {})

    def path_of(self, folder: Path) -> Path:
        """Return where a folder of the user's checkout is in this view."""
        way = os.path.relpath(os.path.realpath(folder), os.path.realpath(self._project))
        return Path(os.path.normpath(self.root / way))

    @property
    def launcher(self) -> list[str]:
        """Return the beginning of a command line that starts a program in this view, in
        the folder of the same path.
        """
        if self._first is None:
            return []
        return [*_PYTHON, str(_PROGRAM), "enter", str(self._first), "."]

    def command(self, *argv: str, cwd: Path | None = None) -> list[str]:
        """Return the command that starts a program in this view."""
        if self._first is None:
            return list(argv)
        return [*_PYTHON, str(_PROGRAM), "enter", str(self._first), str(cwd or self.root), *argv]

    async def run(
        self,
        *argv: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[bytes], None] | None = None,
        is_short: bool = False,
    ) -> ExecResult:
        """Run a program like `processes.execute`. Raises ExecError.

        `is_short`: it ends by itself. In a namespace it may start others: they end with
        the view.
        """
        environment = {**(os.environ if env is None else env), **self.variables}
        return await execute(
            *self.command(*argv, cwd=cwd),
            # A folder of the view need not exist outside; the command changes to it.
            cwd=cwd or self.root if self._first is None else "/",
            env=environment,
            timeout=timeout,
            errors="surrogateescape",
            on_output=on_output,
            is_short=is_short and self._first is not None,
        )


@asynccontextmanager
async def open_overlay(
    root: Path,
    lower: Path,
    layer: Path,
    *,
    own_user: bool,
    hidden: Sequence[Path] = (),
    visible: Mapping[Path, bool] | None = None,
    beside: Mapping[Path, Path] | None = None,
    read_only: Sequence[Path] = (),
    mark: Mapping[str, str] | None = None,
    keep: bool = True,
) -> AsyncGenerator[View]:
    """Show `lower` at `root`, with writes going to the folder `layer`.

    `hidden` folders are empty in the view, but for the `visible` ones below them, each
    of which is read-only or not. Writes to a folder of `beside` go to the layer that it
    names; nothing can write to a `read_only` folder. Programs get the variable `mark`.
    With `keep=False` a crash of the machine may lose the layers, which is faster.
    `own_user`: use a user namespace, as programs without root must.

    Raises WorkspaceError.
    """
    mounts = [*map(_read_only, read_only), _overlay(root, lower, layer, own_user=own_user, keep=keep)]
    for folder, other in (beside or {}).items():
        mounts.append(_overlay(folder, folder, other, own_user=own_user, keep=keep))
    mounts += _hide(hidden, visible or {})
    async with _open(root, root, mounts, own_user=own_user, mark=mark) as view:
        yield view


@asynccontextmanager
async def open_guarded(
    folder: Path,
    project: Path,
    *,
    own_user: bool,
    read_only: Sequence[Path],
    hidden: Sequence[Path] = (),
    visible: Mapping[Path, bool] | None = None,
    mark: Mapping[str, str] | None = None,
) -> AsyncGenerator[View]:
    """Use a copy of a project where it is; nothing can write to `read_only` folders.

    The other options are those of `open_overlay`. Raises WorkspaceError.
    """
    mounts = [*map(_read_only, read_only), *_hide(hidden, visible or {})]
    async with _open(folder, project, mounts, own_user=own_user, mark=mark) as view:
        yield view


@asynccontextmanager
async def open_bound(root: Path, folder: Path, *, own_user: bool) -> AsyncGenerator[View]:
    """Show `folder` itself at `root`: writes go to it.

    Raises WorkspaceError.
    """
    mounts = [{"kind": "bind", "at": str(root), "source": str(folder), "read_only": False}]
    async with _open(root, root, mounts, own_user=own_user) as view:
        yield view


def _read_only(folder: Path) -> dict[str, Any]:
    return {"kind": "bind", "at": str(folder), "source": str(folder), "read_only": True}


def _hide(hidden: Sequence[Path], visible: Mapping[Path, bool]) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = []
    for folder in hidden:
        below = [
            {"path": str(path), "read_only": is_read_only}
            for path, is_read_only in visible.items()
            if path.is_relative_to(folder)
        ]
        mounts.append({"kind": "hide", "at": str(folder), "visible": below})
    return mounts


def _overlay(at: Path, lower: Path, layer: Path, *, own_user: bool, keep: bool) -> dict[str, Any]:
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    options = ["userxattr"] if own_user else ["redirect_dir=on"]
    if not keep:
        options.append("volatile")
    return {
        "kind": "overlay",
        "at": str(at),
        "lower": str(lower),
        "upper": str(layer / "upper"),
        "work": str(layer / "work"),
        "options": options,
    }


@asynccontextmanager
async def _open(
    root: Path,
    project: Path,
    mounts: Sequence[Mapping[str, Any]],
    *,
    own_user: bool,
    mark: Mapping[str, str] | None = None,
) -> AsyncGenerator[View]:
    spec = json.dumps({"own_user": own_user, "mounts": mounts})
    async with AsyncExitStack() as stack:
        # Errors of programs in the view are none of the view itself.
        try:
            hold = running(*_PYTHON, _PROGRAM, "hold", spec, cwd="/", env=_environment())
            holder = await stack.enter_async_context(hold)
            async with asyncio.timeout(START_SECONDS):
                said = (await holder.stdout.readline()).decode().strip()
        except (ExecError, TimeoutError) as error:
            raise WorkspaceError(f"A private view of {root} cannot be made: {error}") from error
        if not said.isdigit():
            reason = said.removeprefix("error ") or holder.stderr_tail.rpartition("\n")[2]
            raise WorkspaceError(f"A private view of {root} cannot be made: {reason}")
        yield View(root, project, first=int(said), mark=mark)


@asynccontextmanager
async def open_folder(folder: Path, project: Path, *, mark: Mapping[str, str] | None = None) -> AsyncGenerator[View]:
    """Use a copy of a project as it is, where no private view can be made.

    Programs can write to the project by its absolute path. At the end, processes that
    have the variable `mark` are killed.
    """
    mark = mark or new_mark()
    try:
        yield View(folder, project, mark=mark)
    finally:
        await end_marked(mark)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
