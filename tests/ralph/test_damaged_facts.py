"""A run with a damaged record of checks, caps or files stops and deletes nothing."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing


def flip_bit(journal: Path, needle: bytes) -> None:
    """Change one bit of the first row that has this text."""
    connection = sqlite3.connect(journal)
    rows = connection.execute("SELECT key, body FROM rows ORDER BY key").fetchall()
    key, body = next((key, body) for key, body in rows if needle in body)
    place = body.index(needle) + len(needle) + 2
    changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
    connection.execute("UPDATE rows SET body = ? WHERE key = ?", (changed, key))
    connection.commit()
    connection.close()


@pytest.mark.ci
@pytest.mark.parametrize("fact", [b"gates.json", b"\xa7started", b"users_files.json", b"/facts"])
async def test_a_damaged_fact_stops_a_resume_with_a_list_of_losses(tmp_path: Path, fact: bytes) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "draft.txt").write_text("mine\n")
    first = await sandbox.ralph("--max-iterations", "1", "--verify", "true", GOAL)
    assert first.status == ("paused", "max_iterations", 6)
    journal = sandbox.session / "journal.db"
    flip_bit(journal, fact)
    for _ in range(2):  # it is not forgotten
        done = await sandbox.user.atomic("resume", sandbox.session.name, "--max-iterations", "9")
        assert done.exit_code == 1
        assert "the checks, the caps, what was spent and the list of your uncommitted files" in done.stderr
        assert f"{journal}.damaged-" in done.stderr
        assert "put back a backup of the journal, or start a new run" in done.stderr
        assert "Traceback" not in done.stderr
    assert sandbox.callers == ["planner 1", "worker 1 1"]
    assert list((sandbox.session / "snapshots" / "users-files").iterdir())
    (sandbox.project / "draft.txt").unlink()
    salvage = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert salvage.exit_code == 1
    assert "as they were" not in salvage.stdout
    assert "the list of your uncommitted files" in salvage.stderr
    assert "snapshots/users-files" in salvage.stderr
    assert list((sandbox.session / "snapshots" / "users-files").iterdir())


async def test_a_fact_that_an_agent_damages_under_a_run_fails_it_and_nothing_is_deleted(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    script = tmp_path / "flip.py"
    script.write_text(
        "import glob, sqlite3\n"
        f"[path] = glob.glob({str(sandbox.user.home)!r} + '/.atomic/sessions/*/journal.db')\n"
        "journal = sqlite3.connect(path, timeout=20)\n"
        "for key, body in journal.execute('SELECT key, body FROM rows').fetchall():\n"
        "    if b'gates.json' in body:\n"
        "        changed = body.replace(b'test -e README.md', b'test -e readme.md')\n"
        "        journal.execute('UPDATE rows SET body = ? WHERE key = ?', (changed, key))\n"
        "journal.commit()\n"
    )
    forged = worker("2", {"write": {"part2.txt": "2\n"}}, {"sh": f"{sys.executable} {script}"})
    sandbox.play(PLAN, writing("1"), forged, APPROVE)
    (sandbox.project / "draft.txt").write_text("mine\n")
    outcome = await sandbox.ralph("--verify", "test -e README.md", GOAL)
    assert outcome.status == ("failed", "error", 1)
    assert "was changed or damaged during the run" in outcome.end["message"]
    assert not outcome.end.get("resume")
    assert "was changed or damaged" in sandbox.report
    assert list((sandbox.session / "snapshots" / "users-files").iterdir())
    done = await sandbox.user.atomic("resume", sandbox.session.name)
    assert done.exit_code == 1
    assert "put back a backup of the journal, or start a new run" in done.stderr
