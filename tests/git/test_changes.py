"""Changes of one copy of a repository are made again in another: files, commits, index, branch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.git import (
    Changes,
    GitError,
    PatchError,
    apply_changes,
    find_repository,
    folder_changes,
    scratch,
    watch_folder,
)
from tests.support.repositories import commit, content, copy, git, new_repository, state, write


async def changes_of(folder: Path, work: Callable[[], object], *, ignored: list[Path] | None = None) -> Changes:
    """Return the changes that `work` makes."""
    async with watch_folder(folder, ignored=ignored or []) as watch:
        work()
        return await watch.changes()


def commits_of(folder: Path) -> list[str]:
    """Return all commits, as if the same replay had made them."""
    return git(folder, "rev-list", "--all", check=False).split() if (folder / ".git").exists() else []


async def assert_applies(one: Path, work: Callable[[], object], *, name: str = "other") -> Changes:
    """Do the work in one copy, apply the changes to another and compare both."""
    other = copy(one, name)
    index = (one / ".git" / "index").read_bytes() if (one / ".git" / "index").exists() else b""
    async with watch_folder(one) as watch:
        if index:
            assert (one / ".git" / "index").read_bytes() == index  # looking changes nothing
        work()
        objects = sorted((one / ".git" / "objects").rglob("*"))
        changes = await watch.changes()
        assert sorted((one / ".git" / "objects").rglob("*")) == objects
    await apply_changes(other, changes, own_commits=commits_of(other))
    assert content(other) == content(one)
    if (one / ".git").exists():
        assert state(other) == state(one)
        git(other, "fsck", "--strict")
    return changes


async def test_files_that_were_written_changed_and_removed(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n2\n3\n", "b": "x\n", "deep/er/c": "y\n", ".gitignore": "*.log\n"})

    def work() -> None:
        write(one, {"a": "1\ntwo\n3\n", "new/file": "n\n", "no-newline": "x", "build.log": "not this\n"})
        (one / "b").unlink()
        (one / "deep/er/c").rename(one / "moved")
        (one / "link").symlink_to("a")
        (one / "a").chmod(0o755)
        (one / "empty").touch()

    other = copy(one, "other")
    changes = await changes_of(one, work)
    await apply_changes(other, changes)
    expected = content(one)
    del expected["build.log"]
    assert content(other) == expected
    assert changes.commits == ()
    assert "build.log" not in changes.patch


async def test_binary_files_unicode_names_and_text_that_is_not_utf8(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")

    def work() -> None:
        (one / "picture").write_bytes(bytes(range(256)) * 40)
        (one / "latin").write_bytes("café\n".encode("latin-1"))
        write(one, {"größe 名前.txt": "ü\n", 'quo"te\\slash': "q\n", "tab\tand\nline": "t\n", " lead": "l\n"})

    changes = await assert_applies(one, work)
    assert "GIT binary patch" in changes.patch
    assert "größe 名前.txt" in changes.patch
    changes.patch.encode()


async def test_a_name_that_is_not_utf8_is_left_out_and_reported(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    name = os.fsdecode(b"caf\xe9")
    changes = await changes_of(one, lambda: write(one, {name: "x\n", "fine": "y\n"}))
    assert changes.left_out == (name,)
    assert "fine" in changes.patch


async def test_commits_are_made_again_with_the_same_ids(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")

    def work() -> None:
        write(one, {"a": "1\n"})
        commit(one, "Add a\n\nBecause.\n\n---\nand a line of dashes\n")
        write(one, {"a": "2\n", "größe": "x\n"})
        commit(one, "Über alles")
        commit(one, "nothing changed")
        write(one, {"left": "uncommitted\n"})

    changes = await assert_applies(one, work)
    assert len(changes.commits) == 3
    assert "uncommitted" in changes.patch
    assert "Add a" not in changes.patch


async def test_a_commit_may_add_and_remove_ignored_files(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {".gitignore": "*.log\n"})

    def add() -> None:
        write(one, {"a.log": "1\n"})
        git(one, "add", "-f", "a.log")
        git(one, "commit", "-q", "-m", "a log")

    await assert_applies(one, add)

    def let_go() -> None:
        git(one, "rm", "-q", "--cached", "a.log")
        git(one, "commit", "-q", "-m", "no log")

    await assert_applies(one, let_go, name="third")


async def test_git_am_reads_a_recorded_commit(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    other = copy(one, "other")

    def work() -> None:
        write(one, {"a": "1\n", "b": "\0\1"})
        commit(one, "Add two files\n\nBoth at once.")

    changes = await changes_of(one, work)
    (tmp_path / "mail").write_text(changes.commits[0])
    git(other, "am", "--committer-date-is-author-date", str(tmp_path / "mail"))
    assert content(other) == content(one)
    assert git(other, "log", "-1", "--format=%an %aI %B") == git(one, "log", "-1", "--format=%an %aI %B")


async def test_earlier_changes_are_recorded_only_if_they_are_committed(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n", "b": "1\n"})
    write(one, {"a": "mine\n", "untracked": "mine\n"})

    def work() -> None:
        write(one, {"b": "2\n"})
        git(one, "commit", "-q", "-m", "only b", "b")

    changes = await assert_applies(one, work)
    assert "mine" not in changes.patch + "".join(changes.commits)

    def more() -> None:
        write(one, {"untracked": "mine\nand more\n"})
        commit(one, "all of it")
        write(one, {"a": "again\n"})

    changes = await assert_applies(one, more, name="third")
    assert set(changes.dirty) == {"a", "untracked"}


async def test_amended_and_removed_commits(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    write(one, {"a": "2\n"})
    commit(one, "second")

    def amend() -> None:
        write(one, {"a": "3\n"})
        commit(one, "better", "--amend")

    changes = await assert_applies(one, amend)
    assert (changes.rewind, len(changes.commits)) == (1, 1)
    changes = await assert_applies(one, lambda: git(one, "reset", "-q", "--hard", "HEAD~1"), name="third")
    assert (changes.rewind, changes.commits) == (1, ())
    await assert_applies(one, amend, name="fourth")  # the first commit of all


async def test_branches_and_merges(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")

    def branch() -> None:
        git(one, "checkout", "-q", "-b", "feature")
        write(one, {"f": "1\n"})
        commit(one, "on the branch")

    assert (await assert_applies(one, branch)).branch == "refs/heads/feature"

    def back() -> None:
        git(one, "checkout", "-q", "main")
        write(one, {"m": "1\n"})
        commit(one, "on main")

    assert (await assert_applies(one, back, name="third")).branch == "refs/heads/main"

    other = copy(one, "fourth")
    changes = await changes_of(one, lambda: git(one, "merge", "-q", "--no-edit", "feature"))
    await apply_changes(other, changes)
    assert content(other) == content(one)
    assert git(other, "rev-parse", "HEAD^{tree}") == git(one, "rev-parse", "HEAD^{tree}")
    assert len(changes.commits) == 1

    assert (await assert_applies(one, lambda: git(one, "checkout", "-q", "--detach"), name="fifth")).branch == ""


async def test_the_first_commit_of_a_repository(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    git(one, "init", "-q", "-b", "main")

    def work() -> None:
        write(one, {"a": "1\n"})
        commit(one, "first")

    await assert_applies(one, work)


async def test_a_folder_without_git(tmp_path: Path) -> None:
    one = tmp_path / "one"
    write(one, {"a": "1\n", "sub/b": "1\n"})

    def work() -> None:
        write(one, {"a": "2\n", "c": "new\n"})
        (one / "sub" / "b").unlink()

    changes = await assert_applies(one, work)
    assert changes.commits == ()


async def test_a_subfolder_of_a_repository_and_a_worktree(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"sub/a": "1\n"})
    other = copy(one, "other")

    def work() -> None:
        write(one, {"sub/a": "2\n", "top": "t\n"})
        git(one, "commit", "-q", "-m", "sub", "sub/a")

    changes = await changes_of(one / "sub", work)
    assert changes.folder == "sub"
    await apply_changes(other / "sub", changes)
    assert (content(other), state(other)) == (content(one), state(one))

    git(one, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(other, "worktree", "add", "-q", "-b", "side", str(tmp_path / "other-side"))

    def aside() -> None:
        write(tmp_path / "side", {"s": "1\n"})
        commit(tmp_path / "side", "aside")

    await apply_changes(tmp_path / "other-side", await changes_of(tmp_path / "side", aside))
    assert state(tmp_path / "other-side") == state(tmp_path / "side")
    assert git(other, "rev-parse", "main") == git(one, "rev-parse", "main")


async def test_repositories_inside_are_not_changed(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    new_repository(one / "inner")
    (one / "bare").mkdir()
    git(one / "bare", "init", "-q")  # one without a commit: `git add` would refuse all
    changes = await changes_of(one, lambda: write(one, {"inner/x": "1\n", "a": "1\n"}))
    assert "inner" not in changes.patch
    assert "+++ b/a" in changes.patch


async def test_changes_that_exist_stay_and_the_rest_is_made(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n", "b": "1\n"})
    other = copy(one, "other")
    changes = await changes_of(one, lambda: write(one, {"a": "2\n", "b": "2\n", "new": "n\n"}))
    write(other, {"a": "2\n", "new": "n\n"})
    await apply_changes(other, changes)
    assert content(other) == content(one)
    await apply_changes(other, changes)
    assert content(other) == content(one)


async def test_a_patch_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n", "b": "1\n"})
    other = copy(one, "other")

    def work() -> None:
        write(one, {"c": "1\n"})
        commit(one, "fits")
        write(one, {"a": "2\n", "b": "2\n"})

    changes = await changes_of(one, work)
    write(other, {"b": "something else\n"})
    before = content(other), state(other)
    with pytest.raises(PatchError, match=r"b: patch does not apply"):
        await apply_changes(other, changes)
    assert (content(other), state(other)) == before


@pytest.mark.parametrize("there", ["commits", "branch"])
async def test_other_changes_are_not_overwritten(tmp_path: Path, there: str) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    other = copy(one, "other")

    def work() -> None:
        git(one, "checkout", "-q", "-b", "feature")
        write(one, {"a": "2\n"})
        commit(one, "two")

    changes = await changes_of(one, work)
    if there == "commits":
        write(other, {"a": "1\nprecious\n"})
    else:
        git(other, "checkout", "-q", "-b", "feature")
        write(other, {"precious": "x\n"})
        commit(other, "precious")
        git(other, "checkout", "-q", "main")
    before = content(other), state(other)
    with pytest.raises(PatchError, match=r"overwrite|would be lost"):
        await apply_changes(other, changes)
    assert (content(other), state(other)) == before


async def test_commits_need_a_repository(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    changes = await changes_of(one, lambda: commit(one, "empty"))
    (tmp_path / "plain").mkdir()
    with pytest.raises(PatchError, match="no git repository"):
        await apply_changes(tmp_path / "plain", changes)


def new_file(name: str, text: str = "x") -> str:
    return f"diff --git a/{name} b/{name}\nnew file mode 100755\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{text}\n"


FORBIDDEN = [
    "../escaped",
    "/tmp/escaped",
    "link/escaped",
    "inner/escaped",
    "worktree/escaped",
    ".git/hooks/pre-commit",
    ".Git/hooks/pre-commit",
    "git~1/hooks/pre-commit",
    ".gi\u200ct/hooks/pre-commit",
    ".atomic/ralph.py",
    "sub/.atomic/config.toml",
    ".ATOMIC/config.toml",
    ".claude/settings.json",
    ".claude. /settings.json",
    ".opencode/plugin/x.js",
    "opencode.json",
    ".github/hooks/x.json",
    ".mcp.json",
    ".vscode/tasks.json",
    ".gitmodules",
]


@pytest.mark.parametrize(
    ("name", "as_commit"), [*((name, False) for name in FORBIDDEN), *((name, True) for name in FORBIDDEN[::5])]
)
async def test_a_patch_writes_only_inside_the_repository(tmp_path: Path, name: str, as_commit: bool) -> None:
    one = new_repository(tmp_path / "one")
    (tmp_path / "outside").mkdir()
    (one / "link").symlink_to(tmp_path / "outside")
    new_repository(one / "inner")
    write(one, {"worktree/.git": "gitdir: /nowhere\n"})
    before = content(tmp_path), state(one), state(one / "inner")
    patch = new_file(name)
    mail = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] x\n\n---\n{patch}"
    with pytest.raises(PatchError):
        await apply_changes(one, Changes(commits=(mail,)) if as_commit else Changes(patch=patch))
    assert (content(tmp_path), state(one), state(one / "inner")) == before
    assert not Path("/tmp/escaped").exists()


@pytest.mark.parametrize("folder", ["x", "x/y", "../..", "..", "/", "one/..", "./..", "one", "deep/one", "h/deep/one"])
@pytest.mark.parametrize("is_repository", [False, True])
async def test_a_recorded_folder_does_not_lift_the_patch_above_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, is_repository: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "h"))
    one = tmp_path / "h" / "deep" / "one"
    write(one, {"a": "1\n"})
    if is_repository:
        git(one, "init", "-q")
    before = content(tmp_path)
    with pytest.raises(PatchError, match="The recording"):
        await apply_changes(one, Changes(patch=new_file("bash_aliases"), folder=folder))
    assert content(tmp_path) == before


async def test_a_patch_cannot_begin_in_a_repository_of_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = new_repository(tmp_path / "home", {"one/a": "1\n"})
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(PatchError, match="not part of the repository"):
        await apply_changes(home / "one", Changes(patch=new_file("bash_aliases"), folder="one"))
    assert not (home / "bash_aliases").exists()


@pytest.mark.parametrize("steps", [1, 2, 99, -1])
async def test_only_commits_of_the_same_replay_are_removed(tmp_path: Path, steps: int) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    write(one, {"mine": "precious\n"})
    last = commit(one, "mine")
    before = content(one), state(one)
    with pytest.raises(PatchError, match="takes back"):
        await apply_changes(one, Changes(rewind=steps), own_commits=() if steps == 1 else [last])
    assert (content(one), state(one)) == before


@pytest.mark.parametrize("branch", ["refs/heads/--help", "refs/heads/-x", "refs/tags/x", "HEAD", "refs/heads/a b"])
async def test_a_branch_that_looks_like_a_flag_is_refused(tmp_path: Path, branch: str) -> None:
    one = new_repository(tmp_path / "one")
    before = state(one)
    with pytest.raises(PatchError, match="invalid branch"):
        await apply_changes(one, Changes(branch=branch))
    assert state(one) == before


async def test_patches_written_by_hand(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    plain = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2"  # no head, no line end
    added = "diff --git a/b b/b\nnew file mode 100644\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"
    await apply_changes(one, Changes(commits=(plain, f"Subject: [PATCH] Add b\n\n{added}"), patch=""))
    assert git(one, "log", "--format=%s|%an").splitlines() == [
        "Add b|Atomic",
        "Changes from a recording|Atomic",
        "first|Ada",
    ]
    assert git(one, "status", "--porcelain") == ""
    assert content(one)["a"] == ("file", b"2\n")


async def test_format_patch_of_git_itself_is_read(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    other = copy(one, "other")
    write(one, {"a": "1\n"})
    commit(one, "Größe und eine sehr lange Zeile, die git in mehrere Stücke teilt, weil Post das will\n\nKörper.")
    await apply_changes(other, Changes(commits=(git(one, "format-patch", "--stdout", "-1"),)))
    for words in ("%an %ae %aI", "%B", "%T"):
        assert git(other, "log", "-1", f"--format={words}") == git(one, "log", "-1", f"--format={words}")


# -- bounds ----------------------------------------------------------------------------------------------------------


async def test_big_files_are_left_out_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MAX_FILE", 1000)
    monkeypatch.setattr(scratch, "MAX_CHANGED", 1500)
    one = new_repository(tmp_path / "one")
    changes = await changes_of(one, lambda: write(one, {"big": "x" * 2000, "b": "y" * 900, "c": "z" * 900, "d": "1\n"}))
    assert changes.left_out == ("big", "c")
    assert "+++ b/d" in changes.patch


async def test_a_folder_without_git_and_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_changes, "MAX_FILES", 3)
    write(tmp_path, {f"f{n}": "" for n in range(4)})
    with pytest.raises(GitError, match="more than 3 files"):
        await changes_of(tmp_path, lambda: None)


async def test_binary_files_with_a_secret_are_left_out(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    async with watch_folder(one) as watch:
        (one / "db").write_bytes(b"\0\1hunter2hunter2\0")
        (one / "fine").write_bytes(b"\0\1nothing\0")
        changes = await watch.changes(is_secret=lambda text: "hunter2" in text)
    assert changes.left_out == ("db",)
    assert "b/fine" in changes.patch


async def test_the_recording_and_the_scratch_folder_do_not_count_as_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = new_repository(tmp_path / "one")
    (one / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(one / "tmp"))
    changes = await changes_of(one, lambda: write(one, {"rec.jsonl": "{}\n"}), ignored=[one / "rec.jsonl"])
    assert changes == Changes()


# -- the law ---------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "d/c", "d/e/f", "ü", "x y"])
TEXTS = st.sampled_from([b"", b"1\n", b"1\n2\n3\n", b"1\nzwei\n3\n", b"no end", b"\0\1\2", "é\n".encode("latin-1")])
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, TEXTS),
    st.tuples(st.just("remove"), NAMES, TEXTS),
    st.tuples(st.just("stage"), NAMES, TEXTS),
    st.tuples(st.just("link"), NAMES, TEXTS),
    st.tuples(st.just("mode"), NAMES, TEXTS),
    st.tuples(st.sampled_from(["commit", "amend", "partly"]), NAMES, TEXTS),
)


def do(folder: Path, step: tuple[str, str, bytes]) -> None:
    kind, name, text = step
    path = folder / name
    match kind:
        case "write" | "stage":
            if path.is_symlink():
                path.unlink()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            if kind == "stage":
                git(folder, "add", "--", name)
        case "remove":
            path.unlink(missing_ok=True)
        case "link":
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to("somewhere")
        case "mode":
            if path.is_file() and not path.is_symlink():
                path.chmod(0o755)
        case "commit":
            commit(folder, f"Commit {name}\n\n{text.decode('latin-1')!r}")
        case "partly":
            git(folder, "add", "--", name, check=False)
            git(folder, "commit", "-q", "--allow-empty", "-m", "part")
        case _:
            commit(folder, "amended", "--amend")


def check_index(one: Path, other: Path) -> None:
    """Check that the index has the same files, except for staged changes."""
    git(other, "add", "-A")
    git(one, "add", "-A")
    assert git(other, "status", "--porcelain") == git(one, "status", "--porcelain")


async def apply_again(before: list[tuple[str, str, bytes]], work: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = new_repository(Path(folder) / "one", {"a": "1\n2\n", "d/c": "c\n"})
        for step in before:
            do(one, step)
        other = copy(one, "other")
        changes = await changes_of(one, lambda: [do(one, step) for step in work])
        await apply_changes(other, changes, own_commits=commits_of(other))
        assert content(other) == content(one)
        assert git(other, "log", "--format=%H") == git(one, "log", "--format=%H")
        check_index(one, other)


@pytest.mark.full
@settings(max_examples=8)
@given(st.lists(STEPS, max_size=3), st.lists(STEPS, min_size=1, max_size=6))
async def test_any_work_is_made_again(before: list[tuple[str, str, bytes]], work: list[tuple[str, str, bytes]]) -> None:
    await apply_again(before, work)


@pytest.mark.full
@settings(max_examples=150)
@given(st.lists(STEPS, max_size=4), st.lists(STEPS, min_size=1, max_size=12))
async def test_much_work_is_made_again(
    before: list[tuple[str, str, bytes]], work: list[tuple[str, str, bytes]]
) -> None:
    await apply_again(before, work)


async def test_a_file_and_a_wrong_gitdir_are_not_repositories(tmp_path: Path) -> None:
    write(tmp_path, {"x/.git": "gitdir: /nowhere\n", "y/.git/config": ""})
    assert find_repository(tmp_path / "x") is None
    assert find_repository(tmp_path / "y") is None
