"""Bookings are cancelled in reverse order, and once."""

import asyncio

from saga import booked, trip

from atomic.workflows import MemoryJournal, RunStatus


def test_a_trip_without_a_car_is_cancelled() -> None:
    async def run() -> None:
        journal = MemoryJournal()
        ended = await trip.run(["flight", "hotel", "car"], journal=journal, execution_id="mine")
        assert ended.status is RunStatus.FAILED
        assert str(ended.error) == "book: ValueError: no car is free"
        assert booked == []
        again = await trip.resume(journal, "mine")  # the run is over: nothing runs again
        assert str(again.error) == str(ended.error)

    asyncio.run(run())
    assert asyncio.run(trip.run(["flight"])).result == booked == ["flight"]
