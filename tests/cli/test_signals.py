"""Signals, parked runs and `atomic wake`, as users have them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.sessions import SqliteJournal
from tests.support.user import User
from tests.support.user_workflows import Running, ledger, noted, session, sessions, started, workflow
from tests.support.waits import eventually

WAITS = """
async def wait(ctx):
    note("waits")
    data = await ctx.wait_for("approved")
    note("got", data)
    return {"said": [str(data)]}

workflow = graph(S).node("wait", wait).compile()
"""
SLEEPS = """
async def rest(ctx):
    note("rests")
    await ctx.sleep(hours=6)
    note("rested")

workflow = graph(S).node("rest", rest).compile()
"""
ASKS = """
async def ask(ctx):
    note("got", await ctx.ask("Which colour?"))

workflow = graph(S).node("ask", ask).compile()
"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def change(user: User, **fields: Any) -> None:
    """Change the `session.json` of the only session, as if time had passed."""
    (folder,) = sessions(user)
    (folder / "session.json").write_bytes(msgspec.json.encode({**session(user), **fields}))


async def parked(user: User, name: str) -> tuple[str, list[Any]]:
    """Park a run of that workflow, and return its id and its events."""
    done = await user.atomic("run", name, "--json", "--park")
    assert done.exit_code == 5, done.stderr
    return session(user)["id"], [msgspec.json.decode(line) for line in done.stdout.splitlines()]


async def test_a_signal_reaches_a_run_in_another_terminal(user: User) -> None:
    workflow(user, "w", WAITS)
    async with started(user, "run", "w", "--json") as run:
        notice = await run.until("warning")
        id = session(user)["id"]
        assert (notice["text"], notice["notice"]) == (
            f'waits for the signal "approved": atomic signal {id} approved',
            True,
        )
        done = await user.atomic("signal", id[:8], "approved", '{"by": "Ann", "n": 1}', cwd=user.home)
        assert done.exit_code == 0, done.stderr
        assert "the signal is saved: process" in done.stderr
        assert (await run.until("run_ended"))["status"] == "completed"
        assert await run.over() == 0
    assert ledger(user) == ["waits", "got {'by': 'Ann', 'n': 1}"]


async def test_a_run_that_waits_for_a_signal_parks_and_continues_with_it(user: User) -> None:
    workflow(user, "w", WAITS)
    id, events = await parked(user, "w")
    end = events[-1]
    command = f"atomic signal {id} approved"
    assert (end["status"], end["reason"], end["exit_code"], end["resume"]) == ("paused", "signal", 5, command)
    assert (end["signals"], end["wake_at"]) == (["approved"], None)
    assert (session(user)["signals"], session(user)["wake_at"]) == (["approved"], None)
    shown = (await user.atomic("sessions", "show", id)).stdout
    assert 'waits for  signal "approved"' in shown
    assert command in shown
    done = await user.atomic("signal", id, "other", "1")
    assert (done.exit_code, done.stderr) == (0, f"atomic: the signal is saved: atomic resume {id}\n")
    done = await user.atomic("signal", id, "approved", "true")
    assert done.exit_code == 0, done.stderr
    assert ledger(user) == ["waits", "waits", "got True"]
    assert (session(user)["status"], session(user)["signals"]) == ("completed", [])


async def test_a_signal_of_an_unowned_run_can_be_only_saved(user: User) -> None:
    workflow(user, "w", WAITS)
    id, _ = await parked(user, "w")
    done = await user.atomic("signal", "--no-resume", id, "approved", '"early"', "--json")
    assert (done.exit_code, msgspec.json.decode(done.stdout)["text"]) == (
        0,
        f"the signal is saved: atomic resume {id}",
    )
    assert ledger(user) == ["waits"]
    assert (await user.atomic("resume", id)).exit_code == 0
    assert ledger(user) == ["waits", "waits", "got early"]


async def test_a_killed_run_that_waited_continues_with_its_signal(user: User) -> None:
    workflow(user, "w", WAITS)
    async with started(user, "run", "w", "--json") as run:
        await run.until("warning")
        run.signal(signal.SIGKILL)
        await run.process.wait()
    done = await user.atomic("signal", session(user)["id"], "approved", "7")
    assert done.exit_code == 0, done.stderr
    assert ledger(user)[-1] == "got 7"


async def test_wrong_signals_are_refused_in_one_sentence(user: User) -> None:
    workflow(user, "w", WAITS)
    id, _ = await parked(user, "w")
    for words, text in (
        ((id, "approved", "{yes"), "'{yes' is not JSON"),
        ((id, "approved", "yes"), f"a text has double quotes: atomic signal {id} approved '\"yes\"'"),
        ((id, "a\x1b[2J"), "cannot be the name of a signal: give 1 to 200 printable characters"),
        ((id, ""), "cannot be the name of a signal"),
        ((id,), "atomic signal needs a NAME"),
        (("00000000-0000-4000-8000-000000000000", "go"), "00000000-0000-4000-8000-000000000000"),
        ((id, "go", "1", "2"), 'atomic signal takes no "2"'),
    ):
        done = await user.atomic("signal", *words)
        assert done.exit_code == 2, words
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "\x1b" not in done.stderr
    assert ledger(user) == ["waits"]
    with SqliteJournal(sessions(user)[0] / "journal.db") as journal:
        assert journal.signals(id) == []
    assert (await user.atomic("signal", id, "approved")).exit_code == 0
    done = await user.atomic("signal", id, "approved")
    assert (done.exit_code, done.stderr) == (
        2,
        f'atomic: Run "{id}" is completed and receives no signal: nothing was sent\n',
    )


async def test_a_sleeping_run_parks_and_wakes_when_its_time_has_come(user: User) -> None:
    workflow(user, "s", SLEEPS)
    id, events = await parked(user, "s")
    end = events[-1]
    assert (end["status"], end["reason"], end["resume"]) == ("paused", "sleeping", f"atomic resume {id}")
    assert end["message"].startswith("sleeps until ")
    assert abs(end["wake_at"] - time.time() - 6 * 3600) < 600
    assert session(user)["wake_at"] == end["wake_at"]
    listed = msgspec.json.decode((await user.atomic("sessions", "list", "--json")).stdout)
    assert listed[0]["wake_at"] == end["wake_at"]
    assert " s  wakes at 2" in (await user.atomic("ps")).stdout
    assert "wakes at" in (await user.atomic("sessions", "show", id)).stdout
    done = await user.atomic("wake")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "atomic: no run is due\n")
    again = await user.atomic("resume", id)  # it keeps --park
    assert (again.exit_code, ledger(user)) == (5, ["rests", "rests"])
    change(user, wake_at=time.time() - 1)
    done = await user.atomic("wake", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, f"{id} s: its time has come: is due\n")
    assert ledger(user) == ["rests", "rests"]
    done = await user.atomic("wake")  # the journal still has the time: it parks again
    assert (done.exit_code, done.stdout) == (0, f"{id} s: its time has come: paused: sleeping\n")
    assert session(user)["wake_at"] == end["wake_at"]


async def test_wake_continues_signalled_and_answered_runs(user: User) -> None:
    workflow(user, "w", WAITS)
    id, _ = await parked(user, "w")
    assert (await user.atomic("signal", "--no-resume", id, "approved", "1")).exit_code == 0
    done = await user.atomic("wake", "--json")
    assert done.exit_code == 0, done.stderr
    assert msgspec.json.decode(done.stdout) == {
        "run": id,
        "workflow": "w",
        "why": 'its signal "approved" was sent',
        "said": "completed",
        "exit_code": 0,
    }
    assert ledger(user)[-1] == "got 1"
    workflow(user, "q", ASKS)
    paused = await user.atomic("run", "q")
    assert paused.exit_code == 5
    (other,) = [path.name for path in sessions(user) if path.name != id]
    assert (await user.atomic("wake")).stderr == "atomic: no run is due\n"
    assert (await user.atomic("answer", "--no-resume", other, "blue")).exit_code == 0
    done = await user.atomic("wake")
    assert (done.exit_code, done.stdout) == (0, f"{other} q: its question was answered: completed\n")
    assert ledger(user)[-1] == "got blue"
    assert (await user.atomic("wake")).stderr == "atomic: no run is due\n"


async def test_two_wakes_at_once_continue_a_run_once(user: User) -> None:
    workflow(
        user,
        "w",
        """
async def wait(ctx):
    data = await ctx.wait_for("approved")
    note("begins")
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)
    note("ends")

workflow = graph(S).node("wait", wait).compile()
""",
    )
    id, _ = await parked(user, "w")
    assert (await user.atomic("signal", "--no-resume", id, "approved")).exit_code == 0
    async with started(user, "wake", "--json") as one, started(user, "wake", "--json") as other:
        await noted(user, "begins")

        def is_over(run: Running) -> bool:
            return run.process.returncode is not None

        await eventually(lambda: is_over(one) or is_over(other))
        (user.project / "go").touch()
        assert [await one.over(), await other.over()] == [0, 0]
    assert ledger(user) == ["begins", "ends"]


async def test_wake_names_a_run_whose_code_is_not_trusted_and_leaves_it(user: User) -> None:
    folder = user.project / ".atomic" / "workflows"
    folder.mkdir(parents=True)
    workflow(user, "w", WAITS)
    (user.home / ".atomic" / "workflows" / "w.py").rename(folder / "w.py")
    hash = msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)["hash"]
    assert (await user.atomic("trust", hash)).exit_code == 0
    id, _ = await parked(user, "w")
    assert (await user.atomic("signal", "--no-resume", id, "approved", "1")).exit_code == 0
    with (folder / "w.py").open("a") as file:
        file.write("\nnote('changed')\n")
    done = await user.atomic("wake")
    assert done.exit_code == 4
    assert done.stdout.startswith(f'{id} w: its signal "approved" was sent: was left: ')
    assert "atomic trust" in done.stdout
    assert ledger(user) == ["waits"]


async def test_wrong_flags_of_wake_are_refused(user: User) -> None:
    for value in ("0", "-1", "many", "65"):
        done = await user.atomic("wake", f"--parallel={value}")
        assert (done.exit_code, done.stderr) == (
            2,
            f'atomic: --parallel cannot be "{value}": give a number of runs, 1 to 64\n',
        )


async def test_wake_continues_a_run_whose_usage_limit_is_over(user: User) -> None:
    workflow(user, "w", WAITS)
    id, _ = await parked(user, "w")
    change(user, reason="provider_limit", parked_until=time.time() + 3600)
    assert (await user.atomic("wake", "--dry-run")).stderr == "atomic: no run is due\n"
    change(user, reason="provider_limit", parked_until=time.time() - 1)
    done = await user.atomic("wake", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, f"{id} w: its usage limit is over: is due\n")


async def test_wake_reports_a_run_that_fails_and_continues_the_others(user: User) -> None:
    workflow(user, "w", WAITS)
    workflow(user, "f", WAITS.replace('note("got", data)', 'raise ValueError("broken")'))
    ids: dict[str, str] = {}
    for name in ("f", "w"):
        assert (await user.atomic("run", name, "--park", "--json")).exit_code == 5
        ids[name] = next(path.name for path in sessions(user) if path.name not in ids.values())
        assert (await user.atomic("signal", "--no-resume", ids[name], "approved", "1")).exit_code == 0
    done = await user.atomic("wake", "--parallel", "2")
    assert done.exit_code == 1
    assert sorted(done.stdout.splitlines()) == sorted(
        [
            f'{ids["f"]} f: its signal "approved" was sent: failed: error',
            f'{ids["w"]} w: its signal "approved" was sent: completed',
        ]
    )
    assert "got 1" in ledger(user)


@pytest.mark.parametrize("parallel", ["2", pytest.param("1", marks=pytest.mark.ci)])
async def test_wake_continues_the_others_if_the_folder_of_a_run_is_removed(user: User, parallel: str) -> None:
    workflow(user, "w", WAITS)
    workflow(
        user, "gone", WAITS.replace('    note("got", data)', '    __import__("shutil").rmtree(ctx.deps.files.dir)')
    )
    for name in ("gone", "w"):
        assert (await user.atomic("run", name, "--park")).exit_code == 5
        id = msgspec.json.decode((await user.atomic("sessions", "list", "--json")).stdout)[0]["id"]
        assert (await user.atomic("signal", "--no-resume", id, "approved", "1")).exit_code == 0
    done = await user.atomic("wake", "--parallel", parallel)
    lines = sorted(line.partition(" ")[2] for line in done.stdout.splitlines())
    assert (done.exit_code, len(lines)) == (1, 2), done.stderr
    assert lines[0].startswith('gone: its signal "approved" was sent: ')
    assert lines[1] == 'w: its signal "approved" was sent: completed'
    assert "got 1" in ledger(user)
