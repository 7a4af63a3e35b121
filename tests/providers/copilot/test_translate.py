"""What Copilot says, one event at a time: for what no scripted model brings about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from atomic.providers import (
    AgentEvent,
    Compacted,
    EndReason,
    LimitReached,
    Notice,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    Usage,
    UsageReported,
)
from atomic.providers.copilot import limits, messages
from atomic.providers.copilot.messages import IGNORED
from atomic.providers.copilot.subagents import Subagents
from atomic.providers.copilot.translate import Translator
from atomic.providers.turn import Turn

Said = tuple[str, dict[str, Any]]
PROMPT: Said = ("user.message", {"messageId": "mine", "content": "go"})
IDLE: Said = ("session.idle", {})


async def heard(*events: Said, ending: bool = False) -> list[AgentEvent]:
    """Return the events of a turn for these messages."""
    turn = Turn("copilot")
    turn.ending = ending
    translator = Translator(turn, "mine", Subagents())
    for kind, data in events:
        event = messages.read({"type": kind, "data": data, "id": "x"})
        if event is not None:
            translator.receive(event)
    assert turn.over
    return [event async for event in turn.events()]


async def end_of(*events: Said, ending: bool = False) -> TurnEnded:
    end = (await heard(*events, ending=ending))[-1]
    assert isinstance(end, TurnEnded)
    return end


async def test_an_answer_that_came_in_one_piece_is_told_too() -> None:
    message = ("assistant.message", {"messageId": "m", "content": "All at once."})
    thought = ("assistant.reasoning", {"reasoningId": "r", "content": "Hm."})
    events = await heard(PROMPT, thought, message, IDLE)
    assert events[:2] == [ThinkingDelta("Hm."), TextDelta("All at once.")]
    assert (await end_of(PROMPT, thought, message, IDLE)).text == "All at once."


async def test_an_answer_that_came_in_pieces_is_told_once() -> None:
    pieces = [("assistant.message_delta", {"messageId": "m", "deltaContent": piece}) for piece in ("One ", "two.")]
    whole = ("assistant.message", {"messageId": "m", "content": "One two."})
    events = await heard(PROMPT, *pieces, whole, IDLE)
    assert events[:-1] == [TextDelta("One "), TextDelta("two.")]


async def test_only_the_end_of_this_prompt_counts() -> None:
    other = ("session.error", {"errorType": "query", "message": "of another", "originatingMessageId": "other"})
    stale: list[Said] = [IDLE, ("session.idle", {"aborted": True}), other]
    ended = await end_of(*stale, PROMPT, ("assistant.message", {"messageId": "m", "content": "mine"}), IDLE)
    assert (ended.reason, ended.text) == (EndReason.DONE, "mine")


async def test_a_prompt_that_was_never_taken_up_ends_when_it_is_stopped() -> None:
    assert (await end_of(("session.idle", {"aborted": True}), ending=True)).reason is EndReason.INTERRUPTED


async def test_an_error_before_the_prompt_was_taken_up_ends_the_turn() -> None:
    ended = await end_of(("session.error", {"errorType": "query", "message": "no way"}), IDLE)
    assert (ended.reason, ended.error) == (EndReason.ERROR, "no way")


async def test_a_login_that_is_not_accepted_is_said_with_the_remedy() -> None:
    words = "Execution failed: InvalidArg, No GitHub OAuth token or Copilot HMAC key provided"
    ended = await end_of(PROMPT, ("session.error", {"errorType": "query", "message": words}), IDLE)
    assert "copilot login" in str(ended.error)


async def test_a_quota_has_the_time_of_its_refill() -> None:
    reset = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    quotas = {
        "chat": {"remainingPercentage": 80.0, "resetDate": (reset + timedelta(days=9)).isoformat()},
        "premium": {"remainingPercentage": 0, "resetDate": reset.isoformat()},
    }
    failure = {"statusCode": 429, "errorMessage": '{"message": "used up"}', "quotaSnapshots": quotas}
    error = {"errorType": "quota", "message": "You have no requests left", "originatingMessageId": "mine"}
    events = await heard(PROMPT, ("model.call_failure", failure), ("session.error", error), IDLE)
    assert events[0] == LimitReached(reset, "used up")
    assert isinstance(events[-1], TurnEnded)
    assert (events[-1].reason, events[-1].error) == (EndReason.LIMIT, "You have no requests left")


async def test_a_limit_that_only_the_end_reports_is_emitted() -> None:
    error = {"errorType": "rate_limit", "message": "Come back later", "originatingMessageId": "mine"}
    events = await heard(PROMPT, ("session.error", error), IDLE)
    assert events[0] == LimitReached(None, "Come back later")
    assert (await end_of(PROMPT, ("session.error", error), IDLE)).reason is EndReason.LIMIT


async def test_tries_against_a_limit_are_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 0.0)
    failure: Said = ("model.call_failure", {"statusCode": 529, "errorType": "overloaded_error"})
    turn = Turn("copilot")
    translator = Translator(turn, "mine", Subagents())
    for kind, data in (PROMPT, failure):
        event = messages.read({"type": kind, "data": data})
        assert event is not None
        translator.receive(event)
    assert translator.stopping is EndReason.LIMIT
    idle = messages.read({"type": "session.idle", "data": {"aborted": True}})
    assert idle is not None
    translator.receive(idle)
    end = [event async for event in turn.events()][-1]
    assert isinstance(end, TurnEnded)
    assert (end.reason, end.error) == (EndReason.LIMIT, "overloaded_error")


async def test_a_summary_is_reported_with_the_context_size() -> None:
    tokens = {"inputTokens": 900.0, "outputTokens": 50.0}
    summary = {
        "success": True,
        "preCompactionTokens": 900.0,
        "postCompactionTokens": 100.0,
        "compactionTokensUsed": tokens,
    }
    cut = {"preTruncationTokensInMessages": 90, "postTruncationTokensInMessages": 10}
    failed = {"success": False, "error": "the model is away"}
    events = await heard(
        PROMPT,
        ("session.compaction_complete", summary),
        ("session.truncation", cut),
        ("session.compaction_complete", failed),
        IDLE,
    )
    assert events[:-1] == [
        UsageReported(Usage(900, 50)),
        Compacted(900, 100),
        Compacted(90, 10),
        Notice("The context could not be summarised: the model is away"),
    ]


async def test_no_kind_is_both_read_and_passed_over() -> None:
    assert not IGNORED & set(messages.READ)
