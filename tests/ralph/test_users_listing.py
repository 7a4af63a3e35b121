"""Which files of a project are the user's own, and which are the project's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, Sandbox, worker

ONE_TASK = {"role": "planner", "do": [{"say": json.dumps({"tasks": [{"id": "1", "title": "Write part one"}]})}]}
CONVERTED: dict[str, tuple[list[str], dict[str, str], bytes, str]] = {
    "eol": (["*.txt text eol=crlf"], {}, b"one\r\n", "printf 'two\\r\\n' >> a.txt"),
    "autocrlf": ([], {"core.autocrlf": "true"}, b"one\r\n", "printf 'two\\r\\n' >> a.txt"),
    "encoding": (
        ["*.txt text working-tree-encoding=UTF-16LE"],
        {},
        "one\n".encode("utf-16-le"),
        "printf 't\\0w\\0o\\0\\n\\0' >> a.txt",
    ),
    "filter": (
        ["*.txt filter=loud"],
        {"filter.loud.clean": "echo ran >> .git/ran; tr a-z A-Z", "filter.loud.smudge": "tr A-Z a-z"},
        b"one\n",
        "echo two >> a.txt",
    ),
}


@pytest.mark.ci
@pytest.mark.parametrize("how", CONVERTED)
async def test_a_clean_file_that_git_stores_in_other_bytes_is_the_projects(tmp_path: Path, how: str) -> None:
    attributes, settings, content, edit = CONVERTED[how]
    commit = {"sh": f"{edit}; git add a.txt; git commit -q -m 'Add a line'; rm -f .git/ran"}
    sandbox = Sandbox(tmp_path, ONE_TASK, worker("1", commit), APPROVE)
    for name, value in settings.items():
        sandbox.git("config", name, value)
    (sandbox.project / ".gitattributes").write_text("".join(f"{line}\n" for line in attributes))
    (sandbox.project / "a.txt").write_bytes(content)
    sandbox.commit_all("Add a file")
    assert sandbox.git("status", "--porcelain") == ""
    (sandbox.project / ".git" / "ran").unlink(missing_ok=True)
    if how != "filter":  # the effect of a filter on a rewritten file is unknown
        (sandbox.project / "a.txt").write_bytes(content)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "not committed and yours" not in outcome.warnings
    assert sandbox.callers == ["planner 1", "worker 1 1", "reviewer 1"]
    assert "not committed" not in sandbox.report
    assert not (sandbox.project / ".git" / "ran").exists()  # no filter of the repository has run


@pytest.mark.ci
async def test_a_changed_file_with_other_line_ends_is_the_users(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, ONE_TASK, worker("1", {"write": {"part1.txt": "1\n"}}), APPROVE)
    (sandbox.project / ".gitattributes").write_text("*.md text eol=crlf\n")
    (sandbox.project / "a.md").write_bytes(b"one\r\n")
    sandbox.commit_all("Add a file")
    (sandbox.project / "a.md").write_bytes(b"one\r\ntwo\r\n")
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert "1 file is not committed and yours: `a.md`" in outcome.warnings


@pytest.mark.ci
async def test_a_link_to_a_folder_as_file_of_ignore_rules_has_no_rules(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, ONE_TASK, worker("1", {"write": {"part1.txt": "1\n"}}), APPROVE)
    (sandbox.project / "docs").mkdir()
    (sandbox.project / "docs" / "a").write_text("a\n")
    (sandbox.project / ".gitignore").symlink_to("docs")
    sandbox.commit_all("Link the ignore rules")
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)


@pytest.mark.ci
async def test_compiled_python_that_git_tracks_is_not_removed(tmp_path: Path) -> None:
    write = "mkdir -p lib/__pycache__; echo x > lib/__pycache__/a.pyc; git add -f lib; git commit -q -m 'Add a cache'"
    loose = "echo y > lib/__pycache__/b.pyc"
    sandbox = Sandbox(tmp_path, ONE_TASK, worker("1", {"sh": write}, {"sh": loose}), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert [path.name for path in (sandbox.project / "lib" / "__pycache__").iterdir()] == ["a.pyc"]
    assert sandbox.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("rm zz.txt", id="deleted"),
        pytest.param("git add -A; git commit -q -m 'Take all'; rm zz.txt", id="committed", marks=pytest.mark.full),
    ],
)
async def test_thousands_of_uncommitted_files_are_all_watched(tmp_path: Path, step: str) -> None:
    first = worker("1", {"sh": f"echo 1 > part1.txt; {step}"}, attempt=1)
    sandbox = Sandbox(tmp_path, ONE_TASK, first, worker("1", {"obey": True}, attempt=2), APPROVE)
    tracked = sandbox.git("ls-files").split()
    (sandbox.project / "data").mkdir()
    for number in range(2_100):
        (sandbox.project / "data" / f"{number}.csv").write_text("x\n")
    (sandbox.project / "zz.txt").write_text("years of work\n")
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "2101 files are not committed and yours" in outcome.warnings
    assert "your uncommitted work was touched" in outcome.warnings
    assert (sandbox.project / "zz.txt").read_text() == "years of work\n"
    assert {*sandbox.git("ls-files").split()} - {"part1.txt"} == {*tracked}


@pytest.mark.ci
@pytest.mark.parametrize("has_git", [False, True])
async def test_files_of_a_folder_without_a_commit_can_be_put_back(tmp_path: Path, *, has_git: bool) -> None:
    wreck = {"sh": "echo 1 > part1.txt; rm thesis.txt; echo worse > notes.txt"}
    sandbox = Sandbox(tmp_path, ONE_TASK, worker("1", wreck), APPROVE, git=False)
    if has_git:
        sandbox.git("init", "-q")
    (sandbox.project / "thesis.txt").write_text("years of work\n")
    (sandbox.project / "notes.txt").write_text("my notes\n")
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    commands = "git add -A && git commit" if has_git else "git init && git add -A && git commit"
    assert "This folder has no commit" in outcome.warnings
    assert f"run {commands} first" in outcome.warnings
    assert "1 file of yours that was in no commit was deleted: `thesis.txt`" in sandbox.report.splitlines()[0]
    assert "There was no commit when the run began" in sandbox.report
    salvage = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert (salvage.exit_code, salvage.stdout) == (0, "thesis.txt: put back\n")
    assert (sandbox.project / "thesis.txt").read_text() == "years of work\n"
    again = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert "none of the files that existed then is missing" in again.stdout
    await sandbox.user.atomic("salvage", sandbox.session.name, "notes.txt", "--force")
    assert (sandbox.project / "notes.txt").read_text() == "my notes\n"
