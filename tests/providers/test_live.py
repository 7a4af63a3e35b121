"""Test the promises of every adapter: each turn ends once, and an interrupt always works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.providers import (
    AgentEvent,
    Ask,
    Capabilities,
    EndReason,
    LimitReached,
    McpServer,
    ProgramFailedError,
    ProviderError,
    Question,
    SessionBusyError,
    SessionOptions,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UnsupportedError,
    Usage,
    UsageReported,
)
from atomic.providers import session as live_module
from atomic.providers.session import KILL_SECONDS, STOP_SECONDS, undisturbed
from atomic.providers.turn import Turn
from tests.providers.scripted import Play, ScriptedProvider, ScriptedSession, end_of, ignore, read
from tests.support.timing import judge
from tests.support.waits import eventually

PROMISED = 2.0  # seconds from an interrupt to the end
SLACK = 1.0  # for a busy machine


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give programs a tenth of the time to stop, for tests with many cases."""
    monkeypatch.setattr(live_module, "STOP_SECONDS", STOP_SECONDS / 10)
    monkeypatch.setattr(live_module, "KILL_SECONDS", KILL_SECONDS / 10)


@asynccontextmanager
async def open_session(*plays: Play, **how: Any):
    provider = ScriptedProvider(*plays, **how)
    async with provider.open(SessionOptions()) as session:
        assert isinstance(session, ScriptedSession)
        yield session


async def answer_and_end(session: ScriptedSession, turn: Turn) -> None:
    turn.emit(TextDelta("hello"))
    turn.end(EndReason.DONE)


async def until_stopped(session: ScriptedSession, turn: Turn) -> None:
    turn.emit(TextDelta("working"))
    await session.stopped.wait()
    session.stopped.clear()
    turn.end(EndReason.ERROR, error="aborted")  # as programs report a stop


async def run_without_end(session: ScriptedSession, turn: Turn) -> None:
    turn.emit(TextDelta("working"))
    await asyncio.Event().wait()


def deaf_for(seconds: float) -> Play:
    """Return a turn that ignores its cancellation."""

    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(TextDelta("working"))
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)

    return play


async def end_turn(session: ScriptedSession, turn: Turn) -> None:
    turn.end(EndReason.INTERRUPTED)


async def hang(*_: object) -> None:
    await asyncio.Event().wait()


async def hang_deaf(*_: object) -> None:
    until = time.monotonic() + 1.5
    while (left := until - time.monotonic()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


async def fail(*_: object) -> None:
    raise RuntimeError("the pipe is gone")


async def test_a_turn_ends_with_its_last_message_and_its_cost() -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(TextDelta("let me see"))
        turn.emit(ToolStarted("1", "bash", {}))
        turn.emit(ToolEnded("1", "ok"))
        turn.emit(TextDelta("of the child", agent="a"))
        turn.emit(TextDelta("all "))
        turn.emit(TextDelta("good"))
        turn.emit(UsageReported(Usage(10, 2, 1, 0.5)))
        turn.emit(UsageReported(Usage(5, 1, 0, None), agent="a"))
        turn.end(EndReason.DONE)

    async with open_session(play) as session:
        end = await end_of(session)
    assert end == TurnEnded(EndReason.DONE, "all good", Usage(15, 3, 1, 0.5))


async def test_the_first_end_wins_and_nothing_comes_after_it() -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.REFUSED, text="no")
        turn.end(EndReason.DONE, text="yes")
        turn.emit(TextDelta("late"))
        assert turn.late == 1

    async with open_session(play) as session:
        assert await read(session) == [TurnEnded(EndReason.REFUSED, "no")]


async def test_a_turn_without_an_end_event_is_an_error() -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(TextDelta("half"))

    async with open_session(play) as session:
        end = await end_of(session)
    assert (end.reason, end.text) == (EndReason.ERROR, "half")
    assert end.error is not None
    assert "without ending the turn" in end.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ProviderError("no such model"), "no such model"),
        (OSError("pipe closed"), "pipe closed"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("id"), "KeyError: 'id'"),
        (asyncio.CancelledError(), "cancelled"),
        (TypeError("use end() to end a turn"), "use end() to end a turn"),
    ],
)
async def test_an_exception_of_the_adapter_ends_the_turn_with_the_reason(error: BaseException, message: str) -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        raise error

    async with open_session(play, answer_and_end) as session:
        end = await end_of(session)
        assert end.reason is EndReason.ERROR
        assert end.error is not None
        assert message in end.error
        assert (await end_of(session)).reason is EndReason.DONE


async def test_an_end_cannot_be_emitted_as_an_event() -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(TurnEnded(EndReason.DONE))

    async with open_session(play) as session:
        assert (await end_of(session)).reason is EndReason.ERROR


async def test_an_error_right_after_a_limit_ends_the_turn_as_limit() -> None:
    async def limited(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(LimitReached(message="429"))
        turn.end(EndReason.ERROR, error="gave up")

    async def served(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(LimitReached(message="429"))
        turn.emit(TextDelta("again"))
        turn.end(EndReason.ERROR, error="something else")

    async with open_session(limited, served) as session:
        assert (await end_of(session)).reason is EndReason.LIMIT
        assert (await end_of(session)).reason is EndReason.ERROR


async def test_unknown_messages_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counts: list[int] = []

    async def play(session: ScriptedSession, turn: Turn) -> None:
        for _ in range(3):
            turn.note_unknown("hologram")
        counts.append(turn.unknown["hologram"])
        turn.end(EndReason.DONE)

    async with open_session(play) as session:
        await read(session)
    assert counts == [3]
    assert sum("hologram" in record.message for record in caplog.records) == 1


async def test_watch_receives_the_events_of_the_reader() -> None:
    received: list[AgentEvent] = []
    provider = ScriptedProvider(answer_and_end)
    async with provider.open(SessionOptions(watch=received.append)) as session:
        assert await read(session) == received


EVENTS = st.sampled_from(["text", "tool", "usage", "limit", "unknown", "end", "raise", "return"])


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=8), st.sampled_from(list(EndReason)))
async def test_every_turn_has_exactly_one_end_and_it_is_the_last(steps: list[str], reason: EndReason) -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        for step in steps:
            match step:
                case "text":
                    turn.emit(TextDelta("x"))
                case "tool":
                    turn.emit(ToolStarted("1", "bash"))
                case "usage":
                    turn.emit(UsageReported(Usage(1, 1)))
                case "limit":
                    turn.emit(LimitReached())
                case "unknown":
                    turn.note_unknown("x")
                case "end":
                    turn.end(reason)
                case "raise":
                    raise ValueError("garbage")
                case _:
                    return

    async with open_session(play) as session:
        events = await read(session)
    assert isinstance(events[-1], TurnEnded)
    played = steps[: next((at for at, step in enumerate(steps) if step in ("end", "raise", "return")), len(steps))]
    assert len(events) == 1 + sum(step not in ("unknown",) for step in played)


async def run_interrupted(
    session: ScriptedSession, *, after: type[AgentEvent] | None = TextDelta
) -> tuple[TurnEnded, float]:
    """Interrupt a turn after its first event; return its end and the seconds that took."""
    events: list[AgentEvent] = []
    took = 0.0
    async with asyncio.timeout(60), aclosing(session.send("go")) as turn:
        async for event in turn:
            events.append(event)
            if after is not None and isinstance(event, after):
                began = time.monotonic()
                await session.interrupt()
                took = time.monotonic() - began
    end = events[-1]
    assert isinstance(end, TurnEnded)
    assert sum(isinstance(event, TurnEnded) for event in events) == 1
    return end, took


@pytest.mark.timed
async def test_a_responsive_program_is_interrupted_at_once_and_keeps_running() -> None:
    async with open_session(until_stopped, answer_and_end) as session:
        end, took = await run_interrupted(session)
        assert (end.reason, end.error) == (EndReason.INTERRUPTED, None)
        judge(took, STOP_SECONDS)
        assert session.breaks == 0
        assert (await end_of(session)).reason is EndReason.DONE


async def test_a_turn_that_finishes_before_the_interrupt_is_done() -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(TextDelta("almost"))
        await session.stopped.wait()
        turn.end(EndReason.DONE)

    async with open_session(play) as session:
        end, _ = await run_interrupted(session)
    assert end.reason is EndReason.DONE


@pytest.mark.timed
@pytest.mark.parametrize("stop", [ignore, hang, hang_deaf, fail], ids=["ignored", "hangs", "deaf", "fails"])
@pytest.mark.parametrize("broken", [None, hang, hang_deaf, fail], ids=["breaks", "hangs", "deaf", "fails"])
async def test_an_interrupt_ends_the_turn_in_time_whatever_the_program_does(
    stop: Callable[..., Awaitable[None]], broken: Callable[..., Awaitable[None]] | None, short_patience: None
) -> None:
    how: dict[str, Any] = {"stop": stop} if broken is None else {"stop": stop, "broken": broken}
    async with open_session(run_without_end, answer_and_end, **how) as session:
        end, took = await run_interrupted(session)
        assert end.reason is EndReason.INTERRUPTED
        judge(took, PROMISED / 10 + SLACK)
        assert session.breaks == 1
        if hang_deaf not in (stop, broken):
            assert (await end_of(session)).reason is EndReason.DONE


@pytest.mark.timed
async def test_an_interrupt_takes_two_seconds_at_most() -> None:
    async with open_session(run_without_end, stop=hang, broken=hang) as session:
        end, took = await run_interrupted(session)
    assert end.reason is EndReason.INTERRUPTED
    judge(took, PROMISED + SLACK)


@pytest.mark.timed
async def test_work_that_ignores_its_cancellation_is_awaited_before_the_next_turn(short_patience: None) -> None:
    async with open_session(deaf_for(1.5), answer_and_end, stop=ignore) as session:
        end, took = await run_interrupted(session)
        assert end.reason is EndReason.INTERRUPTED
        judge(took, PROMISED / 10 + SLACK)
        assert (await end_of(session)).reason is EndReason.DONE
    assert session.most_at_once == 1


async def test_a_turn_that_waits_for_an_old_one_can_be_interrupted_and_never_overlaps(short_patience: None) -> None:
    async with open_session(deaf_for(1.0), answer_and_end, stop=end_turn) as session:
        await run_interrupted(session)
        turn = session.send("the second")
        reading = asyncio.ensure_future(anext(turn))
        await asyncio.sleep(0)
        await session.interrupt()
        end = await reading
        assert isinstance(end, TurnEnded)
        assert end.reason is EndReason.INTERRUPTED
        await eventually(lambda: not session.running)
        await asyncio.sleep(0.01)
        assert session.prompts == ["go"]  # the second does not begin when the first has ended
        await turn.aclose()
        assert (await end_of(session, "the third")).reason is EndReason.DONE
    assert session.most_at_once == 1


async def test_waiting_for_an_old_turn_that_never_ends_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "CLEANUP_SECONDS", 0.1)
    async with open_session(deaf_for(1.0), stop=end_turn) as session:
        await run_interrupted(session)
        end = await end_of(session)
    assert end.reason is EndReason.ERROR
    assert end.error is not None
    assert "still busy" in end.error


async def test_without_a_turn_an_interrupt_does_nothing() -> None:
    async with open_session(answer_and_end) as session:
        await session.interrupt()
        await read(session)
        await session.interrupt()
        assert session.breaks == 0
        assert not session.stopped.is_set()


async def test_two_interrupts_at_once_are_one() -> None:
    async with open_session(until_stopped, answer_and_end) as session:
        turn = session.send("go")
        assert await anext(turn) == TextDelta("working")
        await asyncio.gather(session.interrupt(), session.interrupt())
        assert [type(event) async for event in turn] == [TurnEnded]


async def test_a_stop_that_continues_after_the_end_is_awaited() -> None:
    tidied: list[bool] = []

    async def stop(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.INTERRUPTED)
        await asyncio.sleep(0.2)
        tidied.append(True)

    async with open_session(run_without_end, stop=stop) as session:
        await run_interrupted(session)
    assert tidied == [True]


async def test_closing_the_iterator_interrupts_the_turn() -> None:
    async with open_session(until_stopped, answer_and_end) as session:
        turn = session.send("go")
        assert await anext(turn) == TextDelta("working")
        await turn.aclose()
        assert session.running == 0
        assert session.stops == 1  # the program was stopped, not abandoned
        assert (await end_of(session)).reason is EndReason.DONE


async def test_cancelling_the_reader_interrupts_the_turn_and_raises_the_cancellation() -> None:
    async with open_session(until_stopped, answer_and_end) as session:
        is_reading = asyncio.Event()

        async def reader() -> None:
            async for _ in session.send("go"):
                is_reading.set()

        task = asyncio.create_task(reader())
        await is_reading.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # a second one does not shorten the cleanup
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.running == 0
        assert (await end_of(session)).reason is EndReason.DONE


async def test_a_failing_watcher_ends_the_turn() -> None:
    def watch(event: AgentEvent) -> None:
        raise ValueError("broken screen")

    provider = ScriptedProvider(until_stopped)
    async with provider.open(SessionOptions(watch=watch)) as session:
        with pytest.raises(ValueError, match="broken screen"):
            await read(session)
        assert cast("ScriptedSession", session).running == 0


async def test_closing_the_session_ends_a_turn_with_a_reader() -> None:
    provider = ScriptedProvider(run_without_end, stop=end_turn)
    async with provider.open(SessionOptions()) as session:
        turn = session.send("go")
        assert await anext(turn) == TextDelta("working")
    assert cast("ScriptedSession", session).running == 0
    assert provider.closed == 1
    assert [type(event) async for event in turn] == [TurnEnded]


async def test_a_session_takes_one_prompt_at_a_time() -> None:
    async with open_session(until_stopped, answer_and_end) as session:
        turn = session.send("go")
        await anext(turn)
        with pytest.raises(SessionBusyError):
            await anext(session.send("and this"))
        await turn.aclose()
        await read(session)


async def test_nothing_runs_after_a_turn() -> None:
    before = asyncio.all_tasks()
    async with open_session(until_stopped, answer_and_end) as session:
        await run_interrupted(session)
        await read(session)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SessionOptions(resume="x"), "resume"),
        (SessionOptions(resume="x", fork=True), "resume"),
        (SessionOptions(system_prompt="be brief"), "system prompt"),
        (SessionOptions(tools=[]), "some tools"),
        (SessionOptions(denied_tools=["bash"]), "some tools"),
        (SessionOptions(max_turns=1), "max_turns"),
        (SessionOptions(mcp_servers=[McpServer(name="x", url="http://127.0.0.1")]), "MCP"),
        (SessionOptions(custom_tools=[lambda: None]), "custom tools"),
    ],
)
async def test_unsupported_options_are_refused_before_a_session_opens(options: SessionOptions, message: str) -> None:
    provider = ScriptedProvider(answer_and_end)
    with pytest.raises(UnsupportedError, match=message):
        async with provider.open(options):
            pass
    assert provider.closed == 0


async def test_a_fork_needs_the_id_of_a_session() -> None:
    provider = ScriptedProvider(answer_and_end, capabilities=Capabilities(resume=True, fork=True))
    with pytest.raises(ProviderError, match="resume"):
        async with provider.open(SessionOptions(fork=True)):
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SessionOptions(max_turns=0), "max_turns must be at least 1, not 0"),
        (SessionOptions(cwd="nowhere"), 'Folder not found: "nowhere"'),
        (SessionOptions(mcp_servers=[McpServer(name="a")]), 'MCP server "a" has neither a command nor a url'),
        (
            SessionOptions(mcp_servers=[McpServer(name="a", url="http://127.0.0.1:1")] * 2),
            "Two MCP servers have the same name",
        ),
    ],
)
async def test_invalid_options_are_refused_before_a_session_opens(options: SessionOptions, message: str) -> None:
    provider = ScriptedProvider(answer_and_end, capabilities=Capabilities(max_turns=True, mcp_servers=True))
    with pytest.raises(ProviderError, match=message):
        async with provider.open(options):
            pass
    assert provider.closed == 0


async def raises(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
    raise RuntimeError("the broker is gone")


async def answers_nothing(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
    return []


@pytest.mark.parametrize(
    ("ask", "message"),
    [(raises, "RuntimeError: the broker is gone"), (answers_nothing, "`ask` returned 0 answers for 1 questions")],
)
async def test_an_unanswerable_question_ends_the_turn(ask: Ask, message: str) -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        assert session.options.ask is not None
        await session.options.ask([Question("Which?")])
        turn.end(EndReason.DONE)  # an agent may continue after the error

    async with ScriptedProvider(play, answer_and_end).open(SessionOptions(ask=ask)) as session:
        end = await end_of(session)
        assert end.reason is EndReason.ERROR
        assert f"the agent's question could not be answered: {message}" in (end.error or "")
        assert (await end_of(session)).reason is EndReason.DONE


async def test_a_single_label_is_one_answer() -> None:
    received: list[Sequence[Sequence[str]]] = []

    async def play(session: ScriptedSession, turn: Turn) -> None:
        assert session.options.ask is not None
        received.append(await session.options.ask([Question("Which?")]))
        turn.end(EndReason.DONE)

    async def blue(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        return ["Blue"]

    async with ScriptedProvider(play).open(SessionOptions(ask=blue)) as session:
        await end_of(session)
    assert received == [[["Blue"]]]


async def test_unsupported_requests_are_reported() -> None:
    async with open_session(answer_and_end) as session:
        with pytest.raises(UnsupportedError):
            await session.compact()
        with pytest.raises(UnsupportedError):
            await session.set_model("x")
        assert (await session.context()).limit == 0


async def test_undisturbed_work_finishes_before_the_cancellation_is_raised() -> None:
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append(1)

    task = asyncio.create_task(undisturbed(work()))
    await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


async def test_undisturbed_work_raises_its_error() -> None:
    async def work() -> None:
        raise ProgramFailedError("gone")

    with pytest.raises(ProgramFailedError):
        await undisturbed(work())
