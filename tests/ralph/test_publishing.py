"""`--pr` with real git, a bare repository as the remote, and a fake gh."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from atomic.base.redaction import Redactor
from atomic.config import WorkspaceSettings
from atomic.git.snapshots import FolderSnapshot
from atomic.ralph.evidence import Diffstat, Evidence, write_evidence
from atomic.ralph.options import Options
from atomic.ralph.pull_request import PublishError, publish
from atomic.ralph.review import Review
from atomic.ralph.run_folder import Ralph
from atomic.ralph.state import RalphState
from atomic.runs.kept_tasks import KeptTasks
from atomic.sessions.facts import Facts
from atomic.tasks import Task, TaskList, TaskStatus
from atomic.workspaces import RunWorkspaces
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, facts_in, worker, writing
from tests.support.user import complaint

ID = "0f9b2c1e-1111-4222-8333-444455556666"
OWN = "atomic/0f9b2c1e"
URL = "https://forge.test/pull/7"
GH = f"""#!{sys.executable}
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
with open(folder + "/asked.jsonl", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
opened = folder + "/opened"
if sys.argv[1:3] == ["pr", "list"]:
    listed = [("me", "{URL}")] if os.path.exists(opened) else []
    if os.path.exists(folder + "/others"):
        listed.insert(0, ("them", "https://forge.test/pull/3"))
    print(json.dumps([{{"url": url, "headRepositoryOwner": {{"login": owner}}}} for owner, url in listed]))
elif os.path.exists(folder + "/broken"):
    sys.exit("HTTP 401: Bad credentials")
else:
    with open(sys.argv[sys.argv.index("--body-file") + 1]) as body, open(opened, "w") as copy:
        copy.write(body.read())
    print("Creating pull request\\n{URL}")
"""


FORGE = "forge.test/me/game"
ADDRESS = "git@forge.test:me/game.git"
SSH = f"""#!{sys.executable}
import os, sys
folder = os.path.dirname(os.path.abspath(__file__))
if sys.argv[1] == "-G":
    print("user git\\nhostname", sys.argv[-1])
    sys.exit()
with open(folder + "/ssh.jsonl", "a") as log:
    log.write(repr(sys.argv[1:]) + "\\n")
program, path = sys.argv[-1].split(" ", 1)
assert path.strip("'") == "me/game.git", path
os.execvp("git", ["git", program.removeprefix("git-"), folder + "/../remote.git"])
"""


@dataclass
class Files:
    """The session's folder."""

    dir: Path
    redactor: Redactor = field(default_factory=Redactor)

    def write(self, name: str, text: str) -> None:
        (self.dir / name).write_text(text, "utf-8")


@dataclass
class Deps:
    """The parts of a run that publishing may use."""

    files: Files
    facts: Facts
    tasks: KeptTasks
    check_variables: tuple[str, ...] = ()
    urls: list[str] = field(default_factory=list[str])

    @property
    def workspaces(self) -> RunWorkspaces:
        folder = self.files.dir
        return RunWorkspaces(ID, folder.parent.parent, self.facts, self.facts.set, folder, WorkspaceSettings())

    def publish(self, url: str) -> None:
        self.urls.append(url)


@dataclass
class Ctx:
    state: RalphState
    deps: Deps
    warnings: list[str] = field(default_factory=list[str])

    def emit(self, kind: str, data: dict[str, str]) -> None:
        assert kind == "warning"
        self.warnings.append(data["text"])


class Project:
    """A clone of a bare repository with one commit, and a run that is done in it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.cwd = folder / "project"
        self.session = folder / "sessions" / ID
        self.remote = folder / "remote.git"
        for made in (self.bin, self.cwd, self.session):
            made.mkdir(parents=True)
        self.goal = "Build a game\nwith a board"
        self.start: str | None = None
        self.facts = facts_in(self.session)
        self.tasks = KeptTasks(self.session, self.facts, Redactor([]))
        self.tasks.write(TaskList([Task("t1", "Add the board", status=TaskStatus.COMPLETED)]))
        write_evidence(
            self.facts, Evidence("t1", 1, "passed", (), "b" * 40, "f" * 40, ("board.py",), Diffstat(1, 3, 0), ())
        )

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=cwd or self.cwd, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def begin(self, *, remote: bool = True) -> None:
        self.git("init", "-q", "-b", "main")
        (self.cwd / "README").write_text("A game.\n")
        self.commit("Begin")
        self.start = self.git("rev-parse", "HEAD")
        if remote:
            self.git("init", "-q", "--bare", "-b", "main", str(self.remote), cwd=self.remote.parent)
            self.has("ssh", SSH)
            self.git("remote", "add", "origin", ADDRESS)
            self.git("push", "-q", "origin", "main")

    def commit(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)

    def work(self) -> None:
        (self.cwd / "board.py").write_text("board = []\n")
        self.commit("Add the board")

    def has(self, program: str, code: str) -> None:
        (self.bin / program).write_text(code)
        (self.bin / program).chmod(0o755)

    def has_gh(self) -> None:
        self.has("gh", GH)

    @property
    def asked(self) -> list[list[str]]:
        log = self.bin / "asked.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def created(self) -> list[list[str]]:
        return [words for words in self.asked if words[:2] == ["pr", "create"]]

    def branches(self) -> dict[str, str]:
        listed = self.git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads", cwd=self.remote)
        return dict(cast("tuple[str, str]", tuple(line.split())) for line in listed.splitlines())

    def context(self) -> Ctx:
        state = RalphState(
            options=Options(mode="plan", goal=self.goal, pr=True),
            cwd=str(self.cwd),
            session_dir=str(self.session),
            start=FolderSnapshot(self.start, "e" * 40),
            reviews=[Review("approve")],
            over=True,
        )
        return Ctx(state, Deps(Files(self.session), self.facts, self.tasks))

    async def publish(self) -> Ctx:
        ctx = self.context()
        await publish(cast("Ralph", cast("Any", ctx)))
        return ctx


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project whose user has git and, in a separate folder, maybe gh."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.test")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    project = Project(tmp_path)
    monkeypatch.setenv("PATH", f"{project.bin}:/usr/bin:/bin")
    return project


@pytest.fixture
def ready(project: Project) -> Project:
    project.begin()
    project.work()
    project.has_gh()
    return project


async def test_on_the_default_branch_the_work_goes_to_a_branch_of_its_own(ready: Project) -> None:
    ctx = await ready.publish()
    assert ctx.deps.urls == [URL]
    assert ready.branches() == {"main": ready.start, OWN: ready.git("rev-parse", "HEAD")}
    [words] = ready.created()
    assert words[words.index("--head") + 1] == OWN
    assert words[words.index("--base") + 1] == "main"
    assert words[words.index("--title") + 1] == "Build a game"
    assert ready.asked[0][:8] == ["pr", "list", "-R", FORGE, "--head", OWN, "--state", "open"]
    assert words[:4] == ["pr", "create", "-R", FORGE]
    assert ready.git("rev-parse", f"refs/remotes/origin/{OWN}") == ready.git("rev-parse", "HEAD")
    assert ctx.warnings == []


async def test_the_body_has_the_work_and_its_evidence(ready: Project) -> None:
    await ready.publish()
    body = (ready.bin / "opened").read_text()
    assert body.startswith("1 of 1 task is done, not verified by a check, reviewed.\n")
    assert "### `t1` Add the board" in body
    assert "Cost" not in body


async def test_another_branch_is_pushed_as_it_is(ready: Project) -> None:
    ready.git("switch", "-q", "-c", "feature/board")
    await ready.publish()
    assert ready.branches().keys() == {"main", "feature/board"}
    [words] = ready.created()
    assert words[words.index("--head") + 1] == "feature/board"
    assert "--base" not in words  # gh knows the remote's default branch


async def test_the_remote_decides_the_default_branch(ready: Project) -> None:
    ready.git("push", "-q", "origin", "HEAD~1:refs/heads/trunk")
    ready.git("fetch", "-q")
    ready.git("remote", "set-head", "origin", "trunk")
    await ready.publish()  # on main, which is a branch like any other then
    assert ready.branches()["main"] == ready.git("rev-parse", "HEAD")
    [words] = ready.created()
    assert words[words.index("--base") + 1] == "trunk"


async def test_no_branch_is_like_the_default_one(ready: Project) -> None:
    ready.git("checkout", "-q", "--detach")
    await ready.publish()
    assert OWN in ready.branches()


async def test_publishing_twice_opens_one_pull_request(ready: Project) -> None:
    await ready.publish()
    ctx = await ready.publish()
    assert ctx.deps.urls == [URL]
    assert len(ready.created()) == 1


async def test_a_long_title_is_one_short_line(ready: Project) -> None:
    ready.goal = f"\n# {'Build a game ' * 20}\x1b[31m\nmore"
    await ready.publish()
    [words] = ready.created()
    title = words[words.index("--title") + 1]
    assert title.startswith("Build a game Build")
    assert len(title) <= 72
    assert title.isprintable()


async def test_a_list_without_a_goal_gives_its_first_task(ready: Project) -> None:
    ready.goal = ""
    await ready.publish()
    [words] = ready.created()
    assert words[words.index("--title") + 1] == "Add the board"


@pytest.mark.ci
async def test_uncommitted_files_are_named_and_not_touched(ready: Project) -> None:
    (ready.cwd / "notes.txt").write_text("mine")
    (ready.cwd / "README").write_text("changed\n")
    ctx = await ready.publish()
    assert ctx.warnings == ["not in the pull request, because not committed: README, notes.txt"]
    assert (ready.cwd / "notes.txt").read_text() == "mine"
    assert ctx.deps.urls == [URL]


@pytest.mark.ci
async def test_no_hook_of_the_repository_runs(ready: Project) -> None:
    hook = ready.cwd / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ready.bin}/ran\n")
    hook.chmod(0o755)
    await ready.publish()
    assert not (ready.bin / "ran").exists()


@pytest.mark.ci
async def test_a_run_that_left_nothing_has_nothing_to_publish(project: Project) -> None:
    project.begin()
    project.has_gh()
    ctx = await project.publish()
    assert ctx.warnings == ["no pull request: the run left no commit and no change"]
    assert ctx.deps.urls == []
    assert project.asked == []


# Refusals


async def refusal(project: Project) -> str:
    with pytest.raises(PublishError) as caught:
        await project.publish()
    text = str(caught.value)
    assert text.startswith("the work itself is done, but there is no pull request: ")
    assert text.endswith(f"; atomic resume {ID} retries only the publishing")
    assert "\n" not in text
    assert project.created() == [] or (project.bin / "broken").exists()
    return text


async def test_publishing_outside_of_git_is_refused(project: Project) -> None:
    project.has_gh()
    assert f"{project.cwd} is in no git repository" in await refusal(project)


@pytest.mark.ci
async def test_publishing_without_a_remote_is_refused(project: Project) -> None:
    project.begin(remote=False)
    project.work()
    project.has_gh()
    assert "the repository has no remote" in await refusal(project)


@pytest.mark.ci
async def test_without_gh_nothing_is_pushed(project: Project) -> None:
    project.begin()
    project.work()
    assert "the program gh is not installed" in await refusal(project)
    assert project.branches().keys() == {"main"}


@pytest.mark.ci
async def test_publishing_without_commits_is_refused(project: Project) -> None:
    project.begin()
    project.has_gh()
    (project.cwd / "board.py").write_text("board = []\n")
    assert "nothing was committed; these files have changed: board.py" in await refusal(project)


@pytest.mark.ci
async def test_a_failed_push_reports_the_message_of_git(ready: Project) -> None:
    ready.remote.rename(ready.remote.with_name("moved.git"))
    told = await refusal(ready)
    assert "git push to origin failed: " in told
    assert "does not appear to be a git repository" in told


@pytest.mark.ci
async def test_a_branch_of_others_is_not_overwritten(ready: Project) -> None:
    ready.git("push", "-q", "origin", f"HEAD:refs/heads/{OWN}")
    ready.git("reset", "-q", "--hard", "HEAD~1")
    (ready.cwd / "other.py").write_text("x = 1\n")
    ready.commit("Another way")
    theirs = ready.branches()[OWN]
    assert "rejected" in await refusal(ready)
    assert ready.branches()[OWN] == theirs


@pytest.mark.ci
async def test_a_failure_of_gh_is_reported_and_can_be_retried(ready: Project) -> None:
    (ready.bin / "broken").touch()
    assert "gh pr create failed: HTTP 401: Bad credentials" in await refusal(ready)
    (ready.bin / "broken").unlink()
    assert (await ready.publish()).deps.urls == [URL]


# Through the command


def has_forge(sandbox: Sandbox) -> None:
    for name, code in (("gh", GH), ("ssh", SSH)):
        sandbox.user.has(name, code.partition("\n")[2])


@pytest.mark.ci
async def test_a_run_publishes_at_its_end_and_a_resume_does_only_that(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    bin = sandbox.user.bin
    remote = tmp_path / "remote.git"
    has_forge(sandbox)
    sandbox.git("remote", "add", "origin", ADDRESS)

    refused = await sandbox.ralph("--verify", "test -e README.md", "--pr", GOAL)
    assert refused.status == ("failed", "error", 1)
    assert "the work itself is done" in refused.end["message"]
    assert "2 of 2 tasks are done" in sandbox.report
    assert "the work itself is done" in sandbox.report
    called = sandbox.callers

    sandbox.git("init", "-q", "--bare", str(remote))
    published = await sandbox.resume()
    assert published.status == ("completed", "done", 0)
    assert sandbox.callers == called
    record = json.loads((sandbox.session / "session.json").read_text())
    assert record["pr"] == URL
    assert f"pull request: {URL}" in published.end["message"]
    assert f"**Pull request**: `{URL}`" in sandbox.report
    branch = f"atomic/{sandbox.session.name[:8]}"
    assert sandbox.git("ls-remote", str(remote), f"refs/heads/{branch}").startswith(sandbox.git("rev-parse", "HEAD"))
    assert "verified by test -e README.md and reviewed" in (bin / "opened").read_text()


@pytest.mark.ci
async def test_obstacles_to_publishing_are_reported_before_the_work(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN)
    path = sandbox.user.env["PATH"]
    sandbox.user.env["PATH"] = only_git(tmp_path)
    words = ("run", "ralph", "--pr", GOAL)
    refused = await sandbox.user.atomic(*words)
    assert (refused.exit_code, complaint(refused)) == (
        2,
        "--pr cannot open a pull request: the program gh is not installed (install it, then gh auth login)",
    )
    sandbox.user.env["PATH"] = path
    has_forge(sandbox)
    refused = await sandbox.user.atomic(*words)
    assert (refused.exit_code, complaint(refused)) == (
        2,
        "--pr cannot open a pull request: the repository has no remote (git remote add origin URL gives it one)",
    )
    assert not sandbox.callers
    lonely = await sandbox.ralph("--pr", "--dry-run", GOAL)
    assert (
        "there will be no pull request unless you fix this before the end: the repository has no remote"
        in lonely.warnings
    )
    sandbox.git("remote", "add", "origin", ADDRESS)
    ready = await sandbox.ralph("--pr", "--dry-run", GOAL)
    assert "pull request" not in ready.warnings


def only_git(folder: Path) -> str:
    """Return a PATH without gh, also if this machine has one."""
    bin = folder / "only-git"
    bin.mkdir()
    for name in ("git", "sh"):
        (bin / name).symlink_to(f"/usr/bin/{name}")
    return str(bin)


HOSTILE = (
    *("filter.evil.clean", "filter.evil.process", "core.sshCommand", "remote.origin.receivepack", "core.fsmonitor"),
    *("credential.helper", "core.gitProxy", "gpg.program", "core.askPass"),
)


@pytest.mark.ci
async def test_nothing_that_an_agent_left_in_the_repository_runs_and_no_secret_is_passed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = tmp_path / "bin" / "evil"
    leaves = "mkdir -p .git/info; echo '* filter=evil' > .git/info/attributes; " + "; ".join(
        f"git config {key} {evil}" for key in HOSTILE
    )
    commit = "git add -A && git commit -q -m Parts"
    steps: list[dict[str, Any]] = [{"write": {"two.txt": "two\n"}}, {"sh": commit}, {"sh": leaves}]
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2", *steps), APPROVE)
    user = sandbox.user
    user.has("evil", f"import os\nopen({str(canary)!r}, 'a').write(repr(os.environ))\n")
    for name, code in (("gh", GH), ("ssh", SSH)):  # they record their folder and environment
        note = f"import os\nopen({str(tmp_path / name)!r}, 'a').write(repr((os.getcwd(), dict(os.environ))))\n"
        user.has(name, note + code.partition("\n")[2])
    sandbox.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    sandbox.git("remote", "add", "origin", ADDRESS)
    user.env |= {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENG", "DB_PASS": "correct-horse", "GH_TOKEN": "of-the-user"}
    user.env["SSH_AUTH_SOCK"] = "/tmp/agent"
    outcome = await sandbox.ralph("--verify", "true", "--pr", GOAL)
    assert outcome.status == ("completed", "done", 0), outcome.end
    assert not canary.exists()
    for name in ("gh", "ssh"):
        told = (tmp_path / name).read_text()
        assert "wJalrXUt" not in told
        assert "correct-horse" not in told
        assert "of-the-user" in told
        assert "/tmp/agent" in told
    assert f"('{sandbox.project}'" not in (tmp_path / "gh").read_text(), "gh sees no repository"


@pytest.mark.ci
@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch {}'",
        "ext::touch% {}",
        "-oProxyCommand=touch {}:x/y",
        "ssh://-oProxyCommand=touch%20{}/x/y",
        "git@-oProxyCommand=x:me/game",
        "file:///tmp/x.git",
        "/tmp/x.git",
        "../x.git",
        "http://forge.test/me/game",
        "git://forge.test/me/game",
        "fd::17",
        "https://forge.test/me/game\x1b[2J",
        "https://forge.test/../../x",
        "git@forge.test:--upload-pack=x",
    ],
)
async def test_an_address_without_https_or_ssh_is_refused(ready: Project, url: str) -> None:
    canary = ready.bin / "canary"
    ready.git("config", "remote.origin.url", url.format(canary))
    assert "nothing is pushed to the remote origin" in await refusal(ready)
    assert ready.asked == []
    assert not canary.exists()


@pytest.mark.ci
async def test_a_fork_opens_its_pull_request_where_it_came_from(ready: Project) -> None:
    ready.git("remote", "add", "upstream", "https://forge.test/them/game.git")
    await ready.publish()
    [words] = ready.created()
    assert words[3] == "forge.test/them/game"
    assert words[words.index("--head") + 1] == f"me:{OWN}"


@pytest.mark.ci
async def test_a_pull_request_of_another_fork_is_not_reused(ready: Project) -> None:
    ready.git("remote", "add", "upstream", "https://forge.test/them/game.git")
    (ready.bin / "others").touch()
    assert (await ready.publish()).deps.urls == [URL]
    assert len(ready.created()) == 1
    assert (await ready.publish()).deps.urls == [URL]
    assert len(ready.created()) == 1, "the second time it is found among the others"


@pytest.mark.ci
async def test_the_users_own_short_names_for_servers_hold(ready: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ready.bin / "gitconfig"
    mine.write_text('[url "git@forge.test:"]\n\tinsteadOf = forge:\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(mine))
    ready.git("remote", "set-url", "origin", "forge:me/game.git")
    assert (await ready.publish()).deps.urls == [URL]
    assert ready.created()[0][3] == FORGE
