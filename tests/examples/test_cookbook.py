"""The workflows of the cookbook do what they promise, played from a recording of their agents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atomic.processes import ExecResult
from tests.support.fake_acp import use_fake_acp
from tests.support.user import User, objects
from tests.support.user_workflows import call, end, recording

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "workflows"


@pytest.fixture
def user(tmp_path: Path) -> User:
    user = User(tmp_path)
    shutil.copytree(EXAMPLES, user.home / ".atomic" / "workflows", ignore=shutil.ignore_patterns("__pycache__"))
    return user


def answers(user: User, *pairs: tuple[str, str], **more: Any) -> str:
    """Return the name of an agent that answers prompts: pairs of a pattern and an answer."""
    return recording(user, *(call(end(answer), match=match, **more) for match, answer in pairs))


async def run(user: User, agent: str, *words: str, **options: Any) -> ExecResult:
    return await user.atomic("run", words[0], "--agent", agent, "--json", *words[1:], **options)


def last(done: ExecResult) -> Mapping[str, Any]:
    return objects(done)[-1]


def git(user: User, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b", *words],
        cwd=user.project, env=user.env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def has_script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(("second", "nodes"), [("true", 3), ("false", 4)])
async def test_two_opinions_asks_a_judge_only_if_they_disagree(user: User, second: str, nodes: int) -> None:
    agent = answers(
        user,
        ("delete it", '{"yes": true, "reason": "unused"}'),
        ("delete it", f'{{"yes": {second}, "reason": "unused"}}'),
        ("Two others disagree", '{"yes": false, "reason": "tests import it"}'),
    )
    done = await run(user, agent, "two-opinions", "delete it?")
    assert done.exit_code == 0, done.stderr
    ended = [one["node"] for one in objects(done) if one["type"] == "node_ended" and one["status"] == "completed"]
    assert len([name for name in ended if name in ("first", "second", "judge", "answer")]) == nodes
    assert ("no: tests import it" in done.stderr) is (second == "false")


def writing(name: str, text: str) -> str:
    """Return a patch that makes a file."""
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    return f"{head}@@ -0,0 +1 @@\n+{text}\n"


def is_repository(user: User) -> None:
    """Give the user a repository with a commit."""
    git(user, "init", "-q", "-b", "main")
    git(user, "config", "user.name", "A")
    git(user, "config", "user.email", "a@b")
    git(user, "commit", "-q", "--allow-empty", "-m", "start")


async def test_until_green_ends_when_the_command_passes(user: User) -> None:
    git(user, "init", "-q")
    agent = recording(user, call(end("Repaired."), match="test -f fixed", patch=writing("fixed", "yes")))
    done = await run(user, agent, "until-green", "test -f fixed")
    assert (done.exit_code, last(done)["status"]) == (0, "completed"), done.stderr
    assert (user.project / "fixed").exists()


async def test_until_green_checks_the_last_repair(user: User) -> None:
    git(user, "init", "-q")
    agent = recording(user, call(end("Repaired."), match="test -f fixed", patch=writing("fixed", "yes")))
    done = await run(user, agent, "until-green", "--attempts", "1", "test -f fixed")
    assert (done.exit_code, last(done)["status"]) == (0, "completed"), done.stdout


async def test_until_green_fails_after_its_attempts(user: User) -> None:
    agent = answers(user, ("false", "Done!"), ("false", "Now it is really done!"))
    done = await run(user, agent, "until-green", "--attempts", "2", "false")
    assert (done.exit_code, "still red after 3 checks" in str(last(done)["message"])) == (1, True)


async def test_until_green_commits_a_repair(user: User) -> None:
    is_repository(user)
    agent = recording(user, call(end("Repaired."), match="test -f fixed", patch=writing("fixed", "yes")))
    done = await run(user, agent, "until-green", "--commit", "test -f fixed")
    assert done.exit_code == 0, done.stdout
    assert git(user, "log", "-1", "--format=%s", "--name-only").split("\n\n") == ["Make test -f fixed pass", "fixed"]
    assert git(user, "status", "--porcelain") == ""


async def test_until_green_stashes_work_that_did_not_help(user: User) -> None:
    is_repository(user)
    agent = recording(user, call(end("Repaired."), match="false", patch=writing("wrong", "yes")))
    done = await run(user, agent, "until-green", "--commit", "--attempts", "1", "false")
    assert (done.exit_code, "git stash" in str(last(done)["message"])) == (1, True), done.stdout
    assert (git(user, "status", "--porcelain"), git(user, "log", "--format=%s")) == ("", "start")
    assert git(user, "stash", "show", "--include-untracked", "--name-only") == "wrong"


async def test_until_green_does_not_commit_the_files_of_the_user(user: User) -> None:
    is_repository(user)
    (user.project / "mine.txt").write_text("mine\n")
    done = await run(user, answers(user), "until-green", "--commit", "false")
    assert (done.exit_code, "mine.txt" in str(last(done)["message"])) == (1, True), done.stdout
    assert git(user, "status", "--porcelain") == "?? mine.txt"


@pytest.mark.parametrize(("blocking", "exit_code", "reason"), [("true", 1, "failed"), ("false", 0, "done")])
async def test_ci_review_fails_if_a_finding_blocks(user: User, blocking: str, exit_code: int, reason: str) -> None:
    finding = f'{{"file": "a.py", "line": 3, "text": "off by one", "blocking": {blocking}}}'
    agent = answers(user, ("Review this diff", f'{{"findings": [{finding}]}}'))
    done = await run(user, agent, "ci-review", "-", input="+ x = 1\n")
    assert (done.exit_code, last(done)["reason"]) == (exit_code, reason), done.stdout
    assert (user.project / "review.md").read_text() == "a.py:3: off by one\n"


async def test_ci_review_tells_a_broken_agent_from_a_finding(user: User) -> None:
    done = await run(user, answers(user, ("Review this diff", "I cannot.")), "ci-review", "-", input="+ x = 1\n")
    assert (done.exit_code, last(done)["reason"]) == (1, "error"), done.stdout


def has_issue(user: User) -> None:
    """Give the user a repository with a remote, and a `gh` that knows an issue."""
    is_repository(user)
    git(user, "init", "-q", "--bare", str(user.home / "remote.git"))
    git(user, "remote", "add", "origin", str(user.home / "remote.git"))
    has_script(
        user.bin,
        "gh",
        'echo "$@" >> "$HOME/gh.txt"\ncase "$1 $2" in\n'
        '"issue view") echo \'{"title": "Crash at start", "body": "It crashes."}\' ;;\n'
        '"pr create") echo pull/7 ;;\nesac',
    )


async def test_issue_to_pr_checks_before_it_pushes_and_opens_one_pull_request(user: User) -> None:
    has_issue(user)
    agent = answers(user, ("Crash at start", "Solved."), ("Crash at start", "Solved."))
    red = await run(user, agent, "issue-to-pr", "--check", "false", "12")
    assert (red.exit_code, "create" in (user.home / "gh.txt").read_text()) == (1, False)
    done = await run(user, agent, "issue-to-pr", "--check", "true", "#12")
    assert (done.exit_code, "pull/7" in done.stderr) == (0, True), done.stderr
    assert git(user, "ls-remote", "--heads", "origin").endswith("refs/heads/issue-12")
    assert (user.home / "gh.txt").read_text().count("pr create") == 1


async def test_issue_to_pr_keeps_the_commits_of_an_earlier_run(user: User) -> None:
    has_issue(user)
    agent = answers(user, ("Crash at start", "Solved."), ("Crash at start", "Solved."))
    assert (await run(user, agent, "issue-to-pr", "--check", "false", "12")).exit_code == 1
    git(user, "commit", "-q", "--allow-empty", "-m", "half of the work")
    git(user, "switch", "-q", "main")
    done = await run(user, agent, "issue-to-pr", "--check", "true", "12")
    assert done.exit_code == 0, done.stdout
    assert git(user, "log", "--format=%s", "origin/issue-12").splitlines() == ["half of the work", "start"]


async def test_cheap_chores_writes_the_message_with_the_cheap_model(user: User) -> None:
    is_repository(user)
    agent = recording(
        user, call(end("Done."), match="speed up", patch=writing("a.txt", "a")), call(end("Add a\n"), match="[+]a")
    )
    done = await run(user, agent, "cheap-chores", "speed up the parser")
    assert done.exit_code == 0, done.stdout
    assert git(user, "log", "-1", "--format=%s", "--name-only").split("\n\n") == ["Add a", "a.txt"]
    calls = next(user.home.glob(".atomic/sessions/*/logs/agent-calls.jsonl")).read_text().splitlines()
    assert [json.loads(line)["model"] for line in calls] == [None, "haiku"]


async def test_cheap_chores_does_not_commit_the_files_of_the_user(user: User) -> None:
    is_repository(user)
    (user.project / "mine.txt").write_text("mine\n")
    git(user, "add", "mine.txt")
    agent = answers(user, ("speed up", "Done."), ("commit message", "Add mine\n"))
    done = await run(user, agent, "cheap-chores", "speed up the parser")
    assert (done.exit_code, "mine.txt" in str(last(done)["message"])) == (1, True), done.stdout
    assert git(user, "log", "--format=%s") == "start"


async def test_recipes_without_tools_work_with_an_agent_that_has_no_choice_of_tools(user: User) -> None:
    is_repository(user)
    (user.project / "a.txt").write_text("It crashes")
    ticket = '{"kind": "bug", "urgent": true, "summary": "a crash"}'
    agent = use_fake_acp(user, "--script", str(user.home / "script.json"))
    (user.home / "script.json").write_text(json.dumps([{"do": [{"say": ticket}]}]))
    done = await run(user, agent, "triage", "a.txt")
    assert done.exit_code == 0, done.stdout
    assert json.loads((user.project / "triage.json").read_text())[0]["ticket"]["summary"] == "a crash"


async def test_review_cycle_asks_for_json_and_repairs_until_the_review_approves(user: User) -> None:
    agent = answers(
        user,
        ("Make this change", "Changed."),
        ('"approved":{"type":"boolean"}', '{"approved": false, "findings": ["there is no test"]}'),
        ("there is no test", "Repaired."),
        ('"approved":{"type":"boolean"}', '{"approved": true}'),
    )
    done = await run(user, agent, "review-cycle", "add a login page")
    assert (done.exit_code, last(done)["result"]) == (0, "The review approves."), done.stdout


async def test_review_cycle_fails_if_no_review_approves(user: User) -> None:
    red = '{"approved": false, "findings": ["there is no test"]}'
    turn = [("Make this change", "Changed.")]
    turn += [("Review what was changed", red), ("there is no test", "Repaired.")] * 3
    done = await run(user, answers(user, *turn), "review-cycle", "add a login page")
    assert (done.exit_code, last(done)["reason"]) == (1, "failed"), done.stdout
    assert "not approved after 3 reviews" in str(last(done)["message"])
    assert "- there is no test" in str(last(done)["message"])


async def test_triage_tries_an_answer_that_does_not_fit_again(user: User) -> None:
    (user.project / "inbox").mkdir()
    (user.project / "inbox" / "a.txt").write_text("It crashes")
    right = '{"kind": "bug", "urgent": true, "summary": "a crash"}'
    agent = answers(user, ("It crashes", "It is a bug."), ("It crashes", right))
    done = await run(user, agent, "triage", "inbox/*.txt")
    assert done.exit_code == 0, done.stderr
    assert json.loads((user.project / "triage.json").read_text()) == [
        {"file": "inbox/a.txt", "ticket": {"kind": "bug", "urgent": True, "summary": "a crash"}}
    ]


@pytest.mark.parametrize(
    ("smoke", "seen"), [("true", "build deploy smoke-test"), ("false", "build deploy smoke-test roll-back")]
)
async def test_deploy_rolls_back_if_it_fails(user: User, smoke: str, seen: str) -> None:
    for script in ("build", "deploy", "smoke-test", "roll-back"):
        ending = smoke if script == "smoke-test" else "true"
        has_script(user.project / "scripts", script, f'echo {script} "$1" "$2" >> ledger.txt\n{ending}')
    done = await run(user, answers(user), "deploy", "staging")
    assert done.exit_code == (0 if smoke == "true" else 1), done.stderr
    lines = [line.split() for line in (user.project / "ledger.txt").read_text().splitlines()]
    assert " ".join(line[0] for line in lines) == seen
    assert {line[1] for line in lines} == {"staging"}
    assert len({line[2] for line in lines}) == len(lines), "each step has an id of its own"


async def test_plan_first_changes_the_plan_until_it_is_accepted(user: User) -> None:
    agent = answers(
        user, ("Change this plan", "Better plan"), ("Carry out this plan", "Done."), ("short plan", "A plan")
    )
    asked = await run(user, agent, "plan-first", "move the settings")
    assert asked.exit_code == 5, asked.stderr
    id = str(last(asked)["run"])
    again = await user.atomic("answer", id, "use TOML", "--json", "--agent", agent)
    assert (again.exit_code, "Better plan" in again.stdout) == (5, True), again.stderr
    done = await user.atomic("answer", id, "go", "--json", "--agent", agent)
    assert (done.exit_code, last(done)["status"]) == (0, "completed"), done.stderr


async def test_a_workflow_of_the_cookbook_is_a_file_that_can_be_loaded(user: User) -> None:
    done = await user.atomic("workflows", "check")
    assert (done.exit_code, done.stdout) == (0, "")
    assert os.listdir(EXAMPLES)
