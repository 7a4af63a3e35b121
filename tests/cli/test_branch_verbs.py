"""`atomic diff`, `accept`, `undo`, `discard`, `salvage` and `sessions prune` for a run with a branch."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.base.redaction import Redactor
from atomic.chat.workflows import _branch_actions  # pyright: ignore[reportPrivateUsage]  # what the screen shows
from atomic.processes import ExecResult
from atomic.sessions import SqliteJournal
from atomic.sessions.facts import Facts
from atomic.sessions.store import SessionStore
from atomic.workspaces import IsolationKind
from atomic.workspaces.run_branch import FACT, Landed, RunBranch, branch_name, parked_prefix
from tests.support.repositories import commit, content, git, state, write
from tests.support.session_folders import folder_of, make_session, owned_by
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint, objects, told

ID = "3f2a9c1e-1111-4111-8111-111111111111"
SHORT = ID[:8]
BRANCH = branch_name(ID)
LINES = "".join(f"line {number}\n" for number in range(1, 10))


class BranchRun:
    """A run with a branch in the user's project: task 1 changes a.txt, task 2 adds b.txt, task 3 changes a.txt."""

    def __init__(self, user: User, root: Path | None = None) -> None:
        self.user = user
        self.root = root or user.project
        if not (self.root / ".git").exists():
            git(self.root, "init", "-q", "-b", "main")
            for name, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
                git(self.root, "config", name, value)
            write(self.root, {"a.txt": LINES, "other.txt": "other\n", ".gitignore": "*.log\n"})
            commit(self.root, "first")
        self.upstream = git(self.root, "symbolic-ref", "HEAD").strip()
        self.start = git(self.root, "rev-parse", "HEAD").strip()
        self.landed: list[Landed] = []
        self.land("1", "Change the first line", {"a.txt": LINES.replace("line 1", "first line")})
        self.land("2", "Add b", {"b.txt": "b\n", "deep/c.txt": "c\n"})
        self.land("3", "Change the last line", {"a.txt": LINES.replace("line 1", "first line") + "line 10\n"})

    @property
    def tip(self) -> str:
        return self.landed[-1].commit if self.landed else self.start

    def include_files(self, files: dict[str, str], gone: str) -> None:
        """Save a run that has begun with uncommitted files, and with one that is deleted.

        Its task changes the first of the files.
        """
        write(self.root, files)
        (self.root / gone).unlink()
        index = {"GIT_INDEX_FILE": str(self.user.home / "all")}
        git(self.root, "read-tree", self.start, env=index)
        git(self.root, "add", "--all", env=index)
        tree = git(self.root, "write-tree", env=index).strip()
        first = git(self.root, "commit-tree", tree, "-p", self.start, "-m", "Add uncommitted files").strip()
        git(self.root, "add", "staged.txt")
        self.landed = []
        name, text = next(iter(files.items()))
        new = self.commit(first, "Change it", {name: f"first {text}"})
        git(self.root, "update-ref", f"refs/heads/{BRANCH}", new)
        self.landed.append(Landed("1", "Change it", 1, first, new))
        self.save(first=first)

    def land(self, task: str, title: str, files: dict[str, str]) -> None:
        """Add a commit to the branch, without touching the checkout."""
        base = self.tip
        new = self.commit(base, title, files)
        git(self.root, "update-ref", f"refs/heads/{BRANCH}", new)
        self.landed.append(Landed(task, title, 1, base, new))

    def commit(self, parent: str, message: str, files: dict[str, str], *more: str) -> str:
        """Write a commit with changed files; `more` are further parents."""
        index = {"GIT_INDEX_FILE": str(self.user.home / "index")}
        git(self.root, "read-tree", parent, env=index)
        for name, text in files.items():
            file = self.user.home / "blob"
            file.write_text(text)
            blob = git(self.root, "hash-object", "-w", str(file)).strip()
            git(self.root, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=index)
        tree = git(self.root, "write-tree", env=index).strip()
        parents = [word for one in (parent, *more) for word in ("-p", one)]
        return git(self.root, "commit-tree", tree, *parents, "-m", message).strip()

    def park(self, name: str, files: dict[str, str], *others: str) -> str:
        """Park a workspace that began at the start of the run, with other commits."""
        result = self.commit(self.start, f"Work on {name}", files)
        kept = result
        if others:
            kept = self.commit(result, f"Work on {name} (with other commits)", {}, *others)
        git(self.root, "update-ref", f"{parked_prefix(ID)}{name}", kept)
        return kept

    def save(self, *, first: str = "", **fields: Any) -> BranchRun:
        """Write the session of the run."""
        record = {"prompt": "add a login page", "project": str(self.root), **fields}
        make_session(self.user.home, ID, **record)
        branch = RunBranch(
            name=BRANCH, kind=IsolationKind.CLONE, root=str(self.root), start=self.start,
            first=first or self.start,
            tip=self.tip, upstream=self.upstream, landed=tuple(self.landed),
        )  # fmt: skip
        with ThreadPoolExecutor(1) as thread:  # the journal belongs to a thread
            thread.submit(_set_fact, folder_of(self.user.home, ID), branch).result(timeout=60)
        return self

    async def atomic(self, *words: str, cwd: Path | None = None) -> ExecResult:
        return await self.user.atomic(*words, cwd=cwd or self.user.home)

    async def refuses(self, *words: str, code: int = 1) -> str:
        """Run a command that must fail and change nothing in the repository. Return its message."""
        before = self.snapshot()
        done = await self.atomic(*words)
        assert done.exit_code == code, done
        assert self.snapshot() == before
        return complaint(done)

    def snapshot(self) -> tuple[Any, ...]:
        refs = git(self.root, "for-each-ref")
        index = git(self.root, "ls-files", "--stage")
        return state(self.root), content(self.root), refs, index

    def text(self, name: str) -> str:
        return (self.root / name).read_text()

    def git(self, *words: str) -> str:
        return git(self.root, *words).strip()


def _set_fact(folder: Path, branch: RunBranch) -> None:
    with SqliteJournal(folder / "journal.db") as journal:
        facts = Facts(folder, Redactor(()))
        facts.open(journal, folder.name)
        facts.set(FACT, branch)


@pytest.fixture
def run(user: User) -> BranchRun:
    return BranchRun(user)


# -- diff -------------------------------------------------------------------------------------------------------------


async def test_diff_shows_the_change_of_a_run_and_of_a_task(run: BranchRun) -> None:
    run.save()
    done = await run.atomic("diff", SHORT)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == git(run.root, "diff", run.start, run.tip)
    done = await run.atomic("diff", SHORT, "2")
    assert done.stdout == git(run.root, "diff", run.landed[1].base, run.landed[1].commit)
    (found,) = objects(await run.atomic("diff", SHORT, "1", "--json"))
    assert found["files"] == [{"path": "a.txt", "added": 1, "removed": 1}]
    assert (found["run"], found["task"], found["to"]) == (ID, "1", run.landed[0].commit)
    assert str(found["diff"]).startswith("diff --git a/a.txt")


@pytest.mark.ci
async def test_diff_of_a_run_without_work_in_a_repository_with_one_commit(run: BranchRun) -> None:
    run.landed = []
    run.git("update-ref", f"refs/heads/{BRANCH}", run.start)
    run.save()
    done = await run.atomic("diff", SHORT)
    assert (done.exit_code, done.stdout, told(done)) == (0, "", f"Run {SHORT} has changed nothing")


async def test_diff_and_undo_know_all_parts_of_a_task_that_landed_twice(run: BranchRun) -> None:
    run.land("4", "Change b", {"other.txt": "changed\n"})
    run.land("2", "Add b", {"b.txt": "b\nmore\n", "d.txt": "d\n"})
    first = run.landed.pop(1)
    run.landed[-1] = msgspec.structs.replace(run.landed[-1], former=first.parts)
    run.save()
    done = await run.atomic("diff", SHORT, "2")
    assert done.stdout == "".join(git(run.root, "diff", *part) for part in run.landed[-1].parts)
    (found,) = objects(await run.atomic("diff", SHORT, "2", "--json"))
    assert found["files"] == [
        {"path": "b.txt", "added": 2, "removed": 0},
        {"path": "deep/c.txt", "added": 1, "removed": 0},
        {"path": "d.txt", "added": 1, "removed": 0},
    ]
    tip = run.tip
    done = await run.atomic("undo", SHORT, "2")
    assert (done.exit_code, done.stderr) == (0, "")
    assert run.git("diff", "--name-status", tip, BRANCH).split() == ["D", "b.txt", "D", "d.txt", "D", "deep/c.txt"]


async def test_undo_names_the_task_that_changed_the_first_part_of_another(run: BranchRun) -> None:
    run.land("4", "Change b", {"b.txt": "changed\n"})
    run.land("2", "Add b", {"d.txt": "d\n"})
    first = run.landed.pop(1)
    run.landed[-1] = msgspec.structs.replace(run.landed[-1], former=first.parts)
    run.save()
    assert "Undo task 4 first" in await run.refuses("undo", SHORT, "2")


async def test_diff_shows_only_the_run_after_a_merge_with_the_users_commits(run: BranchRun) -> None:
    run.save()
    work = (await run.atomic("diff", SHORT)).stdout
    write(run.root, {"other.txt": "of the user\n"})
    head = commit(run.root, "mine")
    both = run.commit(head, f"Merge\n\nAtomic-Run: {ID}", {"b.txt": "b\n"}, run.tip)
    git(run.root, "update-ref", f"refs/heads/{BRANCH}", both)
    done = await run.atomic("diff", SHORT)
    assert (done.exit_code, done.stderr, done.stdout) == (0, "", work)


@pytest.mark.ci
async def test_diff_of_a_discarded_branch_shows_what_it_had(run: BranchRun) -> None:
    run.save()
    for task in ("3", "2", "1"):
        assert (await run.atomic("undo", SHORT, task)).exit_code == 0
    undone = run.git("rev-parse", BRANCH)[:12]
    assert (await run.atomic("discard", SHORT, "--yes")).exit_code == 0
    done = await run.atomic("diff", SHORT)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == (
        f"atomic: the branch {BRANCH} is gone: git branch {BRANCH} {undone} brings it back; atomic salvage {SHORT} "
        f"discarded writes its files to a folder\natomic: Run {SHORT} has changed nothing\n"
    )


async def test_diff_runs_no_program_of_the_repository(run: BranchRun, tmp_path: Path) -> None:
    run.save()
    script = run.user.has("evil", f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for name in ("diff.external", "core.pager", "diff.x.textconv", "diff.x.command"):
        run.git("config", name, str(script))
    write(run.root, {".git/info/attributes": "*.txt diff=x\n"})
    assert "first line" in (await run.atomic("diff", SHORT)).stdout
    words = [ATOMIC, "diff", SHORT]
    run.user.env["PAGER"] = "cat"
    async with in_terminal(words, env=run.user.env, cwd=run.root) as terminal:
        assert await terminal.exit_code() == 0
        assert "\x1b[32m+first line" in await terminal.rest()
    assert not (tmp_path / "ran").exists()


async def test_diff_uses_the_users_pager_at_a_terminal_and_cleans_the_text(run: BranchRun) -> None:
    run.land("4", "Clear the screen", {"evil.txt": "a\x1b[2Jb\n"})
    run.save()
    run.user.env["GIT_PAGER"] = "sed 's/^/PAGED /'"
    async with in_terminal([ATOMIC, "diff", SHORT, "4"], env=run.user.env, cwd=run.root) as terminal:
        assert await terminal.exit_code() == 0
        screen = await terminal.rest()
    assert "PAGED \x1b[32m+a␛[2Jb" in screen
    assert "\x1b[2J" not in screen
    assert "\x1b[2J" in (await run.atomic("diff", SHORT, "4")).stdout  # a pipe gets the bytes


async def test_an_unknown_task_or_run_is_named(run: BranchRun) -> None:
    run.land("login", "Add a login", {"login.txt": "x\n"})
    run.save()
    assert await run.refuses("diff", SHORT, "logn", code=2) == (
        f'No task "logn" is on the branch {BRANCH} (did you mean "login"?)'
    )
    assert await run.refuses("undo", SHORT, "9", code=2) == (
        f'No task "9" is on the branch {BRANCH} (there are: 1, 2, 3, login)'
    )
    assert "No session" in await run.refuses("accept", "0" * 8, code=2)


@pytest.mark.parametrize("verb", ["diff", "accept", "discard"])
async def test_a_run_in_the_checkout_has_no_branch(user: User, verb: str) -> None:
    id = make_session(user.home)
    done = await user.atomic(verb, id)
    shown = "show" if verb == "diff" else verb
    assert done.exit_code == 1
    assert complaint(done) == f"Run {id} worked in your checkout itself: there is no branch to {shown}"


async def test_a_repository_that_is_gone_is_one_sentence(run: BranchRun) -> None:
    run.save()
    git(run.root.parent, "init", "-q")  # a repository above is not the run's
    shutil.rmtree(run.root / ".git")
    done = await run.atomic("diff", SHORT)
    assert (done.exit_code, complaint(done)) == (
        1,
        f"There is no git repository in {run.root}, where run {ID} worked: put it back",
    )


# -- accept -----------------------------------------------------------------------------------------------------------


async def test_accept_fast_forwards_and_leaves_other_files(run: BranchRun) -> None:
    run.save()
    write(run.root, {"other.txt": "mine\n", "new.txt": "mine too\n"})
    run.git("add", "other.txt")
    done = await run.atomic("accept", SHORT)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (f"Merged {BRANCH} into main as a fast-forward: 3 files changed, main is at {run.tip[:12]}\n")
    assert run.git("rev-parse", "HEAD", "main").split() == [run.tip, run.tip]
    assert git(run.root, "status", "--porcelain") == "M  other.txt\n?? new.txt\n"
    assert run.text("b.txt") == "b\n"
    assert run.git("reflog", "-1", "--format=%gs").startswith(f"atomic accept {SHORT}")
    assert await run.refuses("accept", SHORT) == f"There is nothing to merge: main has all changes of {BRANCH}"


async def test_accept_of_a_blocked_run_says_that_it_is_blocked_and_why(run: BranchRun) -> None:
    run.save(status="blocked", reason="not_approved")
    why = "the review has not approved the work"
    line = msgspec.json.encode({"type": "run_ended", "status": "blocked", "message": why})
    log = SessionStore(run.user.home / ".atomic").find(ID).logs.events
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(line + b"\n")
    done = await run.atomic("accept", SHORT)
    assert (done.exit_code, told(done)) == (0, f"run {SHORT} is blocked: {why}")
    assert done.stdout.splitlines()[1:] == [f"run {SHORT} is blocked: {why}, and its work is merged as it is"]


@pytest.mark.parametrize("how", [(), ("--squash",)])
async def test_the_screen_does_not_offer_a_branch_that_was_accepted(run: BranchRun, how: tuple[str, ...]) -> None:
    run.save()
    session = SessionStore(run.user.home / ".atomic").find(ID)
    assert "/accept" in _branch_actions(session)
    assert (await run.atomic("accept", SHORT, *how)).exit_code == 0
    assert _branch_actions(session) == ("/diff",)


async def test_accept_of_a_run_without_work_says_how_to_continue(run: BranchRun) -> None:
    run.landed = []
    git(run.root, "update-ref", f"refs/heads/{BRANCH}", run.start)
    run.save(status="paused")
    assert await run.refuses("accept", SHORT) == (
        f"No task of run {SHORT} is done yet: resume it with atomic resume {ID}"
    )


async def test_accept_merges_if_the_branch_has_moved(run: BranchRun) -> None:
    run.save()
    write(run.root, {"other.txt": "newer\n"})
    head = commit(run.root, "mine")
    done = await run.atomic("accept", SHORT)
    merge = run.git("rev-parse", "HEAD")[:12]
    assert (done.exit_code, done.stdout) == (
        0,
        (
            f"Merged {BRANCH} into main as a merge commit: 3 files changed, main is at {merge}\nNo check has run on "
            f"the merge: main had commits that {BRANCH} did not have\n"
        ),
    )
    assert run.git("rev-parse", "HEAD^1", "HEAD^2").split() == [head, run.tip]
    message = run.git("log", "-1", "--format=%an %s%n%b")
    assert message.splitlines()[:2] == [f"Ada Merge branch '{BRANCH}'", "* 1: Change the first line"]
    assert run.git("log", "-1", "--format=%(trailers:key=Atomic-Run,valueonly)") == ID
    assert (run.text("other.txt"), run.text("b.txt")) == ("newer\n", "b\n")
    assert run.git("status", "--porcelain") == ""


async def test_accept_says_how_to_go_on_if_the_first_commit_was_amended(run: BranchRun) -> None:
    run.save()
    run.git("commit", "-q", "--amend", "-m", "First, in other words")
    rebase = f"git rebase --onto main {run.start[:12]} {BRANCH}"
    refused = await run.refuses("accept", SHORT)
    assert refused.startswith(f"main and {BRANCH} have no commit in common: ")
    assert rebase in refused
    run.git(*rebase.split()[1:])
    run.git("switch", "-q", "main")
    assert (await run.atomic("accept", SHORT)).exit_code == 0
    assert run.text("a.txt").endswith("line 10\n")


async def test_squash_makes_one_commit_with_the_tasks(run: BranchRun) -> None:
    run.save()
    done = await run.atomic("accept", SHORT, "--squash")
    assert (done.exit_code, "as one commit" in done.stdout) == (0, True)
    assert run.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [run.start]
    assert run.git("rev-parse", "HEAD^{tree}") == run.git("rev-parse", f"{BRANCH}^{{tree}}")
    assert run.git("log", "-1", "--format=%B").splitlines() == [
        "add a login page", "", "* 1: Change the first line", "* 2: Add b", "* 3: Change the last line", "",
        f"Atomic-Run: {ID}",
    ]  # fmt: skip
    assert "nothing to merge" in await run.refuses("accept", SHORT, "--squash")


async def test_a_conflict_changes_nothing_and_names_the_files(run: BranchRun) -> None:
    run.save()
    write(run.root, {"a.txt": LINES.replace("line 1", "my line")})
    commit(run.root, "mine")
    assert await run.refuses("accept", SHORT) == (
        f"{BRANCH} and main conflict in a.txt, and nothing was changed: atomic accept {SHORT} --fix lets an agent "
        f"resolve it in a workspace, or git merge {BRANCH} by hand in {run.root}"
    )


@pytest.mark.parametrize("is_staged", [False, True])
async def test_dirty_files_are_not_touched(run: BranchRun, is_staged: bool) -> None:
    run.save()
    write(run.root, {"a.txt": "mine\n"})
    if is_staged:
        run.git("add", "a.txt")
    assert await run.refuses("accept", SHORT) == (
        "The merge would change files with uncommitted changes: a.txt. "
        f"Commit or stash them, then atomic accept {SHORT}"
    )


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        pytest.param({"b.txt": "mine\n"}, "b.txt", id="file"),
        pytest.param({"deep": "mine\n"}, "deep", id="file for a folder"),
        pytest.param({"b.txt/mine": "mine\n"}, "b.txt/mine", id="folder for a file"),
        pytest.param({"c.log": "mine\n"}, "c.log", id="ignored"),
    ],
)
async def test_untracked_files_are_not_overwritten(run: BranchRun, files: dict[str, str], shown: str) -> None:
    run.land("4", "Add a log", {"c.log": "theirs\n"})
    run.save()
    write(run.root, files)
    assert await run.refuses("accept", SHORT) == (
        f"The merge would overwrite files that git does not track: {shown}. Move them away, then atomic accept {SHORT}"
    )


@pytest.mark.parametrize("how", ["forward", "merge", "squash"])
async def test_files_that_the_run_has_begun_with_are_merged(run: BranchRun, how: str) -> None:
    run.include_files(
        {"a.txt": LINES + "mine\n", "notes.txt": "call Bob\n", "staged.txt": "staged\n"}, gone="other.txt"
    )
    if how == "merge":
        run.git("commit", "-q", "--allow-empty", "-m", "mine")
    done = await run.atomic("accept", SHORT, *(["--squash"] if how == "squash" else []))
    assert (done.exit_code, done.stderr) == (0, ""), done
    assert run.git("status", "--porcelain") == ""
    assert run.git("diff", "--name-only", BRANCH, "HEAD") == ""
    assert run.text("a.txt") == "first " + LINES + "mine\n"
    assert (run.text("notes.txt"), run.text("staged.txt")) == ("call Bob\n", "staged\n")
    assert not (run.root / "other.txt").exists()


@pytest.mark.ci
async def test_files_that_differ_from_what_the_run_has_begun_with_stay(run: BranchRun) -> None:
    run.include_files(
        {"a.txt": LINES + "mine\n", "notes.txt": "call Bob\n", "staged.txt": "staged\n"}, gone="other.txt"
    )
    since = " (the run has them as they were when it began)"
    write(run.root, {"notes.txt": "call Bob and Eve\n"})
    assert await run.refuses("accept", SHORT) == (
        f"The merge would overwrite files that git does not track: notes.txt{since}. Move them away, then "
        f"atomic accept {SHORT}"
    )
    write(run.root, {"notes.txt": "call Bob\n", "a.txt": "newer\n"})
    run.git("add", "a.txt")
    write(run.root, {"a.txt": LINES + "mine\n"})  # the staged version is in no commit
    assert f"uncommitted changes: a.txt{since}" in await run.refuses("accept", SHORT)


async def test_accept_refuses_a_checkout_that_is_not_ready(run: BranchRun) -> None:
    run.save()
    run.git("switch", "-q", "-c", "topic")
    assert await run.refuses("accept", SHORT) == (
        f"Run {SHORT} began on main, and your checkout is on topic: git switch main, then atomic accept {SHORT}, or"
        " confirm it at a terminal"
    )
    run.git("switch", "-q", "--detach")
    assert await run.refuses("accept", SHORT) == (
        f"Your checkout {run.root} is on no branch, but at {run.start[:12]}: git switch main, then atomic accept"
        f" {SHORT}"
    )
    run.git("switch", "-q", BRANCH)
    assert f"is on {BRANCH} itself: git switch main" in await run.refuses("accept", SHORT)
    run.git("switch", "-q", "main")
    run.git("merge", "-q", "--no-ff", "--no-commit", BRANCH)
    assert "A git merge in" in await run.refuses("accept", SHORT)


async def test_another_branch_needs_a_confirmation(run: BranchRun) -> None:
    run.save()
    run.git("switch", "-q", "-c", "topic")
    async with in_terminal([ATOMIC, "accept", SHORT], env=run.user.env, cwd=run.root) as terminal:
        await terminal.shows("began on main, and your checkout is on topic. Merge into topic? [y/N]")
        terminal.type("y\n")
        assert await terminal.exit_code() == 0
    assert run.git("rev-parse", "topic", "main").split() == [run.tip, run.start]


async def test_a_running_run_is_left_alone(run: BranchRun) -> None:
    run.save(status="running", owner=owned_by(os.getpid()))
    for words in (("accept", SHORT), ("undo", SHORT, "1"), ("discard", SHORT, "--yes")):
        assert await run.refuses(*words, code=3) == f"{ID} is running: atomic stop {ID}, then {words[0]}"
    assert (await run.atomic("diff", SHORT)).exit_code == 0


@pytest.mark.ci
async def test_a_deleted_branch_can_be_brought_back(run: BranchRun) -> None:
    run.save()
    run.git("branch", "-q", "-D", BRANCH)
    assert await run.refuses("accept", SHORT) == (
        f"The branch {BRANCH} of run {SHORT} is gone from {run.root}: git branch {BRANCH} {run.tip[:12]} brings it back"
    )
    assert "first line" in (await run.atomic("diff", SHORT)).stdout
    run.git("branch", BRANCH, run.tip[:12])
    assert (await run.atomic("accept", SHORT)).exit_code == 0


async def test_only_the_users_own_hooks_run(run: BranchRun, tmp_path: Path) -> None:
    run.save()
    write(run.root, {"other.txt": "newer\n"})
    commit(run.root, "mine")
    for folder, ran in ((run.root / ".git" / "hooks", "repository"), (run.root / "husky", "husky")):
        write_hooks(folder, tmp_path / ran)
    run.git("config", "core.hooksPath", "husky")
    assert (await run.atomic("accept", SHORT)).exit_code == 0
    assert not (tmp_path / "repository").exists()
    assert not (tmp_path / "husky").exists()
    run.git("reset", "-q", "--hard", "HEAD^1")
    write_hooks(run.user.home / "hooks", tmp_path / "own")
    (run.user.home / ".gitconfig").write_text("[core]\n\thooksPath = ~/hooks\n")
    assert (await run.atomic("accept", SHORT)).exit_code == 0
    assert (tmp_path / "own").exists()


def write_hooks(folder: Path, canary: Path) -> None:
    for name in (
        "pre-commit",
        "commit-msg",
        "pre-merge-commit",
        "post-merge",
        "post-checkout",
        "reference-transaction",
    ):
        write(folder, {name: f"#!/bin/sh\ntouch {canary}\n"})
        (folder / name).chmod(0o755)


@pytest.mark.ci
async def test_a_filter_of_the_repository_is_not_run_and_not_left_out(run: BranchRun, tmp_path: Path) -> None:
    run.land("4", "Add a secret", {".gitattributes": "*.bin filter=crypt\n", "x.bin": "stored\n"})
    run.save()
    run.git("config", "filter.crypt.smudge", f"touch {tmp_path / 'ran'}; cat")
    assert await run.refuses("accept", SHORT) == (
        f'x.bin needs the filter "crypt" of {run.root}/.git/config, and Atomic runs no program that a repository names:'
        f" git merge {BRANCH} by hand"
    )
    (run.user.home / ".gitconfig").write_text('[filter "crypt"]\n\tsmudge = tr a-z A-Z\n\tclean = tr A-Z a-z\n')
    assert (await run.atomic("accept", SHORT)).exit_code == 0
    assert run.text("x.bin") == "STORED\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.ci
async def test_a_project_in_a_sub_folder_and_a_worktree(user: User) -> None:
    main = user.home.parent / "main"
    main.mkdir()
    first = BranchRun(user, main)
    git(main, "update-ref", "-d", f"refs/heads/{BRANCH}")
    user.project.rmdir()
    first.git("worktree", "add", "-q", "-b", "side", str(user.project))
    run = BranchRun(user).save()
    write(run.root, {"sub/file.txt": "mine\n"})
    done = await run.atomic("accept", SHORT, cwd=run.root / "sub")
    assert (done.exit_code, done.stderr) == (0, "")
    assert run.git("rev-parse", "side") == run.tip
    assert (run.text("b.txt"), run.git("status", "--porcelain")) == ("b\n", "?? sub/")
    first.git("switch", "-q", BRANCH)
    assert "is checked out in another worktree" in await run.refuses("discard", SHORT, "--yes")
    assert "is checked out in another worktree" in await run.refuses("undo", SHORT, "2")


async def test_an_old_git_is_refused_with_its_version(run: BranchRun) -> None:
    run.save()
    write(run.root, {"other.txt": "newer\n"})
    commit(run.root, "mine")
    real = shutil.which("git")
    old = "import os, sys\nif '--version' in sys.argv:\n    print('git version 2.34.1')\n    raise SystemExit\n"
    run.user.has("git", f"{old}os.execv({real!r}, ['git', *sys.argv[1:]])\n")
    assert await run.refuses("accept", SHORT) == (
        f"This needs git 2.39 or newer, and here is git version 2.34.1: update git, or git merge {BRANCH} by hand"
    )


# -- undo and discard -------------------------------------------------------------------------------------------------


async def test_undo_takes_a_task_out_and_accept_merges_the_rest(run: BranchRun) -> None:
    run.save()
    before = state(run.root), content(run.root)
    done = await run.atomic("undo", SHORT, "2")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (state(run.root), content(run.root)) == before
    assert run.git("log", "-1", "--format=%an|%s|%b", BRANCH).splitlines() == [
        "Ada|Undo task 2: Add b|Atomic-Run: " + ID, "Atomic-Undo: 2",
    ]  # fmt: skip
    assert run.git("rev-parse", f"{BRANCH}^") == run.tip
    assert run.git("diff", "--name-only", run.start, BRANCH) == "a.txt"
    undone = run.git("rev-parse", BRANCH)[:12]
    assert await run.refuses("undo", SHORT, "2") == f"Task 2 of run {SHORT} is undone already, in commit {undone}"
    before = state(run.root), content(run.root)
    assert await run.refuses("accept", SHORT, "--squash") == (
        f"Task 2 was undone, and no check has run on {BRANCH} since: atomic accept {SHORT} --fix runs the checks first,"
        " --unchecked merges without them"
    )
    assert (state(run.root), content(run.root)) == before
    (folder_of(run.user.home, ID) / "report.md").write_text("# 3 tasks done\n")
    report = (await run.atomic("sessions", "report", SHORT)).stdout
    assert report.startswith("> **Task 2 was undone** (`atomic undo`) after this report was written: ")
    assert report.endswith("\n\n# 3 tasks done\n")
    done = await run.atomic("accept", SHORT, "--squash", "--unchecked")
    assert done.stdout.splitlines()[1:] == [
        "Task 2 was undone, so the merge does not have it", "No check has run on the result",
    ]  # fmt: skip
    assert not (run.root / "b.txt").exists()
    assert "* 2:" not in run.git("log", "-1", "--format=%B")
    assert run.text("a.txt").endswith("line 10\n")


async def test_the_last_run_of_the_folder_is_meant_without_an_id(run: BranchRun) -> None:
    run.save()
    shown = await run.atomic("diff", cwd=run.root)
    assert (shown.exit_code, shown.stdout) == (0, (await run.atomic("diff", SHORT)).stdout)
    one = await run.atomic("diff", "2", cwd=run.root)
    assert (one.exit_code, one.stdout) == (0, (await run.atomic("diff", SHORT, "2")).stdout)
    assert "b.txt" in one.stdout
    assert "a.txt" not in one.stdout
    assert (await run.atomic("undo", "2", cwd=run.root)).exit_code == 0
    assert (await run.atomic("accept", "--unchecked", cwd=run.root)).exit_code == 0
    assert run.text("a.txt").endswith("line 10\n")


@pytest.mark.parametrize("flag", ["--fix", "--unchecked"])
async def test_accept_of_a_branch_whose_tasks_are_all_undone_has_nothing_to_merge(run: BranchRun, flag: str) -> None:
    run.save()
    for task in ("3", "2", "1"):
        done = await run.atomic("undo", SHORT, task)
        assert done.exit_code == 0
    assert done.stdout.endswith(f"Nothing is left to merge: atomic discard {SHORT} removes the branch\n")
    refused = await run.refuses("accept", SHORT, flag)
    assert refused == f"There is nothing to merge: main has all changes of {BRANCH}"
    assert [one.name for one in (run.user.home / ".atomic" / "sessions").iterdir()] == [ID]


async def test_accept_after_undo_asks_before_it_merges_what_no_check_has_seen(run: BranchRun) -> None:
    run.save()
    assert (await run.atomic("undo", SHORT, "2")).exit_code == 0
    command = [ATOMIC, "accept", SHORT]
    async with in_terminal(command, env=run.user.env, cwd=run.root) as terminal:
        await terminal.shows("Run the checks first? [y/N]")
        terminal.type("n\n")
        await terminal.shows("Merge it without a check? [y/N]")
        terminal.type("n\n")
        assert await terminal.exit_code() == 1
    assert run.git("rev-parse", "HEAD") == run.start


@pytest.mark.ci
async def test_any_trailer_of_a_worker_leaves_the_tasks_readable(run: BranchRun) -> None:
    run.land("4", "Write x\n\nAtomic-Undo: a\u2028b\x0c\n c\nAtomic-Run: x", {"x.txt": "x\n"})
    run.save()
    assert (await run.atomic("undo", SHORT, "2")).exit_code == 0
    assert "is undone already" in await run.refuses("undo", SHORT, "2")
    assert (await run.atomic("accept", SHORT, "--squash", "--unchecked")).exit_code == 0
    assert "* 1: Change the first line\n* 3:" in run.git("log", "-1", "--format=%B")


async def test_undo_refuses_lines_that_a_later_task_changed(run: BranchRun) -> None:
    text = LINES.replace("line 1", "very first line") + "line 10\n"
    run.land("4", "Change it again", {"a.txt": text})
    run.save()
    assert await run.refuses("undo", SHORT, "1") == (
        f"Task 1 cannot be undone, and nothing was changed: later commits of {BRANCH} change the same lines of a.txt."
        " Undo task 4, 3 first"
    )
    assert (await run.atomic("undo", SHORT, "4")).exit_code == 0
    assert (await run.atomic("undo", SHORT, "1")).exit_code == 0
    assert run.git("show", f"{BRANCH}:a.txt").startswith("line 1\n")


async def test_undo_refuses_the_branch_of_the_checkout(run: BranchRun) -> None:
    run.save()
    run.git("switch", "-q", BRANCH)
    assert await run.refuses("undo", SHORT, "1") == (
        f"Your checkout {run.root} is on {BRANCH} itself: switch to another branch, then undo"
    )
    assert "switch to another branch, then discard" in await run.refuses("discard", SHORT, "--yes")


async def test_discard_keeps_the_commits_for_salvage(run: BranchRun, tmp_path: Path) -> None:
    run.save()
    run.git("pack-refs", "--all")
    assert "--yes removes the branch" in await run.refuses("discard", SHORT, code=2)
    done = await run.atomic("discard", SHORT, "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert run.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines() == [
        f"{parked_prefix(ID)}discarded {run.tip}",
        f"refs/heads/main {run.start}",
    ]
    assert f"git branch {BRANCH} {run.tip[:12]} brings it back" in await run.refuses("accept", SHORT)
    done = await run.atomic("salvage", SHORT, "discarded", "--to", str(tmp_path / "restored"))
    assert done.exit_code == 0, done
    assert (tmp_path / "restored" / "deep" / "c.txt").read_text() == "c\n"
    git(run.root, "branch", BRANCH, run.start)
    assert "salvage 3f2a9c1e discarded-2" in (await run.atomic("discard", SHORT, "--yes")).stdout
    assert f"git branch {BRANCH} {run.start[:12]} brings it back" in await run.refuses("accept", SHORT)


async def test_a_run_with_a_task_named_discarded_can_be_discarded(run: BranchRun) -> None:
    run.park("discarded/1", {"x.txt": "one\n"})
    run.save()
    done = await run.atomic("discard", SHORT, "--yes")
    assert (done.exit_code, "salvage 3f2a9c1e discarded-2 restores" in done.stdout) == (0, True), done
    assert f"git branch {BRANCH} {run.tip[:12]} brings it back" in await run.refuses("accept", SHORT)


async def test_discard_asks_and_enter_means_no(run: BranchRun) -> None:
    run.save()
    async with in_terminal([ATOMIC, "discard", SHORT], env=run.user.env, cwd=run.root) as terminal:
        await terminal.shows("[y/N]")
        terminal.type("\n")
        assert await terminal.exit_code() == 0
    assert run.git("rev-parse", BRANCH) == run.tip


# -- salvage and prune ------------------------------------------------------------------------------------------------


async def test_salvage_lists_and_restores_parked_work(run: BranchRun) -> None:
    run.park("4/1", {"x.txt": "one\n"})
    staged = run.commit(run.start, "The index", {"staged.txt": "staged\n"})
    stash = run.commit(run.start, "WIP on main", {"stash.txt": "stash\n"})
    kept = run.park("4/2", {"x.txt": "two\n", "y.txt": "y\n"}, staged, stash)
    run.park("4/2-merged", {"x.txt": "merged\n"})
    run.park("4/10", {"x.txt": "ten\n"})
    run.save()
    done = await run.atomic("salvage", SHORT)
    rows = [line.split() for line in done.stdout.splitlines()[:4]]
    assert [(row[0], " ".join(row[3:])) for row in rows] == [
        ("4/1", "1 file Work on 4/1"),
        ("4/2", "2 files Work on 4/2"),
        ("4/2-merged", "1 file Work on 4/2-merged"),
        ("4/10", "1 file Work on 4/10"),
    ]
    listed = msgspec.json.decode((await run.atomic("salvage", SHORT, "--json")).stdout)
    assert [(one["task"], one["attempt"]) for one in listed] == [("4", "1"), ("4", "2"), ("4", "2-merged"), ("4", "10")]
    assert (listed[1]["commit"], listed[1]["files"], listed[1]["others"]) == (
        kept, ["x.txt", "y.txt"], [staged, stash],
    )  # fmt: skip
    before = run.snapshot()
    done = await run.atomic("salvage", SHORT, "4/2")
    folder = run.root.parent / "project-salvage-4-2"
    assert done.stdout.splitlines() == [
        f"5 files of 4/2 ({kept[:12]}): {folder}",
        "Also kept, to look at with git show or git cherry-pick:",
        f"{parked_prefix(ID)}4/2^2  The index",
        f"{parked_prefix(ID)}4/2^3  WIP on main",
    ]
    assert (folder / "x.txt").read_text() == "two\n"
    assert run.git("show", f"{parked_prefix(ID)}4/2^2:staged.txt") == "staged"
    assert run.snapshot() == before
    assert "exists and is not an empty folder" in await run.refuses("salvage", SHORT, "4/2", code=2)
    (run.user.home / "empty").mkdir()
    assert (await run.atomic("salvage", SHORT, "4", "--to", "empty")).exit_code == 0
    assert (run.user.home / "empty" / "x.txt").read_text() == "ten\n"


async def test_salvage_counts_what_an_attempt_has_changed_since_it_began(run: BranchRun) -> None:
    first = run.commit(run.tip, "Half of it", {"d.txt": "d\n"})
    git(run.root, "update-ref", f"{parked_prefix(ID)}4/1", first)
    run.land("4", "All of it", {"d.txt": "d\n", "e.txt": "e\n"})
    theirs = run.commit(run.start, "Mine", {"z.txt": "z\n"})
    both = run.commit(run.landed[2].commit, "Keep theirs", {}, theirs)
    merged = git(
        run.root, "commit-tree", f"{both}^{{tree}}", "-p", theirs, "-p", run.landed[2].commit, "-m", "x"
    ).strip()
    git(run.root, "update-ref", f"{parked_prefix(ID)}5/1", merged)
    run.save()
    rows = [line.split()[0:5:3] for line in (await run.atomic("salvage", SHORT)).stdout.splitlines()[:2]]
    assert rows == [["4/1", "1"], ["5/1", "4"]]


async def test_salvage_says_that_paths_are_for_runs_in_the_checkout(run: BranchRun) -> None:
    run.park("login/1", {"x.txt": "one\n"})
    run.save()
    assert await run.refuses("salvage", SHORT, "other.txt", code=2) == (
        'Nothing is parked as "other.txt": paths are for runs in the checkout, and this one has a branch. Give a TASK: '
        "login/1"
    )


async def test_salvage_says_what_there_is(run: BranchRun) -> None:
    run.save()
    assert (await run.atomic("salvage", SHORT)).stdout == f"Run {SHORT} has nothing parked.\n"
    assert await run.refuses("salvage", SHORT, "4", code=2) == 'Nothing is parked as "4"'
    run.park("login/1", {"x.txt": "one\n"})
    assert await run.refuses("salvage", SHORT, "logn", code=2) == (
        'Nothing is parked as "logn" (did you mean "login"?)'
    )
    assert "--force is not for run" in await run.refuses("salvage", SHORT, "--force", code=2)


async def test_prune_removes_parked_work_and_keeps_an_unmerged_branch(run: BranchRun) -> None:
    run.park("4/1", {"x.txt": "one\n"})
    run.save()
    run.git("pack-refs", "--all")
    workspace = run.user.home / ".atomic" / "workspaces" / ID
    write(workspace, {"base/file.txt": "x" * 2_000_000})
    other = run.user.home / ".atomic" / "workspaces" / "other"
    other.mkdir()
    git(run.root, "update-ref", f"{parked_prefix('other')}1/1", run.tip)
    done = await run.atomic("sessions", "prune", "--status", "completed")
    assert (done.exit_code, f"{ID}  2.0 MB  1 parked" in done.stdout) == (2, True)
    assert workspace.exists()
    done = await run.atomic("sessions", "prune", "--status", "completed", "--yes")
    assert (done.exit_code, done.stdout.endswith("1 deleted.\n")) == (0, True)
    assert told(done) == (
        f"{BRANCH} is kept: no other branch has its commits, or it is checked out (git branch -D {BRANCH})"
    )
    assert run.git("for-each-ref", "--format=%(refname)").splitlines() == [
        f"{parked_prefix('other')}1/1", f"refs/heads/{BRANCH}", "refs/heads/main",
    ]  # fmt: skip
    assert (workspace.exists(), other.exists()) == (False, True)
    assert not folder_of(run.user.home, ID).exists()


async def test_prune_removes_a_merged_branch(run: BranchRun) -> None:
    run.save()
    run.git("merge", "-q", "--ff-only", BRANCH)
    done = await run.atomic("sessions", "prune", "--status", "completed", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert run.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


async def test_prune_leaves_an_unfinished_run_unless_its_status_is_named(run: BranchRun) -> None:
    run.park("4/1", {"x.txt": "one\n"})
    run.save(status="paused")
    done = await run.atomic("sessions", "prune", "--older-than", "1h", "--yes")
    assert (done.exit_code, done.stdout) == (0, "No runs to delete.\n")
    assert told(done) == f"not deleted: {ID} is paused and has work (--status paused deletes it)"
    assert run.git("for-each-ref", parked_prefix(ID))
    done = await run.atomic("sessions", "prune", "--status", "paused", "--yes")
    assert done.stdout.endswith("1 deleted.\n")
    assert not run.git("for-each-ref", parked_prefix(ID))


async def test_prune_keeps_a_workspace_with_work_that_is_not_parked(run: BranchRun) -> None:
    run.park("4/1", {"x.txt": "one\n"})
    run.save(status="blocked")
    workspace = run.user.home / ".atomic" / "workspaces" / ID / "task-5"
    workspace.mkdir(parents=True)
    (workspace / "unparked").touch()
    listed = await run.atomic("salvage", SHORT)
    assert f"Not parked: the work in {workspace} (atomic resume {SHORT} continues it)\n" in listed.stdout
    done = await run.atomic("sessions", "prune", "--status", "blocked", "--yes")
    assert (done.exit_code, done.stdout.endswith("0 deleted.\n")) == (1, True)
    assert told(done) == (
        f"not deleted: {ID} has work in {workspace} that is kept nowhere else: atomic salvage {SHORT} parks it, or"
        " delete that folder first"
    )
    assert workspace.is_dir()
    assert run.git("for-each-ref", parked_prefix(ID))
    shutil.rmtree(workspace)
    done = await run.atomic("sessions", "prune", "--status", "blocked", "--yes")
    assert done.stdout.endswith("1 deleted.\n")


async def test_prune_works_without_the_repository(run: BranchRun) -> None:
    run.save()
    shutil.rmtree(run.root)
    done = await run.atomic("sessions", "prune", "--status", "completed", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert not folder_of(run.user.home, ID).exists()


async def test_tab_completes_the_id(run: BranchRun) -> None:
    run.save()
    for verb in ("diff", "accept", "undo", "discard", "salvage"):
        done = await run.atomic("complete", verb, SHORT)
        assert done.stdout.startswith(ID)
