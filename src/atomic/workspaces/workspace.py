"""A workspace: a commit checked out in a place of its own.

Its content leaves it as commits (`capture.py`), which are kept in the user's repository
below `refs/atomic/` before the workspace is removed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from atomic.base.files import replace_file
from atomic.base.terminal import one_line
from atomic.git import GitError, Repository
from atomic.processes import ExecError, end_marked, new_mark
from atomic.workspaces import lfs
from atomic.workspaces.author import Author
from atomic.workspaces.base import Base
from atomic.workspaces.capture import Capture, Captured
from atomic.workspaces.copied_paths import copied_paths_of, correct_paths, places_of
from atomic.workspaces.copy_views import git_folders_outside, open_copy
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.folders import copy_tree, make_readable, remove_tree
from atomic.workspaces.git_in_view import (
    ALTERNATES,
    NO_SETTINGS,
    OUT,
    SAFE,
    TIMEOUT,
    as_list_entry,
    fetch_bundle,
    git_in_view,
    remove_locks,
)
from atomic.workspaces.isolation import Isolation, IsolationKind
from atomic.workspaces.rebasing import Conflict, Rebase
from atomic.workspaces.special_files import put_special_aside
from atomic.workspaces.views import View, open_overlay

MARK = "ATOMIC_WORKSPACE"  # a variable that all programs in a workspace have
_BIG_FILES = "in-lfs"
_UNPARKED = "unparked"
_MAX_NAMED = 20  # removed files, in a message
_COPY = "copy"
READY = "ready"  # a file with the commit at which the workspace began, when it is complete
# A number alone may be that of a process before a restart, above all in a container.
_THIS_PROCESS = f"{os.getpid()}-{os.urandom(8).hex()}"


class Workspace:
    """A place of a run where processes work on a copy of the project.

    The folder of a workspace stays until `remove`; `open` may be called again, also
    after a crash.
    """

    def __init__(self, base: Base, folder: Path, isolation: Isolation, *, hidden: Sequence[Path] = ()) -> None:
        """Describe a workspace in `folder`; no file is written yet.

        `hidden` folders are empty for processes in a private view.
        """
        self.base = base
        self.folder = folder
        self._isolation = isolation
        self._hidden = hidden

    @property
    def is_overlay(self) -> bool:
        return self._isolation.kind is IsolationKind.OVERLAY

    @property
    def root(self) -> Path:
        """Return the root of the project as processes in the workspace see it."""
        return self.base.root if self.is_overlay else self._copy

    @property
    def exists(self) -> bool:
        """Return whether the workspace was made completely."""
        return self._ready.exists()

    @property
    def _copy(self) -> Path:
        """Return the folder of a clone, which has the name of the project.

        It is below a folder of its own: the project may be called like our files.
        """
        name = self.base.root.name
        copy = self.folder / _COPY / name
        former = self.folder / name  # where older versions made it
        is_former = name != _COPY and self.exists and not copy.exists() and former.is_dir()
        return former if is_former else copy

    @property
    def _written(self) -> Path:
        """Return the folder that has all files which programs have written."""
        return self.folder / "upper" if self.is_overlay else self._copy

    @property
    def _exchange(self) -> Path:
        return self.folder / "exchange"

    @property
    def _ready(self) -> Path:
        return self.folder / READY

    @property
    def _start(self) -> str:
        """Return the commit at which the workspace began; empty if that is not known."""
        return self._ready.read_text() if self.exists else ""

    @property
    def _owner(self) -> Path:
        """Return the file that names who has the workspace open: process and mark."""
        return self.folder / "owner"

    async def create(self, repository: Repository, commit: str, *, branch: str = "") -> None:
        """Make the workspace with a commit of the user's repository checked out.

        Without a branch, HEAD is detached. A workspace that exists is kept as it is.

        Raises WorkspaceError.
        """
        if self.exists:
            return
        try:
            await self._begin()
            if not self._has_checked_out(commit, branch):
                async with self._open_with_exchange() as view:
                    await self._bring(repository, view, commit)
                    await self._check_out(view, commit, branch)
        except (GitError, ExecError, OSError) as error:
            raise self._not_checked_out(commit, error) from error
        replace_file(self._ready, commit.encode(), durable=False)

    async def _check_out(self, view: View, commit: str, branch: str) -> None:
        where = ("-B", branch) if branch else ("--detach",)
        await git_in_view(view, *SAFE, "checkout", "--quiet", *where, commit, env=NO_SETTINGS)

    def _not_checked_out(self, commit: str, error: Exception) -> WorkspaceError:
        return WorkspaceError(f"Commit {commit[:12]} cannot be checked out in {self.folder}: {error}")

    async def _begin(self) -> None:
        """Make the folder, with the files of the base."""
        await self.remove()
        self._exchange.mkdir(parents=True, mode=0o700)
        if not self.is_overlay:
            await self._copy_base()

    def _has_checked_out(self, commit: str, branch: str) -> bool:
        """Return whether the layer begins with that commit checked out, on that branch.

        In a copy, git has to update the index: its files have other inodes.
        """
        if not self.is_overlay:
            return False
        head = (self.base.folder / ".git" / "HEAD").read_text(encoding="utf-8", errors="surrogateescape")
        return commit == self.base.commit and head == f"ref: refs/heads/{branch}\n"

    async def _copy_base(self) -> None:
        self._copy.parent.mkdir()
        await copy_tree(self.base.folder, self._copy)
        found = await copied_paths_of(self.base)
        await asyncio.to_thread(correct_paths, self._copy, found, places_of(self.base))

    async def _bring(self, repository: Repository, view: View, *commits: str) -> None:
        """Bring commits that the base does not have into the workspace.

        They are kept outside of the worker's repository too, for `capture`.
        """
        new = [commit for commit in commits if commit != self.base.commit]
        if not new:
            return
        packs = await self._pack(repository, self._exchange / "git" / "objects", new)
        target = view.root / ".git" / "objects" / "pack"
        await view.run("cp", "-R", f"{packs}/.", str(target), timeout=TIMEOUT, is_short=True)
        for commit in new:
            await self._bring_big_files(repository, view, commit)

    async def _pack(self, repository: Repository, objects: Path, commits: Sequence[str]) -> Path:
        """Write the objects of commits that the base does not have to a folder of
        objects, and return the folder of packs in it.
        """
        packs = objects / "pack"
        packs.mkdir(parents=True, exist_ok=True)
        orders = "".join(f"{commit}\n" for commit in (*commits, f"^{self.base.commit}"))
        # Git writes packs to its own object folder first, and renames them. The user's
        # may be on another file system.
        env = {
            "GIT_OBJECT_DIRECTORY": str(objects),
            ALTERNATES: as_list_entry(repository.common_dir / "objects"),
        }
        await repository.git("pack-objects", "--quiet", "--revs", str(packs / "pack"), env=env, input=orders)
        return packs

    async def _bring_big_files(self, repository: Repository, view: View, commit: str) -> None:
        found = await lfs.find_objects(repository, self.base.commit, commit, lfs.objects_in(self.base.folder / ".git"))
        if not found:
            return
        staged = self._exchange / _BIG_FILES
        await asyncio.to_thread(lfs.stage_objects, found, staged)
        target = str(lfs.objects_in(view.root / ".git"))
        copy = 'mkdir -p "$2" && cp -R "$1/." "$2"'
        done = await view.run("sh", "-c", copy, "sh", str(staged), target, timeout=TIMEOUT, is_short=True)
        if done.exit_code != 0:
            raise OSError(f"cannot copy big files to {target}: {done.stderr.strip()}")
        await asyncio.to_thread(remove_tree, staged)

    @property
    def _workers_git(self) -> Path:
        """Return the worker's git folder, in an overlay only with its writes."""
        return self._written / ".git"

    def open(self) -> AbstractAsyncContextManager[View]:
        """Start programs in the workspace; at the end of the context all have ended.

        Raises WorkspaceError.
        """
        return self._open({})

    @asynccontextmanager
    async def open_new(self, repository: Repository, commit: str, *, branch: str) -> AsyncGenerator[View]:
        """Make the workspace with a commit checked out, for a single use of which nothing
        is kept, and start programs in it.

        It takes one view, where `create` and `open` take two. Raises WorkspaceError.
        """
        try:
            await self._begin()
            await self._put(repository, commit)
        except (GitError, OSError) as error:
            raise self._not_checked_out(commit, error) from error
        async with self.open() as view:
            if not self._has_checked_out(commit, branch):
                try:
                    await self._check_out(view, commit, branch)
                except GitError as error:
                    raise self._not_checked_out(commit, error) from error
            yield view

    async def _put(self, repository: Repository, commit: str) -> None:
        """Add a commit to the repository of the workspace, in which no program runs."""
        if commit == self.base.commit:
            return
        git = self._workers_git
        await self._pack(repository, git / "objects", [commit])
        known = lfs.objects_in(self.base.folder / ".git")
        found = await lfs.find_objects(repository, self.base.commit, commit, known)
        if found:
            await asyncio.to_thread(lfs.copy_objects, found, lfs.objects_in(git))
        if self.is_overlay:  # a folder of the layer hides the rights of the one below it
            for folder in (".git", ".git/objects", ".git/objects/pack"):
                shutil.copymode(self.base.folder / folder, self._written / folder)

    def _open_with_exchange(self) -> AbstractAsyncContextManager[View]:
        objects = self.base.folder / ".git" / "objects"
        return self._open({self._exchange: False, objects: True})

    @asynccontextmanager
    async def _open(self, visible: Mapping[Path, bool]) -> AsyncGenerator[View]:
        await self.end_former()
        if self._owner.exists():  # this process has it open
            async with self._view(visible, new_mark(MARK)) as view:
                yield view
            return
        await asyncio.to_thread(self._clear)
        mark = new_mark(MARK)
        self._owner.write_text(f"{_THIS_PROCESS} {mark[MARK]}", encoding="ascii")
        try:
            async with self._view(visible, mark) as view:
                yield view
        finally:
            self._owner.unlink(missing_ok=True)

    @property
    def has_unparked_work(self) -> bool:
        """Return whether programs have worked in it since `note_parked`."""
        return (self.folder / _UNPARKED).exists()

    def note_work(self) -> None:
        """Note that programs will work in it."""
        (self.folder / _UNPARKED).touch()

    def note_parked(self) -> None:
        """Note that everything in it is kept."""
        (self.folder / _UNPARKED).unlink(missing_ok=True)

    async def end_former(self) -> None:
        """End the programs of a process of Atomic that was killed while it had the
        workspace open.

        They may still write for a moment after its death.
        """
        try:
            owner, mark = self._owner.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return
        except ValueError:  # it was killed before it had written the file
            self._owner.unlink(missing_ok=True)
            return
        if owner != _THIS_PROCESS:
            await end_marked({MARK: mark})
            self._owner.unlink(missing_ok=True)

    def _clear(self) -> None:
        """Remove what killed programs have left: no program runs now."""
        for path in self._exchange.glob("out.bundle*"):
            path.unlink()
        remove_tree(self._exchange / _BIG_FILES)
        remove_locks(self._exchange / "git")
        remove_locks(self._workers_git)

    def _view(self, visible: Mapping[Path, bool], mark: Mapping[str, str]) -> AbstractAsyncContextManager[View]:
        root = self.base.root
        if not self.is_overlay:
            return open_copy(self._copy, root, self._isolation, hidden=self._hidden, visible=visible, mark=mark)
        return open_overlay(
            root,
            self.base.folder,
            self.folder,
            own_user=self._isolation.own_user,
            hidden=self._hidden,
            visible=visible,
            read_only=git_folders_outside(root),
            mark=mark,
        )

    async def capture(self, repository: Repository, ref: str, author: Author, message: str) -> Captured:
        """Keep everything of the workspace at a ref of the user's repository.

        Call it when no program runs in the workspace. Files that git ignores are not
        kept, nor are pipes, sockets and devices. `message` is for the commit of
        uncommitted files; it names the removed ones.

        Raises WorkspaceError: nothing may be removed then.
        """
        bundle = self._exchange / "out.bundle"
        try:
            await asyncio.to_thread(make_readable, self._written)
            removed = await asyncio.to_thread(
                put_special_aside, self._written, self.base.folder, is_layer=self.is_overlay
            )
            async with self._open_with_exchange() as view:
                capture = Capture(view, self.base, self._exchange, author, start=self._start)
                captured = await capture.run(_naming(message, removed), bundle)
            stores = [lfs.objects_in(self._workers_git), lfs.objects_in(self._exchange / "git")]
            await lfs.keep_objects(repository, stores)
            if bundle.exists():
                await fetch_bundle(repository, bundle, ref, self.base.commit)
            else:  # the base has everything
                await repository.git("update-ref", ref, captured.parked)
        except (GitError, ExecError, OSError) as error:
            raise WorkspaceError(f"The work in {self.folder} cannot be kept at {ref}: {error}") from error
        return captured

    async def rebase(self, repository: Repository, *, onto: str, base: str, result: str, ref: str) -> str | Conflict:
        """Put the commits after `base`, up to `result`, on top of `onto`, in a workspace
        that is not used for anything else.

        They become one commit if the history has merges, or if only all of them
        together can be put there. Return the new commit, which is kept at a ref of the
        user's repository, or the conflict. Raises WorkspaceError.
        """
        bundle = self._exchange / "out.bundle"
        try:
            await self._begin()
            async with self._open_with_exchange() as view:
                await self._bring(repository, view, onto, result)
                done = await Rebase(view, onto).run(base, result)
                if isinstance(done, Conflict) or done == onto:  # the branch may have these changes already
                    return done
                await git_in_view(view, *SAFE, "update-ref", OUT, done)
                await git_in_view(view, *SAFE, "bundle", "create", "--quiet", str(bundle), OUT, f"^{onto}")
            await fetch_bundle(repository, bundle, ref, onto)
        except (GitError, ExecError, OSError) as error:
            raise WorkspaceError(f"Commit {result[:12]} cannot be merged: {error}") from error
        return done

    async def add_branch(self, repository: Repository, branch: str, commit: str) -> None:
        """Set a branch of the workspace to a commit of the user's repository.

        If it is checked out, HEAD is detached before: no file changes. Raises
        WorkspaceError.
        """
        ref = f"refs/heads/{branch}"
        try:
            async with self._open_with_exchange() as view:
                await self._bring(repository, view, commit)
                head = (await git_in_view(view, *SAFE, "rev-parse", "--verify", "HEAD")).strip()
                if (await git_in_view(view, *SAFE, "rev-parse", "--symbolic-full-name", "HEAD")).strip() == ref:
                    await git_in_view(view, *SAFE, "update-ref", "--no-deref", "HEAD", head)
                await git_in_view(view, *SAFE, "update-ref", ref, commit)
        except (GitError, ExecError, OSError) as error:
            raise WorkspaceError(f"Commit {commit[:12]} cannot be shown in {self.folder}: {error}") from error

    async def settle(self, repository: Repository, commit: str) -> None:
        """Make a commit of its files the worker's last one: no file changes.

        Raises WorkspaceError.
        """
        try:
            async with self._open_with_exchange() as view:
                if (await git_in_view(view, *SAFE, "rev-parse", "--verify", "HEAD")).strip() == commit:
                    return
                await self._bring(repository, view, commit)
                await git_in_view(view, *SAFE, "update-ref", "HEAD", commit)
                await git_in_view(view, *SAFE, "read-tree", commit)
        except (GitError, ExecError, OSError) as error:
            raise WorkspaceError(f"Commit {commit[:12]} cannot be continued in {self.folder}: {error}") from error

    async def is_sound(self) -> bool:
        """Return whether the worker's repository can be used. Raises WorkspaceError."""
        async with self.open() as view:
            try:
                await git_in_view(view, *SAFE, "rev-parse", "--verify", "HEAD^{tree}", env=NO_SETTINGS)
                below = await git_in_view(view, *SAFE, "rev-parse", "--show-prefix", env=NO_SETTINGS)
            except GitError:
                return False
        return not below.strip()  # else git has found a repository in a folder above

    async def remove(self) -> None:
        """Remove the folder of the workspace. What `capture` did not keep is lost."""
        await self.end_former()
        self._ready.unlink(missing_ok=True)
        await asyncio.to_thread(remove_tree, self.folder)


def unparked_in(folder: Path) -> list[Path]:
    """Return the workspaces below the folder of a run with work that is kept nowhere
    else.
    """
    return sorted(path.parent for path in folder.glob(f"*/{_UNPARKED}"))


def _naming(message: str, removed: Sequence[str]) -> str:
    """Return the message of a commit, with the special files that were removed."""
    if not removed:
        return message
    paths = ", ".join(one_line(path) for path in removed[:_MAX_NAMED])
    if len(removed) > _MAX_NAMED:
        paths += f" and {len(removed) - _MAX_NAMED} more"
    # The last paragraph has the trailers.
    gap = "\n" if "\n\n" in message else "\n\n"
    return f"{message.rstrip()}{gap}Atomic-Not-Kept: {paths} (git cannot store a pipe, socket or device)"
