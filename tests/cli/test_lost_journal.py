"""A run whose journal was deleted or replaced: it is refused, and no paid work is done again."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from atomic.processes import ExecResult
from tests.cli.test_limits import Player, call
from tests.support.user import User


@pytest.fixture
async def player(user: User) -> Player:
    """Return a user with a run that has paid for one call and is paused at its cap."""
    player = Player(user)
    await player.plays(call(1), call(2), call(3))
    assert (await player.run("--max-cost", "0.5"))[0] == 6
    assert [one["task"] for one in player.calls] == ["1"]
    return player


def remove_journal(folder: Path) -> Path:
    path = folder / "journal.db"
    for file in folder.glob("journal.db*"):
        file.unlink()
    return path


def refusal(done: ExecResult) -> str:
    """Return the message of a refused resume."""
    error = msgspec.json.decode(done.stdout)
    assert (done.exit_code, error["type"], error["exit_code"]) == (1, "error", 1)
    return error["message"]


async def test_a_run_without_its_journal_is_refused_and_repeats_nothing(player: Player) -> None:
    path = remove_journal(player.folder)
    for verb in (["resume", "--max-cost", "9"], ["resume"]):
        said = refusal(await player.user.atomic(*verb, "--json", player.id))
        assert said == (
            f"Run {player.id} cannot continue: its journal {path} is missing, so its finished steps and its "
            "cost are unknown; put the file back from a backup, or start a new run"
        )
        assert not path.exists()
    assert [one["task"] for one in player.calls] == ["1"]
    record = msgspec.json.decode((player.folder / "session.json").read_bytes())
    assert (record["status"], record["reason"]) == ("paused", "max_cost")


async def test_a_restored_journal_continues_the_run(player: Player) -> None:
    kept = player.user.home / "backup.db"
    shutil.copy(player.folder / "journal.db", kept)
    path = remove_journal(player.folder)
    refusal(await player.user.atomic("resume", "--json", player.id))
    shutil.copy(kept, path)
    assert (await player.resume("--max-cost", "9"))[0] == 0
    assert [one["task"] for one in player.calls] == ["1", "2", "3"]


async def test_an_empty_journal_is_refused(player: Player) -> None:
    path = remove_journal(player.folder)
    path.touch(mode=0o600)
    for _ in range(2):
        said = refusal(await player.user.atomic("resume", "--json", "--max-cost", "9", player.id))
        assert f"its journal {path} is empty, so its finished steps" in said
        assert path.read_bytes() == b""
    assert [one["task"] for one in player.calls] == ["1"]


@pytest.mark.ci
async def test_the_journal_of_another_run_is_refused(player: Player) -> None:
    first = player.folder
    assert (await player.run("--max-cost", "0.5"))[0] == 6
    path = remove_journal(first)
    shutil.copy(player.folder / "journal.db", path)
    player.id = first.name
    said = refusal(await player.user.atomic("resume", "--json", "--max-cost", "9", player.id))
    assert "was replaced by one without this run" in said
    assert [one["task"] for one in player.calls] == ["1"]


@pytest.mark.ci
async def test_a_run_of_an_older_version_without_its_journal_is_refused(player: Player) -> None:
    record = msgspec.json.decode((player.folder / "session.json").read_bytes())
    record.pop("begun", None)
    (player.folder / "session.json").write_bytes(msgspec.json.encode(record))
    remove_journal(player.folder)
    assert "is missing" in refusal(await player.user.atomic("resume", "--json", player.id))


@pytest.mark.ci
async def test_showing_a_run_creates_no_journal(player: Player) -> None:
    path = remove_journal(player.folder)
    assert (await player.user.atomic("sessions", "show", player.id)).exit_code == 0
    salvaged = await player.user.atomic("salvage", player.id)
    assert (salvaged.exit_code, salvaged.stderr) == (
        1,
        f"atomic: The journal of {player.id} is missing: put {path} back, then salvage\n",
    )
    assert (await player.user.atomic("answer", player.id, "x")).exit_code == 2
    assert not path.exists()


@pytest.mark.ci
async def test_resuming_a_completed_run_creates_no_journal(user: User) -> None:
    player = Player(user)
    await player.plays(call(1), call(2), call(3))
    assert (await player.run())[0] == 0
    path = remove_journal(player.folder)
    assert (await player.resume())[0] == 0
    assert not path.exists()


def record_status(player: Player, status: str) -> None:
    """Write another status into `session.json`, as any program of the user can."""
    path = player.folder / "session.json"
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "status": status}))


@pytest.mark.ci
async def test_a_status_changed_by_another_program_does_not_cancel_a_run(player: Player) -> None:
    record_status(player, "cancelled")
    done = await player.user.atomic("resume", player.id, "--max-cost", "9")
    assert done.exit_code == 0
    assert [one["task"] for one in player.calls] == ["1", "2", "3"]
    assert "Another program changed session.json" in done.stdout + done.stderr


@pytest.mark.ci
async def test_a_cancelled_run_stays_cancelled_if_its_file_is_changed(player: Player) -> None:
    assert (await player.user.atomic("stop", "--cancel", player.id)).exit_code == 0
    record_status(player, "paused")
    refused = f"Run {player.id} was cancelled for good (atomic stop --cancel), so it does not continue"
    for _ in range(2):
        done = await player.user.atomic("resume", player.id, "--max-cost", "9")
        assert (done.exit_code, refused in done.stderr) == (2, True)
        (player.folder / "session.json").unlink(missing_ok=True)
    assert [one["task"] for one in player.calls] == ["1"]


@pytest.mark.ci
async def test_a_run_that_is_cancelled_only_in_its_file_can_be_cancelled(player: Player) -> None:
    record_status(player, "cancelled")
    done = await player.user.atomic("stop", "--cancel", player.id)
    assert (done.exit_code, done.stderr) == (0, f"atomic: {player.id} is cancelled\n")
    record_status(player, "paused")
    assert (await player.user.atomic("resume", player.id, "--max-cost", "9")).exit_code == 2
