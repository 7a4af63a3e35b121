"""Ralph in workspaces for a user without root."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, Sandbox, worker
from tests.ralph.test_isolated import KINDS, task, tasks_file
from tests.support.checkouts import checkout_state
from tests.support.ordinary_user import NUMBER, become_ordinary
from tests.support.user import processes
from tests.support.user_workflows import started
from tests.support.waits import eventually

LOOK = "id -u > who{0}.txt; pwd > where{0}.txt; git add . && git commit -qm 'Look {0}'"
RENAME = "mv docs{0} renamed{0}"  # the kernel renames no folder of the base for such a user
# A worker that does not know better: it writes where the user's checkout is.
WRITE_TO_CHECKOUT = "echo x > {0}/stray.txt || true"


class OrdinarySandbox(Sandbox):
    """A user without root, and a project that belongs to them."""

    def __init__(self, folder: Path, *script: dict[str, Any], isolate: str, may_make_namespaces: bool = True) -> None:
        self._words: list[str] = []
        super().__init__(folder, *script, isolate=isolate)
        for name in ("docs1", "docs2"):
            (self.project / name).mkdir()
            (self.project / name / "a").write_text("a\n")
        self.commit_all("Add documents")
        (self.project / "draft.txt").write_text("mine\n")
        self.listed = tasks_file(self, task("1"), task("2"))
        self._words = become_ordinary(self.user, may_make_namespaces=may_make_namespaces)
        self.before = checkout_state(self.project)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        command = [*self._words, "git", *words]
        done = subprocess.run(command, cwd=cwd or self.project, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def files(self, name: str) -> list[str]:
        """Return the content that each task has given to a file of its own, such as `half{}.txt`."""
        branch = f"atomic/{self.session.name[:8]}"
        return [self.git("show", f"{branch}:{name.format(id)}") for id in ("1", "2")]

    async def check_end(self) -> None:
        """Check that the checkout is untouched, and that nothing is left."""
        assert self.before.changes_to(checkout_state(self.project)) == []
        assert [*(self.user.home / ".atomic" / "workspaces").glob("*")] == []
        await eventually(lambda: not processes(self.user.home))
        folder = self.user.home.parent
        assert str(folder) not in Path("/proc/self/mountinfo").read_text()
        assert {path.lstat().st_uid for path in folder.rglob("*")} == {NUMBER}


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_an_ordinary_user_has_workspaces(tmp_path: Path, kind: str) -> None:
    workers = [
        worker(
            id,
            {"sh": RENAME.format(id)},
            {"sh": LOOK.format(id)},
            {"sh": WRITE_TO_CHECKOUT.format(tmp_path / "project")},
        )
        for id in ("1", "2")
    ]
    sandbox = OrdinarySandbox(tmp_path, *workers, APPROVE, isolate=kind)
    done = await sandbox.ralph("--tasks", sandbox.listed, "--workers", "2", "--verify", "test -f README.md")
    assert done.status == ("completed", "done", 0), (done.end, done.stderr)
    assert sandbox.files("who{}.txt") == [str(NUMBER)] * 2
    assert sandbox.files("renamed{}/a") == ["a"] * 2
    inside = [Path(folder) for folder in sandbox.files("where{}.txt")]
    if kind == "overlay":
        assert inside == [sandbox.project] * 2
    else:
        assert [folder.relative_to(sandbox.user.home).parts[:2] for folder in inside] == [(".atomic", "workspaces")] * 2
    await sandbox.check_end()


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_run_of_an_ordinary_user_continues_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    begin = "echo {0} > half{0}.txt; (setsid sleep 600 &); touch {1}/began{0}; sleep 600"
    dying = [worker(id, {"sh": begin.format(id, home)}, times=1) for id in ("1", "2")]
    finishing = [worker(id, {"sh": f"test -f half{id}.txt && echo whole > whole{id}.txt"}) for id in ("1", "2")]
    sandbox = OrdinarySandbox(tmp_path, *dying, *finishing, APPROVE, isolate=kind)
    flags = ("--tasks", sandbox.listed, "--workers", "2", "--verify", "test -f README.md")
    async with started(sandbox.user, "run", "ralph", "--json", *flags) as run:
        await eventually(lambda: all((home / f"began{id}").exists() for id in ("1", "2")))
        run.signal(signal.SIGKILL)
        await run.over()
    done = await sandbox.resume()
    assert done.status == ("completed", "done", 0), (done.end, done.stderr)
    assert sandbox.files("half{}.txt") == ["1", "2"]
    assert sandbox.files("whole{}.txt") == ["whole"] * 2
    await sandbox.check_end()


@pytest.mark.ci
async def test_without_user_namespaces_an_ordinary_user_has_clones(tmp_path: Path) -> None:
    leaving = [worker(id, {"sh": f"(setsid sleep 600 &); {LOOK.format(id)}"}) for id in ("1", "2")]
    sandbox = OrdinarySandbox(tmp_path, *leaving, APPROVE, isolate="auto", may_make_namespaces=False)
    done = await sandbox.ralph("--tasks", sandbox.listed, "--workers", "2", "--verify", "test -f README.md")
    assert done.status == ("completed", "done", 0), (done.end, done.stderr)
    reason = "the system allows no user namespaces here (a limit is reached, such as user.max_user_namespaces)"
    assert f"workspaces are copies (clone), because overlay: {reason}\n" in done.warnings
    assert "nothing keeps a worker that uses the path of your checkout from writing there" in done.warnings
    assert all(".atomic/workspaces" in folder for folder in sandbox.files("where{}.txt"))
    await sandbox.check_end()


def test_the_ordinary_user_is_not_root() -> None:
    assert NUMBER != 0
    assert os.geteuid() in (0, NUMBER)


@pytest.mark.parametrize(("isolate", "repository"), [("none", "with a commit"), ("auto", "none"), ("auto", "empty")])
async def test_a_folder_that_may_not_be_written_is_refused_before_an_agent_starts(
    tmp_path: Path, isolate: str, repository: str
) -> None:
    sandbox = Sandbox(tmp_path, git=repository == "with a commit", isolate=isolate)
    if repository == "empty":
        sandbox.git("init", "-q")
    become_ordinary(sandbox.user)
    sandbox.project.chmod(0o555)
    done = await sandbox.user.atomic("run", "ralph", "build it")
    assert f"You may not write to {sandbox.project}, in which the workers would work. Nothing was paid." in done.stderr
    assert done.exit_code != 0
    assert sandbox.callers == []


@pytest.mark.parametrize("closed", [".git", ".git/refs/heads"])
async def test_a_git_folder_that_may_not_be_written_is_refused_with_advice(tmp_path: Path, closed: str) -> None:
    sandbox = Sandbox(tmp_path, isolate="clone")
    become_ordinary(sandbox.user)
    folder = sandbox.project / closed
    folder.chmod(0o555)
    done = await sandbox.user.atomic("run", "ralph", "build it")
    folder.chmod(0o755)
    assert f"You may not write to {folder}," in done.stderr
    assert "--isolate none" in done.stderr
    assert done.exit_code != 0
    assert sandbox.callers == []
