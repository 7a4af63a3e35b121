"""Long-running programs exchange lines, and end with their context without a trace."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time

import pytest

from atomic.processes import ProgramNotFoundError, running
from tests.support.processes import is_alive as alive
from tests.support.timing import judge
from tests.support.waits import eventually

ECHO = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


async def test_a_program_exchanges_lines_with_its_caller() -> None:
    async with running(*python(ECHO)) as program:
        assert program.stdin is not None
        program.stdin.write(b"hello\n")
        assert await program.stdout.readline() == b"HELLO\n"
        assert program.exit_code is None
    assert program.exit_code is not None
    assert not alive(program.pid)


async def test_the_end_of_a_program_is_reported_at_once_with_its_last_output() -> None:
    async with running(
        *python("import sys; sys.stderr.write('x' * 200_000 + 'no such model'); sys.exit(3)")
    ) as program:
        async with asyncio.timeout(120):
            assert await program.wait() == 3
            assert await program.stdout.read() == b""
        await eventually(lambda: program.stderr_tail.endswith("no such model"))
    assert len(program.stderr_tail) <= 64 * 1024


@pytest.mark.timed
async def test_children_that_ignore_term_end_too() -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    code = (
        f"import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', {deaf!r}]);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    async with running(*python(code), grace=0.3) as program:
        lines = {(await program.stdout.readline()).strip() for _ in range(2)}
        child = int((lines - {b"up"}).pop())
        began = time.monotonic()
    judge(time.monotonic() - began, 10)
    assert not alive(program.pid)
    assert not alive(child)


async def test_a_cancellation_ends_the_program_and_is_raised() -> None:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with running(*python("import time; time.sleep(60)")) as program:
            started.set_result(program.pid)
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    pid = await started
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # a second one does not shorten the clean-up
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


async def test_a_missing_program_is_reported_by_name() -> None:
    with pytest.raises(ProgramNotFoundError, match="no-such-agent"):
        async with running("no-such-agent"):
            pass


async def test_nothing_is_left_open() -> None:
    async def once() -> None:
        async with running(*python(ECHO)) as program:
            assert program.stdin is not None
            program.stdin.write(b"x\n")
            await program.stdout.readline()

    await once()
    files = len(os.listdir("/proc/self/fd"))
    threads = set(threading.enumerate())
    for _ in range(5):
        await once()
    assert len(os.listdir("/proc/self/fd")) <= files
    # A finished thread is still listed for a moment.
    await eventually(lambda: set(threading.enumerate()) <= threads)


async def test_a_program_dies_with_its_owner() -> None:
    code = (
        "import asyncio, sys\nfrom atomic.processes import running\n"
        "async def main():\n"
        "    async with running(sys.executable, '-c', 'import time; time.sleep(60)') as program:\n"
        "        print(program.pid, flush=True)\n        await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    async with running(*python(code)) as owner:
        pid = int(await owner.stdout.readline())
        assert alive(pid)
        os.kill(owner.pid, signal.SIGKILL)
        await eventually(lambda: not alive(pid))
