"""Run the real `atomic` as a user does: another process, a home folder of its own, nothing in the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

import atomic
from atomic.processes import ExecResult, execute
from tests.support.processes import coverage_variables
from tests.support.waits import HANG

ATOMIC = Path(sys.executable).with_name("atomic")
SOURCE = Path(atomic.__file__).parents[1]  # the code under test, wherever the command was installed from
SDKS = ("claude_agent_sdk", "copilot", "acp", "mcp")


class User:
    """A user with a home folder and a project; `env` is the whole environment of the command."""

    program = ATOMIC

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.bin = folder / "bin"
        for made in (self.home, self.project, self.bin):
            made.mkdir()
        self.env: dict[str, str] = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self.env |= {"PYTHONPATH": str(SOURCE), **coverage_variables()}
        self.env["ATOMIC_START_SECONDS"] = "600"  # a busy machine is not an agent that does not start

    async def atomic(
        self, *words: str, input: str | bytes | None = None, cwd: Path | None = None, timeout: float = HANG
    ) -> ExecResult:
        """Run `atomic` and wait for it."""
        return await execute(self.program, *words, cwd=cwd or self.project, env=self.env, input=input, timeout=timeout)

    def has_only_claude(self, code: str) -> None:
        """Have a script for Claude Code, and a key; no other agent is on this user's PATH."""
        self.has("claude", code)
        self.env["ANTHROPIC_API_KEY"] = "x"

    def has(self, program: str, code: str) -> Path:
        """Put a Python script on the user's PATH."""
        path = self.bin / program
        path.write_text(f"#!{sys.executable} -S\n{code}", encoding="utf-8")
        path.chmod(0o755)
        return path

    def has_no_agents(self) -> None:
        """Hide all SDKs and programs, as after `pip install atomic-workflows` only."""
        self.lacks(*SDKS)
        self.env["PATH"] = str(self.bin)

    def lacks(self, *packages: str) -> None:
        """Make packages look as if they were not installed."""
        hidden = self.home / "hidden"
        hidden.mkdir()
        (hidden / "sitecustomize.py").write_text(
            "from importlib.machinery import PathFinder\n"
            "find = PathFinder.find_spec\n"
            "def find_spec(name, path=None, target=None):\n"
            f"    return None if name.partition('.')[0] in {packages} else find(name, path, target)\n"
            "PathFinder.find_spec = find_spec\n"
        )
        self.env["PYTHONPATH"] = f"{hidden}:{SOURCE}"

    def sets(self, text: str) -> Path:
        """Write the user's configuration."""
        return _written(self.home / ".atomic" / "config.toml", text)

    def project_sets(self, text: str) -> Path:
        """Write the project's configuration."""
        return _written(self.project / ".atomic" / "config.toml", text)


def _written(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def cpu_seconds(user: User, *words: str) -> float:
    """Return the CPU time of a command. Not wall time: the machine may be shared."""
    nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    before = os.getcwd()
    os.chdir(user.project)
    try:
        pid = os.posix_spawn(ATOMIC, [str(ATOMIC), *words], user.env, file_actions=[nowhere])
    finally:
        os.chdir(before)
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def complaint(done: ExecResult) -> str:
    """Return the message of a command that printed one line and nothing else."""
    assert done.stdout == ""
    return told(done)


def told(done: ExecResult) -> str:
    """Return the one line on standard error."""
    (line,) = done.stderr.splitlines()
    assert line.startswith("atomic: ")
    return line.removeprefix("atomic: ")


def objects(done: ExecResult) -> list[Mapping[str, object]]:
    """Return standard output as JSON, one object per line."""
    return [msgspec.json.decode(line, type=dict[str, object]) for line in done.stdout.splitlines()]


def processes(home: Path) -> dict[int, str]:
    """Return the processes that have this home folder, with their command lines."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}\0".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended
            continue
    return found
