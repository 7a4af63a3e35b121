"""A conversation on the disk: a session folder whose log is the news that matter, without secrets.

It is made at the first prompt: who only looks leaves nothing behind.
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

_PIECE = 300  # news of the past that go together
_TAIL = 512 * 1024  # bytes of the log that are looked through for the last exchanges
_TITLE = 2_000  # characters of the first prompt, which stands for the conversation in a list
_MOST_WAITING = 5_000  # news before the first prompt
_KEPT_KINDS = (RunKind.TURN, RunKind.AGENTS, RunKind.SHELL, RunKind.WORKFLOW)
_OF_A_RUN = (Activity, ShellOutput, RunEnded, QuestionOpened, ChatNotice)


class ChatLog:
    """What is kept of one conversation. That it cannot be written never ends it."""

    def __init__(self, store: SessionStore, *, project: str, cwd: str, session: Session | None = None) -> None:
        self._store, self._project, self._cwd, self._session = store, project, cwd, session
        self.id = store.new_id() if session is None else session.id
        self._waiting: list[ChatEvent] = []
        self._runs: set[str] = set()
        self._questions: set[str] = set()
        self._lines: dict[str, str] = {}  # by run: what a shell has said of a line that is not whole yet
        self._failure = ""

    @property
    def exists(self) -> bool:
        """Whether anything is on the disk."""
        return self._session is not None

    @property
    def failure(self) -> str:
        """Why it is not kept; empty if it is."""
        failed = None if self._session is None else self._session.logs.failure
        return self._failure or ("" if failed is None else failed.strerror or str(failed))

    async def begin(self, prompt: str, config: dict[str, Any]) -> None:
        """Make the folder, if there is none yet."""
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
            await asyncio.to_thread(_make_journal, session)
        except (OSError, JournalError) as error:
            self._failure = str(error)
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            self._write(news)

    def note(self, news: ChatEvent) -> None:
        """Keep it, if it is a part of the conversation."""
        if not self._matters(news):
            return
        if self._session is not None:
            self._write(news)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(news)

    def save(self, config: dict[str, Any], usage: Usage) -> None:
        """Note with whom it is held, and what it has cost."""
        if self._session is not None:
            self._save(config=config, cost=Cost(usage.cost, usage.input, usage.output))

    def close(self) -> None:
        """Nobody holds it any more."""
        if self._session is not None:
            self._session.logs.close()
            self._save(owner=None)

    def _save(self, **changes: Any) -> None:
        try:
            if self._session is not None:
                self._session.save(durable=False, **changes)
        except OSError as error:
            self._failure = error.strerror or str(error)

    def _matters(self, news: ChatEvent) -> bool:
        if isinstance(news, RunStarted):
            if news.kind in _KEPT_KINDS:
                self._runs.add(news.run)
            return news.kind in _KEPT_KINDS
        if isinstance(news, QuestionOpened) and news.run in self._runs:
            self._questions.add(news.id)
        if isinstance(news, QuestionClosed):
            return news.id in self._questions
        return isinstance(news, _OF_A_RUN) and news.run in self._runs

    def _write(self, news: ChatEvent) -> None:
        if isinstance(news, ShellOutput):
            self._write_lines(news)
            return
        if isinstance(news, RunEnded) and (rest := self._lines.pop(news.run, "")):
            self._put(ShellOutput(run=news.run, text=rest))
        self._put(news)

    def _write_lines(self, said: ShellOutput) -> None:
        """Whole lines alone: a secret that comes in two pieces would be seen in neither."""
        text = self._lines.pop(said.run, "") + said.text
        cut = text.rfind("\n") + 1
        if cut:
            self._put(ShellOutput(run=said.run, text=text[:cut]))
        if rest := text[cut:]:
            self._lines[said.run] = rest

    def _put(self, news: ChatEvent) -> None:
        if self._session is not None:
            self._session.logs.event(msgspec.to_builtins(news))


def _make_journal(session: Session) -> None:
    session.journal().close()


def open_again(session: Session, *, project: str, cwd: str, store: SessionStore) -> ChatLog:
    """Take a conversation up. Raises SessionError if another process holds it."""
    session.reload()
    owner = session.record.owner
    if owner is not None and session.is_owned and owner != this_owner():
        raise SessionError(f"{session.id} is open in another window (process {owner.pid}): close that one first")
    session.save(owner=this_owner(), durable=False)
    return ChatLog(store, project=project, cwd=cwd, session=session)


def past_news(session: Session) -> Iterator[tuple[tuple[msgspec.Raw, ...], bool]]:
    """What was said, in pieces, with whether a piece is the last. Only its shape is looked at: it may be long."""
    piece: list[msgspec.Raw] = []
    for line in _lines(session):
        if len(piece) == _PIECE:
            yield tuple(piece), False
            piece = []
        piece.append(line)
    yield tuple(piece), True


def last_exchanges(session: Session, most: int) -> list[tuple[str, str]]:
    """The last prompts of the person with the answers, from the end of the log."""
    told: list[tuple[str, str]] = []
    prompt = ""
    for line in _tail(session):
        try:
            news = decode_event(line)
        except msgspec.DecodeError:  # cut, or of a newer Atomic
            continue
        if isinstance(news, RunStarted) and news.kind is RunKind.TURN:
            prompt = news.prompt
        elif isinstance(news, Activity) and isinstance(news.event, TurnEnded):
            told.append((prompt, news.event.text))
    return told[-most:]


def _tail(session: Session) -> list[bytes]:
    try:
        with open_regular(session.logs.events) as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
            return log.read().splitlines()
    except OSError:  # also where something else is in its place
        return []


def _lines(session: Session) -> Iterator[msgspec.Raw]:
    try:
        with open_regular(session.logs.events) as log:
            for line in log:
                try:
                    yield _decode(line)
                except msgspec.DecodeError:  # a line that a kill has cut
                    continue
    except OSError:  # also where something else is in its place
        return


_decode = msgspec.json.Decoder(msgspec.Raw).decode
