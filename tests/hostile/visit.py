"""A user with their own agent and servers runs Atomic in a hostile repository.

The checks are the same for all repositories: no file outside of the project and of
`~/.atomic/sessions` changes, the canary does not exist, and the output is plain text.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.hostile.repositories import PROJECTS, HostileProject
from tests.support.fake_acp import PROGRAM
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, SDKS, User
from tests.support.waits import wait_until
from tests.support.window import window

TASK: dict[str, Any] = {"id": "t1", "title": "Greet", "description": "Write a greeting.", "blocked_by": []}
SCRIPT = (  # of the user's own agent
    {"match": "role=planner", "do": [{"say": json.dumps({"tasks": [TASK]})}]},
    {"do": [{"say": "Hello, I am your own agent."}]},
)
SECONDS = 120.0  # only ends a hang
COMMANDS: Sequence[Sequence[str]] = (
    ("-p", "hi"),
    ("run", "ralph", "--dry-run", "greet me"),
    ("doctor",),
    ("trust", "--show"),
    ("complete", "run", ""),
    ("complete", "-a", ""),
    ("--help",),
    ("run", "--help"),
)
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[P_^X][^\x1b]*\x1b\\|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)

Print = tuple[str, int, int, str]  # kind, mode, size and content of a file
Snapshot = Mapping[str, Print]


class Visit:
    """One user in one repository. `folder` contains every file they have."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.user = User(folder)
        self.user.lacks(*SDKS)  # `doctor` would let other agents write files
        self.canary = folder / "canary"
        (folder / "tmp").mkdir()
        self.user.env |= {"TMPDIR": str(folder / "tmp"), "NO_COLOR": "1", "TERM": "xterm-256color"}
        self.user.env |= {"PYTHONDONTWRITEBYTECODE": "1"}
        script = folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        own = json.dumps([sys.executable, PROGRAM, "--forgetful", "--script", str(script)])
        self.user.sets(f'agent = "acp:own"\n[acp.own]\ncommand = {own}\n')
        stranger = HostileProject(self.user.project, self.canary, home=self.user.home)
        PROJECTS[name](stranger)
        self.place = self.user.project / stranger.below
        self._before: Snapshot = {}
        self.begin()

    def begin(self) -> None:
        """Take a snapshot to compare later ones with."""
        self._before = self.snapshot()

    def snapshot(self) -> Snapshot:
        """Return all files outside of the project and of the sessions."""
        left_out = (self.user.project, self.user.home / ".atomic" / "sessions")
        found: dict[str, Print] = {}
        for place, folders, files in os.walk(self.folder):
            folders[:] = [one for one in folders if Path(place, one) not in left_out]
            for one in (*folders, *files):
                path = os.path.join(place, one)
                found[os.path.relpath(path, self.folder)] = _print(path)
        return found

    def check_files(self, after: str) -> None:
        """Raise AssertionError if code ran or a file outside changed."""
        assert not self.canary.exists(), f"{self.name}: {after} has run the stranger's code"
        now = self.snapshot()
        differ = [path for path in sorted(now.keys() | self._before.keys()) if now.get(path) != self._before.get(path)]
        changed = [path for path in differ if path not in _MADE]
        assert not changed, f"{self.name}: {after} has changed {', '.join(changed)}"

    async def run(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a command in a terminal, check its effects, return its exit code and output."""
        async with in_terminal([ATOMIC, *words], env=self.user.env, cwd=self.place) as terminal:
            code = await terminal.exit_code(timeout=SECONDS)
            said = await terminal.rest()
        line = f"atomic {' '.join(words)}"
        assert not (strange := not_text(said)), f"{self.name}: {line} wrote {strange}"
        assert "Traceback" not in said, said
        assert "internal error" not in said, said
        self.check_files(line)
        return code, said

    def open_screen(self) -> None:
        """Open the screen, run /help, leave the screen and check its effects."""
        with window([ATOMIC], env=self.user.env, cwd=self.place) as one:
            # If the settings cannot be read, the screen reports it and exits at once.
            wait_until(lambda: _has_prompt(one.lines) or one.process.poll() is not None, "prompt", limit=SECONDS)
            if one.process.poll() is None:
                one.type("/help\r")
                wait_until(lambda: "/help" in one.text or one.process.poll() is not None, "answer", limit=SECONDS)
                one.type("\x1b")
                one.type("\x03\x03")
            one.exit_code(timeout=SECONDS)
            strange = strange_sequences(bytes(one.log))
        assert not strange, f"{self.name}: the screen wrote {strange}"
        self.check_files("the screen")


# The history holds the user's own input.
_MADE = frozenset({"home/.atomic/sessions", "home/.atomic/history.jsonl"})


def _has_prompt(lines: Sequence[str]) -> bool:
    return any(line.startswith(" ›") for line in lines)


def _print(path: str) -> Print:
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    mode = stat.S_IMODE(status.st_mode)
    if kind == stat.S_IFLNK:
        return "link", mode, 0, os.readlink(path)
    if kind == stat.S_IFREG:
        return "file", mode, status.st_size, sha256(Path(path).read_bytes()).hexdigest()
    return ("folder" if kind == stat.S_IFDIR else "special"), mode, 0, ""


def not_text(said: str) -> list[str]:
    """Return the code points in an output that are not text: controls and invisible ones.

    Line ends and tabs are text. The sequence with which `atomic run` redraws its progress is
    allowed.
    """
    said = re.sub(r"\x1b\[\d+A\r\x1b\[J", "", said)
    hidden = {letter for letter in said if unicodedata.category(letter) in ("Cc", "Cf", "Co", "Zl", "Zp")}
    return sorted(f"U+{ord(letter):04X}" for letter in hidden - {"\n", "\r", "\t"})


# Sequences of the screen itself: it moves, colours, switches modes, queries the terminal.
_OWN = re.compile(
    r"\x1b\[(?:\d+;\d+H|c|[\d;]*m|>[\d;]+m|>\d+u|<u|2[23];0t|\?(?:7|25|10\d\d|2004|2026|2048)(?:h|l|\$p))"
    r"|\x1b\]11;\?\x1b\\|\x1b\]22;(?:default|pointer|text)\x07|\x18"
)


def strange_sequences(log: bytes) -> list[str]:
    """Return sequences that the screen itself never writes: titles, links, clipboard."""
    rest = _OWN.sub("", log.decode("utf-8", "replace"))
    strange = {*_SEQUENCE.findall(rest)}
    plain = _SEQUENCE.sub("", rest)
    hidden = {letter for letter in plain if unicodedata.category(letter) in ("Cc", "Cf", "Co", "Zl", "Zp")}
    return sorted(map(repr, strange | (hidden - {"\n", "\r", "\t"})))
