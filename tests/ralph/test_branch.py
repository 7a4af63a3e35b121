"""A turn may only add commits to its branch; a move by the user pauses the run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, with_open_question, worker, writing
from tests.ralph.test_own_work import KILL

COMMIT = "git add -- part1.txt && git commit -q -m one -- part1.txt"


def moving(command: str, **facts: Any) -> dict[str, Any]:
    return worker("1", {"write": {"part1.txt": "part 1\n"}}, {"sh": command}, **facts)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(f"{COMMIT} && git reset -q --hard HEAD~2", id="reset --hard"),
        pytest.param("git add . && git commit -q --amend -m other", id="commit --amend", marks=pytest.mark.ci),
        pytest.param(f"git checkout -q -b mine && {COMMIT}", id="another branch"),
        pytest.param(f"git checkout -q --detach && {COMMIT}", id="detached", marks=pytest.mark.ci),
        pytest.param(f"{COMMIT} && git rebase -q --onto HEAD~2 HEAD~1", id="rebase", marks=pytest.mark.ci),
    ],
)
async def test_a_turn_that_leaves_the_branch_has_failed(tmp_path: Path, command: str) -> None:
    finish = f"test -e part1.txt || echo part 1 > part1.txt; {COMMIT} || true"
    repair = worker("1", {"obey": True}, {"sh": finish}, attempt=2)
    sandbox = Sandbox(tmp_path, PLAN, moving(command, attempt=1), repair, writing("2"), APPROVE)
    (sandbox.project / "second.txt").write_text("second\n")
    sandbox.commit_all("Second")
    start = sandbox.git("rev-parse", "HEAD")
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "worker 1 2" in sandbox.callers
    assert "the branch main" in outcome.warnings or "the history of main" in outcome.warnings
    assert sandbox.git("symbolic-ref", "HEAD") == "refs/heads/main"
    sandbox.git("merge-base", "--is-ancestor", start, "HEAD")
    assert (sandbox.project / "part1.txt").exists()


async def test_a_branch_that_no_attempt_brings_back_pauses_the_run(tmp_path: Path) -> None:
    switch = {"sh": "git checkout -q -b mine"}  # by the user, who stays there
    sandbox = Sandbox(tmp_path, PLAN, worker("1", switch, attempt=1), writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("paused", "branch_changed", 5)
    assert "switched from main to mine, during a turn" in outcome.end["message"]
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2"]


async def test_an_empty_commit_is_not_a_change(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"sh": "git commit -q --allow-empty -m Done"}))
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("blocked", "stuck", 5)
    assert sandbox.evidence("1")["reason"] == "no file has changed"


async def test_switching_the_branch_during_a_pause_asks_the_user(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.git("checkout", "-q", "-b", "elsewhere", "HEAD~1")
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("paused", "branch_changed", 5)
    assert "switched from main to elsewhere" in outcome.end["message"]
    assert "git switch main" in outcome.end["message"]
    assert "worker 2 1" not in sandbox.callers
    sandbox.git("switch", "-q", "main")
    assert (await sandbox.resume()).status == ("completed", "done", 0)
    assert sandbox.git("symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.ci
async def test_a_user_who_resumes_on_another_branch_gets_the_work_there(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.git("checkout", "-q", "-b", "elsewhere")
    sandbox.git("commit", "-q", "--amend", "-m", "Mine")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("paused", "branch_changed", 5)
    assert (await sandbox.resume()).status == ("completed", "done", 0)
    assert sandbox.git("symbolic-ref", "HEAD") == "refs/heads/elsewhere"
    assert sandbox.git("log", "-1", "--format=%s") == "Write part2.txt"


@pytest.mark.ci
async def test_commits_that_the_user_adds_between_turns_are_accepted(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "draft.md").write_text("my draft\n")
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.commit_all("My draft")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert "uncommitted work was touched" not in sandbox.report


def way_back(message: str) -> str:
    """Return the commands that a pause names, without the resume."""
    return message.partition("where the run was: ")[2].partition(" && atomic resume")[0]


@pytest.mark.parametrize(
    "rewrite", ["commit -q --amend -m Mine", pytest.param("reset -q --hard HEAD~1", marks=pytest.mark.ci)]
)
async def test_a_rewritten_history_comes_with_a_way_back_that_works(tmp_path: Path, rewrite: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    good = sandbox.git("rev-parse", "HEAD")
    sandbox.git(*rewrite.split())
    (sandbox.project / "draft.md").write_text("my draft\n")
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("paused", "branch_changed", 5)
    subprocess.run(way_back(outcome.end["message"]), shell=True, cwd=sandbox.project, check=True)
    assert sandbox.git("rev-parse", "HEAD") == good
    assert (sandbox.project / "draft.md").exists()
    outcome = await sandbox.resume()
    assert outcome.status == ("completed", "done", 0)
    assert "The run continues from commit" not in outcome.warnings
    sandbox.git("merge-base", "--is-ancestor", good, "HEAD")


@pytest.mark.ci
async def test_a_resume_warns_of_the_rewritten_history(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.git("commit", "-q", "--amend", "-m", "Mine")
    now = sandbox.git("rev-parse", "HEAD")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("paused", "branch_changed", 5)
    outcome = await sandbox.resume()
    assert outcome.status == ("completed", "done", 0)
    assert f"The run continues from commit {now[:12]}, because you resumed it there" in outcome.warnings


@pytest.mark.ci
async def test_the_way_back_holds_for_any_name_of_a_branch(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    sandbox.git("switch", "-q", "-c", "odd;touch${IFS}hit")
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.git("switch", "-q", "main")
    outcome = await sandbox.resume("--max-iterations", "9")
    subprocess.run(way_back(outcome.end["message"]), shell=True, cwd=sandbox.project, check=True)
    assert sandbox.git("symbolic-ref", "HEAD") == "refs/heads/odd;touch${IFS}hit"
    assert not (sandbox.project / "hit").exists()


@pytest.mark.parametrize("role", ["worker", pytest.param("reviewer", marks=pytest.mark.ci)])
async def test_a_run_whose_repository_was_deleted_is_not_completed(tmp_path: Path, role: str) -> None:
    gone = {"sh": "rm -rf .git"}
    first = worker("1", {"write": {"part1.txt": "part 1\n"}}, *([gone] if role == "worker" else []))
    review = {**APPROVE, "do": [gone, *APPROVE["do"]]} if role == "reviewer" else APPROVE
    sandbox = Sandbox(tmp_path, PLAN, first, worker("2", {"write": {"part2.txt": "part 2\n"}}), review)
    (sandbox.project / "draft.md").write_text("my draft\n")
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("paused", "branch_changed", 5)
    assert ".git does not exist" in outcome.end["message"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        pytest.param("mv .git ../moved", ".git does not exist", id="moved"),
        pytest.param(
            "mv .git ../moved; git init -q",
            "has another repository than before: commit",
            id="replaced",
            marks=pytest.mark.ci,
        ),
    ],
)
async def test_a_run_whose_repository_was_moved_away_pauses_and_continues_with_it(
    tmp_path: Path, step: str, said: str
) -> None:
    # Without uncommitted files the snapshots need objects of the repository.
    moving = worker("1", {"write": {"part1.txt": "part 1\n"}}, {"sh": step}, attempt=1)
    sandbox = Sandbox(tmp_path, PLAN, moving, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("paused", "branch_changed", 5)
    assert said in outcome.end["message"]
    shutil.rmtree(sandbox.project / ".git", ignore_errors=True)
    (tmp_path / "moved").rename(sandbox.project / ".git")
    assert (await sandbox.resume()).status == ("completed", "done", 0)


class Refs(Sandbox):
    """A user with another branch, a tag and two stashes."""

    def __init__(self, folder: Path, *script: Any, packed: bool = False) -> None:
        super().__init__(folder, *script)
        self.git("switch", "-q", "-c", "feature")
        (self.project / "feature.txt").write_text("mine\n")
        self.commit_all("My feature")
        self.git("tag", "-a", "-m", "one", "v1")
        self.git("branch", "other")
        self.git("switch", "-q", "main")
        for number in (1, 2):
            (self.project / "README.md").write_text(f"stashed {number}\n")
            self.git("stash", "push", "-q", "-m", f"it's mine {number}")
        if packed:
            self.git("pack-refs", "--all")
        self.before = self.refs

    @property
    def refs(self) -> set[str]:
        names = self.git("for-each-ref", "refs/heads/feature", "refs/heads/other", "refs/tags")
        return {*names.splitlines(), *self.git("log", "-g", "--format=%H %gs", "refs/stash").splitlines()}


LOSSES = [
    pytest.param("git branch -q -D feature", "the branch feature was deleted", id="branch -D"),
    pytest.param("git branch -q -f feature main", "the branch feature was moved", id="branch -f", marks=pytest.mark.ci),
    pytest.param(
        "git update-ref -d refs/heads/feature", "the branch feature was deleted", id="update-ref", marks=pytest.mark.ci
    ),
    pytest.param("git tag -d v1 >&2", "the tag v1 was deleted", id="tag -d", marks=pytest.mark.ci),
    pytest.param("git tag -f v1 main >&2", "the tag v1 was moved", id="tag -f", marks=pytest.mark.ci),
    pytest.param("git stash drop -q stash@{1}", "the stash On main: it's mine 1 was deleted", id="stash drop"),
    pytest.param(
        "git stash clear", "the stash On main: it's mine 2 was deleted", id="stash clear", marks=pytest.mark.ci
    ),
]


@pytest.mark.ci
@pytest.mark.parametrize(("command", "said"), LOSSES)
async def test_a_turn_that_loses_a_ref_of_the_user_brings_it_back(tmp_path: Path, command: str, said: str) -> None:
    repair = worker("1", {"obey": True}, attempt=2)
    packed = "tag" in command
    sandbox = Refs(tmp_path, PLAN, moving(command, attempt=1), repair, writing("2"), APPROVE, packed=packed)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert said in outcome.warnings
    assert "worker 1 2" in sandbox.callers
    assert sandbox.refs == sandbox.before
    assert "Branches, tags or stashes of yours" not in sandbox.report


@pytest.mark.ci
@pytest.mark.parametrize(("command", "said"), LOSSES[::3])
async def test_a_ref_that_stays_lost_is_in_the_title_with_the_way_back(tmp_path: Path, command: str, said: str) -> None:
    first = moving(command, attempt=1)
    sandbox = Refs(tmp_path, PLAN, first, moving("true"), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers.count("worker 1 2") == 1
    assert said in sandbox.report.partition("\n")[0]
    assert said in outcome.end["message"]
    for found in re.findall(r"^> - .*; `(git .*)` brings it back", sandbox.report, re.MULTILINE):
        subprocess.run(["sh", "-ec", found], cwd=sandbox.project, check=True, capture_output=True)
    assert sandbox.refs == sandbox.before


@pytest.mark.ci
async def test_a_check_that_loses_a_stash_is_in_the_title(tmp_path: Path) -> None:
    sandbox = Refs(tmp_path, PLAN, moving("true"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--verify", "git stash clear", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "the stash On main: it's mine 2 was deleted while a check ran" in sandbox.report.partition("\n")[0]


@pytest.mark.ci
@pytest.mark.parametrize("is_rewound", [True, False], ids=["rewound", "grown"])
async def test_a_branch_of_another_worktree_may_grow_and_not_be_rewound(tmp_path: Path, is_rewound: bool) -> None:
    grow = "git update-ref refs/heads/feature $(git commit-tree -p feature -m more feature^{tree})"
    command = "git update-ref refs/heads/feature main~1" if is_rewound else grow
    sandbox = Refs(tmp_path, PLAN, moving(command, attempt=1), moving("true"), writing("2"), APPROVE)
    sandbox.git("commit", "-q", "--allow-empty", "-m", "Second")
    sandbox.git("worktree", "add", "-q", str(tmp_path / "other"), "feature")
    assert (await sandbox.ralph(GOAL)).status == ("completed", "done", 0)
    assert ("the branch feature was moved" in sandbox.report.partition("\n")[0]) is is_rewound


@pytest.mark.ci
async def test_allowed_changes_of_refs_are_not_losses(tmp_path: Path) -> None:
    made = moving("git branch mine && git tag mine && echo x >> README.md && git stash push -q")
    grown = "c=$(git commit-tree -p other -m more other^{tree}) && git update-ref refs/heads/other $c"
    gone = f"git branch -q -D mine && git tag -d mine >&2 && git stash drop -q && {grown}"
    second = worker("2", {"write": {"part2.txt": "2\n"}}, {"sh": gone})
    sandbox = Refs(tmp_path, PLAN, made, second, APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.git("branch", "-D", "feature")  # by the user
    sandbox.git("stash", "drop", "-q", "stash@{2}")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert "Branches, tags or stashes of yours" not in sandbox.report


@pytest.mark.ci
async def test_a_turn_that_loses_a_branch_and_is_killed_is_in_the_title(tmp_path: Path) -> None:
    first = worker("1", {"sh": "git branch -q -D feature"}, KILL, times=1)
    sandbox = Refs(tmp_path, PLAN, first, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).exit_code == -9
    assert (await sandbox.resume()).status == ("completed", "done", 0)
    assert "the branch feature was deleted" in sandbox.report.partition("\n")[0]


CONFLICT = "git switch -q -c side && echo side > README.md && git commit -q -a -m side && git switch -q main"
BEGUN = {
    "merge": "git merge side",
    "rebase": "git rebase side",
    "cherry-pick": "git cherry-pick side",
    "revert": "git revert --no-edit HEAD~1",
    "am": "git format-patch -q -1 --stdout side > ../side.patch; git am -q ../side.patch",
}


def begin(sandbox: Sandbox, command: str) -> None:
    """Begin something that ends in a conflict."""
    prepare = f"echo one > README.md && git commit -q -a -m one && {CONFLICT}"
    script = f"{prepare} && echo main > README.md && git commit -q -a -m main"
    subprocess.run(["sh", "-ec", script], cwd=sandbox.project, check=True, capture_output=True)
    subprocess.run(["sh", "-c", command], cwd=sandbox.project, capture_output=True)


@pytest.mark.parametrize(
    "operation", ["merge", "rebase", *(pytest.param(one, marks=pytest.mark.ci) for one in list(BEGUN)[2:])]
)
async def test_a_run_does_not_start_while_a_merge_or_rebase_is_in_progress(tmp_path: Path, operation: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    begin(sandbox, BEGUN[operation])
    before = sandbox.git("status", "--porcelain=v2")
    done = await sandbox.user.atomic("run", "ralph", GOAL)
    assert done.exit_code == 2
    assert f"A git {operation} is in progress in {sandbox.project}" in done.stderr
    assert f"(git {operation} --abort)" in done.stderr
    assert sandbox.callers == []
    assert sandbox.git("status", "--porcelain=v2") == before
    sandbox.git(operation, "--abort")
    assert (await sandbox.ralph(GOAL)).status == ("completed", "done", 0)


@pytest.mark.parametrize("operation", ["merge", pytest.param("cherry-pick", marks=pytest.mark.ci)])
async def test_a_resume_waits_until_the_users_merge_is_finished(tmp_path: Path, operation: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[1] == "max_iterations"
    begin(sandbox, BEGUN[operation])
    before = sandbox.git("status", "--porcelain=v2")
    record = (sandbox.session / "session.json").read_bytes()
    cast = sandbox.callers
    id = sandbox.session.name
    done = await sandbox.user.atomic("resume", id, "--max-iterations", "9")
    assert done.exit_code == 2
    assert done.stderr == (
        f"atomic: A git {operation} is in progress in {sandbox.project}: a commit of a worker would become part of it. "
        f"Finish it (git {operation} --continue) or take it back (git {operation} --abort), then run atomic resume "
        f"{id}\n"
    )
    assert sandbox.callers == cast
    assert sandbox.git("status", "--porcelain=v2") == before
    assert (sandbox.session / "session.json").read_bytes() == record
    sandbox.git(operation, "--abort")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)


@pytest.mark.ci
async def test_an_answer_does_not_continue_a_run_inside_the_users_merge(tmp_path: Path) -> None:
    sandbox = await with_open_question(tmp_path)
    begin(sandbox, BEGUN["merge"])
    before = sandbox.git("status", "--porcelain=v2")
    cast = sandbox.callers
    id = sandbox.session.name
    done = await sandbox.user.atomic("answer", id, "It is the goal")
    assert done.exit_code == 2
    assert f"then run atomic resume {id}" in done.stderr
    assert "the answer was not recorded" in done.stderr
    assert (sandbox.callers, sandbox.git("status", "--porcelain=v2")) == (cast, before)
    sandbox.git("merge", "--abort")
    assert (await sandbox.atomic("answer", id, "It is the goal", "--json")).status == ("completed", "done", 0)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("git checkout -q --detach", "HEAD is detached: the commits of this run will be on no branch"),
        ("git bisect start HEAD HEAD~2", "A git bisect is in progress"),
    ],
)
async def test_a_run_that_starts_without_a_branch_is_warned_about(tmp_path: Path, command: str, said: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    for name in ("a", "b"):
        (sandbox.project / name).touch()
        sandbox.commit_all(name)
    sandbox.git(*command.split()[1:])
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert outcome.warnings.count("will be on no branch") == 1
    assert said in outcome.warnings


@pytest.mark.ci
async def test_a_bisect_that_is_still_on_the_branch_claims_no_lost_commits(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    sandbox.git("bisect", "start")
    branch = sandbox.git("symbolic-ref", "--short", "HEAD")
    start = sandbox.git("rev-parse", "HEAD")
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "no branch" not in outcome.warnings
    said = f"A git bisect is in progress and {branch} is checked out: the commits of this run will be on {branch}. "
    assert said in outcome.warnings
    assert sandbox.git("rev-list", "--count", f"{start}..refs/heads/{branch}") == "2"


@pytest.mark.ci
async def test_variables_that_name_another_repository_do_not_reach_agents_and_checks(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    named = {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / "index")}
    sandbox.user.env |= {**named, "GIT_AUTHOR_NAME": "Somebody Else"}
    start = sandbox.git("rev-parse", "HEAD")
    check = 'test -z "$GIT_DIR$GIT_WORK_TREE$GIT_INDEX_FILE" && test "$GIT_AUTHOR_NAME" = "Somebody Else"'
    outcome = await sandbox.ralph("--verify", check, GOAL)
    assert outcome.status == ("completed", "done", 0), outcome.end["message"]
    assert "GIT_DIR, GIT_INDEX_FILE, GIT_WORK_TREE are set in your environment" in outcome.warnings
    assert sandbox.git("rev-list", "--count", f"{start}..HEAD") == "2"
    assert sandbox.git("log", "-1", "--format=%an") == "Somebody Else"
    assert not (other / "index").exists()


@pytest.mark.ci
async def test_a_variable_that_names_a_repository_is_passed_on_if_allowed(tmp_path: Path) -> None:
    worker = {"role": "worker", "do": [{"sh": 'echo "${GIT_DIR-none}" >> seen.txt; git add . && git commit -qm seen'}]}
    sandbox = Sandbox(tmp_path, PLAN, worker, APPROVE)
    with open(sandbox.user.home / ".atomic" / "config.toml", "a", encoding="utf-8") as file:
        file.write('\n[env]\npass = ["GIT_DIR"]\n\n[checks]\nenv = ["GIT_DIR"]\n')
    sandbox.user.env["GIT_DIR"] = folder = str(sandbox.project / ".git")
    outcome = await sandbox.ralph("--verify", f'test "$GIT_DIR" = "{folder}"', GOAL)
    assert outcome.status == ("completed", "done", 0), outcome.end["message"]
    assert {*(sandbox.project / "seen.txt").read_text().split()} == {folder}
    assert "unless [env] pass or [checks] env names it" in outcome.warnings
