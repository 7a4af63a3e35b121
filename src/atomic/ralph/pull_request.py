"""`--pr`: push the work and open a pull request, with the user's git and gh.

The repository cannot decide what runs: git reads only the user's global settings, the
remote's address is parsed and validated, and gh runs in an empty folder. Programs get
no secrets except logins.

Each step first looks whether it is done already: a run that was killed and resumed
opens no second pull request.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from atomic.base.errors import AtomicError
from atomic.git import GitError, RemoteAddress, Repository, find_repository, read_address
from atomic.processes import ExecError, ProgramNotFoundError, execute
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.environment import child_environment
from atomic.ralph.markdown import plain
from atomic.ralph.options import StartError
from atomic.ralph.report import pull_request_body
from atomic.ralph.report_data import read_report_data
from atomic.ralph.run_folder import Ralph, RunFolder
from atomic.workflows import NodeResult
from atomic.workspaces import RunBranch

BODY = "pull-request.md"
MAX_TITLE = 72
MAX_FILES = 10  # named in a sentence
_LOCAL_TIMEOUT = 60.0  # seconds
_PUSH_TIMEOUT = 900.0
_FORGE_TIMEOUT = 180.0
_DEFAULTS = ("main", "master")
_NO_GH = "the program gh is not installed (install it, then gh auth login)"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FORGES = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}  # the same forge on the port of https
# Variables with the logins of gh and of git's helpers, and those of git's variables
# that are about the connection.
_OWN = (
    *("GH_", "GITHUB_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GCM_", "VSCODE_GIT_"),
    *("GIT_ASKPASS", "GIT_CONFIG_", "GIT_HTTP_", "GIT_PROXY_", "GIT_SSH", "GIT_SSH_", "GIT_SSL_"),
)
_QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}


class PublishError(AtomicError):
    """The work is done and cannot be published."""

    def __init__(self, why: str, session: str) -> None:
        super().__init__(
            f"the work itself is done, but there is no pull request: {why}; "
            f"atomic resume {session} retries only the publishing"
        )


class _Refusal(Exception):
    """There is no pull request; the message is the reason."""


class _Owner(msgspec.Struct, frozen=True):
    login: str = ""


class _PullRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An open pull request; the repository of its branch may be deleted."""

    url: str
    head_repository_owner: _Owner | None = None


@dataclass(frozen=True)
class _Target:
    """The branch on the remote, and the branch that the pull request is for (None: gh
    decides).
    """

    remote: str
    address: RemoteAddress
    forge: str  # HOST/OWNER/NAME, where the pull request is opened
    branch: str
    base: str | None

    @property
    def owner(self) -> str:
        """Return the owner of the repository that the branch is pushed to."""
        return self.address.path.partition("/")[0]


async def publish(ctx: Ralph) -> NodeResult:
    """Push the commits of the run and open a pull request. Raises PublishError."""
    run = RunFolder(ctx)
    run.check_folder()
    try:
        url = await _publish(ctx, run)
    except (_Refusal, GitError, ExecError) as error:
        raise PublishError(ctx.deps.files.redactor.text(str(error)), run.session.name) from error
    if url is not None:
        ctx.deps.publish(url)
    return NodeResult()


def check_pull_request(cwd: str) -> None:
    """Refuse `--pr` where no pull request can be opened, before work costs money.

    Raises StartError.
    """
    # A loop of its own: the caller may run in one, which must not continue meanwhile.
    with ThreadPoolExecutor(max_workers=1) as thread:
        why = thread.submit(lambda: asyncio.run(obstacle(Path(cwd)))).result()
    if why:
        raise StartError(f"--pr cannot open a pull request: {why}")


async def obstacle(cwd: Path) -> str | None:
    """Return what would prevent a pull request, or None. Nothing leaves the machine."""
    if shutil.which("gh") is None:
        return _NO_GH
    try:
        await _remote(_repository(cwd))
    except (_Refusal, GitError, ExecError) as error:
        return str(error)
    return None


async def _publish(ctx: Ralph, run: RunFolder) -> str | None:
    """Return the address of the pull request; None without commits to publish."""
    repository = _repository(run.cwd)
    branch = run.workspaces.branch
    if branch is None:
        head, _ = await repository.head()
        left_over = await _uncommitted(repository)
    else:
        head = await run.tip()
        left_over = []
    start = ctx.state.start
    if head is None or (start is not None and start.head == head):
        if left_over:
            raise _Refusal(f"nothing was committed; these files have changed: {_named(left_over)} (commit them first)")
        run.say("no pull request: the run left no commit and no change")
        return None
    target = await _target(repository, run.session.name, branch)
    found = await _open_one(target)  # before the push: without gh nothing is pushed
    if left_over:
        run.say(f"not in the pull request, because not committed: {_named(left_over)}")
    await _push(repository, target, head)
    return found or await _create(ctx, run, target)


def _environment() -> dict[str, str]:
    """Return what pushing needs: the user's variables without secrets, but with the
    logins of git and gh.
    """
    base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(_OWN)}
    return child_environment(_OWN, base=base)


def _repository(cwd: Path) -> Repository:
    found = find_repository(cwd)
    if found is None:
        raise _Refusal(f"{cwd} is in no git repository")
    return found


async def _uncommitted(repository: Repository) -> list[str]:
    # In submodules git would use their own settings.
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
    said = await repository.git_as_user(*words, base=_environment(), timeout=_LOCAL_TIMEOUT)
    return [entry[3:] for entry in said.split("\0") if entry]


async def _line_of(repository: Repository, *words: str) -> str | None:
    """Return the output of git, or None if it is empty or git fails."""
    try:
        return (await repository.git(*words)).strip() or None
    except GitError:
        return None


async def _target(repository: Repository, session: str, own: RunBranch | None) -> _Target:
    remote, address = await _remote(repository)
    branch = await _line_of(repository, "symbolic-ref", "--quiet", "--short", "HEAD")
    known = await _line_of(repository, "symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD")
    default = None if known is None else known.removeprefix(f"refs/remotes/{remote}/")
    forge = await _forge(repository, address)
    if own is not None:
        return _Target(remote, address, forge, own.name, default or own.upstream or None)
    if branch is None or branch == default or (default is None and branch in _DEFAULTS):
        return _Target(remote, address, forge, f"atomic/{session[:8]}", default or branch)
    return _Target(remote, address, forge, branch, default)


async def _remote(repository: Repository) -> tuple[str, RemoteAddress]:
    """Return the name and the validated address of the remote to push to.

    Raises _Refusal.
    """
    remotes = await repository.remotes()
    if not remotes:
        raise _Refusal("the repository has no remote (git remote add origin URL gives it one)")
    if "origin" in remotes:
        name = "origin"
    elif len(remotes) == 1:
        [name] = remotes
    else:
        raise _Refusal(
            f"none of the remotes {', '.join(map(plain, remotes))} is named origin (git remote rename NAME origin)"
        )
    if _NAME.fullmatch(name) is None:
        raise _Refusal(f"the remote {plain(name)} has a name that cannot be used (git remote rename NAME origin)")
    return name, await _address(repository, name, remotes[name])


async def _address(repository: Repository, name: str, url: str) -> RemoteAddress:
    """Return the address that the user's global settings (`url.X.insteadOf`) make of a
    remote's. Raises _Refusal.
    """
    try:
        if not url.startswith("-"):
            url = (
                await repository.git_as_user("ls-remote", "--get-url", url, base=_environment(), timeout=_LOCAL_TIMEOUT)
            ).strip()
        return read_address(url)
    except ValueError as error:
        raise _Refusal(
            f"nothing is pushed to the remote {name} ({plain(url)}): {error} (git remote set-url {name} URL)"
        ) from error


async def _push(repository: Repository, target: _Target, commit: str) -> None:
    """Push without force, so that nothing on the remote is lost.

    The remote is set here, not by the repository.
    """
    name = target.remote
    settings = ("-c", f"remote.{name}.url={target.address.url}")
    settings += ("-c", f"remote.{name}.fetch=+refs/heads/*:refs/remotes/{name}/*")
    flags = ("--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--receive-pack=git-receive-pack")
    words = (*settings, "push", *flags, "--", target.remote, f"{commit}:refs/heads/{target.branch}")
    try:
        await repository.git_as_user(*words, base=_environment(), timeout=_PUSH_TIMEOUT, protocols="https:ssh")
    except GitError as error:
        raise _Refusal(f"git push to {target.remote} failed: {_end_of(error.reason)}") from error


async def _forge(repository: Repository, address: RemoteAddress) -> str:
    """Return the repository in gh's words, HOST/OWNER/NAME.

    A fork opens its pull request where it came from.
    """
    remotes = await repository.remotes()
    if "upstream" in remotes:
        upstream = await _address(repository, "upstream", remotes["upstream"])
        return f"{await _host(upstream)}/{upstream.path}"
    return f"{await _host(address)}/{address.path}"


async def _host(address: RemoteAddress) -> str:
    """Return the host of an address.

    For ssh, the real name of an alias in the user's ssh settings.
    """
    host = address.host
    if address.is_ssh:
        try:
            asked = await execute("ssh", "-G", "--", host, env=_environment(), timeout=_LOCAL_TIMEOUT)
        except ExecError:  # without ssh the push fails and reports it
            return host
        named = [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("hostname ")]
        host = named[0].lower() if named and asked.exit_code == 0 else host
    return _FORGES.get(host, host)


async def _gh(*words: str) -> str:
    """Run gh in an empty folder, where it finds no repository with settings.

    Raises _Refusal.
    """
    env = {**_environment(), **_QUIET}
    with TemporaryDirectory(prefix=temporary_prefix("gh")) as nowhere:
        try:
            result = await execute("gh", *words, cwd=nowhere, env=env, timeout=_FORGE_TIMEOUT)
        except ProgramNotFoundError as error:
            raise _Refusal(_NO_GH) from error
    if result.exit_code != 0:
        said = _end_of(result.stderr.strip() or result.stdout.strip()) or f"exit code {result.exit_code}"
        raise _Refusal(f"gh {' '.join(words[:2])} failed: {said}")
    return result.stdout


async def _open_one(target: _Target) -> str | None:
    """Return the open pull request of the branch.

    `--head` takes no owner, and forks may have a branch of the same name.
    """
    words = ("--head", target.branch, "--state", "open", "--limit", "100", "--json", "url,headRepositoryOwner")
    listed = await _gh("pr", "list", "-R", target.forge, *words)
    try:
        found = msgspec.json.decode(listed or "[]", type=list[_PullRequest])
    except msgspec.DecodeError:  # an old gh without --json; a failure has an exit code
        return None
    owner = target.owner.casefold()
    ours = (
        one.url for one in found if one.head_repository_owner and one.head_repository_owner.login.casefold() == owner
    )
    return next(ours, None)


async def _create(ctx: Ralph, run: RunFolder, target: _Target) -> str:
    ctx.deps.files.write(BODY, pull_request_body(read_report_data(run.session, ctx.state, ctx.deps.facts)))
    title = plain(ctx.deps.files.redactor.text(_title(run)), MAX_TITLE)
    base = () if target.base is None else ("--base", target.base)
    is_fork = target.address.path != target.forge.partition("/")[2]
    head = f"{target.owner}:{target.branch}" if is_fork else target.branch
    words = ("--head", head, *base, "--title", title, "--body-file", str(run.session / BODY))
    said = await _gh("pr", "create", "-R", target.forge, *words)
    urls = [line.strip() for line in said.splitlines() if line.strip().startswith(("https://", "http://"))]
    if not urls:
        raise _Refusal(f"gh pr create printed no address: {plain(said)}")
    return urls[-1]


def _title(run: RunFolder) -> str:
    """Return the first line of the goal, or the first task of a list without a goal."""
    lines = [line.strip().lstrip("#").strip() for line in run.options.goal.splitlines()]
    if goal := next((line for line in lines if line), ""):
        return goal
    tasks = run.tasks.tasks
    return f"{tasks[0].title} and {len(tasks) - 1} more" if len(tasks) > 1 else tasks[0].title


def _end_of(text: str) -> str:
    return plain(" ".join(text.splitlines()[-6:]), 500)


def _named(files: Sequence[str]) -> str:
    shown = ", ".join(plain(file) for file in files[:MAX_FILES])
    return shown if len(files) <= MAX_FILES else f"{shown} and {len(files) - MAX_FILES} more"
