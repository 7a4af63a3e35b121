"""The client of a real engine process: every run ends, even if the engine fails."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from atomic.chat.client import ProcessClient
from atomic.chat.protocol import (
    Activity,
    ChatEvent,
    ChatNotice,
    Interrupt,
    Leave,
    Left,
    RunEnded,
    RunStarted,
    ScreenSize,
    StatusChanged,
    Submit,
)
from tests.chat.faulty_engine import engine_program
from tests.support.processes import is_alive
from tests.support.timing import judge
from tests.support.waits import HANG as LIMIT
from tests.support.waits import eventually

# Seconds. Only ends a hang.


class Listener:
    """Collects all events of a client."""

    def __init__(self, client: ProcessClient) -> None:
        self.client = client
        self.received: list[ChatEvent] = []
        self._more = asyncio.Event()

    async def listen(self) -> None:
        async for event in self.client.events():
            self.received.append(event)
            self._more.set()

    async def until(self, matches: Callable[[ChatEvent], bool]) -> ChatEvent:
        """Wait for the first received event that matches."""
        async with asyncio.timeout(LIMIT):
            while True:
                found = next((event for event in self.received if matches(event)), None)
                if found is not None:
                    return found
                self._more.clear()
                await self._more.wait()

    async def end_of(self, run: str) -> RunEnded:
        event = await self.until(lambda event: isinstance(event, RunEnded) and event.run == run)
        assert isinstance(event, RunEnded)
        return event

    async def status(self, at: int = 0) -> StatusChanged:
        await self.until(lambda _: len(self._statuses()) > at)
        return self._statuses()[at]

    def _statuses(self) -> list[StatusChanged]:
        return [event for event in self.received if isinstance(event, StatusChanged)]


@asynccontextmanager
async def connected(folder: Path, **options: str) -> AsyncGenerator[Listener]:
    client = ProcessClient(["--agent", "claude"], program=engine_program(folder), **options)
    listener = Listener(client)
    task = asyncio.create_task(listener.listen())
    try:
        yield listener
    finally:
        async with asyncio.timeout(LIMIT):
            await client.close()
            await task


async def test_the_first_intent_starts_an_engine_with_the_arguments(tmp_path: Path) -> None:
    async with connected(tmp_path, session="old") as listener:
        assert listener.received == []
        listener.client.send(ScreenSize(width=80))

        assert (await listener.status()).provider == "--agent claude --resume old"


async def test_a_run_ends_once_and_the_engine_ends_with_the_client(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="echo"))
        assert (await listener.end_of("1")).status == "done"
        pid = (await listener.status()).model
    assert not is_alive(int(pid))
    assert len([event for event in listener.received if isinstance(event, RunEnded)]) == 1


async def test_a_dead_engine_ends_all_runs_and_the_next_text_starts_another(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="nothing"))
        await listener.until(lambda event: isinstance(event, RunStarted))
        listener.client.send(Submit(run="2", text="workflow"))
        listener.client.send(Submit(run="3", text="die"))
        listener.client.send(Submit(run="4", text="never read"))

        first, flow, third, last = [await listener.end_of(run) for run in "1234"]
        assert first.status == third.status == last.status == "failed"
        assert first.message == "The engine died (exit code 3): last message"
        assert (flow.status, flow.resume) == ("detached", "/resume w-1")

        listener.client.send(Interrupt(run="1"))  # starts no engine
        listener.client.send(Submit(run="5", text="echo"))
        assert (await listener.end_of("5")).status == "done"
        assert (await listener.status(1)).provider == "--agent claude --resume s-1"


@pytest.mark.timed
async def test_a_killed_engine_is_noticed_while_its_child_holds_the_socket(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        started = time.monotonic()
        listener.client.send(Submit(run="1", text="leave a child"))

        assert (await listener.end_of("1")).status == "failed"
        judge(time.monotonic() - started, 5)


@pytest.mark.timed
async def test_a_stuck_engine_is_killed_a_second_after_a_forced_stop(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="stick"))
        await listener.until(lambda event: isinstance(event, RunStarted))
        pid = (await listener.status()).model
        started = time.monotonic()
        listener.client.send(Interrupt(run="1"))
        listener.client.send(Interrupt(run="1", force=True))

        assert (await listener.end_of("1")).status == "failed"
        took = time.monotonic() - started
        assert took > 0.9
        judge(took, 3)
        assert not is_alive(int(pid))


async def test_an_engine_that_never_starts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atomic.chat.client.START_LIMIT", 1.5)
    async with connected(tmp_path) as listener:
        listener.client.send(ScreenSize(width=80))
        await listener.status()
        listener.client.send(Submit(run="1", text="stick"))
        await listener.until(lambda event: isinstance(event, RunStarted))
        listener.client.send(Submit(run="2", text="never read"))

        assert (await listener.end_of("2")).status == "failed"


async def test_a_run_ends_even_if_the_engine_ignores_the_stop(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="nothing"))
        await listener.until(lambda event: isinstance(event, RunStarted))
        listener.client.send(Interrupt(run="1", force=True))

        assert (await listener.end_of("1")).status == "interrupted"
        assert is_alive(int((await listener.status()).model))


@pytest.mark.timed
async def test_keys_are_handled_during_a_flood_of_events(tmp_path: Path) -> None:
    gc.collect()
    # Keep objects of earlier tests out of garbage collection.
    gc.freeze()
    async with connected(tmp_path) as listener:
        worst = 0.0
        listener.client.send(Submit(run="1", text="flood"))
        await listener.until(lambda event: isinstance(event, RunStarted))
        while not isinstance(listener.received[-1], RunEnded):
            # CPU time of this process, because the machine may be busy.
            before = time.process_time()
            await asyncio.sleep(0)
            worst = max(worst, time.process_time() - before)
        texts = [event for event in listener.received if isinstance(event, Activity)]

    assert len(texts) == 20000
    judge(worst, 0.05)


async def test_unreadable_lines_are_reported_and_the_rest_arrives(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="garbage"))

        assert (await listener.end_of("1")).status == "done"
        assert any("cannot be read" in event.text for event in listener.received if isinstance(event, ChatNotice))


async def test_the_engines_last_message_arrives(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="nothing"))
        listener.client.send(Leave())

        event = await listener.until(lambda event: isinstance(event, Left))
        assert event == Left(message="resume with it")
        assert (await listener.end_of("1")).status == "interrupted"


@pytest.mark.timed
async def test_closing_takes_a_limited_time_even_if_the_engine_is_stuck(tmp_path: Path) -> None:
    async with connected(tmp_path) as listener:
        listener.client.send(Submit(run="1", text="stick"))
        await listener.until(lambda event: isinstance(event, RunStarted))
        pid = (await listener.status()).model
        started = time.monotonic()
        await listener.client.close()

        judge(time.monotonic() - started, 4.5)
        assert not is_alive(int(pid))


async def test_an_engine_that_cannot_be_started_ends_the_run(tmp_path: Path) -> None:
    client = ProcessClient(program=[str(tmp_path / "nothing")])
    listener = Listener(client)
    task = asyncio.create_task(listener.listen())
    client.send(Submit(run="1", text="hello"))

    assert "could not be started" in (await listener.end_of("1")).message
    await client.close()
    await task


@pytest.mark.full
async def test_an_engine_dies_with_its_screen(tmp_path: Path) -> None:
    """Kill the screen with SIGKILL; even a stuck engine ends."""
    program = engine_program(tmp_path)
    code = (
        "import asyncio, sys\n"
        "from atomic.chat.client import ProcessClient\n"
        "from atomic.chat.protocol import Submit\n"
        "async def main():\n"
        "    client = ProcessClient(program=sys.argv[1:])\n"
        "    client.send(Submit(run='1', text='stick'))\n"
        "    async for event in client.events():\n"
        "        print(getattr(event, 'model', ''), flush=True)\n"
        "asyncio.run(main())\n"
    )
    screen = await asyncio.create_subprocess_exec(program[0], "-c", code, *program, stdout=asyncio.subprocess.PIPE)
    assert screen.stdout is not None
    pid = ""
    async with asyncio.timeout(LIMIT):
        while not pid:
            pid = (await screen.stdout.readline()).decode().strip()
        await screen.stdout.readline()  # the run has started and is stuck
        screen.kill()
        await screen.wait()
        await eventually(lambda: not is_alive(int(pid)))
    with suppress(ProcessLookupError):
        os.kill(int(pid), 0)
