"""Test the server that all sessions of a process share: it is private and ends with the last one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import AgentSession, EndReason, ProviderError, SessionOptions, ToolStarted, require_provider
from atomic.testing.model_server import CallState, Drip
from tests.providers.opencode.sandbox import PROGRAM, bash, provider, sandbox
from tests.providers.processes import appears, children, disappears, find, listening, with_home
from tests.providers.turns import LIMIT, end, end_of, turn
from tests.support.programs import use_opencode_before
from tests.support.waits import eventually

LOOPBACK = "0100007F"  # 127.0.0.1
ATOMIC_PROCESS = """
import asyncio, sys
from atomic.config import ProviderSettings, Settings
from atomic.providers import SessionOptions, require_provider

async def main():
    settings = Settings(providers={"opencode": ProviderSettings(path=sys.argv[1])})
    async with require_provider("opencode", settings).open(SessionOptions(cwd=sys.argv[2])) as session:
        async for event in session.send("@@tool@@"):
            print(type(event).__name__, flush=True)

asyncio.run(main())
"""
SCRIPTS = {
    "say": "hello",
    "slow": Drip("word", 2000, 0.05),
    "tool": [[bash("exec -a sleeper-of-the-server sleep 300")], "slept"],
}


async def test_sessions_share_a_private_server_that_ends_with_the_last_one(tmp_path: Path) -> None:
    async with sandbox(tmp_path, SCRIPTS) as here:
        async with here.open() as first:
            [server] = with_home(here.home, "serve --hostname")
            [(address, port)] = listening(server)
            assert address == LOOPBACK
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=LIMIT) as probe:
                for path in ("/session", "/config", "/global/event", "/doc", "/"):
                    assert (await probe.get(path)).status_code == 401
                for user in ("opencode", "atomic"):
                    assert (await probe.get("/session", auth=(user, "guessed"))).status_code == 401
            async with here.open(system_prompt="x", tools=["read"]) as second:
                assert with_home(here.home, "serve --hostname") == [server]
                assert (await end(second, "@@say@@")).text == "hello"
            assert (await end(first, "@@say@@")).text == "hello"
            async with here.open(env={"OTHER": "1"}):
                assert len(with_home(here.home, "serve --hostname")) == 2
            assert with_home(here.home, "serve --hostname") == [server]
        assert not with_home(here.home, "serve --hostname")


@pytest.mark.ci
async def test_servers_that_start_at_once_share_a_new_database(tmp_path: Path) -> None:
    async with sandbox(tmp_path, SCRIPTS) as here, AsyncExitStack() as stack:
        use_opencode_before(here.home)
        opening = [stack.enter_async_context(here.open(env={"WORKER": str(number)})) for number in range(4)]
        sessions = await asyncio.gather(*opening)
        assert len(with_home(here.home, "serve --hostname")) == 4
        assert [(await end(session, "@@say@@")).text for session in sessions] == ["hello"] * 4


async def test_a_session_leaves_no_processes_files_threads_or_tasks(tmp_path: Path) -> None:
    async with sandbox(tmp_path, SCRIPTS) as here:
        async with here.open() as session:  # loads everything that stays loaded
            await end(session, "@@say@@")
        gc.collect()
        before = open_resources()
        async with here.open() as session, here.open() as other:
            await asyncio.gather(end(session, "@@say@@"), interrupt_in_a_tool(other))
            async for _ in session.send("@@slow@@"):
                await session.interrupt()
        async with asyncio.timeout(LIMIT):
            while open_resources() != before:  # the model server's connections are still ending
                gc.collect()
                await asyncio.sleep(0.02)
        assert not find("sleeper-of-the-server")


def open_resources() -> tuple[int, int, int, list[int]]:
    return threading.active_count(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), children()


async def interrupt_in_a_tool(session: AgentSession) -> None:
    async with asyncio.timeout(LIMIT):
        async for event in session.send("@@tool@@"):
            if isinstance(event, ToolStarted):
                await appears("sleeper-of-the-server")
                await session.interrupt()


async def test_the_server_and_its_tools_die_with_atomic_even_after_sigkill(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"tool": [[bash("exec -a sleeper-of-atomic sleep 300")], "slept"]}) as here:
        command = [sys.executable, "-c", ATOMIC_PROCESS, str(PROGRAM), str(here.work)]
        atomic = subprocess.Popen(command, env=here.env, stdout=subprocess.PIPE)
        try:
            await appears("sleeper-of-atomic")
            assert len(with_home(here.home, "serve --hostname")) == 1
        finally:
            atomic.kill()
            atomic.communicate()
        await eventually(lambda: not with_home(here.home, "serve --hostname") and not find("sleeper-of-atomic"))


async def test_sessions_of_a_killed_server_continue_in_a_new_one(
    tmp_path: Path,
) -> None:
    async with sandbox(tmp_path, SCRIPTS) as here, here.open() as one, here.open() as two:
        [server] = with_home(here.home, "serve --hostname")
        ids = one.id, two.id
        turns = [asyncio.create_task(turn(one, "@@tool@@")), asyncio.create_task(turn(two, "@@slow@@"))]
        await appears("sleeper-of-the-server")
        await here.server.wait_for(lambda call: call.script == "slow" and call.state is CallState.OPEN)
        os.kill(server, signal.SIGKILL)
        for ended in [end_of(events) for events in await asyncio.gather(*turns)]:
            assert ended.reason is EndReason.ERROR
            assert "SIGKILL" in (ended.error or "")
        await disappears("sleeper-of-the-server")
        answers = await asyncio.gather(end(one, "@@say@@ again"), end(two, "@@say@@ again"))
        assert [answer.text for answer in answers] == ["hello", "hello"]
        assert ids == (one.id, two.id)
        assert "@@tool@@" in str(here.server.calls[-2].body) + str(here.server.calls[-1].body)
        [other] = with_home(here.home, "serve --hostname")
        assert other != server


async def test_a_missing_folder_is_an_error_before_the_server_starts(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="Folder not found"):
        async with provider(Path("/bin/false")).open(SessionOptions(cwd=tmp_path / "nowhere")):
            pass


@pytest.mark.parametrize("id", ["../../x", "status", "ses_1/../ses_2", "ses_1?a=b", ""])
async def test_an_invalid_session_id_is_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(ProviderError, match="OpenCode has no session"):
        async with provider(Path("/bin/false")).open(SessionOptions(cwd=tmp_path, resume=id)):
            pass


_MUTE = """#!{python}
import socket, sys, time
if "--version" in sys.argv:
    sys.exit(print("1.0.0"))
server = socket.create_server(("127.0.0.1", 0))
print(f"listening on http://127.0.0.1:{{server.getsockname()[1]}}", flush=True)
time.sleep(600)
"""


async def test_a_server_that_never_answers_fails_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "opencode"
    program.write_text(_MUTE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("ATOMIC_START_SECONDS", "2")
    settings = Settings(providers={"opencode": ProviderSettings(path=str(program))})
    async with asyncio.timeout(LIMIT):
        with pytest.raises(ProviderError, match="OpenCode did not start within 2 s") as caught:
            async with require_provider("opencode", settings).open(SessionOptions(cwd=str(tmp_path))):
                pass
    assert "ATOMIC_START_SECONDS=120" in str(caught.value.remedy)
