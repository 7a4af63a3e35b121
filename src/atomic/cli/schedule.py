"""`atomic run --every 1d …`: print the lines for cron and for systemd that start a run
repeatedly.

Atomic does not schedule runs itself: cron and systemd start after a reboot and send mail.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.flags import EVERY
from atomic.cli.streams import put
from atomic.config import current_folder
from atomic.wiring import Project

_WAKE_MINUTES = 5
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
_FOLDERS = ("ATOMIC_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
_KNOWN = (
    "an interval that a crontab can express: 1m, 2m, 3m, 4m, 5m, 6m, 10m, 12m, 15m, 20m, 30m, 1h, 2h, 3h, 4h, 6h,"
    " 8h, 12h, 1d or 1w"
)
_NO_DIVISOR = "give a number of minutes that divides an hour, or of hours that divides a day"


class Interval(NamedTuple):
    """How often something runs: for cron, and for systemd."""

    cron: str
    calendar: str


def print_schedule(arguments: Arguments) -> int:
    """Print how cron and systemd start a run again and again."""
    interval = read_interval(arguments.value(EVERY.name) or "")
    if not arguments.words:
        raise UsageError("atomic run --every needs a WORKFLOW: atomic run --every 1d WORKFLOW [flags] [PROMPT...]")
    if arguments.has("--resume"):
        raise UsageError("--every starts new runs, and --resume continues one: leave one of them out")
    if arguments.words[1:] == ["-"]:
        raise UsageError("--every: cron and systemd give a run no standard input, so the prompt cannot be -")
    Project(cwd=current_folder()).workflows.typed(arguments.words[0])  # a wrong name is reported now
    command = [*_program(), *without_every(arguments.line)]
    if any(char in text for text in (_folder(), *command) for char in "\n\r"):
        raise UsageError("--every: a crontab has one line for a command, so folder, flags and prompt can have no other")
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in arguments.words[0]).strip("-")
    parts = [
        "# Add this line to your crontab (crontab -e):",
        crontab_line(interval.cron, command),
        "",
        *_units(f"atomic-{name or 'run'}", interval.calendar, command),
    ]
    if arguments.has("--park"):
        wake = [*_program(), "wake"]
        parts += [
            "",
            "# It parks, so something has to continue it. In your crontab:",
            crontab_line(f"*/{_WAKE_MINUTES} * * * *", wake),
            "",
            *_units("atomic-wake", f"*:0/{_WAKE_MINUTES}", wake),
        ]
    put("\n".join(parts) + "\n")
    return ExitCode.DONE


def read_interval(text: str) -> Interval:
    """Read an interval that a crontab can express. Raises UsageError."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text.strip(), re.ASCII)
    if match is None:
        raise UsageError(f'--every cannot be "{text}": give {_KNOWN}')
    minutes = int(match[1]) * _MINUTES[match[2]]
    if minutes == _MINUTES["w"]:
        return Interval("0 0 * * 0", "weekly")
    if minutes == _MINUTES["d"]:
        return Interval("0 0 * * *", "daily")
    hours = minutes // 60
    if minutes % 60 == 0 and 24 % hours == 0:
        return Interval(f"0 */{hours} * * *", f"0/{hours}:00")
    if 60 % minutes == 0:
        return Interval(f"*/{minutes} * * * *", f"*:0/{minutes}")
    raise UsageError(f'--every cannot be "{text}", because a crontab cannot express it: {_NO_DIVISOR}, 1d or 1w')


def without_every(words: Sequence[str]) -> list[str]:
    """Return a command line without `--every INTERVAL`."""
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*kept, word, *rest]
        if word == EVERY.name:
            rest.pop(0)
            return [*kept, *rest]
        if word.startswith(f"{EVERY.name}="):
            return [*kept, *rest]
        kept.append(word)
    return kept


def crontab_line(when: str, command: Sequence[str]) -> str:
    """Return a line of a crontab.

    cron ends a command at a `%` that has no backslash. It has no working folder and an
    almost empty environment.
    """
    line = f"cd {shlex.quote(_folder())} && {_assignments()} {shlex.join(command)}"
    return f"{when} {line.replace('%', chr(92) + '%')}"


def _units(name: str, calendar: str, command: Sequence[str]) -> list[str]:
    """Return the two units of a systemd timer, and how to start it."""
    folder = "~/.config/systemd/user"
    return [
        f"# Or a systemd timer. {folder}/{name}.service:",
        "[Service]",
        "Type=oneshot",
        f"WorkingDirectory={_folder().replace('%', '%%')}",
        *(f"Environment={_unit_word(f'{key}={value}')}" for key, value in _environment().items()),
        f"ExecStart={' '.join(_unit_word(word).replace('$', '$$') for word in command)}",
        "# A finished run may also be paused or blocked.",
        "SuccessExitStatus=5 6 7",
        "",
        f"# {folder}/{name}.timer:",
        "[Timer]",
        f"OnCalendar={calendar}",
        "Persistent=true",
        "",
        "[Install]",
        "WantedBy=timers.target",
        "",
        f"# Then: systemctl --user daemon-reload && systemctl --user enable --now {name}.timer",
    ]


def _unit_word(word: str) -> str:
    """Return a word for systemd, which knows escapes of C and expands %.

    In commands, and only there, it also expands $.
    """
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def _program() -> list[str]:
    """Return the command itself, by its path: cron searches few folders."""
    found = shutil.which(sys.argv[0]) if sys.argv and sys.argv[0] else None
    if found is not None and os.path.basename(found).startswith("atomic"):
        return [os.path.abspath(found)]
    return [sys.executable, "-P", "-m", "atomic"]


def _folder() -> str:
    return str(current_folder())


def _environment() -> dict[str, str]:
    """Return the variables that the run needs: Atomic's folders, and where agents are."""
    folders = {name: os.path.abspath(os.environ[name]) for name in _FOLDERS if os.environ.get(name)}
    return {**folders, "PATH": os.environ.get("PATH", os.defpath)}


def _assignments() -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in _environment().items())
