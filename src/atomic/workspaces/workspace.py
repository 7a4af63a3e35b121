"""A workspace: a commit checked out in a place of its own, and what is left in it.

Everything that a worker leaves goes into one commit, which is kept in the user's
repository below `refs/atomic/` before the workspace is removed. Its first parent is the
result: the worker's last commit, or a commit of the files as they were left. Further
parents are what that commit does not contain: the index, other branches, stashes, and
commits that only the log of HEAD names.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from atomic.git import GitError, Repository
from atomic.git.calls import run_git
from atomic.processes import ExecError, execute
from atomic.workspaces.base import Base, WorkspaceError, remove_tree
from atomic.workspaces.isolation import Isolation, IsolationKind
from atomic.workspaces.views import View, open_folder, open_overlay

_TIMEOUT = 600.0
_NO_CONFIG = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_EDITOR": ":",
    "LC_ALL": "C",
}
# Settings that a repository could use to start programs are off, whoever wrote them.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false")
_GITLINK = "160000 "
MAX_CONFLICT = 20_000  # characters
_ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"


class Author(msgspec.Struct, frozen=True):
    """The user's identity, for commits of what a worker left."""

    name: str
    email: str


class Captured(msgspec.Struct, frozen=True):
    """What a workspace contained: the result, and the commit with everything."""

    result: str
    parked: str


class Conflict(msgspec.Struct, frozen=True):
    """Files that both sides changed, and the conflict as git shows it."""

    paths: tuple[str, ...]
    text: str


class Workspace:
    """A place of a run where processes work on a copy of the project.

    The folder of a workspace stays until `remove`; `open` may be called again, also
    after a crash.
    """

    def __init__(self, base: Base, folder: Path, isolation: Isolation, *, hidden: Sequence[Path] = ()) -> None:
        """Describe a workspace in `folder`; no file is written yet.

        `hidden` folders are empty for processes in an overlay.
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
        return self.folder / self.base.root.name

    @property
    def _exchange(self) -> Path:
        return self.folder / "exchange"

    @property
    def _ready(self) -> Path:
        return self.folder / "ready"

    async def create(self, repository: Repository, commit: str, *, branch: str = "") -> None:
        """Make the workspace with a commit of the user's repository checked out.

        Without a branch, HEAD is detached. A workspace that exists is kept as it is.

        Raises WorkspaceError.
        """
        if self.exists:
            return
        await self.remove()
        self._exchange.mkdir(parents=True, mode=0o700)
        if not self.is_overlay:
            done = await execute("cp", "-a", "--reflink=auto", self.base.folder, self._copy)
            if done.exit_code != 0:
                raise WorkspaceError(f"{self.base.folder} cannot be copied: {done.stderr.strip()}")
        try:
            async with self._open_with_exchange() as view:
                await self._bring(repository, view, commit)
                where = ("-B", branch) if branch else ("--detach",)
                await _git(view, *_SAFE, "checkout", "--quiet", *where, commit, env=_users_settings())
        except GitError as error:
            raise WorkspaceError(f"Commit {commit[:12]} cannot be checked out in {self.folder}: {error}") from error
        self._ready.touch()

    async def _bring(self, repository: Repository, view: View, commit: str) -> None:
        """Bring a commit that the base does not have into the workspace."""
        if commit == self.base.commit:
            return
        packs = self._exchange / "in"
        packs.mkdir()
        orders = f"{commit}\n^{self.base.commit}\n"
        await repository.git("pack-objects", "--quiet", "--revs", str(packs / "pack"), input=orders)
        target = view.root / ".git" / "objects" / "pack"
        await view.run("cp", "-R", f"{packs}/.", str(target), timeout=_TIMEOUT)
        await asyncio.to_thread(remove_tree, packs)

    def open(self) -> AbstractAsyncContextManager[View]:
        """Start programs in the workspace; at the end of the context all have ended.

        Raises WorkspaceError.
        """
        return self._open({})

    def _open_with_exchange(self) -> AbstractAsyncContextManager[View]:
        objects = self.base.folder / ".git" / "objects"
        return self._open({self._exchange: False, objects: True})

    def _open(self, visible: Mapping[Path, bool]) -> AbstractAsyncContextManager[View]:
        if not self.is_overlay:
            return open_folder(self._copy)
        return open_overlay(
            self.base.root,
            self.base.folder,
            self.folder,
            own_user=self._isolation.own_user,
            hidden=self._hidden,
            visible=visible,
        )

    async def capture(self, repository: Repository, ref: str, author: Author, message: str) -> Captured:
        """Keep everything of the workspace at a ref of the user's repository.

        Call it when no program runs in the workspace. Files that git ignores are not
        kept. `message` is that of the commit of uncommitted files.

        Raises WorkspaceError: nothing may be removed then.
        """
        bundle = self._exchange / "out.bundle"
        try:
            async with self._open_with_exchange() as view:
                captured = await _Capture(view, self.base, self._exchange, author).run(message, bundle)
            if await repository.is_ancestor(captured.parked, self.base.commit):
                await repository.git("update-ref", ref, captured.parked)
            else:
                await _fetch(repository, bundle, ref)
        except (GitError, ExecError) as error:
            raise WorkspaceError(f"The work in {self.folder} cannot be kept at {ref}: {error}") from error
        return captured

    async def rebase(self, repository: Repository, *, start: str, result: str, ref: str) -> str | Conflict:
        """Put the commits after `start`, up to `result`, on top of the workspace's
        commit.

        Return the new commit, which is kept at a ref of the user's repository, or the
        conflict. Raises WorkspaceError.
        """
        bundle = self._exchange / "out.bundle"
        try:
            async with self._open_with_exchange() as view:
                await self._bring(repository, view, result)
                env = {**_NO_CONFIG, **_users_settings(), **(await _identity(view))}
                onto = (await _git(view, *_SAFE, "rev-parse", "HEAD")).strip()
                try:
                    await _git(view, *_SAFE, "rebase", "--quiet", "--onto", onto, start, result, env=env)
                except GitError:
                    conflict = await _find_conflict(view)
                    if conflict is None:
                        raise
                    return conflict
                new = (await _git(view, *_SAFE, "rev-parse", "HEAD")).strip()
                await _git(view, *_SAFE, "update-ref", _OUT, new)
                if new == onto:
                    return new  # the branch has these changes already
                await _git(view, *_SAFE, "bundle", "create", "--quiet", str(bundle), _OUT, f"^{onto}")
            await _fetch(repository, bundle, ref)
        except (GitError, ExecError) as error:
            raise WorkspaceError(f"Commit {result[:12]} cannot be merged: {error}") from error
        return new

    async def remove(self) -> None:
        """Remove the folder of the workspace. What `capture` did not keep is lost."""
        self._ready.unlink(missing_ok=True)
        await asyncio.to_thread(remove_tree, self.folder)


_OUT = "refs/atomic/out"


class _Capture:
    """One capture: git calls inside of a view, with a git folder of our own.

    The worker's git folder is only read. If it is damaged, the files still count.
    """

    def __init__(self, view: View, base: Base, exchange: Path, author: Author) -> None:
        self._view = view
        self._base = base
        self._git_dir = exchange / "git"
        self._worker = view.root / ".git"
        self._author = author
        objects = [base.folder / ".git" / "objects", self._worker / "objects"]
        self._env = {
            **_NO_CONFIG,
            "GIT_DIR": str(self._git_dir),
            "GIT_WORK_TREE": str(view.root),
            "GIT_INDEX_FILE": str(self._git_dir / "index"),
            _ALTERNATES: os.pathsep.join(map(str, objects)),
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
        }

    async def run(self, message: str, bundle: Path) -> Captured:
        await self._prepare()
        head = await self._find_head()
        extra = await self._add_files(self._view.root, self._git_dir / "index")
        tree = (await self._git("write-tree")).strip()
        result = head
        if tree != (await self._git("rev-parse", f"{head}^{{tree}}")).strip():
            result = (await self._git("commit-tree", tree, "-p", head, "-m", message)).strip()
        extra += await self._find_more(result)
        parked = result
        if extra:
            parents = [word for commit in (result, *extra) for word in ("-p", commit)]
            parked = (await self._git("commit-tree", tree, *parents, "-m", f"{message} (with other commits)")).strip()
        await self._git("update-ref", _OUT, parked)
        await self._write_bundle(bundle)
        return Captured(result, parked)

    async def _add_files(self, root: Path, index: Path) -> list[str]:
        """Add all files below `root` to an index, and return commits of repositories in
        it.

        Git adds a repository inside of another one only as the name of a commit. Its
        files are added in place of that, unless it is a submodule.
        """
        env = {"GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": str(index)}
        await self._git("add", "--all", "--", ".", env=env, cwd=root)
        listed = (await self._git("ls-files", "--stage", "-z", env=env, cwd=root)).split("\0")
        inner = [line.partition("\t")[2] for line in listed if line.startswith(_GITLINK)]
        found: list[str] = []
        for number, path in enumerate(inner):
            folder = root / path
            if not await self._is_repository(folder):
                continue
            inner_index = index.with_name(f"{index.name}-{number}")
            found += await self._add_files(folder, inner_index)
            inner_env = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(inner_index)}
            tree = (await self._git("write-tree", env=inner_env, cwd=folder)).strip()
            found.append(await self._commit_inner(folder, tree))
            if not await self._is_submodule(root, path):
                await self._git("update-index", "--force-remove", "--", path, env=env, cwd=root)
                await self._git("read-tree", f"--prefix={path}/", tree, env=env, cwd=root)
        return found

    async def _is_repository(self, folder: Path) -> bool:
        """Return whether a folder is a repository that is there with its files."""
        done = await self._view.run("test", "-e", str(folder / ".git"), timeout=_TIMEOUT)
        return done.exit_code == 0

    async def _is_submodule(self, root: Path, path: str) -> bool:
        words = ("config", "--file", str(root / ".gitmodules"), "--get-regexp", r"^submodule\..*\.path$")
        try:
            listed = await self._git(*words)
        except GitError:
            return False
        return path in [line.partition(" ")[2] for line in listed.splitlines()]

    async def _commit_inner(self, folder: Path, tree: str) -> str:
        """Return a commit of the files of an inner repository, with its own history."""
        git_dir = (await _git(self._view, "-C", str(folder), "rev-parse", "--absolute-git-dir")).strip()
        try:
            head = (await self._git("--git-dir", git_dir, "rev-parse", "--verify", "HEAD^{commit}")).strip()
        except GitError:
            return (await self._git("commit-tree", tree, "-m", f"Files of {folder.name}")).strip()
        objects = os.pathsep.join([self._env[_ALTERNATES], f"{git_dir}/objects"])
        self._env[_ALTERNATES] = objects
        return (await self._git("commit-tree", tree, "-p", head, "-m", f"Files of {folder.name}")).strip()

    async def _prepare(self) -> None:
        if not self._git_dir.is_dir():
            bare = {name: value for name, value in self._env.items() if not name.startswith("GIT_")}
            await _git(self._view, "init", "--quiet", "--template=", "--bare", str(self._git_dir), env=bare)
        # In an overlay files have the numbers and times that the base's index names:
        # only changed ones are read.
        source = self._base.folder / ".git"
        shutil.copy2(source / "index", self._git_dir / "index")
        (self._git_dir / "info").mkdir(exist_ok=True)
        if (source / "info" / "exclude").is_file():
            shutil.copyfile(source / "info" / "exclude", self._git_dir / "info" / "exclude")

    async def _find_head(self) -> str:
        """Return the worker's commit; the start commit if its repository is damaged."""
        try:
            head = (await self._ask_worker("rev-parse", "--verify", "HEAD^{commit}")).strip()
            await self._git("rev-list", "--objects", "--quiet", head, f"^{self._base.commit}")
        except GitError:
            return self._base.commit
        return head

    async def _find_more(self, result: str) -> list[str]:
        """Return commits that the result does not contain: index, branches, stashes,
        log of HEAD.
        """
        found: list[str] = []
        try:
            staged = (await self._ask_worker("write-tree")).strip()
            tip = (await self._git("rev-parse", f"{result}^{{tree}}", f"{result}^^{{tree}}")).split()
            if staged not in tip:
                found.append((await self._git("commit-tree", staged, "-p", result, "-m", "The index")).strip())
        except GitError:
            pass  # a conflict, or a damaged repository: the files are in the result
        try:
            tips = set((await self._ask_worker("rev-list", "--no-walk", "--all", "--reflog")).split())
        except GitError:
            return found
        for tip in sorted(tips - await self._known_tips()):
            excluded = [f"^{one}" for one in (self._base.commit, result, *found)]
            try:
                new = (await self._git("rev-list", "--max-count=1", tip, *excluded)).strip()
            except GitError:
                continue  # its objects are not complete
            if new:
                found.append(tip)
        return found

    async def _known_tips(self) -> set[str]:
        """Return the tips of the user's branches, which the base has too."""
        own = self._base.folder / ".git"
        listed = await run_git("rev-list", "--no-walk", "--all", cwd=own, env={"GIT_DIR": str(own)})
        return set(listed.split())

    async def _write_bundle(self, bundle: Path) -> None:
        try:
            await self._git("bundle", "create", "--quiet", str(bundle), _OUT, f"^{self._base.commit}")
        except GitError as error:
            if "empty bundle" not in error.reason:
                raise

    async def _git(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        return await _git(self._view, *_SAFE, *arguments, env={**self._env, **(env or {})}, cwd=cwd)

    async def _ask_worker(self, *arguments: str) -> str:
        env = {**_NO_CONFIG, "GIT_DIR": str(self._worker), "GIT_WORK_TREE": str(self._view.root)}
        return await _git(self._view, *_SAFE, *arguments, env=env)


async def _git(view: View, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run git in a view. Raises GitError."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = await view.run("git", *arguments, env={**inherited, **(env or {})}, timeout=_TIMEOUT, cwd=cwd)
    except ExecError as error:
        raise GitError(arguments, str(error)) from error
    if done.exit_code != 0:
        raise GitError(arguments, done.stderr.strip() or f"exit code {done.exit_code}")
    return done.stdout


async def _fetch(repository: Repository, bundle: Path, ref: str) -> None:
    """Bring the commit of a bundle into the user's repository."""
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(bundle), f"+{_OUT}:{ref}")
    await repository.git("-c", "fetch.fsckObjects=true", *words, env={"GIT_ALLOW_PROTOCOL": "file"})
    await asyncio.to_thread(bundle.unlink)


async def _identity(view: View) -> dict[str, str]:
    """Return who commits, if git does not know: a rebase needs a name."""
    try:
        await _git(view, "var", "GIT_COMMITTER_IDENT")
    except GitError:
        return {"GIT_COMMITTER_NAME": "Atomic", "GIT_COMMITTER_EMAIL": "atomic@localhost"}
    return {}


async def _find_conflict(view: View) -> Conflict | None:
    """Return the conflict of a rebase that has stopped, and end the rebase."""
    paths = (await _git(view, *_SAFE, "diff", "--name-only", "--diff-filter=U", "-z")).split("\0")[:-1]
    if not paths:
        return None
    text = await _git(view, *_SAFE, "diff", "--no-color", "--no-ext-diff")
    await _git(view, *_SAFE, "rebase", "--abort")
    return Conflict(tuple(paths), text[:MAX_CONFLICT])


def _users_settings() -> dict[str, str]:
    names = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
    return {name: os.environ[name] for name in names if name in os.environ}
