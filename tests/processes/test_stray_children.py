"""The descendants of a program are found by their mark, in any session or group."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from atomic.processes import end_marked, find_marked, new_mark, running
from tests.support.processes import is_alive
from tests.support.timing import judge
from tests.support.waits import eventually

# A child in its own session that ignores all signals it can, as an agent's shell may.
PARENT = """
import subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.timed
async def test_a_child_that_moved_away_is_found_and_ended_after_its_parent_was_killed() -> None:
    mark = new_mark()
    async with running(sys.executable, "-c", PARENT, env={**os.environ, **mark}) as program:
        child = int(await program.stdout.readline())
        assert sorted(find_marked(mark)) == sorted([program.pid, child])
        assert find_marked(new_mark()) == []
        os.kill(program.pid, signal.SIGKILL)
        async with asyncio.timeout(120):
            await program.wait()
        assert find_marked(mark) == [child]  # not in the process group
    assert is_alive(child)
    began = time.monotonic()
    assert await end_marked(mark) == []
    judge(time.monotonic() - began, 5)
    assert not is_alive(child)


async def test_a_child_that_moved_away_dies_with_atomic_even_by_kill_9() -> None:
    mark = new_mark()
    atomic = f"""
import asyncio, os, sys
from atomic.processes import running
async def main():
    async with running(sys.executable, "-c", {PARENT!r}, env={{**os.environ, **{mark!r}}}) as program:
        print((await program.stdout.readline()).decode(), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    async with running(sys.executable, "-c", atomic) as program:
        child = int(await program.stdout.readline())
        assert is_alive(child)
        os.kill(program.pid, signal.SIGKILL)
        await eventually(lambda: not find_marked(mark))
        await eventually(lambda: not is_alive(child))  # one that is ending has no variables any more
