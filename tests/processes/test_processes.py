"""Real programs and real signals; every wait ends at an event or at a limit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atomic.base.errors import AtomicError
from atomic.processes import (
    GRACE,
    ExecError,
    ExecOutputError,
    ExecTimeoutError,
    ProgramNotFoundError,
    execute,
    running,
)
from tests.support.processes import is_alive
from tests.support.timing import judge
from tests.support.waits import HANG as LIMIT
from tests.support.waits import eventually

# Writes its own process id and that of a child in the same group, then sleeps.
PARENT_AND_CHILD = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""
# Kills the guard of short programs between two of them.
SHORT_AFTER_KILL = """
async def main():
    first = await execute("true", is_short=True)
    [guard] = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
    os.kill(guard, signal.SIGKILL)
    os.waitid(os.P_PID, guard, os.WEXITED | os.WNOWAIT)
    print(first.exit_code, (await execute("true", is_short=True)).exit_code)
asyncio.run(main())
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


async def pids_in(path: Path) -> list[int]:
    await eventually(path.exists)
    return [int(pid) for pid in path.read_text().split()]


def children() -> set[int]:
    """Return the ids of all child processes, with zombies; other tests may keep some."""
    return {int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == os.getpid()}


def parent_of(pid: str) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


async def test_a_program_gives_its_exit_code_and_both_outputs() -> None:
    result = await execute("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert 0 < result.seconds < LIMIT


async def test_a_listener_receives_both_outputs_in_order_and_without_a_limit() -> None:
    heard: list[bytes] = []
    script = "echo out; echo err >&2; echo out again; exit 3"
    result = await execute("sh", "-c", script, max_output=4, on_output=heard.append)
    assert b"".join(heard) == b"out\nerr\nout again\n"
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "")


async def test_an_exit_code_below_zero_is_the_signal() -> None:
    assert (await execute("sh", "-c", "kill -KILL $$")).exit_code == -signal.SIGKILL


async def test_arguments_are_not_read_by_a_shell() -> None:
    assert (await execute("printf", "%s|", "$HOME; exit 1", "*", "")).stdout == "$HOME; exit 1|*||"


async def test_paths_may_be_given_as_paths(tmp_path: Path) -> None:
    program = tmp_path / "hello"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o700)
    assert (await execute(program, cwd=tmp_path)).stdout == f"{tmp_path.resolve()}\n"


async def test_env_replaces_the_environment() -> None:
    env = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    result = await execute("sh", "-c", 'echo "$GREETING:$HOME"', env=env)
    assert result.stdout == "hello:\n"


@pytest.mark.parametrize("text", ["grüße\n", "grüße\n".encode()])
async def test_the_program_reads_its_input(text: str | bytes) -> None:
    assert (await execute("cat", input=text)).stdout == "grüße\n"


async def test_a_program_without_input_reads_end_of_file() -> None:
    assert await execute("cat", timeout=LIMIT)


async def test_unread_input_is_not_an_error() -> None:
    assert (await execute("true", input=b"x" * 10_000_000, timeout=LIMIT)).exit_code == 0


async def test_bytes_that_are_not_text_are_replaced() -> None:
    assert (await execute("printf", r"a\377b")).stdout == "a\ufffdb"


async def test_long_output_arrives_whole_on_both_pipes() -> None:
    script = "import sys\nfor _ in range(4000): sys.stdout.write('o' * 1000); sys.stderr.write('e' * 1000)"
    result = await execute(sys.executable, "-c", script, timeout=LIMIT)
    assert (result.stdout, result.stderr) == ("o" * 4_000_000, "e" * 4_000_000)


async def test_a_program_with_endless_output_is_ended() -> None:
    others = children()
    with pytest.raises(ExecOutputError, match="more than 100000 bytes") as caught:
        await execute("yes", max_output=100_000, timeout=LIMIT)
    assert caught.value.argv == ("yes",)
    assert children() <= others


async def test_a_missing_program_is_named_with_what_to_do() -> None:
    with pytest.raises(ProgramNotFoundError) as caught:
        await execute("no-such-program", "--version")
    assert str(caught.value) == (
        'Program not found: "no-such-program" (install it, put it on PATH or give its full path)'
    )
    assert caught.value.program == "no-such-program"
    assert isinstance(caught.value, AtomicError)


async def test_a_program_that_cannot_start_reports_why(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no program")
    with pytest.raises(ExecError, match=r'Folder not found: ".*/nowhere"'):
        await execute("true", cwd=tmp_path / "nowhere")
    with pytest.raises(ExecError, match=r'cannot be started: ".*notes.txt" \(Permission denied\)'):
        await execute(tmp_path / "notes.txt")
    with pytest.raises(ExecError, match=r"cannot be started: .*null byte"):
        await execute("echo", "a\0b")
    with pytest.raises(ExecError, match="No program was given"):
        await execute()


async def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = "print('so far', flush=True)\n" + PARENT_AND_CHILD
    error = None
    for timeout in (1, 2, 4, 8, 16):  # the time to start depends on the machine
        with pytest.raises(ExecTimeoutError, match=f"longer than {timeout} s") as caught:
            await execute(sys.executable, "-c", script, str(pids), timeout=timeout)
        error = caught.value
        if pids.exists():
            break
    assert error is not None
    assert (error.stdout, error.stderr, error.survivors) == ("so far\n", "", ())
    assert [pid for pid in await pids_in(pids) if is_alive(pid)] == []


async def test_a_cancelled_program_and_its_children_end_before_the_call_returns(tmp_path: Path) -> None:
    others = children()
    run = asyncio.create_task(execute(sys.executable, "-c", PARENT_AND_CHILD, str(tmp_path / "pids")))
    pids = await pids_in(tmp_path / "pids")
    assert all(is_alive(pid) for pid in pids)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [pid for pid in pids if is_alive(pid)] == []
    assert children() <= others


async def test_a_cancelled_program_may_clean_up(tmp_path: Path) -> None:
    tidy = "trap 'echo tidy > tidied; exit' TERM; touch ready; while :; do sleep 0.01; done"
    run = asyncio.create_task(execute("sh", "-c", tidy, cwd=tmp_path))
    await eventually((tmp_path / "ready").exists)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (tmp_path / "tidied").read_text() == "tidy\n"


async def test_a_program_that_ignores_the_polite_signal_is_killed_after_the_grace(tmp_path: Path) -> None:
    run = asyncio.create_task(execute(sys.executable, "-c", STUBBORN + PARENT_AND_CHILD, str(tmp_path / "pids")))
    pids = await pids_in(tmp_path / "pids")
    started = time.monotonic()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert time.monotonic() - started >= GRACE
    assert [pid for pid in pids if is_alive(pid)] == []


async def test_a_second_cancellation_does_not_cut_the_clean_up_short(tmp_path: Path) -> None:
    run = asyncio.create_task(execute(sys.executable, "-c", STUBBORN + PARENT_AND_CHILD, str(tmp_path / "pids")))
    pids = await pids_in(tmp_path / "pids")
    while not run.done():
        run.cancel()
        await asyncio.sleep(0.01)
    assert run.cancelled()
    assert [pid for pid in pids if is_alive(pid)] == []


async def test_a_program_that_is_cancelled_while_it_starts_is_ended() -> None:
    others = children()
    for turns in range(20):
        run = asyncio.create_task(execute("sleep", "1000"))
        for _ in range(turns):
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert children() <= others


async def test_a_grandchild_that_holds_the_pipes_does_not_delay_the_result(tmp_path: Path) -> None:
    started = time.monotonic()
    result = await execute("sh", "-c", "sleep 1000 & echo $! > pid; echo done", cwd=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert time.monotonic() - started < LIMIT
    assert [pid for pid in await pids_in(tmp_path / "pid") if is_alive(pid)] == []


async def test_late_output_of_a_grandchild_is_kept() -> None:
    assert (await execute("sh", "-c", "(sleep 0.2; echo later) & echo now")).stdout == "now\nlater\n"


async def test_a_grandchild_in_the_background_ends_with_the_program(tmp_path: Path) -> None:
    await execute("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! > pid", cwd=tmp_path)
    assert [pid for pid in await pids_in(tmp_path / "pid") if is_alive(pid)] == []


async def test_a_daemon_outside_the_group_does_not_delay_the_result(tmp_path: Path) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    open('pid', 'w').write(str(os.getpid()))\n"
    started = time.monotonic()
    await execute(sys.executable, "-c", daemon + "    time.sleep(1000)", cwd=tmp_path, input=b"x" * 1_000_000)
    assert time.monotonic() - started < LIMIT
    await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    for pid in await pids_in(tmp_path / "pid"):
        os.kill(pid, signal.SIGKILL)


async def test_a_program_has_a_session_of_its_own_and_no_terminal() -> None:
    script = "import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())"
    assert (await execute(sys.executable, "-c", script)).stdout == "True\n"


async def test_programs_die_with_atomic_even_by_kill_9(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom atomic.processes import execute\n"
        "asyncio.run(execute(sys.executable, '-c', sys.argv[1], sys.argv[2]))"
    )
    atomic = subprocess.Popen([sys.executable, "-c", script, STUBBORN + PARENT_AND_CHILD, tmp_path / "pids"])
    try:
        pids = await pids_in(tmp_path / "pids")
        assert all(is_alive(pid) for pid in pids)
    finally:
        atomic.kill()
        atomic.wait()
    await eventually(lambda: not any(is_alive(pid) for pid in pids))


async def test_short_programs_die_with_atomic_too_and_leave_no_guard(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom atomic.processes import execute\n"
        "async def main():\n"
        "    await execute('true', is_short=True)\n"
        "    await execute(sys.executable, '-c', sys.argv[1], sys.argv[2], is_short=True)\n"
        "asyncio.run(main())"
    )
    atomic = subprocess.Popen([sys.executable, "-c", script, STUBBORN + PARENT_AND_CHILD, tmp_path / "pids"])
    try:
        pids = await pids_in(tmp_path / "pids")
        guards = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == atomic.pid]
        assert len(guards) == 2  # the program and its guard
    finally:
        atomic.kill()
        atomic.wait()
    await eventually(lambda: not any(is_alive(pid) for pid in {*pids, *guards}))


async def test_many_short_programs_share_a_guard_and_leave_nothing_open() -> None:
    await execute("true", is_short=True)
    others = children()
    before = len(os.listdir("/dev/fd"))
    results = await asyncio.gather(*(execute("sh", "-c", f"exit {n}", is_short=True) for n in range(40)))
    assert [result.exit_code for result in results] == [*range(40)]
    assert children() <= others
    assert len(os.listdir("/dev/fd")) == before


async def test_short_programs_get_a_new_guard_after_theirs_was_killed() -> None:
    others = children()
    script = "import asyncio, os, signal\nfrom atomic.processes import execute\n" + SHORT_AFTER_KILL
    done = await execute(sys.executable, "-c", script)
    assert (done.exit_code, done.stdout) == (0, "0 0\n"), done.stderr
    assert children() <= others


def test_a_program_that_was_not_awaited_ends_with_the_event_loop(tmp_path: Path) -> None:
    async def forgetful() -> list[int]:
        run = asyncio.create_task(execute(sys.executable, "-c", PARENT_AND_CHILD, str(tmp_path / "pids")))
        pids = await pids_in(tmp_path / "pids")
        assert not run.done()
        return pids

    pids = asyncio.run(forgetful())
    asyncio.run(eventually(lambda: not any(is_alive(pid) for pid in pids)))


async def test_many_programs_at_once_leave_neither_children_nor_open_files() -> None:
    others = children()
    await execute("true")
    before = len(os.listdir("/dev/fd"))
    results = await asyncio.gather(*(execute("sh", "-c", f"echo {n}; exit {n}") for n in range(40)))
    assert [(result.exit_code, result.stdout) for result in results] == [(n, f"{n}\n") for n in range(40)]
    assert children() <= others
    assert len(os.listdir("/dev/fd")) == before


async def test_a_program_that_is_cancelled_while_its_pipes_are_connected_leaves_none_open() -> None:
    async def stay() -> None:
        async with running("sleep", "1000"):
            await asyncio.sleep(1000)

    before = len(os.listdir("/dev/fd"))
    # Cancel after some turns of the event loop, so that a few are about to connect.
    for rounds in range(8):
        staying = asyncio.create_task(stay())
        for _ in range(rounds):
            await asyncio.sleep(0)
        staying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await staying
    await eventually(lambda: len(os.listdir("/dev/fd")) == before)


@pytest.mark.timed
async def test_waiting_for_a_grandchild_that_holds_the_pipes_costs_nothing() -> None:
    started = time.process_time()
    await execute("sh", "-c", "sleep 1000 &")
    judge(time.process_time() - started, GRACE / 4)


def test_programs_end_too_where_the_kernel_has_no_handle_for_them() -> None:
    script = (
        "import asyncio, os\nfrom atomic.processes import execute\n"
        "if hasattr(os, 'pidfd_open'): del os.pidfd_open\n"
        "print(asyncio.run(execute('sh', '-c', 'cat; exit 7', input='heard', timeout=20)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert "exit_code=7, stdout='heard'" in result.stdout


def test_survivors_are_named() -> None:
    error = ExecTimeoutError(["make"], timeout=5, stdout="", stderr="", survivors=["77 (cc)"])
    assert str(error).endswith("; still alive after SIGKILL: 77 (cc)")
