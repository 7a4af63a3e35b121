"""Git's ignore rules hide neither changes nor files that make a check pass."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from atomic.ralph.hidden_files import MAX_FILES, SLACK
from atomic.ralph.run_folder import SNAPSHOTS
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing

CHEAT = "import os\nos._exit(0)\n"


def cheating(*steps: dict[str, Any]) -> dict[str, Any]:
    return worker("1", {"write": {"part1.txt": "1\n"}}, *steps)


@pytest.mark.parametrize(
    "hide",
    [
        pytest.param("mkdir -p .git/info && echo helper.py >> .git/info/exclude", id="info exclude"),
        pytest.param(
            "git config core.excludesFile $PWD/../rules && echo helper.py > ../rules",
            id="excludesFile",
            marks=pytest.mark.ci,
        ),
        pytest.param("echo helper.py >> .gitignore", id="gitignore"),
        pytest.param(
            "mkdir -p sub && mv helper.py sub/helper.py && echo '*' > sub/.gitignore",
            id="gitignore below",
            marks=pytest.mark.ci,
        ),
    ],
)
async def test_new_rules_of_git_hide_no_change(tmp_path: Path, hide: str) -> None:
    cheat = cheating({"write": {"helper.py": "x\n"}}, {"sh": hide})
    sandbox = Sandbox(tmp_path, PLAN, cheat, writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).status == ("completed", "done", 0)
    files = sandbox.evidence("1")["changed_files"]
    assert {"helper.py", "sub/helper.py"} & set(files)
    if ".gitignore" in hide:
        assert {".gitignore", "sub/.gitignore"} & set(sandbox.evidence("1")["protected_files"])
    if "info" in hide:
        assert ".git/info/exclude" in sandbox.evidence("1")["protected_files"]


async def test_steering_files_and_tools_are_seen_though_they_are_ignored(tmp_path: Path) -> None:
    tool = "#!/bin/sh\nexit 0\n"
    planted = {
        "ignored/conftest.py": CHEAT,
        ".venv/lib/python3/site-packages/sitecustomize.py": CHEAT,
        ".venv/lib/python3/site-packages/x.pth": "import x\n",
        ".venv/bin/check": tool,
        ".venv/bin/other": tool,
        "node_modules/.bin/jest": tool,
    }
    sandbox = Sandbox(tmp_path)
    (sandbox.project / ".gitignore").write_text("ignored/\n.venv/\nnode_modules/\n")
    sandbox.commit_all("Ignore")
    for name in (".venv/bin/check", "node_modules/.bin/jest"):
        path = sandbox.project / name
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\nexit 0\n# the real one\n")
        path.chmod(0o755)
    (sandbox.project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    sandbox.play(PLAN, cheating({"write": planted}), writing("2"), APPROVE)
    checks = ("--verify", "sh .venv/bin/check", "--verify", "sh ./node_modules/.bin/jest")
    assert (await sandbox.ralph(*checks, GOAL)).status == ("completed", "done", 0)
    expected = sorted(planted.keys() - {".venv/bin/other"})
    assert sandbox.evidence("1")["protected_files"] == expected
    assert sandbox.evidence("2")["protected_files"] == []
    assert "`.venv/bin/check`" in sandbox.report


async def test_a_name_like_a_secret_does_not_make_a_file_look_changed(tmp_path: Path) -> None:
    names = ("ignored/secret_token.pth", "ignored/token/conftest.py", "ignored/API_KEY=Zk8sQ2v7Lr4Tn1Wb9Xc3/tox.ini")
    sandbox = Sandbox(tmp_path)
    (sandbox.project / ".gitignore").write_text("ignored/\n")
    sandbox.commit_all("Ignore")
    for name in names:
        (sandbox.project / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox.project / name).write_text("\n")
    (sandbox.project / "ignored" / "password.pth").symlink_to("a/DB_PASSWORD=Zk8sQ2v7Lr4Tn1Wb9Xc3")
    change = {"write": {"ignored/secret_token.pth": "import x\n"}}
    sandbox.play(PLAN, writing("1"), worker("2", {"write": {"part2.txt": "2\n"}}, change), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert sandbox.evidence("1")["protected_files"] == []
    assert sandbox.evidence("2")["protected_files"] == ["ignored/secret_token.pth"]


async def test_a_planted_pyc_does_not_run(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.project / "test_it.py").write_text("import lib\nassert lib.value == 1\n")
    (sandbox.project / "lib.py").write_text("value = 1\n")
    (sandbox.project / ".gitignore").write_text("__pycache__/\n*.pyc\n")
    sandbox.commit_all("Begin with a test")
    # A compiled file that is never compared with its source behaves differently.
    plant = (
        "cp lib.py good.py && python3 -c \"import py_compile; py_compile.compile('good.py', "
        "py_compile and __import__('importlib.util').util.cache_from_source('lib.py'), "
        "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\" && rm good.py && echo 'value = 2' > lib.py"
    )
    sandbox.play(PLAN, cheating({"sh": plant}), APPROVE)
    outcome = await sandbox.ralph("--verify", "python3 test_it.py", "--max-iterations", "1", GOAL)
    assert outcome.status[0] == "paused"
    assert sandbox.evidence("1")["status"] == "failed"


@pytest.mark.parametrize("shared", [pytest.param("--reviewers", marks=pytest.mark.ci), "--workers"])
async def test_older_caches_stay_when_several_turns_run_at_once(tmp_path: Path, shared: str) -> None:
    tasks = [{"id": "1", "title": "Write part one"}, {"id": "2", "title": "Write part two"}]
    plan = {"role": "planner", "do": [{"say": json.dumps({"tasks": tasks})}]}
    sandbox = Sandbox(tmp_path, plan, writing("1"), writing("2"), APPROVE)
    (sandbox.project / ".gitignore").write_text(".venv/\n")
    sandbox.commit_all("Ignore")
    cache = sandbox.project / ".venv" / "__pycache__" / "x.cpython-311.pyc"
    cache.parent.mkdir(parents=True)
    cache.write_bytes(b"compiled long ago")
    while time.time() < cache.stat().st_ctime + SLACK:  # older than any file of a turn
        await asyncio.sleep(0.1)
    outcome = await sandbox.ralph(shared, "2", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert cache.exists()


async def test_rules_and_hooks_of_a_linked_worktree_are_watched(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    main = tmp_path / "main"
    sandbox.project.rename(main)
    subprocess.run(["git", "worktree", "add", "-q", "-b", "work", sandbox.project], cwd=main, check=True)
    cheat = {"sh": "d=$(git rev-parse --git-common-dir); mkdir -p $d/info $d/hooks; echo x >> $d/info/exclude; "}
    cheat["sh"] += "echo exit > $d/hooks/pre-push"
    sandbox.play(PLAN, cheating(cheat), writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).status == ("completed", "done", 0)
    assert sandbox.evidence("1")["protected_files"] == [".git/hooks/pre-push", ".git/info/exclude"]


@pytest.mark.ci
async def test_files_beyond_the_limit_do_not_seem_to_disappear(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.project / ".gitignore").write_text("ignored/\n")
    sandbox.commit_all("Ignore")
    for number in range(MAX_FILES + 10):
        path = sandbox.project / "ignored" / f"{number:05}" / "x.pth"
        path.parent.mkdir(parents=True)
        path.touch()
    sandbox.play(PLAN, cheating({"write": {"ignored/00000/new.pth": "x\n"}}), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.evidence("1")["protected_files"] == ["ignored/00000/new.pth"]
    assert outcome.warnings.count("ignored/04999 and the folders after it are not watched") == 1


@pytest.mark.ci
async def test_a_tool_that_a_reviewer_changes_leads_to_another_check(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.project / ".gitignore").write_text(".venv/\n")
    sandbox.commit_all("Ignore")
    tool = sandbox.project / ".venv" / "bin" / "check"
    tool.parent.mkdir(parents=True)
    tool.write_text("exit 0\n")
    (sandbox.project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    meddling = {"role": "reviewer", "do": [{"write": {".venv/bin/check": "exit 1\n"}}, *APPROVE["do"]], "times": 1}
    fixer = {"role": "fixer", "do": [{"write": {".venv/bin/check": "exit 0\n", "fixed.txt": "fixed\n"}}]}
    sandbox.play(PLAN, writing("1"), writing("2"), meddling, APPROVE, fixer)
    outcome = await sandbox.ralph("--verify", "sh .venv/bin/check", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers[-3:] == ["reviewer 1", "fixer check-1 1", "reviewer 1"]
    assert "the reviewer changed files that decide about checks: .venv/bin/check" in outcome.warnings
    assert "> - `.venv/bin/check` (by a reviewer)" in sandbox.report


@pytest.mark.parametrize("name", ["ignored/check.sh", pytest.param("check.sh", marks=pytest.mark.ci), "Makefile"])
async def test_a_script_of_a_check_that_a_reviewer_replaces_is_in_the_report(tmp_path: Path, name: str) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.project / ".gitignore").write_text("ignored/\n")
    (sandbox.project / "ignored").mkdir()
    (sandbox.project / name).write_text("test:\n\ttrue\n" if name == "Makefile" else "exit 0\n")
    sandbox.commit_all("Add a check")
    command = "make test" if name == "Makefile" else f"sh {name}"
    replaced = {"sh": f"echo '# replaced' >> {name}"}
    sandbox.play(PLAN, writing("1"), writing("2"), {**APPROVE, "do": [replaced, *APPROVE["do"]], "times": 1}, APPROVE)
    outcome = await sandbox.ralph("--verify", command, GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers[-2:] == ["reviewer 1", "reviewer 1"]  # checked and reviewed again
    assert f"the reviewer changed files that decide about checks: {name}" in outcome.warnings
    assert f"> - `{name}` (by a reviewer)" in sandbox.report


async def test_ignored_files_that_a_worker_deletes_are_in_the_report(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, cheating({"sh": "git clean -fdxq -e part1.txt"}), writing("2"), APPROVE)
    (sandbox.project / ".gitignore").write_text(".env\ndata/\ntarget/\n")
    sandbox.commit_all("Ignore")
    for name in (".env", "data/mine.csv", "target/output"):
        (sandbox.project / name).parent.mkdir(exist_ok=True)
        (sandbox.project / name).write_text("mine\n")
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert "Files that git ignores were deleted during a turn: `.env`, `data/`." in sandbox.report


@pytest.mark.ci
async def test_a_reviewer_may_run_programs_that_keep_a_cache(tmp_path: Path) -> None:
    cache = {"sh": "mkdir .ruff_cache && echo '*' > .ruff_cache/.gitignore"}
    reviewer = {"role": "reviewer", "do": [cache, *APPROVE["do"]], "times": 1}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), reviewer, APPROVE)
    (sandbox.project / ".gitignore").write_text(".ruff_cache/\n")
    sandbox.commit_all("Ignore")
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert sandbox.callers.count("reviewer 1") == 1


@pytest.mark.ci
async def test_rules_that_are_written_into_the_session_hide_no_change(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2", {"write": {"part2.txt": "part 2\n"}}), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (sandbox.session / SNAPSHOTS / "first-rules").write_text("part2.txt\n")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert sandbox.evidence("2")["changed_files"] == ["part2.txt"]
