"""The workspaces of a run, as the run and its workflow use them.

`begin` prepares everything once; a resume finds it again in the facts of the run. The
parts are the branch and its record (`branch_record`), the folders (`run_folders`), what
is kept before a workspace is removed (`parked_work`), and the merge queue
(`work_merges`).
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from atomic.config import WorkspaceSettings
from atomic.git import GitError, Repository
from atomic.processes.temporary_folders import temporary_prefix
from atomic.workspaces.base import Base
from atomic.workspaces.branch_record import BranchMovedError, BranchRecord
from atomic.workspaces.capture import Captured
from atomic.workspaces.commit_changes import ignored_files, links_outside
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.open_workspace import OpenWorkspace
from atomic.workspaces.parked_work import ParkedWork
from atomic.workspaces.rebasing import Conflict
from atomic.workspaces.run_branch import AcceptResult, Landed, RunBranch, Work
from atomic.workspaces.run_folders import RunFolders
from atomic.workspaces.run_start import choose_place
from atomic.workspaces.setup import ProjectSetup
from atomic.workspaces.uncommitted_files import commit_uncommitted, list_uncommitted
from atomic.workspaces.views import View
from atomic.workspaces.work_merges import WorkMerges
from atomic.workspaces.workspace import Workspace

TIP = "atomic-tip"  # the branch, in a workspace, that shows the commits of the other tasks
ProblemT = TypeVar("ProblemT")


class RunWorkspaces:
    """Makes, keeps and removes the workspaces of one run."""

    def __init__(
        self,
        run: str,
        home: Path,
        facts: Mapping[str, Any],
        keep: Callable[[str, Any], None],
        project: Path,
        settings: WorkspaceSettings,
        *,
        setup: ProjectSetup | None = None,
        hidden: Sequence[Path] = (),
    ) -> None:
        """Describe the workspaces of a run; no file is read or written yet.

        `facts` are values in the run's journal, `keep` adds one. `project` is the user's
        folder, in which the run was started. `setup` runs once, in the base. `hidden`
        folders are empty for the programs in workspaces, where private views work.
        """
        self._home = home
        self._project = project
        self._setup_name = "" if setup is None else setup.name
        self._record = BranchRecord(run, facts, keep)
        self._folders = RunFolders(self._record, home, project, settings, setup, hidden=hidden)
        self._parked = ParkedWork(self._record)
        self._merges = WorkMerges(self._record, self._folders, self._parked)
        self._in_use: set[str] = set()

    # -- the branch and the base --------------------------------------------------------

    @property
    def branch(self) -> RunBranch | None:
        """Return the branch of the run; None if it has no workspaces."""
        return self._record.branch

    @property
    def required_branch(self) -> RunBranch:
        return self._record.required

    @property
    def repository(self) -> Repository:
        """Return the user's repository. Raises BranchMovedError if it is gone."""
        return self._record.repository

    @property
    def left_out(self) -> str:
        """Return a sentence about ignored files that were too big, or an empty text."""
        return self._folders.left_out

    async def begin(self, wanted: str, *, include_uncommitted: bool = False) -> RunBranch | str:
        """Choose how workers are kept apart, make the branch of the run and its base.

        Call it again, as long as nothing was done in a workspace, to begin with the
        user's files as they are now.

        Return why the run must work in the checkout itself, if it must. Raises
        IsolationError if the user wants a kind that does not work here, WorkspaceError,
        BranchMovedError, GitError.
        """
        try:
            return await self._begin(wanted, include_uncommitted=include_uncommitted)
        except OSError as error:
            raise WorkspaceError(f"Workspaces cannot be made in {self._folders.all_runs}: {error}") from error

    async def _begin(self, wanted: str, *, include_uncommitted: bool) -> RunBranch | str:
        chosen = await choose_place(wanted, self._project, self._folders.all_runs)
        if isinstance(chosen, str):
            return chosen
        await self._park_unfinished()
        repository, isolation = chosen
        start, upstream = await repository.head()
        assert start is not None  # `choose_place` has looked
        first = start
        if include_uncommitted:
            first = await commit_uncommitted(repository, start, run=self._record.run, home=self._home)
        branch = await self._record.make(
            repository, isolation, start=start, first=first, upstream=upstream or "", setup=self._setup_name
        )
        await self._folders.remove()
        await self.base()
        return branch

    async def _park_unfinished(self) -> None:
        """Keep the work of a killed use of the workspaces: their folders are removed."""
        if self.branch is None or not self._folders.exists:
            return
        for name in self._record.starts:
            workspace = await self.workspace(name)
            if workspace.exists and workspace.has_unparked_work:
                await self._park_cut(name, 0, f"Unfinished work of {name}")
            self._record.note_start(name, None)

    async def park_left(self, *, is_over: bool) -> None:
        """Park the work that a stopped process has left in workspaces.

        `is_over`: the run never continues, so its workspaces are removed too. Otherwise a
        resume continues in them. Raises WorkspaceError, GitError.
        """
        if self.branch is None or not self._folders.exists:
            return
        for name, start in self._record.starts.items():
            workspace = await self.workspace(name)
            if not workspace.exists or not workspace.has_unparked_work:
                continue
            captured = await self._park_cut(name, 0, f"Unfinished work of {name}")
            if not is_over and not await workspace.is_sound():
                await self.create(name, captured.result, start=start)
        if is_over:
            await self._folders.remove()

    async def base(self) -> Base:
        """Return the prepared base, and make it again if its folder is gone."""
        return await self._folders.base()

    async def tip(self) -> str:
        """Return the last commit of the run's branch.

        Commits that were added to it since count. Raises BranchMovedError.
        """
        return await self._record.tip()

    async def uncommitted(self) -> list[str]:
        """Return the user's files that differ from the last commit."""
        return await list_uncommitted(self.repository)

    def keep_accept_result(self, result: AcceptResult) -> None:
        """Record whether the run's branch was merged into the user's."""
        self._record.keep_accept_result(result)

    async def close(self, *, completed: bool = False) -> None:
        """Remove the folder of the run if no workspace is left: only a run that
        continues in one needs the base.

        A completed run needs none: work left in them is parked. Raises
        WorkspaceError.
        """
        if self.branch is None:
            return
        await self._close_folders(completed=completed)
        with suppress(BranchMovedError, GitError):  # the user has removed the repository
            await self._record.remove_unused()

    async def _close_folders(self, *, completed: bool) -> None:
        if not self._folders.exists:
            return
        left = [name for name in self._record.starts if (await self.workspace(name)).exists]
        if completed:
            for name in left:
                await self.put_away(name)
        if completed or not left:
            await self._folders.remove()

    # -- one workspace ------------------------------------------------------------------

    async def workspace(self, name: str) -> Workspace:
        """Return a workspace of the run; it may not exist yet."""
        return await self._folders.workspace(name)

    async def create(self, name: str, commit: str, *, start: str = "") -> Workspace:
        """Make a new workspace at a commit, on the run's branch.

        One of that name is removed. Work of a killed use is parked before;
        call `park` before if other programs have worked in it. `start` is where its work
        began, if that is another commit.
        """
        former = await self.workspace(name)
        if former.exists and former.has_unparked_work:
            await self._park_cut(name, 0, f"Unfinished work of {name}")
        self._record.note_start(name, start or commit)
        return await self._folders.create(name, commit)

    @asynccontextmanager
    async def use(
        self,
        name: str,
        *,
        message: str,
        start: str = "",
        at: str = "",
        attempt: int = 0,
        keep: bool = False,
        former: tuple[str, ...] = (),
        before_end: Callable[[Work], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[OpenWorkspace]:
        """Open the workspace of that name, and park everything in it at the end.

        A workspace that does not exist is made: at the commit `at`, else at `start`,
        else at the tip of the run's branch. Its work are the commits after `start`.
        `message` is for files that are not committed at the end, and `attempt` is part
        of the name of the ref; 0 means the next one. `former` are the commits of works
        that are continued; the tip is then shown as the branch `atomic-tip`.

        At its end it is removed, unless it is to be kept. `before_end` gets its work
        first. If the body fails, its work is parked too. A body that is
        cancelled or paused leaves it as it is, to continue in it. Raises
        BranchMovedError, WorkspaceError.
        """
        if name in self._in_use:
            raise WorkspaceError(f'The workspace "{name}" is in use: give another one another name')
        self._in_use.add(name)
        try:
            async with self._use(name, message, start, at, attempt, former, keep=keep, before_end=before_end) as place:
                yield place
        finally:
            self._in_use.remove(name)

    @asynccontextmanager
    async def _use(
        self,
        name: str,
        message: str,
        start: str,
        at: str,
        attempt: int,
        former: tuple[str, ...],
        *,
        keep: bool,
        before_end: Callable[[Work], Awaitable[None]] | None,
    ) -> AsyncGenerator[OpenWorkspace]:
        workspace = await self.workspace(name)
        if not workspace.exists:
            begun = start or at or await self.tip()
            workspace = await self.create(name, at or begun, start=begun)
        elif workspace.has_unparked_work:
            captured = await self._park_cut(name, attempt, message)
            if not await workspace.is_sound():  # its programs were killed, or have damaged their repository
                workspace = await self.create(name, captured.result, start=self._record.starts.get(name, start))
        start = start or self._record.starts[name]
        if former:
            await self.bring_tip(name, await self.tip(), former[-1])
        workspace.note_work()
        try:
            async with workspace.open() as view:
                place = OpenWorkspace(name, start, view)
                yield place
        except Exception:  # whatever failed, its files are kept before the error continues
            await self._end(name, start, attempt, message)
            if not keep:
                await self.remove(name)
            raise
        work = msgspec.structs.replace(await self._end(name, start, attempt, message), former=former)
        place.end(work)
        if before_end is not None:
            await before_end(work)
        if not keep:
            await self.remove(name)

    async def _end(self, name: str, start: str, attempt: int, message: str) -> Work:
        number = attempt or await self._parked.next_attempt(name)
        captured = await self.park(name, number, message)
        (await self.workspace(name)).note_parked()
        return Work(
            name,
            title=message.partition("\n")[0],
            attempt=number,
            start=start,
            commit=captured.result,
            base=await self._merges.builds_on(start, captured.result) or "",
            unfinished=captured.unfinished,
            ref=self.ref(name, number),
        )

    async def _park_cut(self, name: str, attempt: int, message: str) -> Captured:
        """Keep the work of a use that was killed or paused: the next one may delete it."""
        number = attempt or await self._parked.next_attempt(name)
        captured = await self.park(name, await self._parked.next_cut(name, number), message)
        (await self.workspace(name)).note_parked()
        return captured

    async def bring_tip(self, name: str, tip: str, result: str) -> None:
        """Show the tip of the run's branch in a workspace, as the branch `atomic-tip`.

        If the worker has damaged its repository, the workspace is made again at
        `result`, the commit that was kept of it.
        """
        try:
            await (await self.workspace(name)).add_branch(self.repository, TIP, tip)
        except WorkspaceError:
            again = await self.create(name, result, start=self._record.starts.get(name, ""))
            await again.add_branch(self.repository, TIP, tip)

    async def settle(self, name: str, result: str) -> None:
        """Let a worker continue with the commit that was made of its uncommitted files.

        If the worker has damaged its repository, the workspace is made again.
        """
        try:
            await (await self.workspace(name)).settle(self.repository, result)
        except WorkspaceError:
            await self.create(name, result, start=self._record.starts.get(name, ""))

    def ref(self, name: str, attempt: int | str) -> str:
        """Return the ref that keeps the work of an attempt in a workspace."""
        return self._parked.ref(name, attempt)

    async def park(self, name: str, attempt: int | str, message: str) -> Captured:
        """Keep everything in a workspace at the ref of an attempt.

        No program may run in it. `message` is for files that are not committed. Work
        that the ref keeps already is kept next to it. Raises WorkspaceError, GitError.
        """
        return await self._parked.park(await self.workspace(name), self.ref(name, attempt), message)

    async def remove(self, name: str) -> None:
        """Remove a workspace. What `park` did not keep is lost."""
        await (await self.workspace(name)).remove()
        self._record.note_start(name, None)

    async def put_away(self, name: str) -> None:
        """Park the work in a workspace, if it exists, and remove it."""
        if (await self.workspace(name)).exists:
            await self.park(name, await self._parked.next_attempt(name), f"Unfinished work of {name}")
            await self.remove(name)

    # -- look at a commit or at the checkout --------------------------------------------

    @asynccontextmanager
    async def fresh(self, name: str, commit: str) -> AsyncGenerator[View]:
        """Open a new workspace at a commit, and remove it at the end.

        Nothing in it is kept: it is for checks. There may be two of the same name: two
        tasks may have made the same commit.
        """
        branch = self.required_branch.name
        async with (
            self._folders.temporary(f"check-{name}") as workspace,
            workspace.open_new(self.repository, commit, branch=branch) as view,
        ):
            yield view

    def checkout(self) -> AbstractAsyncContextManager[View]:
        """Open a view of the user's checkout as it is; writes in it are lost.

        Raises WorkspaceError.
        """
        return self._folders.open_checkout()

    @asynccontextmanager
    async def files_of(self, commit: str) -> AsyncGenerator[Path]:
        """Write the files of a commit to a temporary folder, as git stores them."""
        with tempfile.TemporaryDirectory(prefix=temporary_prefix("files")) as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            copy = Path(folder) / "files"
            await self.repository.git("read-tree", commit, env=env)
            await self.repository.git("checkout-index", "--all", f"--prefix={copy}/", env=env)
            copy.mkdir(exist_ok=True)
            yield copy

    async def links_outside(self, base: str, result: str) -> list[str]:
        """Return the links of a result that lead out of the project. Raises GitError."""
        return await links_outside(self.repository, base, result)

    async def ignored_files(self, base: str, result: str) -> list[str]:
        """Return the new files of a result that the user's ignore rules name.

        Raises GitError.
        """
        return await ignored_files(self.repository, base, result)

    # -- merge --------------------------------------------------------------------------

    async def merge(
        self, work: Work, *, order: int = 0, check: Callable[[str], Awaitable[ProblemT | None]] | None = None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the run's branch, and move the branch.

        Of several works the lowest order that waits is next. Each is put on top of the
        one before it, and lands after it; their checks run at the same time. `check`
        gets the commit that the branch would move to, more than once if one below it
        does not land. If it returns a problem, the branch does not move, and the problem
        is returned. Work that is on the branch already is not merged again. Raises
        BranchMovedError, WorkspaceError.
        """
        return await self._merges.merge(work, order=order, check=check)
