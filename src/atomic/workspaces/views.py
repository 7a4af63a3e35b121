"""Start programs in a workspace.

A view lasts as long as its context. At its end all processes in it have ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

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
        return self.root / folder.relative_to(self._project)

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
    ) -> ExecResult:
        """Run a program like `processes.execute`. Raises ExecError."""
        environment = {**(os.environ if env is None else env), **self.variables}
        return await execute(
            *self.command(*argv, cwd=cwd),
            # A folder of the view need not exist outside; the command changes to it.
            cwd=cwd or self.root if self._first is None else "/",
            env=environment,
            timeout=timeout,
            errors="surrogateescape",
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
    keep: bool = True,
) -> AsyncGenerator[View]:
    """Show `lower` at `root`, with writes going to the folder `layer`.

    `hidden` folders are empty in the view, but for the `visible` ones below them, each
    of which is read-only or not. With `keep=False` a crash of the machine may lose the
    layer, which is faster. `own_user`: use a user namespace, as programs without root
    must.

    Raises WorkspaceError.
    """
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    options = ["userxattr"] if own_user else ["redirect_dir=on"]
    if not keep:
        options.append("volatile")
    overlay = {
        "kind": "overlay",
        "at": str(root),
        "lower": _escaped(lower),
        "upper": _escaped(layer / "upper"),
        "work": _escaped(layer / "work"),
        "options": options,
    }
    shown = {str(path): is_read_only for path, is_read_only in (visible or {}).items()}
    hides = [
        {
            "kind": "hide",
            "at": str(folder),
            "visible": [
                {"path": path, "read_only": is_read_only}
                for path, is_read_only in shown.items()
                if Path(path).is_relative_to(folder)
            ],
        }
        for folder in hidden
    ]
    spec = json.dumps({"own_user": own_user, "mounts": [overlay, *hides]})
    try:
        async with running(*_PYTHON, _PROGRAM, "hold", spec, cwd="/", env=_environment()) as holder:
            async with asyncio.timeout(START_SECONDS):
                said = (await holder.stdout.readline()).decode().strip()
            if not said.isdigit():
                reason = said.removeprefix("error ") or holder.stderr_tail.rpartition("\n")[2]
                raise WorkspaceError(f"A private view of {root} cannot be made: {reason}")
            yield View(root, root, first=int(said))
    except (ExecError, TimeoutError) as error:
        raise WorkspaceError(f"A private view of {root} cannot be made: {error}") from error


@asynccontextmanager
async def open_folder(folder: Path, project: Path) -> AsyncGenerator[View]:
    """Use a copy of a project as it is.

    At the end, processes started in the view are killed.
    """
    mark = new_mark()
    try:
        yield View(folder, project, mark=mark)
    finally:
        await end_marked(mark)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}


def _escaped(path: Path) -> str:
    """Return a path as an option of an overlay, whose separators are `:` and `,`."""
    text = str(path)
    for character in ("\\", ":", ","):
        text = text.replace(character, f"\\{character}")
    return text
