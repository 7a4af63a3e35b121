"""`atomic salvage`: the user's own files come back, and nothing newer is lost for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker
from tests.support.user import complaint

TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


class Wrecked(Sandbox):
    """A run whose worker has wrecked files of the user."""

    def __init__(self, folder: Path, *steps: dict[str, Any]) -> None:
        super().__init__(folder, PLAN, worker("1", {"write": {"part1.txt": "1\n"}}, *steps))
        (self.project / "draft.md").write_text("my draft\n")
        (self.project / "deep").mkdir()
        (self.project / "deep" / "run.sh").write_text("echo mine\n")
        (self.project / "deep" / "run.sh").chmod(0o755)
        (self.project / "link").symlink_to("draft.md")

    async def salvage(self, *words: str) -> Any:
        return await self.user.atomic("salvage", self.session.name, *words)

    def text(self, name: str) -> str:
        return (self.project / name).read_text()


async def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "rm -rf draft.md deep link; mkdir -p deep; echo theirs > deep/run.sh"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    done = await run.salvage()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "deep/run.sh: put back; what was there is now run.sh.replaced-1",
        "draft.md: put back",
        "link: put back",
    ]
    assert run.text("draft.md") == "my draft\n"
    assert run.text("deep/run.sh") == "echo mine\n"
    assert (run.project / "deep" / "run.sh").stat().st_mode & 0o111
    assert (run.project / "link").readlink() == Path("draft.md")
    assert run.text("deep/run.sh.replaced-1") == "theirs\n"
    assert (await run.salvage()).stdout == "Nothing to put back: they are as you left them.\n"


async def test_newer_bytes_of_the_user_are_replaced_only_with_force_and_are_kept(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "echo theirs > draft.md"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (run.project / "draft.md").write_text("my newer draft\n")
    done = await run.salvage("draft.md")
    assert done.exit_code == 1
    assert done.stdout == "draft.md: left as it is, because it has changed since the run (--force replaces it)\n"
    assert run.text("draft.md") == "my newer draft\n"
    done = await run.salvage("draft.md", "--force")
    assert done.exit_code == 0
    assert run.text("draft.md") == "my draft\n"
    assert run.text("draft.md.replaced-1") == "my newer draft\n"


@pytest.mark.ci
async def test_a_file_with_a_secret_is_not_kept_and_that_is_reported(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "rm secret.env"})
    (run.project / "secret.env").write_text(f"GITHUB={TOKEN}\n")
    outcome = await run.ralph("--max-iterations", "1", GOAL)
    assert "No copy is kept of `secret.env`" in outcome.warnings
    assert "There is no copy of it" in run.report
    done = await run.salvage("secret.env")
    assert done.exit_code == 1
    assert done.stdout == (
        "secret.env: nothing was changed: there is no copy of it, because it contains something that looks like a"
        " secret\n"
    )
    for path in run.session.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()


@pytest.mark.ci
async def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "true"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    refused = await run.salvage("draft.mdd")
    assert refused.exit_code == 2
    assert complaint(refused) == (
        '"draft.mdd" was not an uncommitted file of yours when the run began (did you mean "draft.md"?)'
    )
    assert (await run.salvage()).stdout.startswith("The run has left your uncommitted files as they were")
    assert (await run.user.atomic("salvage", "0f9b2c1e-1111-4222-8333-444455556666")).exit_code == 2


@pytest.mark.parametrize("inside", [True, pytest.param(False, marks=pytest.mark.ci)])
async def test_a_path_may_be_given_from_a_folder_below(tmp_path: Path, inside: bool) -> None:
    run = Wrecked(tmp_path, {"sh": "rm -rf deep/run.sh"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    words = ("run.sh",) if inside else ("deep/run.sh",)
    cwd = run.project / "deep" if inside else run.project
    done = await run.user.atomic("salvage", run.session.name, *words, cwd=cwd)
    assert (done.exit_code, done.stdout) == (0, "deep/run.sh: put back\n")


@pytest.mark.ci
async def test_staged_content_is_staged_again_once(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "git reset -q && rm staged.txt"})
    (run.project / "staged.txt").write_text("staged\n")
    run.git("add", "staged.txt")
    (run.project / "staged.txt").write_text("staged and changed\n")
    before = run.git("status", "--porcelain=v1", "--", "staged.txt")
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    done = await run.salvage()
    assert done.stdout.splitlines() == ["staged.txt: put back", "staged.txt: staged again"]
    assert run.text("staged.txt") == "staged and changed\n"
    assert run.git("show", ":staged.txt") == "staged"
    assert run.git("status", "--porcelain=v1", "--", "staged.txt") == before
    assert (await run.salvage()).stdout == "Nothing to put back: it is as you left it.\n"


@pytest.mark.ci
async def test_a_file_that_is_in_a_commit_comes_with_the_way_out(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "git add -A && git commit -q -m all"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    done = await run.salvage("draft.md")
    said, *commands = done.stdout.splitlines()
    assert (
        said == f"draft.md: it is in commit {run.git('rev-parse', 'HEAD')[:12]}. To take it out, run in {run.project}:"
    )
    report = (run.session / "report.md").read_text()
    for command in commands:
        assert f"\n> {command.strip()}\n" in report
        subprocess.run(command, shell=True, cwd=run.project, check=True)
    assert "draft.md" not in run.git("ls-tree", "--name-only", "HEAD").split()
    assert run.text("draft.md") == "my draft\n"
    assert run.git("status", "--porcelain=v1", "--", "draft.md") == "?? draft.md"


@pytest.mark.ci
async def test_a_staged_file_that_is_in_a_commit_is_staged_again_by_the_commands(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "git add -A && git commit -q -m all"})
    for name in ("staged.txt", "other.txt"):
        (run.project / name).write_text("staged\n")
        run.git("add", name)
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (run.project / "later.txt").write_text("mine\n")
    run.git("add", "later.txt")
    done = await run.salvage("staged.txt")
    said, *commands = done.stdout.splitlines()
    assert (done.exit_code, said.startswith("staged.txt: it is in commit ")) == (0, True)
    for command in commands:
        subprocess.run(command, shell=True, cwd=run.project, check=True)
    assert run.git("status", "--porcelain=v1", "--", "staged.txt", "later.txt").split() == [
        "A",
        "later.txt",
        "A",
        "staged.txt",
    ]


class Staged(Wrecked):
    """A run whose user has staged a file and has changed it after that."""

    def __init__(self, folder: Path, *steps: dict[str, Any]) -> None:
        super().__init__(folder, *steps)
        (self.project / "staged.txt").write_text("staged\n")
        self.git("add", "staged.txt")
        (self.project / "staged.txt").write_text("staged and changed\n")


@pytest.mark.parametrize("is_committed", [False, pytest.param(True, marks=pytest.mark.ci)])
async def test_newer_staged_content_stays_without_force(tmp_path: Path, is_committed: bool) -> None:
    run = Staged(tmp_path, {"sh": "git reset -q && rm staged.txt"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (run.project / "staged.txt").write_text("newer\n")
    run.git("add", "staged.txt")
    if is_committed:
        run.git("commit", "-q", "-m", "My newer file", "--", "staged.txt")
    done = await run.salvage("staged.txt")
    assert done.exit_code == 1
    assert done.stdout == "staged.txt: left as it is, because it has changed since the run (--force replaces it)\n"
    assert run.git("show", ":staged.txt") == "newer"
    (run.project / "staged.txt").unlink()  # the file itself can come back now; the index is still newer
    done = await run.salvage("staged.txt")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "staged.txt: put back",
        "staged.txt: the index is left as it is, because it has changed since the run (--force replaces it)",
    ]
    assert run.git("show", ":staged.txt") == "newer"
    done = await run.salvage("staged.txt", "--force")
    assert (done.exit_code, done.stdout) == (0, "staged.txt: staged again\n")
    assert run.git("show", ":staged.txt") == "staged"


@pytest.mark.ci
async def test_content_staged_by_the_run_is_replaced(tmp_path: Path) -> None:
    run = Staged(tmp_path, {"sh": "echo theirs > staged.txt && git add staged.txt"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    done = await run.salvage("staged.txt")
    assert done.exit_code == 0, done.stdout
    assert run.git("show", ":staged.txt") == "staged"


@pytest.mark.ci
async def test_a_staged_removal_comes_back(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "git reset -q"})
    run.git("rm", "-q", "--cached", "README.md")
    before = run.git("status", "--porcelain=v1", "--", "README.md")
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    done = await run.salvage()
    assert (done.exit_code, done.stdout) == (0, "README.md: its removal is staged again\n")
    assert run.git("status", "--porcelain=v1", "--", "README.md") == before


@pytest.mark.ci
async def test_a_staging_that_fails_is_a_failure(tmp_path: Path) -> None:
    run = Staged(tmp_path, {"sh": "git reset -q"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (run.project / ".git" / "index.lock").touch()
    done = await run.salvage("staged.txt")
    assert done.exit_code == 1
    assert done.stdout.startswith("staged.txt: what you had staged cannot be brought back: ")
    assert "Nothing to put back" not in done.stdout


@pytest.mark.ci
async def test_permissions_come_back(tmp_path: Path) -> None:
    run = Wrecked(tmp_path, {"sh": "rm draft.md deep/run.sh"})
    (run.project / "draft.md").chmod(0o600)
    (run.project / "deep" / "run.sh").chmod(0o750)
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    assert (await run.salvage()).exit_code == 0
    modes = [(run.project / name).stat().st_mode & 0o777 for name in ("draft.md", "deep/run.sh")]
    assert modes == [0o600, 0o750]


@pytest.mark.ci
async def test_untouched_files_are_not_offered(tmp_path: Path) -> None:
    run = Wrecked(tmp_path)
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (run.project / "draft.md").write_text("my newer draft\n")
    done = await run.salvage("--force")
    assert (done.exit_code, done.stdout) == (
        0,
        "The run has left your uncommitted files as they were: there is nothing to put back.\n",
    )
    assert run.text("draft.md") == "my newer draft\n"


@pytest.mark.ci
async def test_a_file_without_its_copy_stays_where_it_is(tmp_path: Path) -> None:
    run = Wrecked(tmp_path)
    part = worker("2", {"write": {"part2.txt": "2\n"}})
    run.play(PLAN, worker("1", {"write": {"part1.txt": "1\n"}}), part, APPROVE)
    assert (await run.ralph("--verify", "true", GOAL)).status == ("completed", "done", 0)
    (run.project / "draft.md").write_text("my newer draft\n")
    done = await run.salvage("--force", "draft.md")
    assert done.exit_code == 1
    assert done.stdout.startswith("draft.md: nothing was changed: its copy is gone")
    assert run.text("draft.md") == "my newer draft\n"
    assert not (run.project / "draft.md.replaced-1").exists()


@pytest.mark.ci
async def test_nothing_is_written_through_a_link_that_leads_out_of_the_project(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "run.sh").write_text("not yours\n")
    run = Wrecked(tmp_path, {"sh": f"rm -rf deep; ln -s {victim} deep"})
    assert (await run.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    done = await run.salvage("--force")
    assert done.exit_code == 1
    assert "deep/run.sh: nothing was changed: its folder is now a link" in done.stdout
    assert (victim / "run.sh").read_text() == "not yours\n"


@pytest.mark.ci
async def test_files_destroyed_by_the_planner_are_reported_and_restored(tmp_path: Path) -> None:
    run = Wrecked(tmp_path)
    planner = {**PLAN, "do": [{"sh": "rm -f draft.md"}, *PLAN["do"]]}
    run.play(planner, worker("1", {"write": {"part1.txt": "1\n"}}), worker("2", {"write": {"p": "2\n"}}), APPROVE)
    outcome = await run.ralph("--verify", "true", GOAL)
    assert (
        "the planner changed the checkout: your uncommitted work was touched: draft.md was deleted" in outcome.warnings
    )
    assert "uncommitted work" in run.report.splitlines()[0]
    await run.salvage()
    assert run.text("draft.md") == "my draft\n"
