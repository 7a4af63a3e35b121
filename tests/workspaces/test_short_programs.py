"""Programs that Atomic runs in a private view: git, most of all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atomic.processes import ExecTimeoutError
from atomic.workspaces import Isolation
from atomic.workspaces.views import View, open_bound
from tests.workspaces.kinds import OVERLAYS, each

pytestmark = pytest.mark.parametrize("isolation", each(OVERLAYS))


def _view(folder: Path, isolation: Isolation):  # the context manager of `open_bound`
    return open_bound(folder, folder, own_user=isolation.own_user)


async def _sh(view: View, script: str, *, is_short: bool = True, timeout: float | None = None):
    return await view.run("bash", "-c", script, is_short=is_short, timeout=timeout)


@pytest.mark.parametrize("is_short", [True, False])
async def test_a_program_has_its_folder_its_outputs_and_its_exit_code(
    tmp_path: Path, isolation: Isolation, *, is_short: bool
) -> None:
    async with _view(tmp_path, isolation) as view:
        done = await _sh(view, "pwd; echo problem >&2; cat; exit 3", is_short=is_short)
        missing = await view.run("no-such-program", is_short=is_short)
        killed = await _sh(view, "kill -9 $$", is_short=is_short)
    assert (done.stdout, done.stderr, done.exit_code) == (f"{tmp_path}\n", "problem\n", 3)
    assert (missing.exit_code, missing.stderr) == (127, "no-such-program: No such file or directory\n")
    assert killed.exit_code == -9


@pytest.mark.parametrize("is_short", [True, False])
async def test_a_pipe_that_closes_early_ends_its_writer_without_a_word(
    tmp_path: Path, isolation: Isolation, *, is_short: bool
) -> None:
    async with _view(tmp_path, isolation) as view:
        done = await _sh(view, "yes | head -1", is_short=is_short)
    assert (done.stdout, done.stderr, done.exit_code) == ("y\n", "", 0)


async def test_output_and_variables_arrive_byte_for_byte(tmp_path: Path, isolation: Isolation) -> None:
    text = "line\n\n{}\t€ \udcff" * 20_000
    async with _view(tmp_path, isolation) as view:
        env = {"PATH": "/usr/bin:/bin", "TEXT": text[:60_000]}
        done = await view.run("sh", "-c", 'printf %s "$TEXT"', env=env, is_short=True)
        again = await view.run("printf", "%s", "ä\udcff\n", env=env, is_short=True)
    assert done.stdout == text[:60_000]
    assert again.stdout == "ä\udcff\n"


async def test_programs_run_one_after_the_other(tmp_path: Path, isolation: Isolation) -> None:
    async with _view(tmp_path, isolation) as view:
        await asyncio.gather(*(_sh(view, f"echo begin >> log; sleep 0.01; echo {n} >> log") for n in range(5)))
    assert (tmp_path / "log").read_text() == "".join(f"begin\n{n}\n" for n in range(5))


async def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, isolation: Isolation) -> None:
    async with _view(tmp_path, isolation) as view:
        with pytest.raises(ExecTimeoutError, match="took longer") as caught:
            await _sh(view, "echo begun; exec >&- 2>&-; sleep 1000", timeout=0.2)
        after = await _sh(view, "echo after")
    assert (caught.value.stdout, after.stdout) == ("begun\n", "after\n")


async def test_a_cancelled_program_is_ended_and_the_next_one_runs(tmp_path: Path, isolation: Isolation) -> None:
    fifo = tmp_path / "begun"
    async with _view(tmp_path, isolation) as view:
        await _sh(view, "mkfifo begun")
        running = asyncio.create_task(_sh(view, "echo $$ > pid; echo > begun; sleep 1000; true"))
        await asyncio.to_thread(fifo.read_text)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        after = await _sh(view, "kill -0 $(cat pid) || echo after")
    assert after.stdout == "after\n"


async def test_a_process_that_keeps_the_output_open_holds_nobody_up(tmp_path: Path, isolation: Isolation) -> None:
    async with _view(tmp_path, isolation) as view:
        done = await _sh(view, "setsid sh -c 'while :; do echo more; sleep 0.01; done' & echo begun")
        after = await _sh(view, "echo after")
    assert done.exit_code == 0
    assert "begun\n" in done.stdout
    assert after.stdout == "after\n"
