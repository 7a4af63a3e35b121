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

from atomic.processes import ExecError, ExecResult, Program, end_marked, execute, new_mark, running
from atomic.workspaces.errors import ViewError
from atomic.workspaces.host_programs import command_outside, environment_outside
from atomic.workspaces.view_orders import ViewOrders

START_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_PROGRAM = Path(__file__).with_name("namespace.py")
# Isolated from the user's settings of Python, and without packages: it starts faster.
_PYTHON = (sys.executable, "-I", "-S", "-B")


class View:
    """A place where programs see the files of a workspace at `root`."""

    def __init__(
        self,
        root: Path,
        project: Path,
        *,
        first: int | None = None,
        orders: ViewOrders | None = None,
        mark: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self._project = project
        # The first process of the namespaces, if the view has some, and what it runs.
        self._first = first
        self._orders = orders
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

        `is_short`: it ends by itself, and is Atomic's own: no program of the project is
        run in its place. In a namespace it may start others, which end with the view,
        and it waits until another short program has ended.
        """
        environment = {**(os.environ if env is None else env), **self.variables}
        if is_short:
            projects = (self.root, self._project)
            argv = (*command_outside(argv, projects, environment.get("PATH", os.defpath)),)
            environment = environment_outside(environment, projects)
        if is_short and self._orders is not None and on_output is None:
            return await self._orders.run(argv, str(cwd or self.root), environment, timeout)
        return await execute(
            *self.command(*argv, cwd=cwd),
            # A folder of the view need not exist outside; the command changes to it.
            cwd=cwd or self.root if self._first is None else "/",
            env=environment,
            timeout=timeout,
            errors="surrogateescape",
            on_output=on_output,
        )

    async def end_programs(self) -> None:
        """End all programs in the view, so that they cannot disturb the next ones.

        Without a namespace these are the ones that have the view's variables. Raises
        ExecError.
        """
        if self._orders is not None:
            await self._orders.end_programs()
        elif self.variables:
            await end_marked(self.variables)


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
    mounts = [*_pins(root), *map(_read_only, read_only), _overlay(root, lower, layer, own_user=own_user, keep=keep)]
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

    The other options are as for `open_overlay`. Raises WorkspaceError.
    """
    mounts = [*_pins(project), *map(_read_only, read_only), *_hide(hidden, visible or {})]
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


def _pins(project: Path) -> list[dict[str, Any]]:
    """Mount the folders above a project on themselves.

    A program in the view cannot rename them then: it would move the real checkout away
    and could put another folder in its place.
    """
    return [
        {"kind": "bind", "at": str(folder), "source": str(folder), "read_only": False}
        for folder in reversed(project.parents[:-1])
    ]


def _read_only(folder: Path) -> dict[str, Any]:
    return {"kind": "bind", "at": str(folder), "source": str(folder), "read_only": True}


def _hide(hidden: Sequence[Path], visible: Mapping[Path, bool]) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = []
    for folder in hidden:
        below = [
            {"path": str(path), "read_only": visible[path]}
            for path in sorted(visible)  # a folder comes before those in it
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
            raise ViewError(str(root), str(error)) from error
        if not said.isdigit():
            reason = said.removeprefix("error ") or holder.stderr_tail.rpartition("\n")[2]
            raise ViewError(str(root), reason)
        watch = asyncio.create_task(_end_if_moved(project, holder))
        stack.callback(watch.cancel)
        yield View(root, project, first=int(said), orders=ViewOrders(holder), mark=mark)


async def _end_if_moved(project: Path, holder: Program) -> None:
    """End a view if the project's path becomes another folder.

    The user may move the checkout away. Programs in the view would write to what takes
    its place.
    """
    begun = identity_of(project)
    while identity_of(project) == begun:  # noqa: ASYNC110  # nothing tells of a renamed folder on all systems
        await asyncio.sleep(_LOOK_SECONDS)
    await holder.stop(grace=0)


def identity_of(folder: Path) -> tuple[int, int] | None:
    """Return what stays the same as long as a path is the same folder."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
