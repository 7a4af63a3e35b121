"""The branch and commit of the work, as facts of the run, and the commands that return
to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

import msgspec

from atomic.git import Repository
from atomic.ralph.file_names import from_fact
from atomic.ralph.users_files import Entry

POSITION = "position"
CHECKING = "checking"  # the fact that checks run while the user has uncommitted files


class Position(msgspec.Struct, frozen=True):
    """A commit and its branch, either of which may be missing."""

    head: str | None
    branch: str | None

    @property
    def name(self) -> str:
        """Return a readable name of the branch."""
        if self.branch is None:
            return f"no branch (HEAD is {str(self.head)[:12]})"
        return self.branch.removeprefix("refs/heads/")


class Seen(msgspec.Struct, frozen=True):
    """The checkout at a moment when no turn was under way."""

    position: Position
    tree: str  # of all files
    staged: dict[str, Entry | None] = {}  # staged changes of the user's files
    # The user's files in submodules, which the tree does not have, and their contents.
    inner: list[tuple[str, str]] = []


class Known(msgspec.Struct, frozen=True):
    """The branch of the work, and the checkout as it was seen last.

    A fact of the run.
    """

    allowed: Position = msgspec.field(name="good")  # the last position that was allowed
    seen: Seen | None = None  # None while a turn runs
    tree: str = ""  # of all files when the turn that runs began
    hooks: list[str] = []  # that may refuse a commit
    uncommitted: list[str] = []  # files in no commit, if there are such hooks
    reported: Position | None = msgspec.field(name="told", default=None)  # the position of the last pause


def read_known(fact: Any) -> Known:
    return msgspec.convert(from_fact(fact), Known)


def commit_hooks(facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the hooks that could have refused a commit, and the files that are in no
    commit.
    """
    found = facts.get(POSITION, {})
    return found.get("hooks", []), found.get("uncommitted", [])


def index_after_turn(facts: Mapping[str, Any]) -> tuple[str | None, dict[str, Entry | None]]:
    """Return the last commit, and the staged changes of the user's files after the last
    turn.
    """
    found = facts.get(POSITION)
    seen = None if found is None else read_known(found).seen
    return (None, {}) if seen is None else (seen.position.head, seen.staged)


def is_turn_open(facts: Mapping[str, Any]) -> bool:
    """Return whether a turn or a check began and did not end, so its changes are not
    known.
    """
    found = facts.get(POSITION)
    if facts.get(CHECKING):
        return True
    return found is not None and read_known(found).seen is None


def is_staged_otherwise(path: str, one: Mapping[str, Entry | None], other: Mapping[str, Entry | None]) -> bool:
    """Return whether a file is staged differently in two listings."""
    return (path in one, one.get(path)) != (path in other, other.get(path))


async def position_of(repository: Repository) -> Position:
    return Position(*await repository.head())


async def follows(repository: Repository, old: Position, new: Position) -> bool:
    """Return whether the new history contains the old one."""
    if old.head is None or old.head == new.head:
        return True
    return new.head is not None and await repository.is_ancestor(old.head, new.head)


def place_warning(position: Position, *, is_bisect: bool) -> str:
    """Return where the commits of a run will be, if that may surprise the user."""
    if is_bisect and position.branch is None:
        return (
            "A git bisect is in progress: the commits of this run will be on no branch, and git bisect reset leaves"
            " them. End it first (git bisect reset)"
        )
    if is_bisect:
        return (
            f"A git bisect is in progress and {position.name} is checked out: the commits of this run will be on "
            f"{position.name}. If they belong elsewhere, end the bisect first (git bisect reset)"
        )
    if position.branch is None:
        return "HEAD is detached: the commits of this run will be on no branch. git switch -c NAME gives them one"
    return ""


async def last_of_turn(repository: Repository, allowed: Position, now: Position, end: float) -> str | None:
    """Return the last commit until this time, or None if the branch changed in another
    way.
    """
    if now.branch != allowed.branch or not await follows(repository, allowed, now):
        return None
    commits = (await repository.git("log", "--format=%H %ct", f"{allowed.head}..{now.head}")).split()
    pairs = zip(commits[::2], commits[1::2], strict=True)
    return next((commit for commit, time in pairs if int(time) <= end), allowed.head)


def describe_move(allowed: Position, now: Position, *, by_turn: bool) -> str:
    """Return a clause about a branch that was left or rewritten, by a turn or by anyone."""
    if now.branch != allowed.branch:
        if by_turn:
            return f"the turn left the branch {allowed.name} for {now.name}"
        return f"the checkout switched from {allowed.name} to {now.name}"
    what = f"the history of {allowed.name}"
    rewritten = f"the turn rewrote {what}" if by_turn else f"{what} was rewritten"
    return f"{rewritten}: commit {str(allowed.head)[:12]} is not in it"


def as_sentence(clause: str) -> str:
    """Return a clause with a capital letter at its beginning."""
    return clause[:1].upper() + clause[1:]


def _switch_to(allowed: Position) -> str:
    return f"git switch {quote(allowed.name)}" if allowed.branch is not None else f"git switch --detach {allowed.head}"


async def command_to_return(repository: Repository, allowed: Position, now: Position) -> str:
    """Return the command that brings the user back to the last allowed commit.

    No commit and no change is lost.
    """
    if now.branch != allowed.branch:
        return _switch_to(allowed)
    if now.head is None or await repository.is_ancestor(now.head, str(allowed.head)):
        return f"git merge --ff-only {allowed.head}"
    return f"git branch rewritten-{now.head[:12]} && git reset --keep {allowed.head}"


async def prompt_to_return(repository: Repository, allowed: Position, now: Position) -> str:
    """Return the prompt for a worker that has left the branch or rewritten it."""
    lines: list[str] = []
    if now.branch != allowed.branch:
        made = [] if allowed.head is None or now.head is None else await repository.commits(allowed.head, now.head)
        lines.append(_switch_to(allowed))
        lines += [f"git cherry-pick {commit}" for commit in reversed(made[:20])]
    elif now.head is not None and await repository.is_ancestor(now.head, str(allowed.head)):
        lines.append(f"git merge --ff-only {allowed.head}")
    else:
        lines.append(f"git reset --soft {allowed.head}")
        lines.append("git commit --only -- YOUR FILES")
    moved = as_sentence(describe_move(allowed, now, by_turn=True))
    return (
        f"{moved}. Only add commits to the branch that is checked out: no other branch, "
        "no `commit --amend`, `rebase` or `reset` of commits that were there before. Return with these commands, one "
        "after the other (look at `git status` between them):\n\n```sh\n" + "\n".join(lines) + "\n```"
    )
