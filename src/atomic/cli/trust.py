"""`atomic trust`: what a project could run, what has changed since the last approval, and the approval itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.cli.errors import CliError
from atomic.cli.streams import STDERR, STDIN, json_line, put, tell, write
from atomic.loading import trust
from atomic.loading.trust import Change, ItemChange, Snapshot, visible
from atomic.workflows.errors import TrustError

MAX_LINES = 400  # of one file, where a person is asked; `--show` has all of them, and a check is never cut
MAX_COLUMNS = 1000  # of one line of a file, where a person is asked
SHORT_CHECK = 200  # a check of one line that is longer is shown below the list
_MARKS = {Change.ADDED: "+", Change.CHANGED: "~", Change.REMOVED: "-", Change.UNCHANGED: " "}


class ItemRow(msgspec.Struct, frozen=True):
    """An item as `--json` tells it."""

    kind: str
    path: str
    sha256: str
    change: str
    diff: Sequence[str] = ()


class TrustRow(msgspec.Struct, frozen=True):
    """A project as `--json` tells it."""

    hash: str
    trusted: bool
    items: Sequence[ItemRow]
    project: str


def run_trust(arguments: Arguments) -> int:
    """Show, approve or revoke."""
    given = arguments.words[0] if arguments.words else None
    _check(arguments, given)
    if arguments.has("--revoke"):
        return _revoke()
    snapshot = trust.look()
    if snapshot.problem:
        tell(snapshot.problem)
    if arguments.has("--show"):
        put(_json(snapshot) if arguments.has("--json") else "".join(f"{line}\n" for line in _shown(snapshot)))
        return ExitCode.DONE
    return _ask(snapshot) if given is None else _approve_hash(snapshot, given)


def _check(arguments: Arguments, given: str | None) -> None:
    if arguments.has("--json") and not arguments.has("--show"):
        raise UsageError("--json goes with --show: atomic trust --show --json")
    if sum((arguments.has("--show"), arguments.has("--revoke"), given is not None)) > 1:
        raise UsageError("one thing at a time: atomic trust --show, atomic trust HASH, or atomic trust --revoke")


def _revoke() -> int:
    project = trust.look().project
    tell(f"{project} is no longer trusted" if trust.revoke() else f"{project} was not trusted")
    return ExitCode.DONE


def _approve_hash(snapshot: Snapshot, given: str) -> int:
    if given != snapshot.hash:
        raise CliError(
            f"{given} is not the hash of this project in its current state: that is {snapshot.hash}"
            " (atomic trust --show)",
            ExitCode.UNTRUSTED,
        )
    return _approve(snapshot)


def _approve(snapshot: Snapshot, *, why: str = "") -> int:
    try:
        trust.approve(snapshot)
    except TrustError as error:
        raise CliError(str(error), ExitCode.UNTRUSTED) from error
    tell(f"{snapshot.project}{why} is trusted in its current state")
    return ExitCode.DONE


def _ask(snapshot: Snapshot) -> int:
    """Ask the person; only a yes that was typed is one."""
    if snapshot.approved:
        tell(f"{snapshot.project} is trusted")
        return ExitCode.DONE
    if not snapshot.items:  # nothing to ask about: what is trusted is the folder, in which the user's servers may start
        return _approve(snapshot, why=" contains nothing that could run and")
    if not (os.isatty(STDIN) and os.isatty(STDERR)):
        how = f"see it: atomic trust --show; approve it: atomic trust {snapshot.hash}"
        raise CliError(f"there is no terminal to ask in ({how})", ExitCode.UNTRUSTED)
    write(STDERR, "".join(f"{line}\n" for line in _shown(snapshot, max_lines=MAX_LINES)))
    _forget_what_was_typed()
    write(STDERR, "Let exactly this run from now on? [y/N] ")
    if _typed().strip().casefold() not in ("y", "yes"):
        tell("nothing was approved")
        return ExitCode.UNTRUSTED
    return _approve(snapshot)


def _forget_what_was_typed() -> None:
    """What was typed before the question stood there was not meant as its answer."""
    import termios

    with suppress(termios.error):
        termios.tcflush(STDIN, termios.TCIFLUSH)


def _typed() -> str:
    try:
        return os.read(STDIN, 4096).decode("utf-8", "replace")
    except OSError:  # the terminal has gone
        return ""


# for programs ------------------------------------------------------------------------------------------------------


def _json(snapshot: Snapshot) -> str:
    rows = [_row(one) for one in trust.changes(snapshot)]
    row = TrustRow(snapshot.hash, snapshot.trusted, rows, visible(snapshot.project))
    return json_line(row)


def _row(one: ItemChange) -> ItemRow:
    return ItemRow(one.kind, one.path, one.sha256, one.change, [visible(line) for line in trust.diff_of(one)])


# for people --------------------------------------------------------------------------------------------------------


def _shown(snapshot: Snapshot, *, max_lines: int | None = None) -> Iterator[str]:
    changes = trust.changes(snapshot)
    yield f"Project: {visible(snapshot.project)}"
    yield f"Trusted: {'yes' if snapshot.trusted else 'no'}{_since(snapshot)}"
    yield f"Hash:    {snapshot.hash}"
    yield ""
    yield "What it could run:" if changes else "There is nothing in it that could run."
    for one in changes:
        command = trust.command_of(one)
        if command is None:
            what = f"{one.kind:<14} {visible(one.path)}"
        else:
            what = f"{'check':<14} {_check_summary(command)}  (from {visible(one.path)})"
        yield f"  {_MARKS[one.change]} {what}  {one.sha256[:12]}  {one.change}"
    for one in changes:
        command = trust.command_of(one)
        if command is None:
            yield from _diff(one, max_lines)
        elif not _is_short(command):
            yield from _check_lines(one, command)


def _is_short(command: str) -> bool:
    return "\n" not in command.strip("\n") and len(command) <= SHORT_CHECK


def _check_summary(command: str) -> str:
    if _is_short(command):
        return visible(command.strip("\n"))
    count = len(command.strip("\n").split("\n"))
    return f"{count:,} line{'' if count == 1 else 's'}, shown in full below"


def _check_lines(one: ItemChange, command: str) -> Iterator[str]:
    """Show every character of a long check, also of an approved one: its end matters as much as its beginning."""
    yield ""
    yield f"check {one.sha256[:12]} from {visible(one.path)}:"
    for line in command.strip("\n").split("\n"):
        yield f"{_MARKS[one.change]}{visible(line)}"


def _since(snapshot: Snapshot) -> str:
    if snapshot.approval is None:
        return " (never approved)" if snapshot.items else ""
    if snapshot.approval.is_revoked:
        return f" (taken back: {visible(snapshot.approval.approved_at)})"
    return f" (last approval: {visible(snapshot.approval.approved_at)})"


def _diff(one: ItemChange, max_lines: int | None) -> Iterator[str]:
    lines = trust.diff_of(one)
    if not lines:
        return
    yield ""
    for line in lines[:max_lines]:
        yield visible(line) if max_lines is None else _cut(line)
    if max_lines is not None and len(lines) > max_lines:
        yield f"… {len(lines) - max_lines:,} more lines of {visible(one.path)}: atomic trust --show has all of them"


def _cut(line: str) -> str:
    text = visible(line)
    rest = len(text) - MAX_COLUMNS
    return text if rest <= 0 else f"{text[:MAX_COLUMNS]}… ({rest:,} more characters: atomic trust --show has them)"
