"""What the user has approved: one file, by the real path of each project, and the texts for a later comparison."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atomic.base.files import replace_file
from atomic.config import atomic_home
from atomic.workflows.errors import TrustError

_MAX_BYTES = 64 * 1024 * 1024
MAX_TEXT = 256 * 1024  # of an item; of a longer one only the hash is kept


class ApprovedItem(msgspec.Struct, frozen=True):
    """An item as it was approved."""

    kind: str
    path: str
    sha256: str


class Approval(msgspec.Struct, frozen=True):
    """What somebody approved, and when; without a hash, that it was taken back."""

    hash: str
    approved_at: str
    items: tuple[ApprovedItem, ...] = ()

    @property
    def is_revoked(self) -> bool:
        return not self.hash


class _Approvals(msgspec.Struct):
    version: int = 1
    projects: dict[str, Approval] = {}


class TrustStore:
    """`trust.json` and the folder `trust/` in the user's own folder."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home or atomic_home()
        self.file, self._texts = self._home / "trust.json", self._home / "trust"

    def find(self, project: str) -> Approval | None:
        """What was approved for that real path. Raises TrustError: then nothing counts as approved."""
        return self._read().projects.get(project)

    def put(self, project: str, approval: Approval, texts: Mapping[str, str]) -> None:
        """Keep an approval. Raises TrustError."""
        with self._changing() as approvals:
            approvals.projects[project] = approval
            for digest, text in texts.items():
                self._keep(digest, text)

    def remove(self, project: str, when: str) -> bool:
        """Take an approval back; whether there was one. That it was taken back is kept. Raises TrustError."""
        known = self._read().projects.get(project)
        if known is None or known.is_revoked:
            return False
        with self._changing() as approvals:
            approvals.projects[project] = Approval("", when)
        return True

    def text(self, digest: str) -> str | None:
        """The text of an approved item, if it was kept."""
        try:
            return (self._texts / digest).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _read(self) -> _Approvals:
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return _Approvals()
        except OSError as error:
            raise TrustError(f"{self.file}: what you have approved cannot be read: {error.strerror}") from error
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
                raise TrustError(f"{self.file}: others may write this file: nothing in it counts")
            content = file.read(_MAX_BYTES)
        try:
            return msgspec.json.decode(content, type=_Approvals)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TrustError(f"{self.file}: what you have approved cannot be read: {error}") from error

    @contextmanager
    def _changing(self) -> Generator[_Approvals]:
        """Two processes that approve at the same time wait for each other; the lock ends with its holder."""
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self.file.with_suffix(".lock")
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                approvals = self._read()
                yield approvals
                replace_file(self.file, msgspec.json.format(msgspec.json.encode(approvals, order="sorted"), indent=1))
                self._sweep(approvals)
            finally:
                os.close(fd)
        except OSError as error:
            raise TrustError(f"{self.file}: the approval cannot be written: {error.strerror}") from error

    def _sweep(self, approvals: _Approvals) -> None:
        """Take away the texts that no approval speaks of any more."""
        needed = {item.sha256 for approval in approvals.projects.values() for item in approval.items}
        if self._texts.is_dir():
            for file in self._texts.iterdir():
                if file.name not in needed:
                    file.unlink(missing_ok=True)

    def _keep(self, digest: str, text: str) -> None:
        self._texts.mkdir(mode=0o700, exist_ok=True)
        if len(text) <= MAX_TEXT:
            replace_file(self._texts / digest, text.encode("utf-8", "replace"))
