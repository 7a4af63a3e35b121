"""A copy of a file is kept only under the hash of its own bytes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from atomic.base.redaction import Redactor
from atomic.ralph import file_copies
from atomic.ralph.file_copies import STORE, Store, content_of


def store_in(tmp_path: Path) -> Store:
    return Store(tmp_path / "session", Redactor([]))


def copies(tmp_path: Path) -> list[str]:
    folder = tmp_path / "session" / STORE
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_copy_is_kept_under_the_hash_of_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "draft.md"
    file.write_bytes(b"draft")
    store = store_in(tmp_path)
    assert store.keep(file, content_of(file)) == ""
    assert copies(tmp_path) == [sha256(b"draft").hexdigest()]
    assert store.read(content_of(file)) == b"draft"


def test_no_copy_is_kept_of_a_file_that_changes_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "draft.md"
    file.write_bytes(b"draft")
    content = content_of(file)
    file.write_bytes(b"saved again")
    store = store_in(tmp_path)
    assert store.keep(file, content) == "it changed while it was copied"
    assert not store.is_changed(content)  # no other program is blamed
    assert copies(tmp_path) == []


def test_no_copy_is_kept_of_a_file_that_could_not_be_read_at_first(tmp_path: Path) -> None:
    file = tmp_path / "draft.md"
    file.write_bytes(b"draft")
    store = store_in(tmp_path)
    assert store.keep(file, "unreadable") == "it changed while it was copied"
    assert not store.is_changed("unreadable")
    assert copies(tmp_path) == []


def test_a_copy_that_another_program_changed_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "draft.md"
    file.write_bytes(b"draft")
    content = content_of(file)
    store = store_in(tmp_path)
    store.keep(file, content)
    (tmp_path / "session" / STORE / content).write_bytes(b"damaged")
    assert store.is_changed(content)
    assert store.keep(file, content) == ""
    assert store.read(content) == b"draft"


def test_the_limits_are_in_the_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_copies, "MOST_COPIES", 2)
    monkeypatch.setattr(file_copies, "MOST_BYTES", 3 * 1024 * 1024)
    monkeypatch.setattr(file_copies, "MOST_KEPT", 2 * 1024 * 1024)
    file = tmp_path / "draft.md"
    store = store_in(tmp_path)
    file.write_bytes(b"x" * (3 * 1024 * 1024 + 1))
    assert store.keep(file, content_of(file)) == "it is larger than 3 MiB"
    file.write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    assert store.keep(file, content_of(file)) == "the limit of 2 MiB for all copies is reached"
    for text in (b"one", b"two"):
        file.write_bytes(text)
        assert store.keep(file, content_of(file)) == ""
    file.write_bytes(b"three")
    assert store.keep(file, content_of(file)) == "the limit of 2 copies is reached"
