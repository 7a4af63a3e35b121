"""Test errors of the model's API, and rate limits with the time of their reset if it is known."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import EndReason, LimitReached, Notice
from atomic.providers.claude.limits import reset_of
from atomic.testing.model_server import Cut, Fail, HalfCharacter, Script
from tests.providers.claude.sandbox import sandbox
from tests.providers.turns import all_of, end, end_of, text_of, turn

pytestmark = pytest.mark.ci


async def test_each_error_is_reported_and_the_session_continues(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {
        "bad": Fail(400, message="scripted bad request"),
        "key": Fail(401, message="invalid x-api-key"),
        "broken": Fail(500, message="scripted trouble"),
        "cut": [["some text", Cut(), " and more of it"]],
        "half": [[HalfCharacter(cut=True)]],
        "say": "hello",
    }
    wanted = {
        "bad": "scripted bad request",
        "key": "claude` once and log in, or set ANTHROPIC_API_KEY)",
        "broken": "scripted trouble",
        "cut": "Connection to the API was lost",
        "half": "Connection to the API was lost",
    }
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        for script, error in wanted.items():
            events = await turn(session, f"@@{script}@@ go")
            assert end_of(events).reason is EndReason.ERROR
            assert error in (end_of(events).error or "")
            assert "API Error" not in text_of(events)  # a text of the program, not of the model
            assert all_of(LimitReached, events) == []
        assert (await end(session, "@@say@@ go")).text == "hello"


async def test_a_limit_without_a_reset_time_ends_the_turn(tmp_path: Path) -> None:
    scripts = {"many": Fail(429, message="slow down"), "full": Fail(529, message="overloaded"), "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        for script, message in {"many": "slow down", "full": "overloaded"}.items():
            events = await turn(session, f"@@{script}@@ go")
            [limit] = all_of(LimitReached, events)
            assert limit.reset_at is None
            assert message in limit.message
            assert end_of(events).reason is EndReason.LIMIT
        assert (await end(session, "@@say@@ go")).text == "hello"


async def test_a_usage_limit_reports_the_time_of_its_reset(tmp_path: Path) -> None:
    opens = int(time.time()) + 3600
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": str(opens),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "retry-after": "3600",
    }
    subscriber = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "scripted"}
    scripts = {"window": Fail(429, message="used up", headers=headers)}
    async with sandbox(tmp_path, scripts) as here, here.open(env=subscriber) as session:
        events = await turn(session, "@@window@@ go")
        [limit] = all_of(LimitReached, events)
        assert limit.reset_at == datetime.fromtimestamp(opens, UTC)
        assert "5-hour limit" in limit.message
        assert end_of(events).reason is EndReason.LIMIT


async def test_retries_of_the_program_are_reported_and_may_succeed(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {
        "once": [[Fail(429, headers={"retry-after": "1"}, times=1), "served"]],
        "trouble": [[Fail(500, times=1), "recovered"]],
    }
    async with sandbox(tmp_path, scripts, retries=3) as here, here.open() as session:
        began = datetime.now(UTC)
        events = await turn(session, "@@once@@ go")
        [limit] = all_of(LimitReached, events)
        assert limit.reset_at is not None
        assert timedelta(seconds=1) <= limit.reset_at - began < timedelta(seconds=30)
        assert (end_of(events).reason, end_of(events).text) == (EndReason.DONE, "served")
        events = await turn(session, "@@trouble@@ go")
        assert "server_error 500: Claude Code tries again" in all_of(Notice, events)[0].text
        assert end_of(events).text == "recovered"


async def test_a_retry_that_would_take_too_long_ends_the_turn(tmp_path: Path) -> None:
    scripts = {"long": Fail(429, headers={"retry-after": "50"}), "say": "hello"}
    async with sandbox(tmp_path, scripts, retries=3) as here, here.open() as session:
        began = datetime.now(UTC)
        events = await turn(session, "@@long@@ go")
        assert end_of(events).reason is EndReason.LIMIT
        assert datetime.now(UTC) - began < timedelta(seconds=20)
        reset = all_of(LimitReached, events)[-1].reset_at
        assert reset is not None
        assert reset - began >= timedelta(seconds=50)
        assert (await end(session, "@@say@@ go")).text == "hello"


NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("the limit resets at 2026-11-16T13:30:00Z", {"hours": 1, "minutes": 30}),
        ("try again after 2026-11-16T15:00:00+02:00", {"hours": 1}),
        (f"usage limit reached|{int(NOW.timestamp()) + 60}", {"minutes": 1}),
        ("it reset at 2026-11-16T11:00:00Z", None),  # in the past
        ("resets 1:23am (UTC)", None),
        ("", None),
    ],
)
def test_the_reset_time_is_found_in_a_message(text: str, reset: dict[str, Any] | None) -> None:
    assert reset_of(None, text, NOW) == (None if reset is None else NOW + timedelta(**reset))
