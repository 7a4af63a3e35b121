"""Test the translation of Copilot's events that no scripted model can cause."""

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

Message = tuple[str, dict[str, Any]]
PROMPT: Message = ("user.message", {"messageId": "mine", "content": "go"})
IDLE: Message = ("session.idle", {})


async def translate(*events: Message, ending: bool = False) -> list[AgentEvent]:
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


async def end_of(*events: Message, ending: bool = False) -> TurnEnded:
    end = (await translate(*events, ending=ending))[-1]
    assert isinstance(end, TurnEnded)
    return end


async def test_an_answer_in_one_piece_is_emitted() -> None:
    message = ("assistant.message", {"messageId": "m", "content": "All at once."})
    thought = ("assistant.reasoning", {"reasoningId": "r", "content": "Hm."})
    events = await translate(PROMPT, thought, message, IDLE)
    assert events[:2] == [ThinkingDelta("Hm."), TextDelta("All at once.")]
    assert (await end_of(PROMPT, thought, message, IDLE)).text == "All at once."


async def test_an_answer_in_pieces_is_emitted_once() -> None:
    pieces = [("assistant.message_delta", {"messageId": "m", "deltaContent": piece}) for piece in ("One ", "two.")]
    whole = ("assistant.message", {"messageId": "m", "content": "One two."})
    events = await translate(PROMPT, *pieces, whole, IDLE)
    assert events[:-1] == [TextDelta("One "), TextDelta("two.")]


async def test_the_end_of_another_prompt_is_ignored() -> None:
    other = ("session.error", {"errorType": "query", "message": "of another", "originatingMessageId": "other"})
    stale: list[Message] = [IDLE, ("session.idle", {"aborted": True}), other]
    ended = await end_of(*stale, PROMPT, ("assistant.message", {"messageId": "m", "content": "mine"}), IDLE)
    assert (ended.reason, ended.text) == (EndReason.DONE, "mine")


async def test_a_prompt_stopped_before_it_is_processed_is_interrupted() -> None:
    assert (await end_of(("session.idle", {"aborted": True}), ending=True)).reason is EndReason.INTERRUPTED


async def test_an_error_before_the_prompt_is_processed_ends_the_turn() -> None:
    ended = await end_of(("session.error", {"errorType": "query", "message": "no way"}), IDLE)
    assert (ended.reason, ended.error) == (EndReason.ERROR, "no way")


async def test_a_rejected_login_is_reported_with_the_remedy() -> None:
    reason = "Execution failed: InvalidArg, No GitHub OAuth token or Copilot HMAC key provided"
    ended = await end_of(PROMPT, ("session.error", {"errorType": "query", "message": reason}), IDLE)
    assert "copilot login" in str(ended.error)


async def test_a_used_up_quota_reports_its_reset_time() -> None:
    reset = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    quotas = {
        "chat": {"remainingPercentage": 80.0, "resetDate": (reset + timedelta(days=9)).isoformat()},
        "premium": {"remainingPercentage": 0, "resetDate": reset.isoformat()},
    }
    failure = {"statusCode": 429, "errorMessage": '{"message": "used up"}', "quotaSnapshots": quotas}
    error = {"errorType": "quota", "message": "You have no requests left", "originatingMessageId": "mine"}
    events = await translate(PROMPT, ("model.call_failure", failure), ("session.error", error), IDLE)
    assert events[0] == LimitReached(reset, "used up")
    assert isinstance(events[-1], TurnEnded)
    assert (events[-1].reason, events[-1].error) == (EndReason.LIMIT, "You have no requests left")


async def test_a_limit_that_only_the_end_reports_is_emitted() -> None:
    error = {"errorType": "rate_limit", "message": "Come back later", "originatingMessageId": "mine"}
    events = await translate(PROMPT, ("session.error", error), IDLE)
    assert events[0] == LimitReached(None, "Come back later")
    assert (await end_of(PROMPT, ("session.error", error), IDLE)).reason is EndReason.LIMIT


async def test_retries_at_a_limit_end_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 0.0)
    failure: Message = ("model.call_failure", {"statusCode": 529, "errorType": "overloaded_error"})
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
    events = await translate(
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


async def test_no_kind_of_event_is_both_read_and_ignored() -> None:
    assert not IGNORED & set(messages.READ)
