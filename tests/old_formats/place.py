"""A project and a home folder in which the old runs and chats are made, unpacked and continued.

Nothing here imports a module of Atomic: the program is started as a command. What `unpack` knows of a journal is the
format of the files in this folder, version 1. It must not follow the code when a newer version has another format.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import msgspec

import atomic
from tests.support.processes import coverage_variables
from tests.support.waits import wait_until

HERE = Path(__file__).parent
MADE_BELOW = Path("/tmp/atomic-old-formats")  # where the old runs were made: their files name folders below it
HANG = 240.0  # seconds; only to end a command that hangs

Json = dict[str, Any]


class Place:
    """A root folder with a project, a home folder and a scripted agent, `acp:player`."""

    def __init__(self, root: Path, *, source: Path | None = None) -> None:
        self.root = root
        self.home = root / "home"
        self.project = root / "project"
        self.atomic_home = self.home / ".atomic"
        for folder in (self.atomic_home, self.project):
            folder.mkdir(parents=True, exist_ok=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(source or Path(atomic.__file__).parents[1]),
            "ATOMIC_START_SECONDS": "600",
            "ATOMIC_REPLAY_SPEED": "max",
            **coverage_variables(),
        }
        agent = [sys.executable, "-I", "-S", str(HERE / "agent.py"), str(root)]
        (self.atomic_home / "config.toml").write_text(
            f'agent = "acp:player"\n[acp.player]\ncommand = {json.dumps(agent)}\n'
            f"[acp.forgetful]\ncommand = {json.dumps([*agent, '--forgetful'])}\n"
        )

    # the agent

    def play(self, *parts: Mapping[str, Any]) -> None:
        """Give the agent its script."""
        (self.root / "script.json").write_text(json.dumps(parts))

    @property
    def calls(self) -> list[str]:
        """The turns that the agent was asked for so far."""
        path = self.root / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def ledger(self) -> list[str]:
        """What the nodes of a workflow have noted so far."""
        path = self.root / "ledger.txt"
        return path.read_text().splitlines() if path.exists() else []

    # the command

    def atomic(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `atomic` to its end."""
        return self._run([sys.executable, "-m", "atomic", *words], input)

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start `atomic` and let it run."""
        return self._start([sys.executable, "-m", "atomic", *words], stdin)

    def _run(self, command: list[str], input: str | None = None) -> subprocess.CompletedProcess[str]:
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.env,
            capture_output=True,
            encoding="utf-8",
            timeout=HANG,
            check=False,
            **stdin,
        )

    def _start(self, command: list[str], stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.project,
            env=self.env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program of the project to its end."""
        return self._run([sys.executable, *words])

    def start_python(self, *words: str) -> subprocess.Popen[str]:
        return self._start([sys.executable, *words], subprocess.DEVNULL)

    def until(self, name: str) -> None:
        """Wait until a file appears in the root folder."""
        wait_until((self.root / name).exists, name, limit=HANG)

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.project, env=self.env, check=True, capture_output=True, text=True, timeout=HANG
        )
        return done.stdout.strip()

    # what is on the disk

    def session(self, id: str) -> Path:
        return self.atomic_home / "sessions" / id

    def record(self, id: str) -> Json:
        return json.loads((self.session(id) / "session.json").read_text())

    def text(self, name: str) -> str:
        return (self.project / name).read_text()


def end_of(process: subprocess.Popen[str], number: int = 0) -> int:
    """Send a signal, if one is given, and wait for the end; return the exit code."""
    if number:
        process.send_signal(signal.Signals(number))
    process.communicate(timeout=HANG)
    return process.returncode


_NOT_PACKED = ("config.toml", "held", "__pycache__", "journal.db-shm")


def pack(place: Place, archive: Path) -> None:
    """Pack a place as it is, byte for byte; only files that belong to this machine are left out."""

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(entry.name).name in _NOT_PACKED:
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=9) as file:
        file.add(place.root, place.root.name, filter=kept)


def unpack(archive: Path, folder: Path) -> Place:
    """Unpack an archive below a folder, and let its files name that folder instead of the one they were made in."""
    name = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    root = folder.resolve() / name
    old = str(MADE_BELOW / name)
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.name == "journal.db-wal":
            continue
        if path.suffix == ".db":
            _move_journal(path, old, str(root))
        else:
            _move_text(path, old.encode(), str(root).encode())
    # By the time of its last change (ctime) a file belongs to a turn that was killed, or to the user. No archive can
    # keep that time: all files have changed just now. So has the sign of life of that turn, or all would be the user's.
    for sign in root.glob("home/.atomic/sessions/*/alive"):
        os.utime(sign)
    return Place(root)


def _move_text(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    if old in data:
        status = path.stat()
        path.write_bytes(data.replace(old, new))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


_RUN_BITS = 40
_NO_STEP = -(2**63)


def _move_journal(path: Path, old: str, new: str) -> None:
    """Replace a path in a journal, and compute its checksums anew. A log that a kill has left stays a log."""
    had_log = path.with_name(path.name + "-wal").exists()
    with tempfile.TemporaryDirectory() as folder:
        for part in path.parent.glob(path.name + "*"):
            shutil.copy2(part, folder)
        with closing(sqlite3.connect(Path(folder) / path.name, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute("BEGIN")
            for number, id in connection.execute("SELECT number, id FROM runs").fetchall():
                _move_rows(connection, number, id, (old, new))
            connection.execute("COMMIT")
            if not had_log:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            for part in path.parent.glob(path.name + "*"):  # before it is closed, which would end the log
                shutil.copyfile(Path(folder) / part.name, part)


def _move_rows(connection: sqlite3.Connection, number: int, id: str, change: tuple[str, str]) -> None:
    crc = crc32(id.encode())
    first = number << _RUN_BITS
    last = (number + 1) << _RUN_BITS
    rows = "SELECT key, kind, step, body FROM rows WHERE key >= ? AND key < ? ORDER BY key"
    crcs: list[int] = []
    for key, kind, step, body in connection.execute(rows, (first, last)).fetchall():
        moved = _moved_body(body, change)
        head = struct.pack("<qqq", key - first, kind, _NO_STEP if step is None else step)
        crc = crc32(moved, crc32(head, crc))
        crcs.append(crc)
        connection.execute("UPDATE rows SET body = ?, crc = ? WHERE key = ?", (moved, crc, key))
    snapshot = connection.execute("SELECT seq, step, body FROM snapshots WHERE run = ?", (number,)).fetchone()
    if snapshot is not None:
        seq, step, body = snapshot
        moved = _moved_body(body, change)
        chain = crcs[int(seq)]
        crc = crc32(moved, crc32(struct.pack("<qqq", seq, step, chain), crc32(id.encode())))
        changed = "UPDATE snapshots SET body = ?, chain = ?, crc = ? WHERE run = ?"
        connection.execute(changed, (moved, chain, crc, number))


def _moved_body(body: bytes, change: tuple[str, str]) -> bytes:
    if change[0].encode() not in body:
        return body
    return msgspec.msgpack.encode(_moved_value(msgspec.msgpack.decode(body), change))


def _moved_value(value: object, change: tuple[str, str]) -> object:
    match value:
        case str():
            return value.replace(*change)
        case bytes():  # msgpack inside msgpack
            return _moved_body(value, change)
        case list():
            return [_moved_value(each, change) for each in cast("list[object]", value)]
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {_moved_value(key, change): _moved_value(each, change) for key, each in pairs}
        case _:
            return value


def expectations(kind: str) -> dict[str, Json]:
    """Return the expectations of each fixture of a kind, by its name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((HERE / kind).glob("*.json"))}


def missing(expected: Any, found: Any, where: str = "") -> list[str]:
    """List what an old answer had and a new one has not. A newer version may add fields, and nothing else."""
    if isinstance(expected, dict) and isinstance(found, dict):
        old = cast("Json", expected)
        new = cast("Json", found)
        gone = [f"{where}.{key}: gone" for key in old if key not in new]
        return gone + [line for key in old if key in new for line in missing(old[key], new[key], f"{where}.{key}")]
    if isinstance(expected, list) and isinstance(found, list):
        before = cast("Sequence[Any]", expected)
        now = cast("Sequence[Any]", found)
        if len(before) == len(now):
            pairs = enumerate(zip(before, now, strict=True))
            return [line for at, pair in pairs for line in missing(*pair, f"{where}[{at}]")]
    return [] if expected == found else [f"{where}: {expected!r} is now {found!r}"]
