"""What other processes say to the one that works on a run: stop, cancel, the answer to a question.

A message is a file in `inbox/`, written beside and renamed. There is no socket, no port, and no signal to a number that
may be somebody else's by now. A stop is meant for one process and is nothing to the next; an answer is meant for a
question and stays until the journal has it. What cannot be read is put aside and hurts nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec

from atomic.saving import replace_file
from atomic.sessions.files import make_folder

POLL_SECONDS = 0.25
_MOST_BYTES = 1_000_000  # of one message; nobody answers with more

Answer = str | list[str]


class Message(msgspec.Struct, frozen=True):
    """One file: `to` is the mark of the process that a stop is for, `question` the one that is answered."""

    kind: Literal["stop", "cancel", "answer"]
    time: float = 0.0
    to: str = ""
    question: str = ""
    answer: Answer = ""


class Inbox:
    """The folder `inbox/` of a session, for those who write and for the one who reads."""

    def __init__(self, session_dir: Path) -> None:
        self.folder = session_dir / "inbox"

    def put(self, message: Message) -> None:
        """Leave a message; it is whole or not there."""
        make_folder(str(self.folder))
        name = f"{time.time_ns():020d}-{uuid4().hex[:8]}.json"
        message = msgspec.structs.replace(message, time=time.time())
        replace_file(str(self.folder / name), msgspec.json.encode(message))

    def orders(self, me: str) -> set[str]:
        """Which of `stop` and `cancel` somebody wants of this process; they are taken out, those for others too."""
        found: set[str] = set()
        for path, message in self._messages():
            if message.kind != "answer":
                path.unlink(missing_ok=True)
                if message.to == me:
                    found.add(message.kind)
        return found

    def answers(self) -> dict[str, Answer]:
        """The answers that wait, by question; the last one counts."""
        return {message.question: message.answer for _, message in self._messages() if message.kind == "answer"}

    def forget(self, answered: Collection[str] | None = None) -> None:
        """Take out what answers these questions, or any: a question that is asked again wants another answer."""
        for path, message in self._messages():
            if message.kind == "answer" and (answered is None or message.question in answered):
                path.unlink(missing_ok=True)

    def _messages(self) -> Iterator[tuple[Path, Message]]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(".json") and name[0] != ".")
        except FileNotFoundError:
            return
        for name in names:
            path = self.folder / name
            try:
                yield path, msgspec.json.decode(_read(path), type=Message)
            except FileNotFoundError:
                continue
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                _put_aside(path)


def _read(path: Path) -> bytes:
    """The file's bytes. Something else in its place (a pipe, a folder, a link) is not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return file.read(_MOST_BYTES)


def _put_aside(path: Path) -> None:
    with suppress(OSError):  # else it is looked at again, and passed over again
        path.rename(path.with_suffix(".unreadable"))
