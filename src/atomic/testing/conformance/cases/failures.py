"""A provider that fails, is overloaded or breaks off: the turn ends once, with the reason."""

from __future__ import annotations

from datetime import UTC, datetime

from atomic.providers import EndReason, LimitReached
from atomic.testing.conformance.case import Cases
from atomic.testing.conformance.case_setup import World
from atomic.testing.model_server import Cut, Fail, HalfCharacter, Say, Stall

cases = Cases("Failures")


async def _fails(world: World, reason: EndReason, *words: str) -> None:
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(reason)
        assert heard.end.error, heard
        for word in words:
            assert word in heard.end.error, heard.end.error
        assert (await world.turn(session, "next")).ended().end.text == "Still here."


@cases.case(lambda stage: {"fail": Fail(400, message="the scripted model is confused"), "next": "Still here."})
async def a_bad_request(world: World) -> None:
    """400: an error with the provider's own words."""
    await _fails(world, EndReason.ERROR, "confused")


@cases.case(lambda stage: {"fail": Fail(401, message="the key is not valid"), "next": "Still here."})
async def a_wrong_key(world: World) -> None:
    """401: an error that speaks of the key."""
    await _fails(world, EndReason.ERROR)


@cases.case(lambda stage: {"fail": Fail(500), "next": "Still here."})
async def an_internal_error(world: World) -> None:
    """500: an error."""
    await _fails(world, EndReason.ERROR)


@cases.case(lambda stage: {"fail": Fail(429, message="too many requests", headers={"retry-after": "600"})})
async def a_limit_with_a_reset_time(world: World) -> None:
    """429 with a time: the limit is told with it, and the turn ends at the limit."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(EndReason.LIMIT)
    limits = heard.of(LimitReached)
    assert limits
    known = [limit.reset_at for limit in limits if limit.reset_at is not None]
    for reset_at in known:
        assert 0 < (reset_at - datetime.now(UTC)).total_seconds() < 700, reset_at


@cases.case(lambda stage: {"fail": Fail(429, message="too many requests")})
async def a_limit_without_a_reset_time(world: World) -> None:
    """429 without a time: the turn ends at the limit all the same."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(EndReason.LIMIT)
    assert heard.of(LimitReached)


@cases.case(lambda stage: {"fail": Fail(529, message="overloaded")})
async def an_overload(world: World) -> None:
    """529: the turn ends at the limit."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(EndReason.LIMIT)
    assert heard.of(LimitReached)


@cases.case(lambda stage: {"cut": [[Say("This answer is cut in the"), Cut()]] * 12})
async def the_stream_is_cut(world: World) -> None:
    """A stream that closes in mid-event never counts as done."""
    async with world.open() as session:
        heard = await world.turn(session, "cut")
    assert heard.end.reason in (EndReason.ERROR, EndReason.LIMIT), heard


@cases.case(lambda stage: {"half": [[Say("The price is 3 "), HalfCharacter("€", cut=True)]] * 12})
async def half_a_character_and_no_more(world: World) -> None:
    """Half a character, and then nothing: an error, not a crash."""
    async with world.open() as session:
        heard = await world.turn(session, "half")
    assert heard.end.reason in (EndReason.ERROR, EndReason.LIMIT), heard


@cases.case(lambda stage: {"stall": [[Say("One moment"), Stall()]], "next": "Still here."})
async def a_stalled_stream_can_be_stopped(world: World) -> None:
    """A model that stalls without closing does not hold anybody: the turn can be stopped and the session goes on."""
    async with world.open() as session:
        await world.interrupted(session, "stall", lambda event: bool(getattr(event, "text", "")))
        assert (await world.turn(session, "next")).ended().end.text == "Still here."
