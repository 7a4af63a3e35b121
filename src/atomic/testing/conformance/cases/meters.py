"""Cases about the cost of a turn and the size of the context."""

from __future__ import annotations

from atomic.providers import UsageReported
from atomic.testing.conformance.case import Cases, World
from atomic.testing.model_server import Say, Tokens

cases = Cases("Meters")
COST = Tokens(input=800, output=500, cached=200)


@cases.case(lambda stage: {"u": [[Say("Used."), COST]]}, needs=lambda can: can.usage)
async def usage_is_told(world: World) -> None:
    """Report tokens in, out and cached, in the events and at the end."""
    async with world.open() as session:
        heard = (await world.turn(session, "u")).ended()
    usage = heard.end.usage
    assert usage.output == 500, usage
    assert usage.cached == 200, usage
    assert usage.input == 1000, usage
    assert sum(event.usage.output for event in heard.of(UsageReported)) == 500


@cases.case(
    lambda stage: {"u": [[stage.words.bash("true"), COST], [Say("Used."), COST]]},
    needs=lambda can: can.usage,
)
async def usage_of_all_calls_adds_up(world: World) -> None:
    """Count all model calls of a turn."""
    async with world.open() as session:
        heard = (await world.turn(session, "u")).ended()
    assert heard.end.usage.output == 1000, heard.end.usage


@cases.case(lambda stage: {"u": [[Say("Used."), COST]]}, needs=lambda can: can.cost)
async def the_cost_is_told(world: World) -> None:
    """Report dollars, if the provider knows them."""
    async with world.open() as session:
        heard = (await world.turn(session, "u")).ended()
    assert heard.end.usage.cost
    assert heard.end.usage.cost > 0


@cases.case(lambda stage: {"u": [[Say("Used."), Tokens(input=5000, output=10)]]}, needs=lambda can: can.context_meter)
async def the_context_meter_moves(world: World) -> None:
    """Report how full the context is, and its size."""
    async with world.open() as session:
        (await world.turn(session, "u")).ended()
        usage = await session.context()
    assert usage.limit > usage.used > 0, usage


@cases.case(lambda stage: {"a": "One. " * 50, "b": "Two. " * 50, "next": "Still here."}, needs=lambda can: can.compact)
async def a_session_is_compacted(world: World) -> None:
    """Summarise the context and continue the session."""
    async with world.open() as session:
        (await world.turn(session, "a", "Remember the number 4711. " * 40)).ended()
        (await world.turn(session, "b")).ended()
        await session.compact()
        after = (await world.turn(session, "next")).ended()
    assert after.end.text == "Still here."
    # The agent's text is summarised; Copilot quotes the user's text on purpose.
    assert "One. One." not in str(world.calls("next")[-1].body)
