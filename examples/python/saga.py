"""Book a trip, or cancel its bookings."""

from atomic.workflows import Flow, Retry, step, workflow

booked: list[str] = []  # instead of the services that a real trip calls


@step(retry=Retry(0.1, attempts=3, retry_on=ConnectionError))
async def book(thing: str) -> str:
    if thing == "car":
        raise ValueError("no car is free")
    booked.append(thing)
    return thing


@step
async def cancel(thing: str) -> None:
    booked.remove(thing)


@workflow
async def trip(flow: Flow, things: list[str]) -> list[str]:
    for thing in things:
        await book(thing)
        flow.compensate(cancel, thing)
    return things
