"""`--pr`: push the work and open a pull request, with the user's own git and gh.

Each step looks first whether it is done already: a run that was killed in between, and resumed, opens no second one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from atomic.errors import AtomicError
from atomic.processes import ExecError, ExecResult, ProgramNotFoundError, execute
from atomic.workflows import NodeResult
from atomic.workflows.ralph.account import read_account
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.markdown import plain
from atomic.workflows.ralph.report import done_part

BODY = "pull-request.md"
LONGEST_TITLE = 72
MOST_FILES = 10  # that a sentence names
_LOCAL, _PUSH, _FORGE = 60.0, 900.0, 180.0  # seconds
_DEFAULTS = ("main", "master")
_NO_GH = "the program gh is not there (install it, then gh auth login)"
# What an agent could have left in the repository to be run with the user's rights is off.
_GIT = ("git", "--no-pager", "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}


class PublishError(AtomicError):
    """The work is done and could not be published."""

    def __init__(self, why: str, session: str) -> None:
        super().__init__(
            f"the work itself is done, but there is no pull request: {why}; "
            f"atomic resume {session} does only the publishing again"
        )


class _Refusal(Exception):
    """Why there is no pull request, in words for people."""


class _PullRequest(msgspec.Struct, frozen=True):
    url: str


@dataclass(frozen=True)
class _Target:
    """Where the work goes: the branch on the remote, and the branch that it is for (None: gh decides)."""

    remote: str
    branch: str
    base: str | None


async def publish(ctx: Ralph) -> NodeResult:
    """Push the commits of the run and open a pull request. Raises PublishError."""
    desk = Desk(ctx)
    desk.check_folder()
    try:
        url = await _publish(ctx, desk)
    except (_Refusal, ExecError) as error:
        raise PublishError(ctx.deps.files.redactor.text(str(error)), desk.session.name) from error
    if url is not None:
        ctx.deps.publish(url)
    return NodeResult()


async def obstacle(cwd: Path) -> str | None:
    """What would keep the work from being published; None if nothing is seen. Nothing leaves the machine."""
    if shutil.which("gh") is None:
        return _NO_GH
    try:
        await _head(cwd)
        await _remote(cwd)
    except (_Refusal, ExecError) as error:
        return str(error)
    return None


async def _publish(ctx: Ralph, desk: Desk) -> str | None:
    """The address of the pull request; None where there is nothing to publish."""
    head = await _head(desk.cwd)
    left_over = await _uncommitted(desk.cwd)
    start = ctx.state.start
    if head is None or (start is not None and start.head == head):
        if left_over:
            raise _Refusal(f"nothing was committed; these files have changed: {_named(left_over)} (commit them first)")
        desk.say("no pull request: the run left no commit and no change")
        return None
    target = await _target(desk.cwd, desk.session.name)
    found = await _open_one(desk.cwd, target.branch)  # before the push: without gh nothing is pushed
    if left_over:
        desk.say(f"not in the pull request, because not committed: {_named(left_over)}")
    await _push(desk.cwd, target)
    return found or await _create(ctx, desk, target)


# git -----------------------------------------------------------------------------------------------------------------


async def _git(cwd: Path, *words: str, timeout: float = _LOCAL) -> ExecResult:
    return await execute(*_GIT, *words, cwd=cwd, env={**os.environ, **_ENVIRONMENT}, timeout=timeout)


async def _head(cwd: Path) -> str | None:
    """The commit that is checked out; None: there is none yet."""
    inside = await _git(cwd, "rev-parse", "--is-inside-work-tree")
    if inside.exit_code != 0 or inside.stdout.strip() != "true":
        raise _Refusal(f"{cwd} is in no git repository")
    return await _line_of(cwd, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


async def _line_of(cwd: Path, *words: str) -> str | None:
    """What git says, None if it says nothing or fails."""
    result = await _git(cwd, *words)
    return result.stdout.strip() or None if result.exit_code == 0 else None


async def _uncommitted(cwd: Path) -> list[str]:
    result = await _git(cwd, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    if result.exit_code != 0:
        raise _Refusal(f"git status: {_said(result)}")
    return [entry[3:] for entry in result.stdout.split("\0") if entry]


async def _target(cwd: Path, session: str) -> _Target:
    remote = await _remote(cwd)
    branch = await _line_of(cwd, "symbolic-ref", "--quiet", "--short", "HEAD")
    known = await _line_of(cwd, "symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD")
    default = None if known is None else known.removeprefix(f"refs/remotes/{remote}/")
    if branch is None or branch == default or (default is None and branch in _DEFAULTS):
        return _Target(remote, f"atomic/{session[:8]}", default or branch)
    return _Target(remote, branch, default)


async def _remote(cwd: Path) -> str:
    names = (await _git(cwd, "remote")).stdout.split()
    if not names:
        raise _Refusal("the repository has no remote (git remote add origin URL gives it one)")
    if "origin" in names:
        return "origin"
    if len(names) > 1:
        raise _Refusal(f"none of the remotes {', '.join(names)} is named origin (git remote rename NAME origin)")
    return names[0]


async def _push(cwd: Path, target: _Target) -> None:
    """Push without force: what is on the remote is never lost."""
    words = ("push", "--no-verify", "--no-follow-tags", "--", target.remote, f"HEAD:refs/heads/{target.branch}")
    result = await _git(cwd, *words, timeout=_PUSH)
    if result.exit_code != 0:
        raise _Refusal(f"git push to {target.remote} failed: {_said(result)}")


# gh ------------------------------------------------------------------------------------------------------------------


async def _gh(cwd: Path, *words: str) -> str:
    try:
        result = await execute("gh", *words, cwd=cwd, env={**os.environ, **_ENVIRONMENT}, timeout=_FORGE)
    except ProgramNotFoundError as error:
        raise _Refusal(_NO_GH) from error
    if result.exit_code != 0:
        raise _Refusal(f"gh {' '.join(words[:2])} failed: {_said(result)}")
    return result.stdout


async def _open_one(cwd: Path, branch: str) -> str | None:
    """The pull request of a branch that is open already."""
    listed = await _gh(cwd, "pr", "list", "--head", branch, "--state", "open", "--json", "url")
    try:
        found = msgspec.json.decode(listed or "[]", type=list[_PullRequest])
    except msgspec.DecodeError:  # a gh that knows no --json has said nothing about one; a failure has an exit code
        return None
    return found[0].url if found else None


async def _create(ctx: Ralph, desk: Desk, target: _Target) -> str:
    ctx.deps.files.write(BODY, done_part(read_account(desk.session, ctx.state, ctx.deps.facts)))
    title = plain(ctx.deps.files.redactor.text(_title(desk)), LONGEST_TITLE)
    base = () if target.base is None else ("--base", target.base)
    words = ("--head", target.branch, *base, "--title", title, "--body-file", str(desk.session / BODY))
    said = await _gh(desk.cwd, "pr", "create", *words)
    urls = [line.strip() for line in said.splitlines() if line.strip().startswith(("https://", "http://"))]
    if not urls:
        raise _Refusal(f"gh pr create did not say where it is: {plain(said)}")
    return urls[-1]


def _title(desk: Desk) -> str:
    """The first line of the goal; of a list without one, its first task."""
    lines = [line.strip().lstrip("#").strip() for line in desk.options.goal.splitlines()]
    if goal := next((line for line in lines if line), ""):
        return goal
    tasks = desk.tasks.tasks
    return f"{tasks[0].title} and {len(tasks) - 1} more" if len(tasks) > 1 else tasks[0].title


def _said(result: ExecResult) -> str:
    """The reason that a program gave: the end of what it said."""
    return plain(" ".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-6:]), 500) or (
        f"exit code {result.exit_code}"
    )


def _named(files: Sequence[str]) -> str:
    shown = ", ".join(plain(file) for file in files[:MOST_FILES])
    return shown if len(files) <= MOST_FILES else f"{shown} and {len(files) - MOST_FILES} more"
