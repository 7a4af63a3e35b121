"""`atomic trust`: show the code that a project can run and its changes, approve it, or
withdraw the approval.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.text import local_time, pad, width
from atomic.cli.errors import CliError
from atomic.cli.streams import STDERR, confirmed, has_terminal, json_line, put, tell, write
from atomic.loading import trust
from atomic.loading.trust import ChangeKind, ItemChange, Snapshot, visible
from atomic.workflows.errors import TrustError, UntrustedError

MAX_LINES = 400  # of one file in the question; `--show` has all of them, and a check is never cut
MAX_COLUMNS = 1000  # of one line in the question
NAME_COLUMNS = 72  # a longer name does not move the hashes of the others
SHORT_CHECK = 200  # characters; a longer check is shown below the list
_MARKS = {ChangeKind.ADDED: "+", ChangeKind.CHANGED: "~", ChangeKind.REMOVED: "-", ChangeKind.UNCHANGED: " "}


def run_trust(arguments: Arguments) -> int:
    """Show, approve or revoke."""
    given = arguments.words[0] if arguments.words else None
    if arguments.has("--json") and not arguments.has("--show"):
        raise UsageError("--json goes with --show: atomic trust --show --json")
    if sum((arguments.has("--show"), arguments.has("--revoke"), given is not None)) > 1:
        raise UsageError("one thing at a time: atomic trust --show, atomic trust HASH, or atomic trust --revoke")
    snapshot = trust.look()
    if arguments.has("--revoke"):
        was = "is no longer trusted" if trust.revoke() else "was not trusted"
        tell(f"{snapshot.project} {was}; its runs continue only if you approve it again, or with --trust")
        return ExitCode.DONE
    if snapshot.problem:
        tell(snapshot.problem)
    if arguments.has("--json"):
        put(_as_json(snapshot))
        return ExitCode.DONE
    if arguments.has("--show"):
        put("".join(f"{line}\n" for line in _description(snapshot)))
        return ExitCode.DONE
    if given is None:
        return _ask(snapshot)
    if given != snapshot.hash:
        message = f'"{given}" is not the hash of this project in its current state (atomic trust --show prints that)'
        raise CliError(message, ExitCode.UNTRUSTED)
    return _approve(snapshot)


def _approve(snapshot: Snapshot, *, why: str = "") -> int:
    try:
        trust.approve(snapshot)
    except TrustError as error:
        raise CliError(str(error), ExitCode.UNTRUSTED) from error
    tell(f"{snapshot.project}{why} is trusted in its current state")
    return ExitCode.DONE


def _ask(snapshot: Snapshot) -> int:
    """Ask the user at the terminal; only a typed yes approves."""
    if snapshot.approved:
        tell(f"{snapshot.project} is trusted")
        return ExitCode.DONE
    if not snapshot.items:  # the folder itself becomes trusted: the user's MCP servers may start in it
        return _approve(snapshot, why=" contains nothing that could run and")
    if not has_terminal():
        how = f"see it: atomic trust --show; approve it: atomic trust {snapshot.hash}"
        raise CliError(f"there is no terminal to ask in ({how})", ExitCode.UNTRUSTED)
    write(STDERR, "".join(f"{line}\n" for line in _description(snapshot, max_lines=MAX_LINES)))
    if not confirmed("Allow exactly this to run from now on? [y/N] "):
        tell("nothing was approved")
        return ExitCode.UNTRUSTED
    return _approve(snapshot)


def may_run_now(error: UntrustedError) -> bool:
    """Show the user at the terminal what a command would run, and ask.

    After a yes it is approved. Raises CliError if it cannot be.
    """
    snapshot = trust.look(Path(error.project))
    if snapshot.trusted:
        return True
    if trust.has_changed(snapshot):
        lines = _changes_since_approval(snapshot)
    else:
        lines = _description(snapshot, max_lines=MAX_LINES)
    write(STDERR, "".join(f"{line}\n" for line in lines))
    if not confirmed("Allow exactly this to run, now and from now on? [y/N] "):
        tell("nothing was approved, and nothing was started")
        return False
    _approve(snapshot)
    return True


def _changes_since_approval(snapshot: Snapshot) -> Iterator[str]:
    approval = snapshot.approval
    assert approval is not None
    yield f"{visible(snapshot.project)} has changed since you approved it ({_local(approval.approved_at)}):"
    changed = [one for one in trust.changes(snapshot) if one.change is not ChangeKind.UNCHANGED]
    for one in changed:
        yield f"  {_MARKS[one.change]} {trust.name_of(one)}: {trust.note_of(one, snapshot)}"
    for one in changed:
        if trust.command_of(one) is None:
            yield from _diff(one, MAX_LINES)
    yield ""


def _local(approved_at: str) -> str:
    """Return the time of an approval as all other times are shown."""
    try:
        return local_time(datetime.fromisoformat(approved_at).timestamp())
    except ValueError:
        return visible(approved_at)


def _as_json(snapshot: Snapshot) -> str:
    items: list[dict[str, object]] = []
    for one in trust.changes(snapshot):
        diff = [visible(line) for line in trust.diff_of(one)]
        items.append({"kind": one.kind, "path": one.path, "sha256": one.sha256, "change": one.change, "diff": diff})
    project = visible(snapshot.project)
    return json_line({"hash": snapshot.hash, "trusted": snapshot.trusted, "items": items, "project": project})


def _description(snapshot: Snapshot, *, max_lines: int | None = None) -> Iterator[str]:
    approval = ""
    if snapshot.approval is None:
        approval = " (never approved)" if snapshot.items else ""
    else:
        action = "taken back" if snapshot.approval.is_revoked else "last approval"
        approval = f" ({action}: {_local(snapshot.approval.approved_at)})"
    changes = trust.changes(snapshot)
    yield f"Project: {visible(snapshot.project)}"
    yield f"Trusted: {'yes' if snapshot.trusted else 'no'}{approval}"
    yield f"Hash:    {snapshot.hash}"
    yield ""
    yield "What it could run:" if changes else "There is nothing in it that could run."
    named = [(one, _name_item(one)) for one in changes]
    columns = max((width(name) for _, name in named if width(name) <= NAME_COLUMNS), default=0)
    for one, name in named:
        yield f"  {_MARKS[one.change]} {pad(name, columns)}  {one.sha256[:12]}  {one.change}"
    for one in changes:
        command = trust.command_of(one)
        if command is None:
            yield from _diff(one, max_lines)
        elif not _is_short(command):
            # Every character, also of an approved check: its end matters as much as its
            # beginning.
            yield ""
            yield f"check {one.sha256[:12]} from {visible(one.path)}:"
            for line in command.strip("\n").split("\n"):
                yield f"{_MARKS[one.change]}{visible(line)}"


def _name_item(one: ItemChange) -> str:
    command = trust.command_of(one)
    if command is None:
        return f"{one.kind:<14} {visible(one.path)}"
    return f"{'check':<14} {_check_summary(command)}  (from {visible(one.path)})"


def _is_short(command: str) -> bool:
    return "\n" not in command.strip("\n") and len(command) <= SHORT_CHECK


def _check_summary(command: str) -> str:
    if _is_short(command):
        return visible(command.strip("\n"))
    count = len(command.strip("\n").split("\n"))
    return f"{count:,} line{'' if count == 1 else 's'}, shown in full below"


def _diff(one: ItemChange, max_lines: int | None) -> Iterator[str]:
    lines = trust.diff_of(one)
    if not lines:
        return
    yield ""
    for line in lines[:max_lines]:
        text = visible(line)
        more = len(text) - MAX_COLUMNS
        if max_lines is not None and more > 0:
            text = f"{text[:MAX_COLUMNS]}… ({more:,} more characters: atomic trust --show has them)"
        yield text
    if max_lines is not None and len(lines) > max_lines:
        yield f"… {len(lines) - max_lines:,} more lines of {visible(one.path)}: atomic trust --show has all of them"
