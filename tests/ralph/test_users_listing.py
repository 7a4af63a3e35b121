"""Which files of a project are the user's own, and which are the project's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ralph.theatre import APPROVE, GOAL, Theatre, worker

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
    theatre = Theatre(tmp_path, ONE_TASK, worker("1", commit), APPROVE)
    for name, value in settings.items():
        theatre.git("config", name, value)
    (theatre.project / ".gitattributes").write_text("".join(f"{line}\n" for line in attributes))
    (theatre.project / "a.txt").write_bytes(content)
    theatre.commit_all("Add a file")
    assert theatre.git("status", "--porcelain") == ""
    (theatre.project / ".git" / "ran").unlink(missing_ok=True)
    if how != "filter":  # what a filter would make of a file that was written again, nobody knows
        (theatre.project / "a.txt").write_bytes(content)
    outcome = await theatre.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "not committed and yours" not in outcome.warnings
    assert theatre.cast == ["planner 1", "worker 1 1", "reviewer 1"]
    assert "not committed" not in theatre.report
    assert not (theatre.project / ".git" / "ran").exists()  # no filter of the repository has run


@pytest.mark.ci
async def test_a_changed_file_with_other_line_ends_is_the_users(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path, ONE_TASK, worker("1", {"write": {"part1.txt": "1\n"}}), APPROVE)
    (theatre.project / ".gitattributes").write_text("*.md text eol=crlf\n")
    (theatre.project / "a.md").write_bytes(b"one\r\n")
    theatre.commit_all("Add a file")
    (theatre.project / "a.md").write_bytes(b"one\r\ntwo\r\n")
    outcome = await theatre.ralph("--verify", "true", GOAL)
    assert "1 file is not committed and yours: `a.md`" in outcome.warnings


@pytest.mark.ci
async def test_a_link_to_a_folder_as_file_of_ignore_rules_has_no_rules(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path, ONE_TASK, worker("1", {"write": {"part1.txt": "1\n"}}), APPROVE)
    (theatre.project / "docs").mkdir()
    (theatre.project / "docs" / "a").write_text("a\n")
    (theatre.project / ".gitignore").symlink_to("docs")
    theatre.commit_all("Link the ignore rules")
    assert (await theatre.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)


@pytest.mark.ci
async def test_compiled_python_that_git_tracks_is_not_removed(tmp_path: Path) -> None:
    write = "mkdir -p lib/__pycache__; echo x > lib/__pycache__/a.pyc; git add -f lib; git commit -q -m 'Add a cache'"
    loose = "echo y > lib/__pycache__/b.pyc"
    theatre = Theatre(tmp_path, ONE_TASK, worker("1", {"sh": write}, {"sh": loose}), APPROVE)
    assert (await theatre.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert [path.name for path in (theatre.project / "lib" / "__pycache__").iterdir()] == ["a.pyc"]
    assert theatre.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("rm zz.txt", id="deleted"),
        pytest.param("git add -A; git commit -q -m 'Take all'; rm zz.txt", id="committed", marks=pytest.mark.full),
    ],
)
async def test_each_of_thousands_of_uncommitted_files_is_watched(tmp_path: Path, step: str) -> None:
    first = worker("1", {"sh": f"echo 1 > part1.txt; {step}"}, attempt=1)
    theatre = Theatre(tmp_path, ONE_TASK, first, worker("1", {"obey": True}, attempt=2), APPROVE)
    tracked = theatre.git("ls-files").split()
    (theatre.project / "data").mkdir()
    for number in range(2_100):
        (theatre.project / "data" / f"{number}.csv").write_text("x\n")
    (theatre.project / "zz.txt").write_text("years of work\n")
    outcome = await theatre.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "2101 files are not committed and yours" in outcome.warnings
    assert "your uncommitted work was touched" in outcome.warnings
    assert (theatre.project / "zz.txt").read_text() == "years of work\n"
    assert {*theatre.git("ls-files").split()} - {"part1.txt"} == {*tracked}


@pytest.mark.ci
@pytest.mark.parametrize("has_git", [False, True])
async def test_files_of_a_folder_without_a_commit_can_be_put_back(tmp_path: Path, *, has_git: bool) -> None:
    wreck = {"sh": "echo 1 > part1.txt; rm thesis.txt; echo worse > notes.txt"}
    theatre = Theatre(tmp_path, ONE_TASK, worker("1", wreck), APPROVE, git=False)
    if has_git:
        theatre.git("init", "-q")
    (theatre.project / "thesis.txt").write_text("years of work\n")
    (theatre.project / "notes.txt").write_text("my notes\n")
    outcome = await theatre.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    commands = "git add -A && git commit" if has_git else "git init && git add -A && git commit"
    assert "This folder has no commit" in outcome.warnings
    assert f"run {commands} first" in outcome.warnings
    assert "1 file of yours that was in no commit was deleted: `thesis.txt`" in theatre.report.splitlines()[0]
    assert "There was no commit when the run began" in theatre.report
    salvage = await theatre.user.atomic("salvage", theatre.session.name)
    assert (salvage.exit_code, salvage.stdout) == (0, "thesis.txt: put back\n")
    assert (theatre.project / "thesis.txt").read_text() == "years of work\n"
    again = await theatre.user.atomic("salvage", theatre.session.name)
    assert "none of the files that existed then is missing" in again.stdout
    await theatre.user.atomic("salvage", theatre.session.name, "notes.txt", "--force")
    assert (theatre.project / "notes.txt").read_text() == "my notes\n"
