"""Two snapshots show what changed between them, however an agent used git; taking them changes nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.git import (
    FileChange,
    FolderSnapshot,
    GitError,
    SnapshotStore,
    calls,
    find_repository,
    folder_changes,
    repository,
    scratch,
    snapshots,
)
from atomic.git.calls import run_git
from tests.git.test_strangers import canaries, hostile, triggered
from tests.support.repositories import commit, git, new_repository, write

__all__ = ["canaries"]  # a fixture


def store_of(project: Path) -> SnapshotStore:
    return SnapshotStore(project.parent / "session" / "pictures", project)


async def statuses(store: SnapshotStore, before: FolderSnapshot, after: FolderSnapshot) -> dict[str, str]:
    return {change.path: change.status for change in await store.changes(before, after)}


async def test_all_changes_are_found_except_ignored_files(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n2\n", "b": "x\n", "c": "c\n", ".gitignore": "*.log\n"})
    store = store_of(one)
    before = await store.take()
    write(one, {"a": "1\nthree\nfour\n", "new": "n\n"})
    commit(one, "Work")
    write(one, {"c": "C\n", "folder/untracked": "u\nv\n", "build.log": "no\n"})
    git(one, "add", "c")
    (one / "b").unlink()
    after = await store.take()
    assert await store.changes(before, after) == [
        FileChange("a", "modified", 2, 1),
        FileChange("b", "deleted", 0, 1),
        FileChange("c", "modified", 1, 1),
        FileChange("folder/untracked", "added", 2, 0),
        FileChange("new", "added", 1, 0),
    ]
    assert after.head == git(one, "rev-parse", "HEAD").strip()
    assert await store.take() == after


async def test_the_same_files_are_the_same_snapshot_in_every_process(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    write(one, {"untracked": "u\n"})
    before = await store_of(one).take()
    kept = msgspec.json.decode(msgspec.json.encode(before), type=FolderSnapshot)
    (one / "readme").touch()
    again = store_of(one)
    assert await again.take() == kept
    write(one, {"untracked": "changed\n"})
    assert await statuses(again, kept, await again.take()) == {"untracked": "modified"}


async def test_the_users_repository_is_not_changed(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    write(one, {"staged": "s\n", "loose": "l\n"})
    git(one, "add", "staged")
    files = {path: path.read_bytes() for path in (one / ".git").rglob("*") if path.is_file()}
    store = store_of(one)
    before = await store.take()
    write(one, {"loose": "m\n"})
    after = await store.take()
    await store.changes(before, after)
    await store.patch(before, after, max_bytes=1000)
    assert {path: path.read_bytes() for path in (one / ".git").rglob("*") if path.is_file()} == files
    folder = tmp_path / "session" / "pictures"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.glob("tmp-*")] == []


async def test_no_program_of_a_repository_runs(tmp_path: Path, canaries: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n", ".gitattributes": "* filter=trap diff=trap\n"})
    hostile(one, canaries)
    write(one, {"a": "2\n"})
    git(one, "status", check=False)
    assert triggered(canaries)  # the trap works
    for canary in canaries.glob("sang-*"):
        canary.unlink()
    store = store_of(one)
    before = await store.take()
    write(one, {"a": "3\n", "b": "new\n"})
    after = await store.take()
    assert await statuses(store, before, after) == {"a": "modified", "b": "added"}
    assert "+3" in (await store.patch(before, after, max_bytes=10_000))[0]
    assert await store.commits(FolderSnapshot(None, ""), after) == [(after.head, "first")]
    assert triggered(canaries) == []


async def test_names_with_newlines_blanks_unicode_and_other_bytes(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    store = store_of(one)
    before = await store.take()
    names = ["line\nbreak", " blank ", "größe 名前", 'quo"te', "tab\t", ":(top)x", "-rf", os.fsdecode(b"caf\xe9")]
    write(one, dict.fromkeys(names, "x\n"))
    changes = await store.changes(before, await store.take())
    assert {change.path for change in changes} == {*names[:-1], "caf\\xe9"}
    assert {change.status for change in changes} == {"added"}
    msgspec.json.encode(changes)


async def test_a_patch_shows_text_and_is_cut_after_a_line(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    store = store_of(one)
    before = await store.take()
    (one / "picture").write_bytes(bytes(range(256)))
    (one / "latin").write_bytes("café\n".encode("latin-1"))
    write(one, {"text": "".join(f"line {number}\n" for number in range(1000))})
    after = await store.take()
    patch, was_cut = await store.patch(before, after, max_bytes=100_000)
    assert not was_cut
    assert "+line 999\n" in patch
    assert "Binary files" in patch
    assert "+caf\ufffd" in patch
    patch, was_cut = await store.patch(before, after, max_bytes=2000)
    assert was_cut
    assert len(patch.encode()) <= 2000
    assert patch.endswith("\n")
    assert await store.patch(after, after, max_bytes=10) == ("", False)


async def test_commits_are_those_that_only_the_later_head_has(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    store = store_of(one)
    start = await store.take()
    first = commit(one, "Add größe")
    second = commit(one, "Second\n\nbody")
    later = await store.take()
    assert await store.commits(start, later) == [(first, "Add größe"), (second, "Second")]
    assert await store.commits(later, later) == []
    assert await store.commits(later, start) == []  # rewound
    git(one, "reset", "-q", "--hard", first)
    amended = commit(one, "Other")
    assert await store.commits(later, await store.take()) == [(amended, "Other")]
    git(one, "checkout", "-q", "--orphan", "unrelated")
    lonely = commit(one, "Alone")
    assert await store.commits(later, await store.take()) == [(lonely, "Alone")]


async def test_a_folder_outside_of_git_and_one_that_becomes_a_repository(tmp_path: Path) -> None:
    one = tmp_path / "one"
    write(one, {"a": "1\n", "deep/b": "2\n"})
    store = store_of(one)
    before = await store.take()
    assert before.head is None
    write(one, {"a": "one\n"})
    between = await store.take()
    assert await statuses(store, before, between) == {"a": "modified"}
    assert await store.commits(before, between) == []
    git(one, "init", "-q", "-b", "main")
    made = commit(one, "Begin")
    after = await store.take()
    assert (after.head, after.tree) == (made, between.tree)
    assert await store.commits(between, after) == [(made, "Begin")]


async def test_too_many_files_outside_of_git_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_changes, "MAX_FILES", 3)
    one = tmp_path / "one"
    write(one, {str(number): "" for number in range(4)})
    with pytest.raises(GitError, match="more than 3 files"):
        await store_of(one).take()


async def test_a_folder_that_was_moved_away_is_an_error(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    store = store_of(one)
    await store.take()
    one.rename(tmp_path / "two")
    with pytest.raises(GitError, match="no longer exists"):
        await store.take()


async def test_an_ignored_file_is_found_if_it_is_committed_or_was_found_before(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {".gitignore": "*.log\n"})
    write(one, {"cache": "1\n"})
    store = store_of(one)
    before = await store.take()
    write(one, {"a.log": "1\n"})
    git(one, "add", "-f", "a.log")
    between = await store.take()
    assert await statuses(store, before, between) == {"a.log": "added"}
    write(one, {".gitignore": "*.log\ncache\n"})
    ignored = await store.take()
    write(one, {"cache": "2\n", "a.log": "2\n"})
    assert await statuses(store, ignored, await store.take()) == {"a.log": "modified", "cache": "modified"}


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_later_ignore_rules_hide_nothing(tmp_path: Path, is_resumed: bool) -> None:
    one = new_repository(tmp_path / "one", {".gitignore": "*.log\n", "deep/er/.gitignore": "/only\nany\n!keep.log\n"})
    store = store_of(one)
    before = await store.take()
    if is_resumed:
        store = store_of(one)
    write(tmp_path, {"users": "users.txt\n"})
    git(one, "config", "core.excludesFile", str(tmp_path / "users"))
    (one / ".git" / "info").mkdir(exist_ok=True)
    write(one / ".git" / "info", {"exclude": "excluded.txt\n"})
    hidden = {
        "users.txt": "x",
        "excluded.txt": "x",
        "new/ignored.txt": "x",
        "again.log": "x",
        "deep/er/x/keep.log": "x",
    }
    always = {"x.log": "x", "deep/er/only": "x", "deep/er/x/any": "x"}
    write(one, {**hidden, **always, ".gitignore": "!again.log\n", "new/.gitignore": "*\n", "deep/er/x/only": "x"})
    del hidden["again.log"]  # the first rules hide it still
    changed = {".gitignore": "modified", "new/.gitignore": "added", "deep/er/x/only": "added"}
    expected = {**changed, **dict.fromkeys(hidden, "added")}
    assert await statuses(store, before, await store.take()) == expected


async def test_new_ignore_rules_for_output_folders_count(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    store = store_of(one)
    before = await store.take()
    outputs = {"target/debug/a": "x", "sub/node_modules/b/c.js": "x", ".venv/lib/d.py": "x", ".venv/.gitignore": "*\n"}
    write(one, {**outputs, ".gitignore": "/target\nhelper.py\n", "sub/.gitignore": "node_modules/\n", "helper.py": "x"})
    visible = {".gitignore": "added", "sub/.gitignore": "added", "helper.py": "added"}
    assert await statuses(store, before, await store.take()) == visible


async def test_flags_that_hide_files_from_git_hide_nothing(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n", "b": "1\n", "c": "1\n"})
    git(one, "update-index", "--assume-unchanged", "a")
    git(one, "update-index", "--skip-worktree", "b")
    store = store_of(one)
    before = await store.take()
    git(one, "update-index", "--assume-unchanged", "c")
    write(one, {"a": "2\n", "b": "2\n", "c": "2\n"})
    assert await statuses(store, before, await store.take()) == dict.fromkeys("abc", "modified")


async def test_links_folders_programs_and_conflicts(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"d/x": "1\n", "file": "1\n", "tool": "1\n", "pipe": "1\n"})
    git(one, "checkout", "-q", "-b", "side")
    write(one, {"file": "side\n"})
    commit(one)
    git(one, "checkout", "-q", "main")
    write(one, {"file": "main\n"})
    commit(one)
    git(one, "merge", "side", check=False)
    store = store_of(one)
    before = await store.take()
    (one / "d").rename(tmp_path / "elsewhere")
    (one / "d").symlink_to(tmp_path / "elsewhere")
    (one / "file").unlink()
    write(one, {"file/inner": "i\n"})
    (one / "tool").chmod(0o755)
    (one / "pipe").unlink()
    os.mkfifo(one / "pipe")
    assert await statuses(store, before, await store.take()) == {
        "d": "added",
        "d/x": "deleted",
        "file": "deleted",
        "file/inner": "added",
        "pipe": "deleted",
        "tool": "modified",
    }


async def test_work_in_a_repository_within_the_project_is_seen(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {".gitignore": "*.log\n"})
    store = store_of(one)
    before = await store.take()
    for folder in ("game", "game/engine"):
        (one / folder).mkdir()
        git(one / folder, "init", "-q")
        write(one / folder, {"main.py": "1\n", "x.log": "no\n"})
    after = await store.take()
    assert await statuses(store, before, after) == {"game/main.py": "added", "game/engine/main.py": "added"}
    commit(one / "game/engine", "inner")
    assert await store.take() == after


async def test_a_file_too_big_to_keep_is_seen_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_FILE", 1000)
    one = new_repository(tmp_path / "one")
    store = store_of(one)
    before = await store.take()
    write(one, {"big": "x" * 1001})
    between = await store.take()
    assert await statuses(store, before, between) == {"big": "added"}
    assert "1001 bytes" in (await store.patch(before, between, max_bytes=10_000))[0]
    assert await store.take() == between
    write(one, {"big": "y" * 1002})
    assert await statuses(store, between, await store.take()) == {"big": "modified"}


async def test_a_session_inside_the_project_does_not_count_as_work(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    session = one / "home" / "session"
    session.mkdir(parents=True)
    (session / "journal.db").write_text("1")
    store = SnapshotStore(session / "pictures", one, ignored=[one / "home" / "other"])
    before = await store.take()
    write(one, {"home/session/journal.db": "2", "home/other/x": "x"})
    assert await store.take() == before


async def test_snapshots_at_the_same_time_and_after_a_kill(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    write(one, {f"files/{number}": f"{number}\n" for number in range(50)})
    taken = await asyncio.gather(*(store_of(one).take() for _ in range(6)))
    assert len(set(taken)) == 1
    folder = tmp_path / "session" / "pictures"
    (folder / "tmp-1-0-index.lock").touch()  # left by a killed process
    write(one, {"files/1": "changed\n"})
    store = store_of(one)
    assert await statuses(store, taken[0], await store.take()) == {"files/1": "modified"}
    assert list(folder.glob("tmp-*")) == []


async def test_the_second_snapshot_reads_only_changed_files(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    write(one, {f"files/{number}": f"{number}\n" for number in range(200)})
    store = store_of(one)
    before = await store.take()
    loose = set((tmp_path / "session" / "pictures" / "objects").glob("??/*"))
    write(one, {"files/7": "seven\n"})
    after = await store.take()
    new = set((tmp_path / "session" / "pictures" / "objects").glob("??/*")) - loose
    assert await statuses(store, before, after) == {"files/7": "modified"}
    assert len(new) == 3  # the file and the two folders above it


async def test_calls_during_a_snapshot_share_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = new_repository(tmp_path / "one")
    asked = record_git_calls(monkeypatch)
    store = store_of(one)
    await store.take()
    asked.clear()
    first = asyncio.create_task(store.take())
    while not asked:  # until it is being taken: it may not see what comes now
        await asyncio.sleep(0)
    write(one, {"new": "n\n"})
    later = await asyncio.gather(*(store.take() for _ in range(5)))
    assert {*later} == {await store.take()}
    assert (await statuses(store, await first, later[0])) in ({"new": "added"}, {})
    assert asked.count("update-index") == 1


async def test_an_unchanged_folder_needs_one_call_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = new_repository(tmp_path / "one")
    asked = record_git_calls(monkeypatch)
    store = store_of(one)
    before = await store.take()
    asked.clear()
    assert await store.take() == before
    assert asked == ["ls-files"]


async def test_head_is_found_in_every_form_that_git_keeps_it(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    commit(one, "second")
    ways = (
        ("pack-refs", "--all"),
        ("checkout", "-q", "-b", "a/branch"),
        ("reset", "-q", "--hard", "HEAD~1"),
        ("symbolic-ref", "refs/heads/other", "refs/heads/main"),
        ("checkout", "-q", "main"),
        ("symbolic-ref", "HEAD", "refs/heads/other"),
        ("checkout", "-q", "--detach"),
        ("worktree", "add", "-q", str(tmp_path / "two"), "a/branch"),
    )
    for words in ways:
        git(one, *words)
        assert await head_of(one) == git(one, "rev-parse", "HEAD").strip(), words
    assert await head_of(tmp_path / "two") == git(tmp_path / "two", "rev-parse", "HEAD").strip()
    git(one, "checkout", "-q", "--orphan", "fresh")
    assert await head_of(one) is None


async def head_of(folder: Path) -> str | None:
    repository = find_repository(folder)
    assert repository is not None
    commit, branch = await repository.head()
    assert (branch or "") == git(folder, "symbolic-ref", "-q", "HEAD", check=False).strip()
    return commit


def record_git_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the commands of all calls of git from now on."""
    asked: list[str] = []

    async def noted(*words: str, **options: Any) -> str:
        asked.append(words[0])
        return await run_git(*words, **options)

    for module in (repository, scratch):
        monkeypatch.setattr(module, "run_git", noted)
    return asked


async def test_only_the_hash_of_a_file_with_a_secret_is_kept(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "a\n", "committed": "API_KEY=correct-horse-battery\n"})
    write(one, {".env": "API_KEY=Zk8sQ2v7Lr4Tn1\n", "plain": "p\n"})
    store = store_of(one)
    before = await store.take()
    assert await store.not_kept(before, [".env", "a", "committed", "plain"]) == {".env"}
    assert await store.take() == before
    write(one, {".env": "API_KEY=Zk8sQ2v7Lr4Tn2\n"})
    after = await store.take()
    assert await statuses(store, before, after) == {".env": "modified"}
    patch, _ = await store.patch(before, after, max_bytes=10_000)
    assert "Not kept here" in patch
    assert "Zk8s" not in patch


async def test_a_file_with_a_secret_is_the_same_before_and_after_it_is_committed(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "a\n"})
    write(one, {".env": "API_KEY=Zk8sQ2v7Lr4Tn1\n"})
    store = store_of(one)
    before = await store.take()
    commit(one, "Take it along")
    after = await store.take()
    assert await store.changes(before, after) == []
    assert await store.uncommitted(after) == frozenset()
    assert await store.uncommitted(before) == {".env"}


@pytest.mark.parametrize("is_seen_before", [False, True])
async def test_a_repository_that_becomes_a_submodule_is_one_change(tmp_path: Path, is_seen_before: bool) -> None:
    other = new_repository(tmp_path / "other", {"lib.py": "x\n"})
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    store = store_of(one)
    before = await store.take()
    git(one, "clone", "-q", str(other), "vendor/other")
    if is_seen_before:
        assert await statuses(store, before, await store.take()) == {"vendor/other/lib.py": "added"}
    git(one, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "vendor/other")
    after = await store.take()
    assert await statuses(store, before, after) == {".gitmodules": "added", "vendor/other": "added"}
    commit(one / "vendor" / "other", "more")
    assert await statuses(store, after, await store.take()) == {"vendor/other": "modified"}


REWRITE = """
import os, sys
paths = sys.argv[2:]
for number in range(int(sys.argv[1])):
    for path in paths:
        if number % 5 == 4:
            os.unlink(path)
        with open(path, "w") as file:
            file.write(str(number) * 7_000 * (number % 3) + "end")
"""


@asynccontextmanager
async def rewritten(times: int, *paths: Path) -> AsyncGenerator[None]:
    """Let another process write files again and again; leaving ends it."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", REWRITE, str(times), *map(str, paths))
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.ci
async def test_files_that_another_process_writes_meanwhile_do_not_fail_a_snapshot(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "a\n"})
    store = store_of(one)
    before = await store.take()
    async with rewritten(1_000_000, *[one / f"written{number}.txt" for number in range(8)]):
        taken = [await store.take() for _ in range(50)]
    last = await store.take()
    assert len({*taken}) > 1  # the other process was at work
    assert {*(await statuses(store, before, last)).values()} == {"added"}
    assert await store.take() == last


async def test_a_file_that_always_changes_while_it_is_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = new_repository(tmp_path / "one", {"a": "a\n"})
    store = store_of(one)
    await store.take()
    write(one, {"a": "b\n"})

    async def changing(*words: str, **options: Any) -> str:
        if words[0] == "update-index":
            raise calls.FileChangedError(words, "error: short read while indexing a\nfatal: Unable to process path a")
        return await run_git(*words, **options)

    monkeypatch.setattr(scratch, "run_git", changing)
    monkeypatch.setattr(calls, "_PAUSE", 0.0)
    with pytest.raises(GitError) as caught:
        await store.take()
    assert str(caught.value) == (
        "git update-index failed: a file changed each of the 10 times that git read it"
        " (error: short read while indexing a); stop the program that writes it"
    )
