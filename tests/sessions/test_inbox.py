"""Messages of other processes to a run's owner; stale or damaged ones do no harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atomic.sessions.inbox import Inbox, Message


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path)


def test_a_stop_reaches_its_recipient_once(inbox: Inbox) -> None:
    inbox.put(Message("stop", to="me"))
    inbox.put(Message("cancel", to="an owner that is dead"))
    assert inbox.orders("me") == {"stop"}
    assert inbox.orders("me") == set()


def test_an_answer_stays_until_it_is_recorded_and_the_last_one_counts(inbox: Inbox) -> None:
    inbox.put(Message("answer", question="q", answer="red"))
    inbox.put(Message("answer", question="q", answer="blue"))
    inbox.put(Message("answer", question="other", answer=["a", "b"]))
    assert inbox.orders("me") == set()
    assert inbox.answers() == {"q": "blue", "other": ["a", "b"]}
    inbox.forget({"q"})
    assert inbox.answers() == {"other": ["a", "b"]}
    inbox.forget()
    assert inbox.answers() == {}


def test_a_missing_folder_has_no_messages(inbox: Inbox) -> None:
    assert (inbox.orders("me"), inbox.answers()) == (set(), {})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"kind": "launch"}', b"[" * 100_000])
def test_an_unreadable_message_is_set_aside(inbox: Inbox, content: bytes) -> None:
    inbox.put(Message("stop", to="me"))
    (inbox.folder / "0-damaged.json").write_bytes(content)
    assert inbox.orders("me") == {"stop"}
    assert [path.name for path in inbox.folder.iterdir()] == ["0-damaged.unreadable"]


def test_a_pipe_a_link_or_a_folder_does_not_block_the_reader(inbox: Inbox) -> None:
    inbox.put(Message("stop", to="me"))
    os.mkfifo(inbox.folder / "1.json")
    (inbox.folder / "2.json").symlink_to("/etc/hostname")
    (inbox.folder / "3.json").mkdir()
    assert inbox.orders("me") == {"stop"}
