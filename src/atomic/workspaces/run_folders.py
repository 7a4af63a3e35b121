"""The folder of a run's workspaces: `$ATOMIC_HOME/workspaces/<run>/`.

It has `base`, and one folder for each open workspace. Those for checks and merges are
in `temporary`: nothing in them is kept.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path

from atomic.config import WorkspaceSettings
from atomic.git import Repository
from atomic.workspaces.base import Base, prepare_base, unfinished_name
from atomic.workspaces.branch_record import BranchRecord
from atomic.workspaces.checkout import open_checkout
from atomic.workspaces.contents import MAX_SIZE, find_contents
from atomic.workspaces.folders import remove_tree
from atomic.workspaces.kept_refs import drop_broken_refs
from atomic.workspaces.lfs import remove_unfinished
from atomic.workspaces.run_branch import parked_prefix
from atomic.workspaces.setup import ProjectSetup, Setup
from atomic.workspaces.views import View
from atomic.workspaces.workspace import READY, Workspace

FOLDER = "workspaces"  # below ATOMIC_HOME
_BASE = "base"
_CHECKOUT = "checkout"  # the layer of a view of the user's checkout
_TEMPORARY = "temporary"
_MAX_NAME = 60  # characters of a task's id in the name of a folder or ref


class RunFolders:
    """Makes, finds and removes the base and the workspaces of one run."""

    def __init__(
        self,
        record: BranchRecord,
        home: Path,
        project: Path,
        settings: WorkspaceSettings,
        setup: ProjectSetup | None,
        *,
        hidden: Sequence[Path] = (),
    ) -> None:
        """Describe the folder; no file is read or written yet. `hidden` folders are empty
        in private views.

        `project` is the user's folder, in which the run was started. `setup` runs once,
        in the base.
        """
        self._record = record
        self._project = project
        self._settings = settings
        self._setup = setup
        self.all_runs = home / FOLDER
        self._folder = self.all_runs / record.run
        self._hidden = [self.all_runs, *hidden, *_terminals()]
        self._base: Base | None = None
        self._preparing = asyncio.Lock()
        self._numbers = count(1)  # of temporary workspaces
        # A sentence about ignored files that were too big, when the base is prepared.
        self.left_out = ""

    @property
    def exists(self) -> bool:
        return self._folder.is_dir()

    async def remove(self) -> None:
        """Remove the base and all workspaces. Raises OSError."""
        self._base = None
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        # If Atomic is killed now, nothing that is half removed looks complete.
        base = self._folder / _BASE
        if base.is_dir():
            remove_tree(unfinished_name(base))
            base.rename(unfinished_name(base))
        for ready in self._folder.glob(f"*/{READY}"):
            ready.unlink()
        remove_tree(self._folder)

    async def base(self) -> Base:
        """Return the prepared base, and make it again if its folder is gone."""
        async with self._preparing:
            if self._base is None or not self._base.folder.is_dir():
                branch = self._record.required
                repository = self._record.repository
                max_size = MAX_SIZE if self._settings.max_size is None else self._settings.max_size
                contents = await find_contents(
                    repository, copy=self._settings.copy, max_size=max_size, project=self._project
                )
                self.left_out = contents.left_out(max_size)
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if self._base is None:
                    await self._remove_temporary()
                    await self._repair_refs(repository)
                folder = self._folder / _BASE
                setup = self._setup_in(repository)
                self._base = await prepare_base(repository, folder, branch.first, branch.name, contents, setup=setup)
            return self._base

    def _setup_in(self, repository: Repository) -> Setup | None:
        if self._setup is None:
            return None
        folder = os.path.relpath(self._setup.folder.resolve(), repository.root.resolve())
        if folder.startswith(os.pardir):  # the repository is below the project's folder
            folder = os.curdir
        return Setup(self._setup.written_to(self._folder), self._record.isolation, folder, self._setup.env)

    async def _remove_temporary(self) -> None:
        """Remove the temporary workspaces of a process that was killed."""
        folder = self._folder / _TEMPORARY
        branch = self._record.required
        base = Base(Path(branch.root), self._folder / _BASE, branch.first)
        for left in [*folder.iterdir()] if folder.is_dir() else []:
            await Workspace(base, left, self._record.isolation).remove()

    async def _repair_refs(self, repository: Repository) -> None:
        """Remove the rest of a killed process in the user's repository, and refs whose
        commits are gone: work that is still in their workspaces is parked again.
        """
        await asyncio.to_thread(remove_unfinished, repository.common_dir)
        prefix = parked_prefix(self._record.run)
        branch = self._record.required
        base = Base(Path(branch.root), self._folder / _BASE, branch.first)
        for ref in await drop_broken_refs(repository, prefix, branch.first):
            name = ref.removeprefix(prefix).partition("/")[0]
            workspace = self._workspace_in(base, self._folder / f"task-{name}")
            if workspace.exists:
                workspace.note_work()

    async def workspace(self, name: str) -> Workspace:
        """Return the workspace of a name; it may not exist yet."""
        return self._workspace_in(await self.base(), self._folder / f"task-{file_name(name)}")

    def _workspace_in(self, base: Base, folder: Path) -> Workspace:
        return Workspace(base, folder, self._record.isolation, hidden=self._hidden)

    async def create(self, name: str, commit: str) -> Workspace:
        """Make the workspace of a name again, on the run's branch. Raises WorkspaceError."""
        workspace = await self.workspace(name)
        await workspace.remove()
        await workspace.create(self._record.repository, commit, branch=self._record.required.name)
        return workspace

    @asynccontextmanager
    async def temporary(self, name: str) -> AsyncGenerator[Workspace]:
        """Describe a workspace that no other has the name of, and remove it at the end."""
        folder = self._folder / _TEMPORARY / f"{file_name(name)}-{next(self._numbers)}"
        workspace = self._workspace_in(await self.base(), folder)
        try:
            yield workspace
        finally:
            await workspace.remove()

    def open_checkout(self) -> AbstractAsyncContextManager[View]:
        """Open a view of the user's checkout, in which writes are lost."""
        return open_checkout(
            self._record.repository.root,
            self._folder / _CHECKOUT,
            self._record.isolation,
            hidden=self._hidden,
            max_size=MAX_SIZE if self._settings.max_size is None else self._settings.max_size,
        )


def _terminals() -> list[Path]:
    """Return the folders with the sockets of the user's tmux, which starts programs that
    no view holds.
    """
    folders = {os.environ.get("TMUX_TMPDIR") or "/tmp", "/tmp"}  # where tmux makes them
    return [Path(folder) / f"tmux-{os.getuid()}" for folder in sorted(folders)]


def file_name(id: str) -> str:
    """Return a name for a folder or a part of a ref: the id, or a name with a hash."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", id).strip("-")[:_MAX_NAME]
    if plain == id:
        return plain
    return f"{plain or 'task'}-{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
