"""Earlier prompts: `history.jsonl` in Atomic's home folder, redacted and readable only
by its owner.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

KEPT = 2_000  # texts in memory
_LONGEST = 100_000  # characters of a text that is kept
_SEARCHED = 2_000  # characters of a text that a search looks at
_MOST = 4 * 1024 * 1024  # bytes of the file that are read


class HistoryEntry(msgspec.Struct, frozen=True):
    """A text and the project folder in which it was sent."""

    text: str
    project: str = ""
    time: float = 0.0


class PromptHistory:
    """Earlier texts, this project's first. The file is read at the first use."""

    def __init__(self, file: Path | None, project: str = "") -> None:
        self._file = file
        self._project = project
        self._sent: list[HistoryEntry] | None = None

    @classmethod
    def of_home(cls, home: Path | None, project: str | None) -> PromptHistory:
        """Return the history in Atomic's home folder.

        The project is by default the current folder.
        """
        if project is None:
            try:
                project = os.getcwd()
            except OSError:  # the folder was deleted
                project = ""
        return cls(None if home is None else home / "history.jsonl", project)

    def add(self, text: str, now: float) -> str | None:
        """Add a text. Return why it could not be written, or None; it is kept in memory
        anyway.
        """
        from atomic.base.redaction import redact

        if not text.strip() or len(text) > _LONGEST:
            return None
        entry = HistoryEntry(redact(text), self._project, now)
        entries = self._entries()
        if entries and entries[-1].text == entry.text and entries[-1].project == entry.project:
            return None
        entries.append(entry)
        return None if self._file is None else _append(self._file, entry)

    def texts(self) -> list[str]:
        """Return all texts without repetition, newest of this project first."""
        entries = self._entries()
        here = (entry.text for entry in reversed(entries) if entry.project == self._project)
        elsewhere = (entry.text for entry in reversed(entries) if entry.project != self._project)
        return list(dict.fromkeys((*here, *elsewhere)))

    def find(self, words: str, limit: int = 50) -> list[str]:
        """Return the texts that contain all words, newest of this project first."""
        wanted = words.casefold().split()
        texts = self.texts()
        found = (text for text in texts if all(word in text[:_SEARCHED].casefold() for word in wanted))
        return [text for text, _ in zip(found, range(limit), strict=False)]

    def _entries(self) -> list[HistoryEntry]:
        if self._sent is None:
            self._sent = list(_read(self._file))[-KEPT:] if self._file is not None else []
        return self._sent


def _read(file: Path) -> Iterable[HistoryEntry]:
    """Yield the entries of the file.

    Skips lines of a newer Atomic and incomplete ones.
    """
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _MOST))
            lines = stream.read().split(b"\n")
    except OSError:
        return
    decode = msgspec.json.Decoder(HistoryEntry).decode
    for line in lines:
        with suppress(msgspec.MsgspecError):
            yield decode(line)


def _append(file: Path, entry: HistoryEntry) -> str | None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(number)
    except OSError as error:
        return f"The history could not be written: {error.strerror} ({file})"
    return None


class Walk:
    """A walk through the history with ↑ and ↓ that starts and may end at the draft in
    the prompt.
    """

    def __init__(self, texts: list[str], draft: str) -> None:
        self._texts = [text for text in texts if text != draft]
        self._draft = draft
        self._at = -1

    def back(self) -> str | None:
        """Return the text before, or None at the oldest."""
        if self._at + 1 >= len(self._texts):
            return None
        self._at += 1
        return self._texts[self._at]

    def forward(self) -> str | None:
        """Return the text after, or None at the draft."""
        if self._at < 0:
            return None
        self._at -= 1
        return self._draft if self._at < 0 else self._texts[self._at]
