"""The workspaces of a run: its base, its branch, parked work, and the merge queue.

`begin` prepares everything once; a resume finds it again in the facts of the run. The
folder of a run's workspaces is `$ATOMIC_HOME/workspaces/<run>/`: `base`, and one folder
for each open workspace; those for checks and merges are in `temporary`. Everything that
a worker leaves is kept in the user's repository, below `refs/atomic/<run>/`, before its
workspace is removed.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from atomic.base.errors import AtomicError
from atomic.config import WorkspaceSettings
from atomic.git import Repository, find_repository
from atomic.git.calls import run_git, split
from atomic.processes.temporary_folders import temporary_prefix
from atomic.workspaces.base import Base, prepare_base
from atomic.workspaces.capture import Author, Captured
from atomic.workspaces.checkout import open_checkout
from atomic.workspaces.commit_changes import ignored_files, links_outside
from atomic.workspaces.contents import MAX_SIZE, find_contents
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.folders import remove_tree
from atomic.workspaces.isolation import Isolation, IsolationError, IsolationKind, choose_isolation
from atomic.workspaces.merging import Merged, MergeQueue, find_base, find_dropped, move_branch, rebase
from atomic.workspaces.obstacles import find_obstacle
from atomic.workspaces.open_workspace import OpenWorkspace
from atomic.workspaces.rebasing import Conflict
from atomic.workspaces.run_branch import (
    FACT,
    AcceptResult,
    Landed,
    RunBranch,
    Work,
    branch_name,
    parked_prefix,
    read_branch,
)
from atomic.workspaces.setup import ProjectSetup, Setup
from atomic.workspaces.views import View
from atomic.workspaces.workspace import Workspace

FOLDER = "workspaces"  # below ATOMIC_HOME
BASE = "base"
CHECKOUT = "checkout"  # the layer of a view of the user's checkout
TEMPORARY = "temporary"  # workspaces in which nothing is worth keeping
TIP = "atomic-tip"  # the branch, in a workspace, that shows the commits of the other tasks
STARTS = "workspaces"  # the fact with the commit at which each workspace began, by name
_LINK_TO_COMMIT = "160000"  # the mode of a submodule
_MAX_NAME = 60  # characters of a task's id in the name of a ref
ProblemT = TypeVar("ProblemT")


class BranchMovedError(AtomicError):
    """The branch of a run is not where Atomic left it, and not ahead of that."""

    code = "branch_changed"


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
    ) -> None:
        """Describe the workspaces of a run; no file is read or written yet.

        `facts` are values in the run's journal, `keep` adds one. `project` is the user's
        folder, in which the run was started. `setup` runs once, in the base.
        """
        self._run = run
        self._facts = facts
        self._keep = keep
        self._project = project
        self._settings = settings
        self._setup = setup
        self._all = home / FOLDER
        self._folder = self._all / run
        self._queue = MergeQueue()
        self._base: Base | None = None
        self._in_use: set[str] = set()
        self._preparing = asyncio.Lock()
        # A sentence about ignored files that were too big, when the base is prepared.
        self.left_out = ""
        self._numbers = count(1)  # of temporary workspaces

    @property
    def branch(self) -> RunBranch | None:
        """Return the branch of the run; None if it has no workspaces."""
        return read_branch(self._facts)

    @property
    def required_branch(self) -> RunBranch:
        found = self.branch
        assert found is not None, "`begin` comes first"
        return found

    @property
    def repository(self) -> Repository:
        """Return the user's repository. Raises BranchMovedError if it is gone."""
        found = find_repository(self.required_branch.root)
        if found is None:
            raise BranchMovedError(
                f"The repository in {self.required_branch.root} is gone: restore it, then atomic resume {self._run}"
            )
        return found

    async def begin(self, wanted: str, *, include_uncommitted: bool = False) -> RunBranch | str:
        """Choose how workers are kept apart, make the branch of the run and its base.

        Call it again, as long as nothing was done in a workspace, to begin with the
        user's files as they are now.

        Return why the run must work in the checkout itself, if it must. Raises
        IsolationError if the user wants a kind that does not work here, WorkspaceError.
        """
        chosen = await self._choose(wanted)
        if isinstance(chosen, str):
            return chosen
        repository, isolation = chosen
        branch = await self._make_branch(repository, isolation, include_uncommitted=include_uncommitted)
        self._base = None
        await asyncio.to_thread(remove_tree, self._folder)
        await self.base()
        return branch

    async def _choose(self, wanted: str) -> tuple[Repository, Isolation] | str:
        if wanted == IsolationKind.NONE:
            return "--isolate none"
        repository = find_repository(self._project)
        reason = await self._find_reason(repository)
        if repository is None or reason:
            if wanted == "auto":
                return reason
            raise IsolationError(f"--isolate {wanted} does not work here: {reason}. Give --isolate none")
        return repository, await choose_isolation(wanted, self._all, repository.root)

    async def _find_reason(self, repository: Repository | None) -> str:
        """Return why workspaces would not be right, or an empty text."""
        if repository is None:
            if await asyncio.to_thread(_is_git_folder, self._project):
                raise WorkspaceError(
                    f"{self._project} is inside of a git folder (a bare repository), which has no files to work on: "
                    "clone it, and run there"
                )
            return f"{self._project} is in no git repository"
        commit, _ = await repository.head()
        if commit is None:
            return "the repository has no commit"
        return await find_obstacle(repository, commit, self._all)

    async def _make_branch(
        self, repository: Repository, isolation: Isolation, *, include_uncommitted: bool
    ) -> RunBranch:
        start, upstream = await repository.head()
        assert start is not None  # `_choose` has looked
        first = start
        if include_uncommitted:
            first = await self._commit_uncommitted(repository, start)
        branch = RunBranch(
            name=branch_name(self._run),
            kind=isolation.kind,
            root=str(repository.root),
            start=start,
            first=first,
            tip=first,
            upstream=(upstream or "").removeprefix("refs/heads/"),
            own_user=isolation.own_user,
            guarded=isolation.guarded,
            reasons=isolation.reasons,
            setup="" if self._setup is None else self._setup.name,
        )
        known = self.branch
        ours = ("", first) if known is None else ("", first, known.first)
        current = (await repository.git("for-each-ref", "--format=%(objectname)", branch.ref)).strip()
        # A branch that is not known could be the user's, so it is recorded before it is made.
        if known is None and current:
            raise _exists(branch.name)
        self._keep(FACT, branch)
        if current not in ours or not await move_branch(repository, branch.name, first, current or "0" * len(first)):
            raise _exists(branch.name)
        return branch

    async def _commit_uncommitted(self, repository: Repository, start: str) -> str:
        """Return a commit of the user's files as they are, with `start` as its parent.

        The user's index is not touched. Without uncommitted files, return `start`.
        """
        author = await self._author(repository)
        with tempfile.TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index"), **_identity(author)}
            await repository.git("read-tree", start, env=env)
            await repository.git("add", "--all", "--", ".", env=env)
            await self._check_added(repository, start, env)
            tree = (await repository.git("write-tree", env=env)).strip()
            if tree == (await repository.git("rev-parse", f"{start}^{{tree}}")).strip():
                return start
            message = f"Add uncommitted files\n\nAtomic-Run: {self._run}"
            return (await repository.git("commit-tree", tree, "-p", start, "-m", message, env=env)).strip()

    async def _check_added(self, repository: Repository, start: str, env: Mapping[str, str]) -> None:
        """Take Atomic's own files out of an index. Raises WorkspaceError if it has a
        repository inside of the user's, of which git adds only the name of a commit.
        """
        home = await asyncio.to_thread(self._all.parent.resolve)
        if home.is_relative_to(repository.root):
            own = str(home.relative_to(repository.root))
            await repository.git("rm", "-r", "--cached", "--quiet", "--ignore-unmatch", "--", own, env=env)
        words = ("diff-index", "--cached", "-z", "--no-renames", "--raw", "--diff-filter=AT", start)
        entries = split(await repository.git(*words, env=env))
        for facts, path in zip(entries[::2], entries[1::2], strict=True):
            if facts.split(" ")[1] == _LINK_TO_COMMIT:
                raise WorkspaceError(
                    f"{path} is a repository of its own, whose files cannot be part of the run's branch: let git "
                    "ignore it, move it away, or run without --include-uncommitted"
                )

    async def base(self) -> Base:
        """Return the prepared base, and make it again if its folder is gone."""
        async with self._preparing:
            if self._base is None or not self._base.folder.is_dir():
                branch = self.required_branch
                repository = self.repository
                max_size = MAX_SIZE if self._settings.max_size is None else self._settings.max_size
                contents = await find_contents(
                    repository, copy=self._settings.copy, max_size=max_size, project=self._project
                )
                self.left_out = contents.left_out(max_size)
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if self._base is None:
                    await self._remove_temporary()
                folder = self._folder / BASE
                setup = self._setup_in(repository)
                self._base = await prepare_base(repository, folder, branch.first, branch.name, contents, setup=setup)
            return self._base

    def _setup_in(self, repository: Repository) -> Setup | None:
        if self._setup is None:
            return None
        folder = os.path.relpath(self._setup.folder.resolve(), repository.root.resolve())
        if folder.startswith(os.pardir):  # the repository is below the project's folder
            folder = os.curdir
        return Setup(self._setup.written_to(self._folder), self._isolation, folder, self._setup.env)

    async def _remove_temporary(self) -> None:
        """Remove the temporary workspaces of a process that was killed."""
        folder = self._folder / TEMPORARY
        branch = self.required_branch
        base = Base(Path(branch.root), self._folder / BASE, branch.first)
        for left in [*folder.iterdir()] if folder.is_dir() else []:
            await Workspace(base, left, self._isolation).remove()

    @property
    def _isolation(self) -> Isolation:
        branch = self.required_branch
        return Isolation(branch.kind, branch.own_user, branch.reasons, branch.guarded)

    async def tip(self) -> str:
        """Return the last commit of the run's branch.

        Commits that were added to it since count. Raises BranchMovedError.
        """
        branch = self.required_branch
        listed = await self.repository.git("for-each-ref", "--format=%(objectname)", branch.ref)
        current = listed.strip()
        if current == branch.tip:
            return current
        if not current and STARTS not in self._facts:  # Atomic was killed before it had made the branch
            if not await move_branch(self.repository, branch.name, branch.first, "0" * len(branch.first)):
                raise _exists(branch.name)
            return branch.first
        if current and await self.repository.is_ancestor(branch.tip, current):
            landing = branch.landing
            is_landing = landing is not None and await self.repository.is_ancestor(landing.commit, current)
            branch = self.required_branch
            if branch.tip == current:  # a task has landed meanwhile
                return current
            if landing is not None and is_landing:
                self._note_landed(landing, current)  # Atomic was killed when it had moved the branch
            else:
                self._keep(FACT, msgspec.structs.replace(branch, tip=current))
            return current
        what = f"points to {current[:12]}" if current else "was deleted"
        raise BranchMovedError(
            f"The branch {branch.name} {what}: Atomic left it at {branch.tip[:12]}. To continue from there: "
            f"git branch -f {branch.name} {branch.tip[:12]} && atomic resume {self._run}"
        )

    async def workspace(self, name: str) -> Workspace:
        """Return a workspace of the run; it may not exist yet."""
        return await self._workspace_in(f"task-{file_name(name)}")

    async def _workspace_in(self, folder: str) -> Workspace:
        return Workspace(await self.base(), self._folder / folder, self._isolation, hidden=[self._all])

    async def create(self, name: str, commit: str, *, start: str = "") -> Workspace:
        """Make a new workspace at a commit, on the run's branch.

        One of that name is removed. Call `park` before, if it may have work in it.
        `start` is where its work began, if that is another commit.
        """
        self._note_start(name, start or commit)
        return await self._create_in(f"task-{file_name(name)}", commit)

    async def _create_in(self, folder: str, commit: str) -> Workspace:
        workspace = await self._workspace_in(folder)
        await workspace.remove()
        await workspace.create(self.repository, commit, branch=self.required_branch.name)
        return workspace

    def _starts(self) -> dict[str, str]:
        return {**self._facts.get(STARTS, {})}

    def _note_start(self, name: str, start: str | None) -> None:
        known = self._starts()
        starts = {other: commit for other, commit in known.items() if other != name}
        if start is not None:
            starts[name] = start
        if starts != known:
            self._keep(STARTS, starts)

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
        first. If the body fails, its work is parked all the same. A body that is
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
            await self._park_cut(name, attempt, message)
        start = start or self._starts()[name]
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
        number = attempt or await self._next_attempt(name)
        captured = await self.park(name, number, message)
        (await self.workspace(name)).note_parked()
        return Work(
            name,
            title=message.partition("\n")[0],
            attempt=number,
            start=start,
            commit=captured.result,
            base=await self.builds_on(start, captured.result) or "",
            unfinished=captured.unfinished,
            ref=self.ref(name, number),
        )

    async def _park_cut(self, name: str, attempt: int, message: str) -> None:
        """Keep what a use of a workspace left that was killed or paused: the next one
        may delete it.
        """
        number = attempt or await self._next_attempt(name)
        prefix = f"{self.ref(name, number)}-cut-"
        listed = await self.repository.git("for-each-ref", "--format=%(refname)", os.path.dirname(prefix))
        cuts = [ref for ref in listed.splitlines() if ref.startswith(prefix)]
        await self.park(name, f"{number}-cut-{len(cuts) + 1}", message)

    async def _next_attempt(self, name: str) -> int:
        """Return a number that is not in use: nothing that is parked is replaced."""
        folder = os.path.dirname(self.ref(name, 1))
        listed = await self.repository.git("for-each-ref", "--format=%(refname)", f"{folder}/")
        numbers = [os.path.basename(ref) for ref in listed.splitlines()]
        return 1 + max((int(number) for number in numbers if number.isdigit()), default=0)

    @asynccontextmanager
    async def fresh(self, name: str, commit: str) -> AsyncGenerator[View]:
        """Open a new workspace at a commit, and remove it at the end.

        Nothing in it is kept: it is for checks. There may be two of the same name: two
        tasks may have made the same commit.
        """
        async with self._temporary(f"check-{name}", commit) as workspace, workspace.open() as view:
            yield view

    @asynccontextmanager
    async def _temporary(self, name: str, commit: str) -> AsyncGenerator[Workspace]:
        """Make a workspace that no other has the name of, and remove it at the end."""
        base = await self.base()
        folder = self._folder / TEMPORARY / f"{file_name(name)}-{next(self._numbers)}"
        workspace = Workspace(base, folder, self._isolation, hidden=[self._all])
        try:
            await workspace.create(self.repository, commit, branch=self.required_branch.name)
            yield workspace
        finally:
            await workspace.remove()

    @asynccontextmanager
    async def checkout(self) -> AsyncGenerator[View]:
        """Open a view of the user's checkout as it is; what is written in it is lost.

        Raises WorkspaceError.
        """
        limits = {} if self._settings.max_size is None else {"max_size": self._settings.max_size}
        root = self.repository.root
        layer = self._folder / CHECKOUT
        async with open_checkout(root, layer, self._isolation, hidden=[self._all], **limits) as view:
            yield view

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

    def ref(self, name: str, attempt: int | str) -> str:
        """Return the ref that keeps what an attempt left in a workspace."""
        return f"{parked_prefix(self._run)}{file_name(name)}/{attempt}"

    async def park(self, name: str, attempt: int | str, message: str) -> Captured:
        """Keep everything in a workspace at the ref of an attempt.

        No program may run in it. `message` is for files that are not committed. Work
        that the ref keeps already is kept beside it. Raises WorkspaceError.
        """
        workspace = await self.workspace(name)
        repository = self.repository
        ref = self.ref(name, attempt)
        former = (await repository.git("for-each-ref", "--format=%(objectname)", ref)).strip()
        if not former:
            return await workspace.capture(repository, ref, await self._author(repository), message)
        beside = f"{ref}-{former[:12]}"
        await repository.git("update-ref", beside, former)
        captured = await workspace.capture(repository, ref, await self._author(repository), message)
        if await _has_same_files(repository, former, captured.parked):
            await repository.git("update-ref", "-d", beside, former)
        return captured

    async def remove(self, name: str) -> None:
        """Remove a workspace. What `park` did not keep is lost."""
        await (await self.workspace(name)).remove()
        self._note_start(name, None)

    async def put_away(self, name: str) -> None:
        """Park what is in a workspace, if it exists, and remove it."""
        if (await self.workspace(name)).exists:
            await self.park(name, await self._next_attempt(name), f"Unfinished work of {name}")
            await self.remove(name)

    async def bring_tip(self, name: str, tip: str, result: str) -> None:
        """Show the tip of the run's branch in a workspace, as the branch `atomic-tip`.

        If the worker has damaged its repository, the workspace is made again at
        `result`, the commit that was kept of it.
        """
        try:
            await (await self.workspace(name)).add_branch(self.repository, TIP, tip)
        except WorkspaceError:
            again = await self.create(name, result, start=self._starts().get(name, ""))
            await again.add_branch(self.repository, TIP, tip)

    async def links_outside(self, base: str, result: str) -> list[str]:
        """Return the links of a result that lead out of the project. Raises GitError."""
        return await links_outside(self.repository, base, result)

    async def ignored_files(self, base: str, result: str) -> list[str]:
        """Return the new files of a result that the user's ignore rules name.

        Raises GitError.
        """
        return await ignored_files(self.repository, base, result)

    async def settle(self, name: str, result: str) -> None:
        """Let a worker continue with the commit that was made of its uncommitted files.

        If the worker has damaged its repository, the workspace is made again.
        """
        try:
            await (await self.workspace(name)).settle(self.repository, result)
        except WorkspaceError:
            await self.create(name, result, start=self._starts().get(name, ""))

    async def builds_on(self, start: str, result: str) -> str | None:
        """Return the last commit of the run's branch that the work of a task builds on.

        None if that is not `start` or a later commit: the worker has left the history
        of the branch. Raises GitError.
        """
        repository = self.repository
        base = await find_base(repository, start=start, tip=self.required_branch.tip, result=result)
        return base if await repository.is_ancestor(start, base) else None

    @asynccontextmanager
    async def merging(self, order: int) -> AsyncGenerator[None]:
        """Wait until no other task is merged. Of those that wait, the lowest order is
        next.
        """
        async with self._queue.turn(order):
            yield

    async def merge(
        self, work: Work, *, order: int = 0, check: Callable[[str], Awaitable[ProblemT | None]] | None = None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the run's branch, and move the branch.

        `check` gets the commit that the branch would move to. If it returns a problem,
        the branch does not move, and the problem is returned. Work that is on the
        branch already is not merged again. Raises BranchMovedError, WorkspaceError.
        """
        async with self.merging(order):
            known = await self._find_landed(work)
            if known is not None:
                return known
            while True:
                tip = await self.tip()
                merged = await self._rebase(work, tip)
                if isinstance(merged, Conflict):
                    return merged
                problem = None if check is None else await check(merged.commit)
                if problem is not None:
                    return problem
                sources = (*work.former, work.commit)
                landed = Landed(work.name, work.title, work.attempt, tip, merged.commit, merged.dropped, sources)
                if await self._land(landed):
                    return self._landed(work.name) or landed

    async def _find_landed(self, work: Work) -> Landed | None:
        """Return the commits of a work on the branch, if they are there, or if Atomic was
        killed when it was about to move the branch to them.
        """
        await self.tip()
        known = self._landed(work.name)
        if known is not None and work.commit in known.sources:
            return known
        landing = self.required_branch.landing
        if landing is None or landing.task != work.name or work.commit not in landing.sources:
            return None
        return landing if await self._land(landing) else None

    def _landed(self, name: str) -> Landed | None:
        return next((one for one in self.required_branch.landed if one.task == name), None)

    async def _rebase(self, work: Work, tip: str) -> Merged | Conflict:
        """Put the commits of a work on top of the tip. Raises WorkspaceError, GitError."""
        repository = self.repository
        if await repository.is_ancestor(tip, work.commit):  # nothing was merged meanwhile, or the worker has done it
            return Merged(work.commit, await find_dropped(repository, start=work.start, tip=tip, merged=work.commit))
        async with self._temporary(f"merge-{work.name}", tip) as workspace:
            ref = f"{self.ref(work.name, work.attempt)}-merged"
            return await rebase(repository, workspace, start=work.start, result=work.commit, tip=tip, ref=ref)

    async def _land(self, landed: Landed) -> bool:
        """Move the run's branch to the commit of a task. Return whether it was still at
        the commit before.
        """
        tip = await self.tip()
        is_there = await self.repository.is_ancestor(landed.commit, tip)
        if not is_there and tip != landed.base:
            return False
        if not is_there:
            # If Atomic is killed now, `tip` and `_find_landed` complete the move.
            self._keep(FACT, msgspec.structs.replace(self.required_branch, landing=landed))
            if not await move_branch(self.repository, self.required_branch.name, landed.commit, tip):
                self._keep(FACT, msgspec.structs.replace(self.required_branch, landing=None))
                return False
        self._note_landed(landed, tip if is_there else landed.commit)
        return True

    def _note_landed(self, landed: Landed, tip: str) -> None:
        branch = self.required_branch
        others = [one for one in branch.landed if one.task != landed.task]
        for one in branch.landed:
            if one.task == landed.task and one.commit == landed.base:  # it has landed before, and continues
                landed = msgspec.structs.replace(landed, base=one.base)
        new = msgspec.structs.replace(branch, tip=tip, landed=(*others, landed), landing=None)
        self._keep(FACT, new)

    def keep_accept_result(self, result: AcceptResult) -> None:
        """Record whether the run's branch was merged into the user's."""
        self._keep(FACT, msgspec.structs.replace(self.required_branch, accept_result=result))

    async def close(self, *, completed: bool = False) -> None:
        """Remove the folder of the run if no workspace is left: only a run that
        continues in one needs the base.

        A completed run needs none: what is left in them is parked. Raises
        WorkspaceError.
        """
        if self.branch is None or not self._folder.is_dir():
            return
        left: list[str] = []
        for name in self._starts():
            if (await self.workspace(name)).exists:
                left.append(name)
        if completed:
            for name in left:
                await self.put_away(name)
        if completed or not left:
            await asyncio.to_thread(remove_tree, self._folder)
            self._base = None

    async def uncommitted(self) -> list[str]:
        """Return the user's files that differ from the last commit."""
        words = ("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty")
        return [entry[3:] for entry in split(await self.repository.git(*words))]

    async def _author(self, repository: Repository) -> Author:
        """Return who commits: the user, as git knows them."""
        settings = await repository.settings()
        name = settings.get("user.name", "")
        email = settings.get("user.email", "")
        if not name or not email:
            known = await run_git("var", "GIT_AUTHOR_IDENT", cwd=repository.root, env=_users_identity())
            found = re.match(r"(.*) <(.*)> ", known)
            if found is not None:
                name = name or found[1]
                email = email or found[2]
        return Author(name or "Atomic", email or "atomic@localhost")


def _exists(branch: str) -> BranchMovedError:
    return BranchMovedError(f"The branch {branch} exists already: rename it (git branch -m {branch} NAME), then resume")


def _is_git_folder(folder: Path) -> bool:
    """Return whether a folder is in a git folder: agents would work on git's own files."""
    folder = folder.resolve()
    return any(
        (one / "HEAD").is_file() and (one / "objects").is_dir() and (one / "refs").is_dir()
        for one in (folder, *folder.parents)
    )


async def _has_same_files(repository: Repository, one: str, other: str) -> bool:
    """Return whether two parked commits and their parents have the same files."""
    trees = [
        await repository.git("log", "--no-walk=unsorted", "--format=%T", name, f"{name}^@") for name in (one, other)
    ]
    return trees[0] == trees[1]


def _users_identity() -> dict[str, str]:
    """Return the variables by which a user may name themselves, with a last resort."""
    defaults = {"GIT_AUTHOR_NAME": "Atomic", "GIT_AUTHOR_EMAIL": "atomic@localhost"}
    return {name: os.environ.get(name, value) for name, value in defaults.items()}


def _identity(author: Author) -> dict[str, str]:
    return {
        "GIT_AUTHOR_NAME": author.name,
        "GIT_AUTHOR_EMAIL": author.email,
        "GIT_COMMITTER_NAME": author.name,
        "GIT_COMMITTER_EMAIL": author.email,
    }


def file_name(id: str) -> str:
    """Return a name for a folder or a part of a ref: the id, or a name with a hash."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", id).strip("-")[:_MAX_NAME]
    if plain == id:
        return plain
    return f"{plain or 'task'}-{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
