"""A conversation on disk: a session folder whose log has the events that matter,
redacted.

The folder is created at the first prompt, so opening the screen creates no files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from atomic import __version__
from atomic.base.untrusted_files import open_regular
from atomic.chat.protocol import (
    Activity,
    ChatEvent,
    ChatNotice,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    ShellOutput,
    decode_event,
)
from atomic.graph import JournalError
from atomic.providers.events import TurnEnded, Usage
from atomic.sessions.errors import SessionError
from atomic.sessions.model import Cost, SessionRecord, SessionStatus
from atomic.sessions.store import Session, SessionStore, this_owner

_PIECE = 300  # events of a history that are sent together
_TAIL = 512 * 1024  # bytes of the log that are searched for the last exchanges
_TITLE = 2_000  # characters of the first prompt, the title in lists
_MOST_WAITING = 5_000  # events before the first prompt
_KEPT_KINDS = (RunKind.TURN, RunKind.AGENTS, RunKind.SHELL, RunKind.WORKFLOW)
_OF_A_RUN = (Activity, ShellOutput, RunEnded, QuestionOpened, ChatNotice)


class ChatLog:
    """The log of one conversation. A failed write never ends the conversation."""

    def __init__(self, store: SessionStore, *, project: str, cwd: str, session: Session | None = None) -> None:
        self._store = store
        self._project = project
        self._cwd = cwd
        self._session = session
        self.id = store.new_id() if session is None else session.id
        self._waiting: list[ChatEvent] = []
        self._runs: set[str] = set()
        self._questions: set[str] = set()
        self._lines: dict[str, str] = {}  # by run: the incomplete last line of a shell
        self._failure = ""

    @property
    def exists(self) -> bool:
        """Return whether it is on disk."""
        return self._session is not None

    @property
    def failure(self) -> str:
        """Return why it cannot be written, or an empty string."""
        error = None if self._session is None else self._session.logs.failure
        if self._failure or error is None:
            return self._failure
        return error.strerror or str(error)

    async def begin(self, prompt: str, config: dict[str, Any]) -> None:
        """Create the folder if it is missing, and write the waiting events."""
        if self._session is not None:
            return
        record = SessionRecord(
            id=self.id,
            workflow="",
            project=self._project,
            cwd=self._cwd,
            prompt=prompt[:_TITLE],
            status=SessionStatus.CHAT,
            config=config,
            owner=this_owner(),
            atomic_version=__version__,
        )
        try:
            self._session = session = self._store.create(record)
            await asyncio.to_thread(lambda: session.journal().close())
        except (OSError, JournalError) as error:
            self._failure = str(error)
        for event in self._waiting:
            self._write(event)
        self._waiting.clear()

    def add(self, event: ChatEvent) -> None:
        """Log an event if it is a part of the conversation."""
        if not self._is_logged(event):
            return
        if self._session is not None:
            self._write(event)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(event)

    def save(self, config: dict[str, Any], usage: Usage) -> None:
        """Save agent, model and usage in `session.json`."""
        if self._session is not None:
            self._save(config=config, cost=Cost(usage.cost, usage.input, usage.output))

    def close(self) -> None:
        """Close the files and give up the ownership of the folder."""
        if self._session is not None:
            self._session.logs.close()
            self._save(owner=None)

    def _save(self, **changes: Any) -> None:
        try:
            if self._session is not None:
                self._session.save(durable=False, **changes)
        except OSError as error:
            self._failure = error.strerror or str(error)

    def _is_logged(self, event: ChatEvent) -> bool:
        if isinstance(event, RunStarted):
            if event.kind in _KEPT_KINDS:
                self._runs.add(event.run)
            return event.kind in _KEPT_KINDS
        if isinstance(event, QuestionOpened) and event.run in self._runs:
            self._questions.add(event.id)
        if isinstance(event, QuestionClosed):
            return event.id in self._questions
        return isinstance(event, _OF_A_RUN) and event.run in self._runs

    def _write(self, event: ChatEvent) -> None:
        if isinstance(event, ShellOutput):
            self._write_lines(event)
            return
        if isinstance(event, RunEnded) and event.run in self._lines:
            self._put(ShellOutput(run=event.run, text=self._lines.pop(event.run)))
        self._put(event)

    def _write_lines(self, output: ShellOutput) -> None:
        """Write only whole lines: a secret in two pieces would be recognised in
        neither.
        """
        text = self._lines.pop(output.run, "") + output.text
        cut = text.rfind("\n") + 1
        if cut:
            self._put(ShellOutput(run=output.run, text=text[:cut]))
        if text[cut:]:
            self._lines[output.run] = text[cut:]

    def _put(self, event: ChatEvent) -> None:
        if self._session is not None:
            self._session.logs.event(msgspec.to_builtins(event))


def reopen(session: Session, *, project: str, cwd: str, store: SessionStore) -> ChatLog:
    """Return the log of an earlier conversation.

    Raises SessionError if another process owns it.
    """
    session.reload()
    owner = session.record.owner
    if owner is not None and session.is_owned and owner != this_owner():
        raise SessionError(f"{session.id} is open in another window (process {owner.pid}): close it there first")
    session.save(owner=this_owner(), durable=False)
    return ChatLog(store, project=project, cwd=cwd, session=session)


def past_events(session: Session) -> Iterator[tuple[tuple[msgspec.Raw, ...], bool]]:
    """Yield the events in pieces, and whether a piece is the last.

    They are not decoded.
    """
    piece: list[msgspec.Raw] = []
    for line in _lines(session):
        if len(piece) == _PIECE:
            yield tuple(piece), False
            piece = []
        piece.append(line)
    yield tuple(piece), True


def last_exchanges(session: Session, most: int) -> list[tuple[str, str]]:
    """Return the last prompts with their answers, from the end of the log."""
    exchanges: list[tuple[str, str]] = []
    prompt = ""
    for line in _tail(session):
        try:
            event = decode_event(line)
        except msgspec.DecodeError:  # incomplete, or of a newer Atomic
            continue
        if isinstance(event, RunStarted) and event.kind is RunKind.TURN:
            prompt = event.prompt
        elif isinstance(event, Activity) and isinstance(event.event, TurnEnded):
            exchanges.append((prompt, event.event.text))
    return exchanges[-most:]


def _tail(session: Session) -> list[bytes]:
    try:
        with open_regular(session.logs.events) as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
            return log.read().splitlines()
    except OSError:  # or it is not a regular file
        return []


def _lines(session: Session) -> Iterator[msgspec.Raw]:
    try:
        with open_regular(session.logs.events) as log:
            for line in log:
                try:
                    yield _decode(line)
                except msgspec.DecodeError:  # the process was killed while it wrote the line
                    continue
    except OSError:  # or it is not a regular file
        return


_decode = msgspec.json.Decoder(msgspec.Raw).decode
