"""The folder of a run: private, found by its id, listed, and without secrets."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from atomic.base.redaction import Redactor
from atomic.sessions import SessionRecord, SessionStatus, SessionStore
from atomic.sessions.errors import (
    AmbiguousSessionError,
    NoSessionIdError,
    SessionDamagedError,
    SessionError,
    UnknownSessionError,
)
from atomic.sessions.model import OwnerInfo
from atomic.sessions.owner import mark_of_this_process
from atomic.sessions.store import this_owner

SECRET = "Xq7-very-secret-value"


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "home", Redactor([SECRET]))


def made(store: SessionStore, id: str | None = None, **facts: object) -> SessionRecord:
    record = msgspec.convert({"id": id or store.new_id(), "workflow": "w", **facts}, SessionRecord)
    return store.create(record).record


def test_only_the_user_may_read_a_session(store: SessionStore) -> None:
    before = os.umask(0)
    try:
        record = made(store)
    finally:
        os.umask(before)
    folder = store.place_of(record.id)
    for path in (store.folder.parent, store.folder, folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_saved_session_is_found_by_its_id_or_a_prefix(store: SessionStore) -> None:
    record = made(store, prompt="do it", config={"depth": 2})
    for id in (record.id, record.id[:8], record.id[:15].upper()):
        assert store.find(id).record == store.find(record.id).record
    assert store.find(record.id).record.config == {"depth": 2}


@pytest.mark.parametrize("id", ["", "abc", "1234567", "../../etc/passwd", "g" * 8, "0" * 40, "*" * 8, "12345678/.."])
def test_an_invalid_id_is_refused(store: SessionStore, id: str) -> None:
    with pytest.raises(NoSessionIdError):
        store.find(id)


def test_an_unknown_id_and_one_that_is_too_short_have_messages_of_their_own(store: SessionStore) -> None:
    made(store, "12345678-0000-4000-8000-000000000001")
    made(store, "12345678-0000-4000-8000-000000000002")
    with pytest.raises(UnknownSessionError, match='No session "87654321"'):
        store.find("87654321")
    with pytest.raises(AmbiguousSessionError, match="is the beginning of 2 sessions"):
        store.find("12345678")
    assert all(kind.exit_code == 2 for kind in (SessionError, UnknownSessionError, NoSessionIdError))


def test_the_newest_is_listed_first_and_nothing_else_that_lies_there(store: SessionStore) -> None:
    assert store.list() == []
    old = made(store, created_at="2026-01-01T00:00:00Z", status="completed")
    new = made(store, created_at="2026-01-02T00:00:00Z", status="completed")
    (store.folder / "notes.txt").write_text("x")
    (store.folder / "not-a-session").mkdir()
    assert [record.id for record in store.list()] == [new.id, old.id]


def test_a_running_one_whose_owner_is_dead_is_shown_as_interrupted(store: SessionStore) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mark = mark_of_this_process()
    made(store, owner=msgspec.to_builtins(OwnerInfo(dead.pid, mark)), created_at="1")
    made(store, owner=msgspec.to_builtins(OwnerInfo(os.getpid(), mark.rpartition("|")[0] + "|1")), created_at="2")
    made(store, owner=msgspec.to_builtins(this_owner()), created_at="3")
    shown = [record.status for record in store.list()]
    assert shown == [SessionStatus.RUNNING, SessionStatus.INTERRUPTED, SessionStatus.INTERRUPTED]


def test_secrets_do_not_reach_the_file(store: SessionStore) -> None:
    record = made(store, prompt=f"use {SECRET}", config={"api_key": "abcdef1234567890", "deep": [SECRET]})
    content = (store.place_of(record.id) / "session.json").read_text()
    assert SECRET not in content
    assert "abcdef1234567890" not in content
    assert store.find(record.id).record.prompt == "use [redacted]"


def test_a_save_that_fails_leaves_the_old_file(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.find(made(store).id)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        session.save(reason="new")
    monkeypatch.undo()
    assert store.find(session.id).record.reason == ""
    assert {path.name for path in session.dir.iterdir()} == {"session.json", "logs", "inbox"}


def test_an_unchanged_record_is_not_written_again(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.find(made(store).id)
    written: list[bool] = []

    def replace(path: str, data: bytes, *, durable: bool) -> None:
        written.append(durable)

    monkeypatch.setattr("atomic.sessions.store.replace_file", replace)
    session.save(durable=False, reason="")
    assert written == []
    session.save(reason="")  # only now the record is safe from a power cut
    session.save(reason="")
    session.save(reason="", durable=False)
    assert written == [True]
    session.save(reason="x", durable=False)
    session.save(reason="x")
    assert written == [True, False, True]


def test_what_could_not_be_written_is_written_the_next_time(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, durable: bool) -> None:
        raise OSError(28, "No space left on device")

    session = store.find(made(store).id)
    with monkeypatch.context() as patch:
        patch.setattr("atomic.sessions.store.replace_file", full)
        with pytest.raises(OSError, match="No space"):
            session.save(reason="x")
    session.save(reason="x", durable=False)
    assert store.find(session.id).record.reason == "x"


def test_a_damaged_file_is_one_line_in_the_list_and_an_error_by_name(store: SessionStore) -> None:
    record = made(store)
    (store.place_of(record.id) / "session.json").write_text('{"id": "x"')
    with pytest.raises(SessionDamagedError, match="cannot be read"):
        store.find(record.id)
    (listed,) = store.list()
    assert (listed.id, listed.status) == (record.id, SessionStatus.FAILED)
