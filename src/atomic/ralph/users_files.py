"""The user's uncommitted files: which they are, whether they are unchanged, and how to
restore them.

They are listed when a run begins, and a copy of each is kept in the session's folder.
They are compared after each turn and after checks. Changes at other times come from the
user, and become the new state to compare with.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import msgspec

from atomic.base.files import replace_file
from atomic.git import InnerFiles, Repository, find_repository, uncommitted_in_submodules
from atomic.ralph.file_copies import COPY_CHANGED, DELETED, LINK, Store, content_of, mode_of
from atomic.ralph.file_names import from_fact, named, shell_word, shown
from atomic.sessions.files import make_folder

FACT = "users_files.json"
EXISTING = "existing_files"  # the fact of all files, if the run began without a commit
MOST_FILES = 20_000  # that are listed and watched
MOST_COMMANDS = 100  # in a prompt; more are put into a script
CHECKS = ""  # in place of a task: a check ran
Entry = tuple[str, str]  # mode and object of a file in git
Kind = Literal["changed", "deleted", "committed", "unstaged"]


class UsersFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file as the user left it; `content` is the result of `content_of`."""

    content: str
    mode: int = 0o644  # permissions
    staged: Entry | None = None  # the entry of the index, if it differs from HEAD
    is_removed: bool = False  # the index has removed it
    staged_content: str = ""  # the hash of the staged bytes, where they are kept
    not_kept: str = ""  # why there is no copy
    submodule: str = ""  # its submodule; its index is not compared

    @property
    def is_staged(self) -> bool:
        return self.staged is not None or self.is_removed

    def path_in_submodule(self, path: str) -> str:
        return path.removeprefix(f"{self.submodule}/") if self.submodule else path


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """An unwanted change of a file of the user."""

    kind: Kind
    task: str  # the task of the turn, or CHECKS
    commit: str = ""  # the commit that has the file
    content: str = ""  # its content now


class Version(msgspec.Struct, frozen=True):
    """Content of a file that was replaced during the run, and that the user may have
    written.
    """

    content: str
    mode: int
    seen: float  # when they were found, in seconds since 1970


class UsersFiles(msgspec.Struct, frozen=True):
    """All uncommitted files of the user; a fact of the run."""

    root: str = ""  # paths are relative to this folder
    files: dict[str, UsersFile] = {}
    unlisted: int = 0  # files beyond the limit
    troubles: dict[str, Trouble] = {}
    unreadable: list[str] = []  # submodules that git cannot read
    versions: dict[str, list[Version]] = {}  # content that was replaced or deleted
    committed: dict[str, str] = {}  # file to commit, for commits during turns that have only files of the user

    @property
    def paths(self) -> list[str]:
        return list(self.files)


def put_back(path: Path, file: UsersFile, store: Store) -> None:
    """Restore a file as the user left it. Raises OSError."""
    if file.content == DELETED:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.content.startswith(f"{LINK}:"):
        path.unlink(missing_ok=True)
        path.symlink_to(file.content.removeprefix(f"{LINK}:"))
        return
    replace_file(path, store.read(file.content))
    path.chmod(file.mode)


def other_versions(known: UsersFiles) -> dict[str, list[Version]]:
    """Return the versions that were replaced during the run and are not the current
    content.
    """
    found: dict[str, list[Version]] = {}
    for path, versions in known.versions.items():
        left = {content_of(Path(known.root) / path)}
        if (trouble := known.troubles.get(path)) is not None:
            left.add(trouble.content)  # the run has not replaced it
        found[path] = [one for one in versions if one.content not in left]
    return {path: versions for path, versions in found.items() if versions}


def with_versions(known: UsersFiles, troubles: Mapping[str, Trouble], store: Store, now: float) -> UsersFiles:
    """Record the current content of touched files, if the store has it, before a worker
    replaces it.
    """
    versions = dict(known.versions)
    for path, trouble in troubles.items():
        content = trouble.content
        old = versions.get(path, [])
        is_new = content != known.files[path].content and content not in {one.content for one in old}
        if is_new and content != DELETED and store.can_give(content):
            versions[path] = [*old, Version(content, mode_of(Path(known.root) / path), now)]
    return msgspec.structs.replace(known, versions=versions)


def with_deleted_versions(known: UsersFiles, paths: Collection[str], store: Store, now: float) -> UsersFiles:
    """Record the content of those files that are gone, if the store has it.

    After a kill only the times of their folders show who has deleted them, so the
    report names them.
    """
    versions = dict(known.versions)
    for path, file in known.files.items():
        is_gone = path in paths and content_of(Path(known.root) / path) == DELETED
        if is_gone and path not in known.troubles and store.has(file.content):
            versions[path] = [*versions.get(path, []), Version(file.content, file.mode, now)]
    return msgspec.structs.replace(known, versions=versions)


async def list_users_files(
    repository: Repository, commit: str, uncommitted: Iterable[str], store: Store, *, without: Iterable[str] = ()
) -> UsersFiles:
    """List the files that differ from the commit, except those in `without`, and keep
    copies of them.

    Files that differ from the commit of their submodule are listed too.
    """
    staged = await repository.staged(commit)
    inner = await uncommitted_in_submodules(repository)
    paths = sorted({*uncommitted, *staged, *inner.files} - set(without))
    files = {
        path: await _listed(repository, path, staged, store, inner.files.get(path, "")) for path in paths[:MOST_FILES]
    }
    return UsersFiles(str(repository.root), files, len(paths) - len(files), unreadable=inner.unreadable)


def list_existing(root: Path, paths: Sequence[str], store: Store) -> UsersFiles:
    """List all files of a project that has no commit, and keep copies of them."""
    files: dict[str, UsersFile] = {}
    for path in paths[:MOST_FILES]:
        content = content_of(root / path)
        why = store.keep(root / path, content)
        files[path] = UsersFile(content=content, mode=mode_of(root / path), not_kept=why)
    return UsersFiles(str(root), files, len(paths) - len(files))


async def list_again(
    known: UsersFiles,
    repository: Repository,
    commit: str,
    uncommitted: Collection[str],
    changed: Iterable[str],
    store: Store,
) -> UsersFiles:
    """Return the list after the user has changed some files.

    A file that is now committed is the project's.
    """
    staged = await repository.staged(commit)
    files = dict(known.files)
    again = sorted(set(changed) - known.troubles.keys())
    is_inside = any(path in files and files[path].submodule for path in again)
    inner = (await uncommitted_in_submodules(repository)).files if is_inside else {}
    for path in again:
        files.pop(path, None)
        if (path in uncommitted or path in staged or path in inner) and len(files) < MOST_FILES:
            files[path] = await _listed(repository, path, staged, store, inner.get(path, ""))
    return msgspec.structs.replace(known, root=str(repository.root), files=dict(sorted(files.items())))


async def _listed(
    repository: Repository, path: str, staged: Mapping[str, Entry | None], store: Store, submodule: str
) -> UsersFile:
    place = repository.root / path
    content = content_of(place)
    entry = staged.get(path)
    kept = ""
    why = store.keep(place, content)
    # The repository has the staged content as an object; only the first files get a
    # copy of it too.
    if entry is not None and entry[0] != "160000" and not store.is_full:
        data = (await repository.git("cat-file", "blob", entry[1])).encode("utf-8", "surrogateescape")
        kept = sha256(data).hexdigest()
        why = why or ("" if store.has(kept) else store.keep_bytes(data, kept))
    return UsersFile(
        content=content,
        mode=mode_of(place),
        staged=entry,
        is_removed=path in staged and entry is None,
        staged_content=kept,
        not_kept=why,
        submodule=submodule,
    )


async def troubles_of(known: UsersFiles, repository: Repository, since: str, task: str) -> dict[str, Trouble]:
    """Return the unwanted changes of the user's files.

    `since` is the last good commit.
    """
    head, _ = await repository.head()
    committed = set[str]() if head is None or head == since else await repository.differing(since, head)
    staged = {} if head is None else await repository.staged(head)
    commits = await _commits_of(repository, since, committed & known.files.keys())
    has_inner = any(file.submodule for file in known.files.values())
    inner = await uncommitted_in_submodules(repository) if has_inner else InnerFiles({}, [])
    found: dict[str, Trouble] = {}
    for path, file in known.files.items():
        content = content_of(repository.root / path)
        before = known.troubles.get(path)
        whose = task if before is None else before.task
        if path in committed:
            found[path] = Trouble("committed", whose, commits.get(path, ""), content)
        elif content != file.content:
            found[path] = Trouble("deleted" if content == DELETED else "changed", whose, "", content)
        elif file.is_staged and staged.get(path, ("", "")) != file.staged:
            found[path] = Trouble("unstaged", whose, "", content)
        elif file.submodule and path not in inner.files and file.submodule not in inner.unreadable:
            found[path] = Trouble("committed", whose, await _inner_commit(repository, path, file), content)
    return found


async def _inner_commit(repository: Repository, path: str, file: UsersFile) -> str:
    """Return the commit of a submodule that has a file."""
    inner = find_repository(repository.root / file.submodule)
    if inner is None:
        return ""
    return (await inner.git("log", "-1", "--format=%H", "--", file.path_in_submodule(path))).strip()


def changed_late(known: UsersFiles) -> list[str]:
    """Return the files that changed after the last comparison, without a turn or a
    check.
    """
    root = Path(known.root)
    others = {path: file for path, file in known.files.items() if path not in known.troubles}
    return [path for path, file in others.items() if content_of(root / path) != file.content]


async def _commits_of(repository: Repository, since: str, paths: Collection[str]) -> dict[str, str]:
    """Return for each file the first commit since then that has changed it."""
    found: dict[str, str] = {}
    before = since
    commits = await repository.commits(since, "HEAD") if paths else []
    for commit in reversed(commits):
        changed = await repository.differing(before, commit)
        found = {path: commit for path in paths if path in changed} | found
        before = commit
    return found


async def own_commits(known: UsersFiles, repository: Repository, since: str, head: str) -> dict[str, str]:
    """Return the user's files that are only in commits without other files, each with
    its commit.

    A worker commits its work, so such a commit is probably the user's.
    """
    if head == since or (await repository.differing(since, head)).isdisjoint(known.files):
        return {}
    own: dict[str, str] = {}
    others: set[str] = set()
    words = ("rev-list", "--reverse", "--min-parents=1", "--end-of-options", head, f"^{since}")
    for commit in (await repository.git(*words)).split():
        paths = await repository.differing(f"{commit}^1", commit)
        if paths <= known.files.keys():
            own |= dict.fromkeys(paths, commit)
        else:
            others |= paths
    return {path: commit for path, commit in own.items() if path not in others}


def describe(name: str, trouble: Trouble) -> str:
    """Describe the change of one file; `name` is how the file is shown."""
    when = " while a check ran" if trouble.task == CHECKS else ""
    match trouble.kind:
        case "committed":
            return f"{name} is in commit {trouble.commit[:12]}"
        case "unstaged" if when:
            return f"{name} was unstaged{when}"
        case "unstaged":
            return f"{name} is no longer staged as it was"
        case kind:
            return f"{name} was {kind}{when}"


def take_out(path: str, file: UsersFile, commit: str) -> list[str]:
    """Return the commands that take a file out of the branch and change neither the
    file nor the index.

    They are run in the root of the repository.
    """
    word = shell_word(file.path_in_submodule(path))
    undo = f"git read-tree HEAD && git restore --staged --source={commit[:12]}~1 -- {word}"
    script = f"{undo} && git commit -q -m {quote(f'Leave out {shown(path)}')}"
    # The commit uses a separate index, so that it has nothing else that is staged.
    commands = [f"GIT_INDEX_FILE=$(mktemp -u) sh -c {quote(script)}"]
    if not file.is_staged:
        commands.append(f"git restore --staged -- {word}")
    if file.submodule:
        commands = [f"(cd {shell_word(file.submodule)} && {command})" for command in commands]
    return commands


def prompt_to_restore_files(
    known: UsersFiles, troubles: Mapping[str, Trouble], since: str, store: Store, notes: Path
) -> str:
    """Return the prompt for a worker that has touched the user's files, with the
    commands that undo it.
    """
    lines = [f"cd {quote(known.root)}"]
    committed = [path for path, trouble in troubles.items() if trouble.kind == "committed"]
    for path in committed:
        if known.files[path].submodule:
            lines += take_out(path, known.files[path], troubles[path].commit)
    committed = [path for path in committed if not known.files[path].submodule]
    if committed:
        groups = (" ".join(map(shell_word, committed[at : at + 500])) for at in range(0, len(committed), 500))
        undo = [f"git restore --staged --source={since} -- {words}" for words in groups]
        commit = 'git commit -q -m "Leave out files that are not part of this work"'
        steps = " && ".join(("git read-tree HEAD", *undo, commit))
        lines.append(f"(GIT_INDEX_FILE=$(mktemp -u); export GIT_INDEX_FILE; {steps})")
    for path, trouble in troubles.items():
        lines += _put_back_lines(path, known.files[path], trouble, since, store, notes)
    if len(lines) > MOST_COMMANDS:
        script = notes / "put-files-back.sh"
        replace_file(script, os.fsencode("\n".join(lines) + "\n"), durable=False)
        lines = [f"sh -e {quote(str(script))}"]
    changes = "\n".join(
        f"- {describe(f'`{shown(path)}`', one)}" for path, one in list(troubles.items())[:MOST_COMMANDS]
    )
    if len(troubles) > MOST_COMMANDS:
        changes += f"\n- and {len(troubles) - MOST_COMMANDS} more"
    return (
        "While your turn ran, files of the user that were uncommitted before this run were touched:\n"
        f"{changes}\n\n"
        "If you did that, put them back: they must be as the user left them, in the files, in the index, and in no "
        "commit of yours. If you did not touch a file, the user has worked on it: leave it. "
        "These commands put the files back:\n\n```sh\n" + "\n".join(lines) + "\n```\n\n"
        "Then finish the task without them."
    )


def _put_back_lines(
    path: str, file: UsersFile, trouble: Trouble, since: str, store: Store, notes: Path
) -> Iterable[str]:
    word = shell_word(path)
    if trouble.content != file.content:
        if file.not_kept or not store.can_give(file.content):
            why = file.not_kept or (COPY_CHANGED if store.is_changed(file.content) else "none was kept")
            yield f"# {shown(path)}: there is no copy, because {why}; undo your change by hand"
        elif trouble.content != "special" and not store.can_give(trouble.content):
            yield f"# {shown(path)}: its current content cannot be copied; undo your change by hand"
        elif file.content == DELETED:
            yield f"rm -f -- {word}"
        else:
            copy = notes / "users-files" / sha256(os.fsencode(path)).hexdigest()[:16]
            make_folder(str(copy.parent))
            put_back(copy, file, store)
            folder = os.path.dirname(path)
            make = f"mkdir -p -- {shell_word(folder)} && " if folder else ""
            yield f"{make}cp -pP -- {quote(str(copy))} {word}"
    if file.staged is not None:
        yield f"git update-index --add --cacheinfo {','.join(file.staged)},{word}"
    elif file.is_removed:
        yield f"git rm -q --cached --ignore-unmatch -- {word}"
    elif trouble.kind == "committed" and not file.submodule:
        yield f"git restore --staged --source={since} -- {word}"


def read_users_files(facts: Mapping[str, Any]) -> UsersFiles:
    return msgspec.convert(from_fact(facts.get(FACT, {})), UsersFiles)


def read_existing(facts: Mapping[str, Any]) -> UsersFiles:
    """Return the files that existed before a run without a commit.

    Deleted ones are troubles.
    """
    found = msgspec.convert(from_fact(facts.get(EXISTING, {})), UsersFiles)
    root = Path(found.root)
    gone = {path: Trouble("deleted", CHECKS, "", DELETED) for path in found.files if not os.path.lexists(root / path)}
    return msgspec.structs.replace(found, troubles=gone)


def with_old_troubles(files: UsersFiles, before: UsersFiles) -> UsersFiles:
    """Return the list, with files of an earlier one that are still as a check left
    them.
    """
    root = Path(files.root)
    troubles = {path: one for path, one in before.troubles.items() if content_of(root / path) == one.content}
    known = {**files.files, **{path: before.files[path] for path in troubles}}
    return msgspec.structs.replace(
        files,
        files=dict(sorted(known.items())),
        troubles=troubles,
        versions=before.versions,
        committed=before.committed,
    )


def announcement(files: UsersFiles) -> str:
    """Return the message about the user's files at the start of a run."""
    count = len(files.files) + files.unlisted
    number = "1 file is" if count == 1 else f"{count} files are"
    them = "it" if count == 1 else "them"
    one = "it" if count == 1 else "one"
    lost = [path for path, file in files.files.items() if file.not_kept]
    kept = f" No copy is kept of {named(lost, most=3)}: {files.files[lost[0]].not_kept}." if lost else ""
    if files.unlisted:
        kept += f" Only the first {len(files.files):,} are watched: commit or ignore the others."
    return (
        f"{number} not committed and yours: {named(files.paths, most=5)}. Workers must not touch {them}. "
        f"If a run should change {one}, commit it first.{kept}"
    )
