"""Store the approvals of the user in `trust.json`, by the real path of each project.

The folder `trust/` has the approved texts, so that later changes can be shown.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atomic.base.files import replace_file
from atomic.base.untrusted_files import open_regular
from atomic.config import atomic_home
from atomic.workflows.errors import TrustError

_MAX_BYTES = 64 * 1024 * 1024
MAX_TEXT = 256 * 1024  # characters of an item; a longer text is not kept


class ApprovedItem(msgspec.Struct, frozen=True):
    """An item as it was approved."""

    kind: str
    path: str
    sha256: str


class Approval(msgspec.Struct, frozen=True):
    """An approval and its time. Without a hash it was revoked."""

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
        self.file = self._home / "trust.json"
        self._texts = self._home / "trust"

    def find(self, project: str) -> Approval | None:
        """Return the approval for a real path.

        Raise TrustError if approvals cannot be read.
        """
        return self._read().projects.get(project)

    def put(self, project: str, approval: Approval, texts: Mapping[str, str]) -> None:
        """Store an approval and the approved texts. Raise TrustError."""
        with self._changing() as approvals:
            approvals.projects[project] = approval
            self._texts.mkdir(mode=0o700, exist_ok=True)
            for digest, text in texts.items():
                if len(text) <= MAX_TEXT:
                    replace_file(self._texts / digest, text.encode("utf-8", "replace"))

    def remove(self, project: str, when: str) -> bool:
        """Revoke an approval and return whether there was one. Raise TrustError.

        The revocation is always stored: it also stops runs that started while the
        project was trusted, or with `--trust`.
        """
        with self._changing() as approvals:
            known = approvals.projects.get(project)
            approvals.projects[project] = Approval("", when)
        return known is not None and not known.is_revoked

    def text(self, digest: str) -> str | None:
        """Return the text of an approved item; None if it was not kept."""
        try:
            return (self._texts / digest).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _read(self) -> _Approvals:
        try:
            with open_regular(self.file, follow_links=False) as file:
                status = os.fstat(file.fileno())
                content = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return _Approvals()
        except OSError as error:
            raise TrustError(f"{self.file}: your approvals cannot be read: {error.strerror}") from error
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
            raise TrustError(f"{self.file}: other users may write this file, so it is ignored")
        try:
            return msgspec.json.decode(content, type=_Approvals)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TrustError(f"{self.file}: your approvals cannot be read: {error}") from error

    @contextmanager
    def _changing(self) -> Generator[_Approvals]:
        """Yield the approvals and write them afterwards, under a lock between
        processes.
        """
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self.file.with_suffix(".lock")
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                approvals = self._read()
                yield approvals
                replace_file(self.file, msgspec.json.format(msgspec.json.encode(approvals, order="sorted"), indent=1))
                self._remove_unused_texts(approvals)
            finally:
                os.close(fd)
        except OSError as error:
            raise TrustError(f"{self.file}: the approval cannot be written: {error.strerror}") from error

    def _remove_unused_texts(self, approvals: _Approvals) -> None:
        needed = {item.sha256 for approval in approvals.projects.values() for item in approval.items}
        if self._texts.is_dir():
            for file in self._texts.iterdir():
                if file.name not in needed:
                    file.unlink(missing_ok=True)
