"""Facts of a run survive its process, and their copies are only for users."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from atomic.base.redaction import Redactor
from atomic.graph.engine.errors import RunOwnedError
from atomic.sessions.facts import Facts
from atomic.sessions.journal import SqliteJournal, open_redacting

NOBODYS = Redactor([])


def opened(folder: Path, journal: SqliteJournal, redactor: Redactor = NOBODYS) -> Facts:
    facts = Facts(folder, redactor)
    facts.open(journal, "run")
    return facts


def test_the_next_process_finds_the_last_values(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        facts = opened(tmp_path, journal)
        facts.set("count.json", {"turns": 1})
        facts.set("count.json", {"turns": 2})
        facts.set("hidden", ["a", 1.5, None])
    assert dict(facts) == {"count.json": {"turns": 2}, "hidden": ["a", 1.5, None]}  # a closed journal can be reported
    with SqliteJournal(tmp_path / "journal.db") as journal:
        assert dict(opened(tmp_path, journal)) == dict(facts)
    assert json.loads((tmp_path / "count.json").read_text()) == {"turns": 2}
    assert (tmp_path / "count.json").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "hidden").exists()


def test_one_process_at_a_time_may_set_them(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal, SqliteJournal(tmp_path / "journal.db") as other:
        opened(tmp_path, journal).set("a.json", 1)
        with pytest.raises(RunOwnedError):
            opened(tmp_path, other)


def test_a_changed_copy_is_named_and_written_again(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        facts = opened(tmp_path, journal)
        for name in ("a.json", "b/c.json", "d.json", "e.json", "f.json"):
            facts.set(name, {"name": name})
        (tmp_path / "a.json").write_text('{"name": "x.json"}\n')
        (tmp_path / "b" / "c.json").unlink()
        (tmp_path / "d.json").unlink()
        os.mkfifo(tmp_path / "d.json")
        (tmp_path / "e.json").write_bytes(b"x" * 1_000_000)
        facts.set("e.json", {"name": "new"})  # even if it is replaced
        changed = ["a.json", "d.json", "e.json"]
        assert facts.restore_copies() == changed
        for name in facts:
            if name.endswith(".json"):
                assert json.loads((tmp_path / name).read_text()) == facts[name]
        assert facts.restore_copies() == changed
    with SqliteJournal(tmp_path / "journal.db") as journal:
        assert opened(tmp_path, journal).restore_copies() == changed


def test_an_old_copy_after_a_kill_is_not_a_finding(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        facts = opened(tmp_path, journal)
        facts.set("a.json", 1)
        old = (tmp_path / "a.json").read_bytes()
        facts.set("a.json", 2)
        facts.set("b.json", 1)
    (tmp_path / "a.json").write_bytes(old)  # as after a kill before the replacement
    (tmp_path / "b.json").unlink()
    with SqliteJournal(tmp_path / "journal.db") as journal:
        assert opened(tmp_path, journal).restore_copies() == []
    assert (tmp_path / "a.json").read_text() == "2\n"
    assert (tmp_path / "b.json").read_text() == "1\n"


def test_a_copy_that_cannot_be_written_is_not_reported_as_changed(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("a file where the folder of the copy belongs")
    with SqliteJournal(tmp_path / "journal.db") as journal:
        facts = opened(tmp_path, journal)
        for number in range(4):
            facts.set("b/c.json", number)
        assert facts["b/c.json"] == 3
        assert facts.restore_copies() == []
    with SqliteJournal(tmp_path / "journal.db") as journal:  # the next process knows it too
        facts = opened(tmp_path, journal)
        assert facts.restore_copies() == []
        (tmp_path / "b").unlink()
        assert facts.restore_copies() == []
        assert (tmp_path / "b" / "c.json").read_text() == "3\n"
        (tmp_path / "b" / "c.json").write_text("0\n")  # a later change is reported again
        assert facts.restore_copies() == ["b/c.json"]


def test_a_folder_in_place_of_a_copy_is_named_though_the_copy_cannot_be_written(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        facts = opened(tmp_path, journal)
        facts.set("a.json", 1)
        (tmp_path / "a.json").unlink()
        (tmp_path / "a.json").mkdir()
        facts.set("a.json", 2)
        facts.set("a.json", 3)
        assert facts.restore_copies() == ["a.json"]


def test_secrets_are_in_neither(tmp_path: Path) -> None:
    redactor = Redactor(["hunter2hunter2"])
    with open_redacting(tmp_path / "journal.db", redactor) as journal:
        opened(tmp_path, journal, redactor).set("a.json", {"said": "it is hunter2hunter2"})
    for path in tmp_path.iterdir():
        assert b"hunter2hunter2" not in path.read_bytes()
    with open_redacting(tmp_path / "journal.db", redactor) as journal:
        assert opened(tmp_path, journal, redactor).restore_copies() == []
