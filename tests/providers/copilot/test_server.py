"""Test the program that all sessions of a process share: it is private and ends with the last one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from atomic.providers import EndReason, ToolStarted
from atomic.testing.model_server import Drip, Script
from tests.providers.copilot.sandbox import PROGRAM, bash, sandbox
from tests.providers.processes import appears, children, disappears, find, listening, with_home
from tests.providers.turns import LIMIT, end, end_of, turn
from tests.support.waits import eventually

ATOMIC_PROCESS = """
import asyncio, os, sys
from atomic.config import ProviderSettings, Settings
from atomic.providers import SessionOptions, require_provider

async def main():
    settings = Settings(providers={"copilot": ProviderSettings(path=sys.argv[1])})
    async with require_provider("copilot", settings).open(SessionOptions(cwd=sys.argv[2])):
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_sessions_share_a_server_without_a_port_that_ends_with_the_last_one(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "hello"}) as here:
        async with here.open() as first:
            async with here.open() as second:
                [server] = with_home(here.home, "--headless")
                assert not listening(server)
                assert (await end(second, "@@say@@")).text == "hello"
            assert with_home(here.home, "--headless") == [server]
            assert (await end(first, "@@say@@")).text == "hello"
            async with here.open(env={"OTHER": "1"}):
                assert len(with_home(here.home, "--headless")) == 2
            assert with_home(here.home, "--headless") == [server]
        assert not with_home(here.home, "--headless")


async def test_a_session_leaves_no_processes_files_threads_or_tasks(tmp_path: Path) -> None:
    async with sandbox(
        tmp_path, {"say": "hello", "slow": Drip("w", 1000, 0.05), "run": [[bash("echo 1")], "done"]}
    ) as here:
        async with here.open() as session:  # loads everything that stays loaded
            await end(session, "@@say@@")
        gc.collect()
        before = threading.active_count(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), children()
        async with here.open() as session, here.open() as other:
            await asyncio.gather(end(session, "@@run@@"), end(other, "@@say@@"))
            async for _ in session.send("@@slow@@"):
                await session.interrupt()
        async with asyncio.timeout(LIMIT):
            while len(asyncio.all_tasks()) > before[2]:  # the model server's connections are still ending
                await asyncio.sleep(0.01)
        gc.collect()
        after = threading.active_count(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), children()
        assert after == before


async def test_the_server_dies_with_atomic_even_after_sigkill(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {}) as here:
        atomic = subprocess.Popen(
            [sys.executable, "-c", ATOMIC_PROCESS, str(PROGRAM), str(here.work)], env=here.env, stdout=subprocess.PIPE
        )
        assert atomic.stdout is not None
        with atomic.stdout:
            try:
                assert await asyncio.to_thread(atomic.stdout.readline) == b"open\n"
                [server] = with_home(here.home, "--headless")
            finally:
                atomic.kill()
                atomic.wait()
        await eventually(lambda: server not in with_home(here.home, "--headless"))


async def test_sessions_of_a_killed_server_continue_in_a_new_one(tmp_path: Path) -> None:
    scripts = {"say": "hello", "slow": Drip("w", 1000, 0.05), "run": [[bash("sleep 4711")], "never"]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session, here.open() as other:
        await end(other, "@@say@@ my number is 4712")
        running = asyncio.create_task(turn(session, "@@run@@"))
        talking = asyncio.create_task(turn(other, "@@slow@@"))
        await appears("sleep 4711")
        await here.server.wait_for(lambda call: call.script == "slow")
        [server] = with_home(here.home, "--headless")
        os.kill(server, signal.SIGKILL)
        for events in (await running, await talking):
            assert end_of(events).reason is EndReason.ERROR
            assert f"Copilot (process {server}) was ended by SIGKILL" in str(end_of(events).error)
        assert (await end(session, "@@say@@")).text == "hello"
        assert (await end(other, "@@say@@ which?")).text == "hello"
        assert "4712" in str(here.server.calls[-1].body)
        [new] = with_home(here.home, "--headless")
        assert new != server
        await disappears("sleep 4711")  # though it had a process session of its own


async def test_a_server_that_hangs_is_replaced_and_its_other_turns_end_with_an_error(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {"say": "hello", "slow": Drip("w", 1000, 0.05)}
    async with sandbox(tmp_path, scripts) as here, here.open() as session, here.open() as other:
        running, talking = (asyncio.create_task(turn(one, "@@slow@@")) for one in (session, other))
        await eventually(lambda: len(here.server.calls) >= 2)
        [server] = with_home(here.home, "--headless")
        os.kill(server, signal.SIGSTOP)
        await session.interrupt()
        assert end_of(await running).reason is EndReason.INTERRUPTED
        assert f"Copilot (process {server}) stopped answering" in str(end_of(await talking).error)
        assert (await end(session, "@@say@@")).text == "hello"
        assert (await end(other, "@@say@@")).text == "hello"
        # A stopped process is ended in the background.
        await eventually(lambda: server not in with_home(here.home, "--headless"))


async def test_a_server_killed_between_turns_is_started_again(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "hello"}) as here, here.open() as session:
        await end(session, "@@say@@ my number is 4713")
        [server] = with_home(here.home, "--headless")
        os.kill(server, signal.SIGKILL)
        await eventually(lambda: server not in with_home(here.home, "--headless"))
        assert (await end(session, "@@say@@ which?")).text == "hello"
        assert "4713" in str(here.server.calls[-1].body)


async def test_background_processes_end_with_their_session(tmp_path: Path) -> None:
    scripts = {"run": [[bash("sleep 4714", mode="async", detach=True)], "started"], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open() as other:
        async with here.open() as session:
            events = await turn(session, "@@run@@")
            assert end_of(events).text == "started"
            assert [event for event in events if isinstance(event, ToolStarted)]
            assert find("sleep 4714")
        await disappears("sleep 4714")
        assert (await end(other, "@@say@@")).text == "hello"
