"""Messages of other processes to the owner of a run: stop, cancel, answer a question.

A message is a file in `inbox/`, which is written under another name and renamed. So
there is no socket, and no signal to a pid that may have been reused. A stop is for one
process, and the next owner ignores it. An answer is for a question and stays until the
journal has it. A file that cannot be read is renamed and ignored.
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

from atomic.base.files import replace_file
from atomic.base.untrusted_files import read_start
from atomic.sessions.files import make_folder

POLL_SECONDS = 0.25
_MOST_BYTES = 1_000_000  # of one message

Answer = str | list[str]


class Message(msgspec.Struct, frozen=True):
    """One message: `to` is the process that a stop is for, `question` the id that is
    answered.
    """

    kind: Literal["stop", "cancel", "answer"]
    time: float = 0.0
    to: str = ""
    question: str = ""
    answer: Answer = ""


class Inbox:
    """The folder `inbox/` of a session, for its writers and its reader."""

    def __init__(self, session_dir: Path) -> None:
        self.folder = session_dir / "inbox"

    def put(self, message: Message) -> None:
        """Write a message, completely or not at all."""
        make_folder(str(self.folder))
        name = f"{time.time_ns():020d}-{uuid4().hex[:8]}.json"
        message = msgspec.structs.replace(message, time=time.time())
        replace_file(str(self.folder / name), msgspec.json.encode(message))

    def orders(self, me: str) -> set[str]:
        """Remove all orders, and return which of `stop` and `cancel` were for this
        process.
        """
        found: set[str] = set()
        for path, message in self._messages():
            if message.kind != "answer":
                path.unlink(missing_ok=True)
                if message.to == me:
                    found.add(message.kind)
        return found

    def answers(self) -> dict[str, Answer]:
        """Return the answers by question; the last one counts."""
        return {message.question: message.answer for _, message in self._messages() if message.kind == "answer"}

    def forget(self, answered: Collection[str] | None = None) -> None:
        """Remove the answers to these questions, or all: a repeated question needs a
        new answer.
        """
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
                content = read_start(path, _MOST_BYTES, follow_links=False)
                yield path, msgspec.json.decode(content, type=Message)
            except FileNotFoundError:
                continue
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                with suppress(OSError):  # otherwise it is ignored again the next time
                    path.rename(path.with_suffix(".unreadable"))
