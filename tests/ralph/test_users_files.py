"""The user's uncommitted files and branch stay the user's, whatever a worker does."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing
from tests.ralph.test_own_work import KILL

DRAFT = "my draft\n"
EDIT = "a project\nwith my edit\n"
STAGED = "staged by me\n"
TAKE_ALL = {"sh": "git add -A && git commit -q -m 'Take everything along'"}


class OwnFiles(Sandbox):
    """A sandbox whose user has an untracked, a changed and a staged file."""

    def __init__(self, folder: Path, *script: Any) -> None:
        super().__init__(folder, *script)
        (self.project / "draft.md").write_text(DRAFT)
        (self.project / "README.md").write_text(EDIT)
        (self.project / "staged.txt").write_text(STAGED)
        self.git("add", "staged.txt")
        self.before = self.state

    def sh(self, command: str) -> None:
        subprocess.run(["sh", "-ec", command], cwd=self.project, check=True, capture_output=True)

    @property
    def state(self) -> tuple[str, ...]:
        """The user's files, and their status in git."""
        names = ("draft.md", "README.md", "staged.txt")
        paths = [self.project / name for name in names]
        texts = [path.read_text() if path.exists() else "(gone)" for path in paths]
        return (*texts, self.git("status", "--porcelain=v1", "--", *names))


def taking(task: str, *steps: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return worker(task, {"write": {f"part{task}.txt": "done\n"}}, *steps, **facts)


async def test_prompts_name_the_files_of_the_user(tmp_path: Path) -> None:
    commit = {"sh": "git add -- part1.txt && git commit -q --only -m one -- part1.txt"}
    sandbox = OwnFiles(
        tmp_path, PLAN, taking("1", commit), writing("2", times=0), worker("2", {"write": {"x": "x"}}), APPROVE
    )
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "3 files are not committed and yours" in outcome.warnings
    for prompt in (one["prompt"] for one in sandbox.prompts if one["role"] == "worker"):
        for name in ("draft.md", "README.md", "staged.txt"):
            assert f"`{name}`" in prompt
        assert "git commit --only" in prompt
    assert sandbox.state == sandbox.before
    assert "salvage" not in sandbox.report
    assert not (sandbox.session / "snapshots" / "users-files").exists()  # nothing is left to be kept


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(TAKE_ALL, id="git add -A"),
        pytest.param({"sh": "git add part1.txt && git commit -q -m 'Commit all that is staged'"}, id="what is staged"),
        pytest.param(
            {"sh": "git add part1.txt && git commit -q -a -m 'Commit all'"}, id="git commit -a", marks=pytest.mark.ci
        ),
        pytest.param({"sh": "git clean -fdq -e part1.txt && git checkout -q -- . "}, id="git clean and checkout"),
        pytest.param({"write": {"draft.md": "mine now\n", "README.md": ""}}, id="overwritten", marks=pytest.mark.ci),
        pytest.param(
            {"sh": "git stash -q --include-untracked -- draft.md README.md staged.txt"},
            id="git stash",
            marks=pytest.mark.ci,
        ),
        pytest.param({"sh": "git reset -q"}, id="unstaged", marks=pytest.mark.ci),
    ],
)
async def test_a_worker_that_touches_the_users_files_restores_them(tmp_path: Path, step: dict[str, Any]) -> None:
    first = taking("1", step, attempt=1)
    second = worker("1", {"obey": True}, attempt=2)
    rest = worker("2", {"write": {"part2.txt": "2\n"}})
    sandbox = OwnFiles(tmp_path, PLAN, first, second, rest, APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 2 1", "reviewer 1"]
    assert "your uncommitted work was touched" in outcome.warnings
    assert sandbox.state == sandbox.before
    assert (sandbox.project / "part1.txt").exists()
    for name in ("draft.md", "staged.txt"):
        assert name not in sandbox.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert sandbox.git("show", "HEAD:README.md") == "a project"
    assert sandbox.report.startswith(
        "# Ralph completed, not verified: 2 of 2 tasks are done, not verified by a check, reviewed\n"
    )


async def test_files_that_stay_touched_are_in_the_title_and_can_be_salvaged(tmp_path: Path) -> None:
    sandbox = OwnFiles(tmp_path, PLAN, taking("1", TAKE_ALL, {"sh": "rm -f draft.md; echo gone > README.md"}), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status[0] == "blocked"
    title = sandbox.report.partition("\n")[0]
    assert "your uncommitted work" in title
    assert "`draft.md`" in title
    assert f"atomic salvage {sandbox.session.name}" in sandbox.report
    done = await sandbox.user.atomic("salvage", sandbox.session.name, "--force")
    assert (done.exit_code, done.stderr) == (0, "")
    assert sandbox.state[:3] == sandbox.before[:3]


async def test_a_file_that_the_user_saves_during_a_turn_is_kept_when_a_worker_restores_it(tmp_path: Path) -> None:
    saved = {"sh": "printf 'my new paragraph\\n' > draft.md; rm README.md"}  # by the user, while the turn runs
    first = taking("1", saved, attempt=1)
    second = worker("1", {"obey": True}, attempt=2)
    sandbox = OwnFiles(tmp_path, PLAN, first, second, worker("2", {"write": {"part2.txt": "2\n"}}), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert sandbox.state == sandbox.before
    assert "was replaced during the run: `draft.md`." in sandbox.report
    assert f"atomic salvage {sandbox.session.name}" in sandbox.report
    for number in range(2):  # the second time does nothing
        done = await sandbox.user.atomic("salvage", sandbox.session.name)
        assert (done.exit_code, done.stderr) == (0, "")
        assert (" is now draft.md.changed-1" in done.stdout) is (number == 0)
    assert (sandbox.project / "draft.md.changed-1").read_text() == "my new paragraph\n"
    assert not (sandbox.project / "draft.md.changed-2").exists()
    assert sandbox.state == sandbox.before


@pytest.mark.ci
async def test_a_worker_does_not_replace_bytes_of_which_no_copy_can_be_kept(tmp_path: Path) -> None:
    secret = "AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    first = taking("1", {"sh": f"echo {secret} > draft.md"}, attempt=1)
    second = worker("1", {"obey": True}, attempt=2)
    sandbox = OwnFiles(tmp_path, PLAN, first, second, worker("2", {"write": {"part2.txt": "2\n"}}), APPROVE)
    await sandbox.ralph("--verify", "true", GOAL)
    assert (sandbox.project / "draft.md").read_text() == f"{secret}\n"
    assert "draft.md: its current content cannot be copied" in sandbox.prompts[2]["prompt"]


@pytest.mark.ci
async def test_a_file_that_the_user_edits_once_during_a_turn_does_not_block_the_run(tmp_path: Path) -> None:
    edit = {"sh": "echo more >> draft.md; git reset -q"}  # by the user
    second = worker("1", {"write": {"part1.txt": "again\n"}}, attempt=2)
    rest = worker("2", {"write": {"part2.txt": "2\n"}})
    sandbox = OwnFiles(tmp_path, PLAN, taking("1", edit, attempt=1), second, rest, APPROVE)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 2 1", "reviewer 1"]
    touched = "your uncommitted work was touched by a turn or by you: `draft.md` was changed"
    assert touched in sandbox.report.partition("\n")[0]
    assert touched in outcome.end["message"]
    assert (sandbox.project / "draft.md").read_text() == f"{DRAFT}more\n"


@pytest.mark.ci
async def test_commits_of_the_user_during_a_turn_stay(tmp_path: Path) -> None:
    commit = {"sh": "git add part1.txt; git commit -q --only -m 'Part 1' -- part1.txt"}
    users = {"sh": "echo more >> draft.md; git add draft.md; git commit -q --only -m 'My draft' -- draft.md README.md"}
    rest = worker("2", {"write": {"part2.txt": "2\n"}})
    sandbox = OwnFiles(
        tmp_path, PLAN, taking("1", commit, users, attempt=1), worker("1", {"obey": True}), rest, APPROVE
    )
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert sandbox.git("log", "-1", "--format=%s") == "My draft"
    title = sandbox.report.partition("\n")[0]
    assert "committed during a turn, probably by you: `" in title
    assert "`README.md` (commit " in title
    assert "`draft.md` (commit " in title
    block = sandbox.report.partition("If it was not you")[2].partition("```sh\n")[2].partition("> ```")[0]
    for line in block.splitlines():
        sandbox.sh(line.removeprefix("> "))
    assert sandbox.state == (f"{DRAFT}more\n", *sandbox.before[1:])
    assert (await sandbox.user.atomic("salvage", sandbox.session.name)).exit_code == 0
    assert (sandbox.project / "draft.md.changed-1").read_text() == DRAFT


async def test_undo_commands_do_not_touch_the_users_files(tmp_path: Path) -> None:
    sandbox = OwnFiles(tmp_path, PLAN, taking("1", TAKE_ALL), APPROVE)
    await sandbox.ralph(GOAL)
    block = sandbox.report.partition("### All of it")[2].partition("```sh\n")[2].partition("```")[0]
    commands = [line for line in block.splitlines() if "undo" in line]
    assert commands
    for line in commands:
        sandbox.sh(line)
    assert sandbox.state[:3] == sandbox.before[:3]
    assert not (sandbox.project / "part1.txt").exists()


@pytest.mark.ci
async def test_changes_of_the_user_between_turns_stay(tmp_path: Path) -> None:
    sandbox = OwnFiles(
        tmp_path, PLAN, taking("1"), taking("2", TAKE_ALL, attempt=1), worker("2", {"obey": True}), APPROVE
    )
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (sandbox.project / "draft.md").write_text("my better draft\n")
    (sandbox.project / "new.md").write_text("my new file\n")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert (sandbox.project / "draft.md").read_text() == "my better draft\n"
    assert (sandbox.project / "new.md").read_text() == "my new file\n"
    assert "`new.md`" in sandbox.prompts[-3]["prompt"]
    assert sandbox.git("status", "--porcelain=v1", "--", "new.md") == "?? new.md"


@pytest.mark.ci
async def test_a_file_that_a_check_makes_is_not_the_users(tmp_path: Path) -> None:
    touch = {"sh": "date +%N >> coverage.data"}
    sandbox = OwnFiles(tmp_path, PLAN, taking("1", touch), taking("2", touch), APPROVE)
    outcome = await sandbox.ralph("--verify", "date +%N >> coverage.data", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "coverage.data" not in outcome.warnings


@pytest.mark.ci
async def test_an_uncommitted_file_that_a_check_writes_each_time_blames_no_worker(tmp_path: Path) -> None:
    touch = {"sh": "date +%N >> coverage.data"}
    sandbox = OwnFiles(tmp_path, PLAN, taking("1", touch), taking("2", touch), APPROVE)
    (sandbox.project / "coverage.data").write_text("old\n")
    outcome = await sandbox.ralph("--verify", "date +%N >> coverage.data", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert "`coverage.data` was changed while a check ran" in sandbox.report.partition("\n")[0]
    assert (await sandbox.user.atomic("salvage", sandbox.session.name)).exit_code == 0
    assert (sandbox.project / "coverage.data").read_text() == "old\n"


@pytest.mark.parametrize(
    "committed", [pytest.param(False, id="edited"), pytest.param(True, id="committed", marks=pytest.mark.ci)]
)
async def test_changes_of_the_user_after_a_kill_are_not_undone(tmp_path: Path, committed: bool) -> None:
    obedient = worker("1", {"obey": True}, {"write": {"part1.txt": "part 1\n"}})
    rest = worker("2", {"write": {"part2.txt": "part 2\n"}})
    sandbox = OwnFiles(tmp_path, PLAN, worker("1", KILL, times=1), obedient, rest, APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    alive = sandbox.session / "alive"
    os.utime(alive, (alive.stat().st_atime, alive.stat().st_mtime - 60))  # a minute passes
    (sandbox.project / "draft.md").write_text("a better draft\n")
    if committed:
        sandbox.git("add", "draft.md")
        sandbox.git("commit", "-q", "--only", "-m", "my draft", "--", "draft.md")
    outcome = await sandbox.resume()
    assert outcome.status == ("completed", "done", 0), outcome.end["message"]
    assert (sandbox.project / "draft.md").read_text() == "a better draft\n"
    assert "your uncommitted work" not in outcome.warnings
    assert sandbox.git("ls-files", "draft.md").strip() == ("draft.md" if committed else "")


@pytest.mark.ci
async def test_a_commit_after_a_kill_is_the_users_though_the_turn_has_committed_too(tmp_path: Path) -> None:
    commit = {"sh": "echo 0 > part0.txt; git add part0.txt; git commit -q --only -m 0 -- part0.txt"}
    obedient = worker("1", {"obey": True}, {"write": {"part1.txt": "part 1\n"}})
    rest = worker("2", {"write": {"part2.txt": "part 2\n"}})
    sandbox = OwnFiles(tmp_path, PLAN, worker("1", commit, KILL, times=1), obedient, rest, APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    (sandbox.project / "mine.txt").write_text("mine\n")
    sandbox.git("add", "draft.md", "mine.txt")
    later = f"GIT_COMMITTER_DATE='@{int(time.time()) + 60} +0000'"
    sandbox.sh(f"{later} git commit -q --only -m 'my draft' -- draft.md mine.txt")
    outcome = await sandbox.resume()
    assert outcome.status == ("completed", "done", 0), outcome.end["message"]
    assert "your uncommitted work" not in outcome.warnings
    assert sandbox.git("log", "-1", "--format=%s") == "my draft"


WITH_CHECK = ("--verify", "sh check.sh")


class Checked(OwnFiles):
    """A user whose project has a check that a worker can change."""

    def __init__(self, folder: Path, *script: Any) -> None:
        super().__init__(folder, *script)
        (self.project / "check.sh").write_text("true\n")
        self.git("add", "check.sh")
        self.git("commit", "-q", "--only", "-m", "Check", "--", "check.sh")
        (self.project / "out").mkdir()
        (self.project / "out" / "notes.txt").write_text("my notes\n")

    @property
    def title(self) -> str:
        return self.report.partition("\n")[0]

    async def salvages(self) -> None:
        """Restore everything with the command in the report."""
        assert f"atomic salvage {self.session.name}" in self.report
        done = await self.user.atomic("salvage", self.session.name)
        assert (done.exit_code, done.stderr) == (0, ""), done.stdout
        assert (self.project / "out" / "notes.txt").read_text() == "my notes\n"
        assert self.state == self.before


def changing_the_check(command: str) -> dict[str, Any]:
    return taking("1", {"write": {"check.sh": f"{command}\n"}}, attempt=1)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param("rm -rf out", "`out/notes.txt` was deleted while a check ran", id="untracked, deleted"),
        pytest.param(
            "echo theirs > draft.md",
            "`draft.md` was changed while a check ran",
            id="untracked, changed",
            marks=pytest.mark.ci,
        ),
        pytest.param(
            "echo theirs > README.md", "`README.md` was changed while a check ran", id="edited", marks=pytest.mark.ci
        ),
        pytest.param("git reset -q", "`staged.txt` was unstaged while a check ran", id="staged"),
    ],
)
async def test_changes_by_a_check_are_in_the_title_and_can_be_salvaged(tmp_path: Path, command: str, said: str) -> None:
    second = worker("2", {"write": {"part2.txt": "2\n"}})
    sandbox = Checked(tmp_path, PLAN, changing_the_check(command), second, APPROVE)
    outcome = await sandbox.ralph(*WITH_CHECK, GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]  # no worker is blamed for it
    assert said in sandbox.title
    assert said in outcome.end["message"]
    assert said.replace("`", "") in outcome.warnings
    await sandbox.salvages()


@pytest.mark.ci
@pytest.mark.parametrize("words", [[GOAL], ["--yolo", GOAL]], ids=["tasks", "yolo"])
async def test_a_check_that_touches_the_users_files_before_the_run_is_reported(
    tmp_path: Path, words: list[str]
) -> None:
    promise = {"say": "<promise>COMPLETE</promise>"}
    yolo = {"role": "worker", "do": [{"write": {"part.txt": "x\n"}}, promise]}
    tasks = [taking("1"), taking("2")]
    sandbox = Checked(tmp_path, PLAN, *([yolo] if "--yolo" in words else tasks), APPROVE)
    outcome = await sandbox.ralph("--verify", "rm -rf out; echo x > draft.md", *words)
    assert outcome.status == ("completed", "done", 0)
    assert "`draft.md` was changed while a check ran, `out/notes.txt` was deleted while a check ran" in sandbox.title
    await sandbox.salvages()


@pytest.mark.ci
async def test_a_red_check_that_touches_the_users_files_is_reported_after_each_resume(tmp_path: Path) -> None:
    sandbox = Checked(tmp_path, PLAN, taking("1"), taking("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "rm -rf out; exit 3", GOAL)).status == ("blocked", "check_red", 5)
    assert "`out/notes.txt` was deleted while a check ran" in sandbox.title
    assert (await sandbox.resume("--red-checks", "ignore")).status == ("completed", "done", 0)
    assert "`out/notes.txt` was deleted while a check ran" in sandbox.title
    await sandbox.salvages()


@pytest.mark.ci
async def test_a_check_that_is_killed_with_atomic_is_still_reported(tmp_path: Path) -> None:
    kill = "rm -rf out; test -e ../killed || { touch ../killed; kill -9 $(awk '{print $4}' /proc/$PPID/stat); }"
    sandbox = Checked(tmp_path, PLAN, changing_the_check(kill), taking("2"), APPROVE)
    assert (await sandbox.ralph(*WITH_CHECK, GOAL)).exit_code == -9
    assert not (sandbox.project / "out").exists()
    assert (await sandbox.resume()).status == ("completed", "done", 0)
    assert "`out/notes.txt` was deleted while a check ran" in sandbox.title
    await sandbox.salvages()


@pytest.mark.ci
async def test_changes_of_the_user_before_a_check_stay(tmp_path: Path) -> None:
    sandbox = Checked(tmp_path, PLAN, taking("1"), taking("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", *WITH_CHECK, GOAL)).status[0] == "paused"
    (sandbox.project / "draft.md").write_text("my better draft\n")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert "uncommitted work" not in sandbox.report
    assert (sandbox.project / "draft.md").read_text() == "my better draft\n"


@pytest.mark.ci
@pytest.mark.parametrize("role", ["planner of a dry run", "reviewer"])
async def test_changes_of_the_users_files_by_other_roles_are_reported(tmp_path: Path, role: str) -> None:
    wreck = {"sh": "rm -rf out"}
    is_dry = "dry" in role
    plan = {**PLAN, "do": [wreck, *PLAN["do"]]} if is_dry else PLAN
    review = APPROVE if is_dry else {**APPROVE, "do": [wreck, *APPROVE["do"]], "times": 1}
    sandbox = Checked(tmp_path, plan, taking("1"), taking("2"), review, APPROVE)
    outcome = await sandbox.ralph(*(["--dry-run"] if is_dry else []), *WITH_CHECK, GOAL)
    assert outcome.status[0] == "completed"
    assert "`out/notes.txt` was deleted" in sandbox.title
    await sandbox.salvages()


ODD_NAMES = {
    "line\nend.txt": '"line\\nend.txt"',
    "ends with line\n": '"ends with line\\n"',
    "a\ttab/it's 100%\n.txt": '"a\\ttab/it\'s 100%\\n.txt"',
    "escape\x1b[31m.txt": '"escape\\033[31m.txt"',
    os.fsdecode(b"caf\xe9.txt"): '"caf\\351.txt"',
    "-dash\x01.txt": '"-dash\\001.txt"',
    "-\x1b[2Kdash and line\n\n": '"-\\033[2Kdash and line\\n\\n"',
    "long" + "x" * 246: "long" + "x" * 246,
}


class Odd(Sandbox):
    """A user who has untracked files with names that do not print or are long."""

    def __init__(self, folder: Path, *script: Any) -> None:
        super().__init__(folder, *script)
        for number, name in enumerate(ODD_NAMES):
            (self.project / name).parent.mkdir(exist_ok=True)
            (self.project / name).write_text(f"my text {number}\n")

    @property
    def texts(self) -> list[str]:
        paths = [self.project / name for name in ODD_NAMES]
        return [path.read_text() if path.exists() else "(gone)" for path in paths]


MINE = [f"my text {number}\n" for number in range(len(ODD_NAMES))]
WRECK = {"sh": "git clean -fdqx -e part1.txt && printf theirs > $(printf long; printf 'x%.0s' $(seq 246))"}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["a"],
            "1 file is not committed and yours: `a`. Workers must not touch it. If a run should change it, commit it",
        ),
        (
            ["a", "b"],
            "2 files are not committed and yours: `a`, `b`. Workers must not touch them. If a run should change",
        ),
    ],
)
async def test_one_file_and_several_are_announced_in_good_english(tmp_path: Path, names: list[str], said: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, taking("1"), taking("2"), APPROVE)
    for name in names:
        (sandbox.project / name).write_text("mine\n")
    outcome = await sandbox.ralph("--max-iterations", "1", GOAL)
    assert said in outcome.warnings


@pytest.mark.ci
async def test_names_that_do_not_print_are_put_back_by_the_worker(tmp_path: Path) -> None:
    again = worker("1", {"obey": True}, attempt=2)
    sandbox = Odd(tmp_path, PLAN, taking("1", WRECK, attempt=1), again, taking("2"), APPROVE)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0), outcome.end["message"]
    assert "8 files are not committed and yours" in outcome.warnings
    assert '`"line\\nend.txt"`' in sandbox.prompts[1]["prompt"]
    assert "\x1b" not in sandbox.prompts[2]["prompt"]
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 2 1", "reviewer 1"]
    assert sandbox.texts == MINE
    assert "uncommitted work" not in sandbox.report


@pytest.mark.ci
async def test_names_that_do_not_print_are_reported_and_salvaged(tmp_path: Path) -> None:
    sandbox = Odd(tmp_path, PLAN, taking("1", WRECK))
    outcome = await sandbox.ralph("--max-iterations", "1", GOAL)
    assert outcome.status[0] == "paused"
    for name in ODD_NAMES.values():
        assert f"- `{name[:190]}" in sandbox.report
    done = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {line.partition(": put back")[0] for line in lines} == set(ODD_NAMES.values())
    assert sandbox.texts == MINE
    [aside] = sandbox.project.glob("long*.replaced-1")
    assert aside.read_text() == "theirs"


@pytest.mark.ci
async def test_a_staged_file_with_such_a_name_is_staged_again(tmp_path: Path) -> None:
    sandbox = Odd(tmp_path, PLAN, taking("1", {"sh": "git reset -q"}, attempt=1), worker("1", {"obey": True}))
    sandbox.git("add", "-A")
    before = sandbox.git("status", "--porcelain=v1")
    await sandbox.ralph("--max-iterations", "1", GOAL)
    done = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert (done.exit_code, done.stderr) == (0, "")
    sandbox.git("rm", "-q", "--cached", "--ignore-unmatch", "part1.txt")
    (sandbox.project / "part1.txt").unlink()
    assert sandbox.git("status", "--porcelain=v1") == before


class Submodules(Sandbox):
    """A user with uncommitted work in a submodule and in one within it."""

    def __init__(self, folder: Path, *script: Any) -> None:
        super().__init__(folder, *script)
        name = ["-c", "user.name=A User", "-c", "user.email=user@example.invalid", "-c", "protocol.file.allow=always"]
        for inner in ("deep", "lib"):
            place = folder / inner
            subprocess.run(["git", "init", "-q", "-b", "main", str(place)], check=True)
            (place / f"{inner}.py").write_text("x = 1\n")
            if inner == "lib":
                subprocess.run(["git", *name, "submodule", "add", "-q", str(folder / "deep")], cwd=place, check=True)
            subprocess.run(["git", "add", "-A"], cwd=place, check=True)
            subprocess.run(["git", *name, "commit", "-q", "-m", inner], cwd=place, check=True)
        self.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(folder / "lib"))
        self.git("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--recursive")
        self.git("commit", "-q", "-m", "Add lib")
        (self.project / "lib" / "lib.py").write_text("x = 'mine'\n")
        (self.project / "lib" / "notes.txt").write_text("my notes\n")
        (self.project / "lib" / "deep" / "new.txt").write_text("deep notes\n")
        self.before = self.texts

    @property
    def texts(self) -> list[str]:
        paths = [self.project / "lib" / name for name in ("lib.py", "notes.txt", "deep/new.txt")]
        return [path.read_text() if path.exists() else "(gone)" for path in paths]


CLEAN = {"sh": "cd lib && git checkout -q -- . && git clean -fdq && cd deep && git clean -fdq"}


@pytest.mark.ci
async def test_uncommitted_work_in_submodules_is_put_back_by_the_worker(tmp_path: Path) -> None:
    first = taking("1", CLEAN, attempt=1)
    again = worker("1", {"obey": True}, attempt=2)
    sandbox = Submodules(tmp_path, PLAN, first, again, taking("2"), APPROVE)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "3 files are not committed and yours: `lib/deep/new.txt`, `lib/lib.py`, `lib/notes.txt`" in outcome.warnings
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 2 1", "reviewer 1"]
    assert sandbox.texts == sandbox.before


INNER_NAME = "-c user.name=A -c user.email=a@example.invalid"
COMMIT_INSIDE = {"sh": f"cd lib && git add -- lib.py notes.txt && git {INNER_NAME} commit -q -m 'Take it along'"}


@pytest.mark.ci
@pytest.mark.parametrize("obeys", [True, False])
async def test_uncommitted_work_that_a_worker_commits_inside_a_submodule_is_seen(tmp_path: Path, obeys: bool) -> None:
    first = taking("1", COMMIT_INSIDE, attempt=1)
    again = worker("1", {"obey": True} if obeys else {"say": "no"}, attempt=2)
    sandbox = Submodules(tmp_path, PLAN, first, again, taking("2"), APPROVE)
    subprocess.run(["git", "config", "user.name", "A User"], cwd=sandbox.project / "lib", check=True)
    subprocess.run(["git", "config", "user.email", "a@example.invalid"], cwd=sandbox.project / "lib", check=True)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 2 1", "reviewer 1"]
    assert sandbox.texts == sandbox.before
    status = subprocess.run(["git", "status", "--short"], cwd=sandbox.project / "lib", capture_output=True, text=True)
    title = sandbox.report.partition("\n")[0]
    if obeys:
        assert sorted(status.stdout.splitlines()) == [" ? deep", " M lib.py", "?? notes.txt"]
        assert "lib/lib.py" not in title
    else:
        assert "`lib/lib.py` is in commit " in title


@pytest.mark.ci
async def test_what_the_user_commits_inside_a_submodule_between_turns_is_accepted(tmp_path: Path) -> None:
    sandbox = Submodules(tmp_path, PLAN, taking("1"), taking("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    subprocess.run(["sh", "-c", COMMIT_INSIDE["sh"]], cwd=sandbox.project, check=True)
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert "uncommitted work" not in sandbox.report


@pytest.mark.parametrize("obeys", [True, pytest.param(False, marks=pytest.mark.ci)])
async def test_an_unpushed_commit_of_a_submodule_stays_checked_out(tmp_path: Path, obeys: bool) -> None:
    update = {"sh": "git submodule update --force -q"}
    again = worker("1", {"obey": True} if obeys else {"say": "no"}, attempt=2)
    sandbox = Submodules(tmp_path, PLAN, taking("1", update, attempt=1), again, taking("2"), APPROVE)
    lib = sandbox.project / "lib"
    for command in ("git checkout -q . && git clean -fdq && rm deep/new.txt && echo mine > mine.py", "git add mine.py"):
        subprocess.run(["sh", "-c", command], cwd=lib, check=True)
    subprocess.run(["git", *INNER_NAME.split(), "commit", "-q", "-m", "Mine"], cwd=lib, check=True)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 2 1", "reviewer 1"]
    title = sandbox.report.partition("\n")[0]
    assert (lib / "mine.py").exists() is obeys
    assert ("the submodule lib was moved off commit " in title) is not obeys
    if not obeys:
        way_back = re.search(r"`(git -C lib checkout [^`]*)`", sandbox.report)
        assert way_back is not None
        subprocess.run(["sh", "-c", way_back[1]], cwd=sandbox.project, check=True)
        assert (lib / "mine.py").read_text() == "mine\n"


@pytest.mark.ci
async def test_uncommitted_work_in_submodules_is_reported_and_salvaged(tmp_path: Path) -> None:
    sandbox = Submodules(tmp_path, PLAN, taking("1", CLEAN))
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    assert "`lib/notes.txt` was deleted" in sandbox.report.partition("\n")[0]
    done = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert (done.exit_code, done.stderr) == (0, ""), done.stdout
    assert sandbox.texts == sandbox.before


@pytest.mark.ci
async def test_changes_of_the_user_in_a_submodule_between_turns_stay(tmp_path: Path) -> None:
    sandbox = Submodules(tmp_path, PLAN, taking("1"), taking("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (sandbox.project / "lib" / "notes.txt").write_text("my better notes\n")
    (sandbox.project / "lib" / "deep" / "new.txt").unlink()
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert sandbox.texts == ["x = 'mine'\n", "my better notes\n", "(gone)"]
    assert "uncommitted work" not in sandbox.report


@pytest.mark.ci
async def test_a_submodule_that_git_cannot_read_is_named(tmp_path: Path) -> None:
    sandbox = Submodules(tmp_path, PLAN, taking("1"), taking("2"), APPROVE)
    (sandbox.project / ".git" / "modules" / "lib" / "modules" / "deep" / "index").write_text("broken\n")
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert "Uncommitted work in `lib/deep` is not protected: git cannot read it" in outcome.warnings
    assert "`lib/notes.txt`" in outcome.warnings


@pytest.mark.ci
async def test_a_kept_copy_that_was_changed_is_not_put_back(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    copies = f"{sandbox.user.home}/.atomic/sessions/*/snapshots/users-files/*"
    forging = {"sh": f"for f in {copies}; do echo forged > $f; done; echo evil > draft.txt"}
    sandbox.play(PLAN, worker("1", {"write": {"part1.txt": "1\n"}}, forging), writing("2"), APPROVE)
    (sandbox.project / "draft.txt").write_text("mine\n")
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert "draft.txt was changed" in outcome.warnings
    assert any("another program has changed the copy that was kept of it" in str(one) for one in sandbox.prompts)
    done = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert done.exit_code == 1
    assert "nothing was changed: another program has changed the copy that was kept of it" in done.stdout
    assert "put back" not in done.stdout
    assert (sandbox.project / "draft.txt").read_text() == "evil\n"
