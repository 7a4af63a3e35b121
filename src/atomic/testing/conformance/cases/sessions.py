"""Cases about sessions: their id, resume, fork, and many at once."""

from __future__ import annotations

import asyncio

from atomic.providers import EndReason, ProviderError
from atomic.testing.conformance.case import Cases, World
from atomic.testing.model_server import Say

cases = Cases("Sessions")


@cases.case(lambda stage: {"hello": "Hello."})
async def the_id_is_known_at_once(world: World) -> None:
    """Know the id before the first prompt, and keep it."""
    async with world.open() as session:
        id = session.id
        assert id
        (await world.turn(session, "hello")).ended()
        assert session.id == id


@cases.case(lambda stage: {"tell": "Noted.", "recall": "You said it."}, needs=lambda can: can.resume)
async def a_session_is_taken_up_again(world: World) -> None:
    """Resume a session in another process, with the same id and all messages."""
    async with world.open() as session:
        (await world.turn(session, "tell", "My number is 4711.")).ended()
    async with world.open(resume=session.id) as again:
        assert again.id == session.id
        (await world.turn(again, "recall")).ended()
    assert "4711" in str(world.calls("recall")[-1].body)


@cases.case(lambda stage: {"tell": "Noted.", "recall": "You said it."}, needs=lambda can: can.fork)
async def a_session_is_copied(world: World) -> None:
    """Fork a session: a new id, all earlier messages, no effect on the original."""
    async with world.open() as session:
        (await world.turn(session, "tell", "My number is 4711.")).ended()
    async with world.open(resume=session.id, fork=True) as copy:
        (await world.turn(copy, "recall", "This is the copy.")).ended()
        assert copy.id != session.id
    assert "4711" in str(world.calls("recall")[-1].body)
    async with world.open(resume=session.id) as again:
        (await world.turn(again, "recall")).ended()
    assert "This is the copy" not in str(world.calls("recall")[-1].body)


@cases.case(lambda stage: {"hello": "Hello."}, needs=lambda can: can.resume)
async def an_unknown_id_is_told(world: World) -> None:
    """Refuse to resume a session that does not exist, with a reason."""
    unknown = "00000000-0000-4000-8000-000000000000" if "opencode" not in world.agent.name else "ses_0000000000000000"
    problem: str | None = None
    try:
        async with world.open(resume=unknown) as session:
            problem = (await world.turn(session, "hello")).ended(EndReason.ERROR).end.error
    except ProviderError as error:
        problem = str(error)
    assert problem
    assert not world.calls("hello"), "a new session called the model"


@cases.case(lambda stage: {"hello": "Hello."}, needs=lambda can: can.system_prompt)
async def the_system_prompt_reaches_the_model(world: World) -> None:
    """Send the caller's system prompt to the model."""
    async with world.open(system_prompt="You speak like a lighthouse keeper.") as session:
        (await world.turn(session, "hello")).ended()
    assert "lighthouse keeper" in str(world.calls("hello")[0].body)


@cases.case(lambda stage: {"m": Say("I am {{model}}.")}, needs=lambda can: can.models)
async def models_are_listed_and_switched(world: World) -> None:
    """List models, open a session with one, and switch to another."""
    first, second = world.agent.models
    assert await world.provider.models()
    async with world.open(model=first) as session:
        assert (await world.turn(session, "m")).ended().end.text == f"I am {first.rpartition('/')[2]}."
        await session.set_model(second)
        assert (await world.turn(session, "m")).ended().end.text == f"I am {second.rpartition('/')[2]}."


@cases.case(
    lambda stage: {"again": [[stage.words.bash("echo again")] for _ in range(30)]}, needs=lambda can: can.max_turns
)
async def max_turns_ends_a_turn(world: World) -> None:
    """Stop a model that calls tools endlessly, and report the reason."""
    async with world.open(max_turns=3) as session:
        heard = await world.turn(session, "again")
    assert heard.end.reason == "max_turns", heard
    assert heard.end.error, heard
    assert len(world.calls("again")) <= 5


@cases.case(lambda stage: {f"s{n}": f"I am number {n}." for n in range(8)})
async def eight_sessions_at_once(world: World) -> None:
    """Run eight sessions at once, each with its own answer."""

    async def one(number: int) -> str:
        async with world.open() as session:
            return (await world.turn(session, f"s{number}")).ended().end.text

    texts = await asyncio.gather(*(one(number) for number in range(8)))
    assert texts == [f"I am number {number}." for number in range(8)]


@cases.case(lambda stage: {"hello": "Hello."})
async def the_provider_is_well(world: World) -> None:
    """Report with `check` whether it can be used, its program and its version."""
    health = await world.provider.check()
    assert health.ok, health
    assert health.program
    assert health.version
