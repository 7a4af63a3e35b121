"""Temporal's samples for Python, with the values of their tests."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from atomic.workflows import Flow, Journal, Retry, RunStatus, current_step, step, workflow
from tests.graph.engine.waiting import Clock, Host
from tests.ports.source import port


@port("Temporal", "tutorials/python/sagas", lines=78)
@pytest.mark.parametrize("hotel", ["valid-hotel-id", "invalid-hotel-id"])
async def test_saga(journal: Journal, hotel: str) -> None:
    undone: list[str] = []

    @step
    async def book(thing: str) -> str:
        return thing

    @step(retry=Retry(0, attempts=5, retry_on=RuntimeError))
    async def book_hotel(hotel: str) -> str:
        context = current_step()
        if context is not None and context.attempt < 2:
            raise RuntimeError("Hotel service is down. Retrying...")
        if "invalid" in hotel:
            raise ValueError("Invalid hotel booking, rolling back!")
        return hotel

    @step
    async def undo(thing: str) -> None:
        undone.append(thing)

    @workflow
    async def book_vacation(flow: Flow, car: str, hotel: str, flight: str) -> dict[str, str]:
        flow.compensate(undo, car)
        booked = {"booked_car": await book(car)}
        flow.compensate(undo, hotel)
        booked["booked_hotel"] = await book_hotel(hotel)
        flow.compensate(undo, flight)
        booked["booked_flight"] = await book(flight)
        return booked

    ended = await book_vacation.run("valid-car-id", hotel, "valid-flight-id", journal=journal, execution_id="1")
    if hotel == "valid-hotel-id":
        assert ended.result == {
            "booked_car": "valid-car-id",
            "booked_hotel": "valid-hotel-id",
            "booked_flight": "valid-flight-id",
        }
        assert undone == []
    else:
        assert ended.status is RunStatus.FAILED
        assert "Invalid hotel booking, rolling back!" in str(ended.error)
        assert undone == ["invalid-hotel-id", "valid-car-id"]


@port("Temporal", "hello/hello_child_workflow.py", lines=30)
async def test_child_workflow(journal: Journal) -> None:
    @dataclass
    class ComposeGreetingInput:
        greeting: str
        name: str

    @workflow
    async def compose_greeting(flow: Flow, input: ComposeGreetingInput) -> str:
        return f"{input.greeting}, {input.name}!"

    @workflow
    async def greet(flow: Flow, name: str) -> str:
        return await flow.run(compose_greeting, ComposeGreetingInput("Hello", name))

    assert (await greet.run("World", journal=journal)).result == "Hello, World!"


@port("Temporal", "hello/hello_signal.py", lines=31)
async def test_signals(journal: Journal) -> None:
    @workflow
    async def greet(flow: Flow) -> list[str]:
        greetings: list[str] = []
        while True:
            name = await flow.signal("greeting", returns=str)
            if not name:
                return greetings
            greetings.append(f"Hello, {name}")

    assert (await greet.run(journal=journal, execution_id="1")).status is RunStatus.PAUSED
    for name in ("user1", "user2"):
        journal.signal("1", "greeting", name)
    assert (await greet.resume(journal, "1")).status is RunStatus.PAUSED
    journal.signal("1", "greeting", "")
    ended = await greet.resume(journal, "1")
    assert (ended.status, ended.result) == (RunStatus.COMPLETED, ["Hello, user1", "Hello, user2"])


@port("Temporal", "sleep_for_days", lines=45)
async def test_sleep_for_days(journal: Journal) -> None:
    clock = Clock()
    sent: list[str] = []

    @step
    async def send_email(text: str) -> None:
        sent.append(text)

    @workflow
    async def remind(flow: Flow, days: int) -> str:
        complete = asyncio.create_task(flow.signal("complete"))
        while not complete.done():
            await send_email(f"{days} until the next email")
            await asyncio.wait([complete, asyncio.create_task(flow.sleep(days=days))], return_when="FIRST_COMPLETED")
        return "done!"

    host = Host(clock=clock, park=True)
    assert (await remind.run(30, journal=journal, execution_id="1", deps=host)).status is RunStatus.PAUSED
    assert len(sent) == 1
    for days in (30, 60, 90):
        clock.ahead = days * 86400 + 1
        await remind.resume(journal, "1", deps=host)
    assert len(sent) == 4
    journal.signal("1", "complete")
    assert (await remind.resume(journal, "1", deps=host)).result == "done!"
    assert len(sent) == 4


@port("Temporal", "updatable_timer", lines=64)
async def test_updatable_timer(journal: Journal) -> None:
    clock = Clock()

    @workflow
    async def timer(flow: Flow, wake_up_time: datetime) -> None:
        while True:
            update = asyncio.create_task(flow.signal("update_wake_up_time", returns=datetime))
            sleep = asyncio.create_task(flow.sleep_until(wake_up_time))
            await asyncio.wait([update, sleep], return_when="FIRST_COMPLETED")
            if sleep.done():
                update.cancel()
                return
            sleep.cancel()
            wake_up_time = await update

    host = Host(clock=clock, park=True)
    now = datetime.now(UTC)
    in_a_day = now + timedelta(days=1)
    in_an_hour = now + timedelta(hours=1)
    ended = await timer.run(in_a_day, journal=journal, execution_id="1", deps=host)
    assert ended.wake_at == pytest.approx(in_a_day.timestamp())
    journal.signal("1", "update_wake_up_time", in_an_hour.isoformat())
    ended = await timer.resume(journal, "1", deps=host)
    assert ended.wake_at == pytest.approx(in_an_hour.timestamp())
    clock.ahead = 3601
    assert (await timer.resume(journal, "1", deps=host)).status is RunStatus.COMPLETED
