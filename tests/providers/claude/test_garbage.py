"""Test invalid output of the program: it ends the turn with a known error and never crashes Atomic."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import EndReason, Usage
from tests.providers.claude.sandbox import sandbox
from tests.providers.processes import appears, find
from tests.providers.turns import LIMIT, end, end_of, text_of, turn
from tests.support.fake_claude import write_fake_program
from tests.support.timing import judge


def settings_for(program: Path) -> Settings:
    return Settings(providers={"claude": ProviderSettings(path=str(program))})


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("garbage", "Claude Code sent a message that cannot be read"),
        ("deep", "maximum recursion depth exceeded"),
        ("huge", "Claude Code sent a message that is longer than 64 MB"),
        ("half", "Claude Code ended with exit code 7: it hurts"),
        ("silent", "Claude Code closed its output"),
    ],
)
async def test_unreadable_output_ends_the_turn_and_the_next_one_works(tmp_path: Path, prompt: str, error: str) -> None:
    async with sandbox(tmp_path, {}) as here, here.open(using=settings_for(write_fake_program(tmp_path))) as session:
        ended = await end(session, prompt)
        assert ended.reason is EndReason.ERROR
        assert error in (ended.error or "")
        assert find(session.id) == []
        assert (await end(session, "fine")).text == "fine"


async def test_unknown_messages_are_ignored_and_logged_once_per_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with sandbox(tmp_path, {}) as here, here.open(using=settings_for(write_fake_program(tmp_path))) as session:
        with caplog.at_level(logging.WARNING, "atomic"):
            assert (await end(session, "new")).text == "new"
        kinds = [record.getMessage() for record in caplog.records]
        for kind in (
            "hologram",
            "system/weather",
            "assistant of an unknown shape",
            "system/task_started of an unknown shape",
        ):
            assert sum(f'"{kind}' in text for text in kinds) == 1, kind


async def test_half_a_character_becomes_a_question_mark(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {}) as here, here.open(using=settings_for(write_fake_program(tmp_path))) as session:
        events = await turn(session, "surrogate")
        assert text_of(events) == "cut ?surrogate"
        assert end_of(events).text.encode() == b"surrogate"
        assert (await end(session, "\ud83d half a prompt")).reason is EndReason.DONE


async def test_a_turn_of_an_older_version_ends_with_text_and_usage(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {}) as here, here.open(using=settings_for(write_fake_program(tmp_path))) as session:
        ended = await end(session, "old")
        assert (ended.reason, ended.text, ended.usage) == (EndReason.DONE, "old", Usage(3, 2, cost=0.5))


async def test_the_result_of_a_background_task_is_not_the_answer(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {}) as here, here.open(using=settings_for(write_fake_program(tmp_path))) as session:
        assert (await end(session, "woken")).text == "woken"


@pytest.mark.timed
async def test_an_interrupt_ends_a_program_that_ignores_sigterm(tmp_path: Path) -> None:
    settings = settings_for(write_fake_program(tmp_path, "deaf-claude"))
    async with sandbox(tmp_path, {}) as here, here.open(using=settings) as session, asyncio.timeout(LIMIT):
        running = asyncio.create_task(end(session, "hang"))
        await appears(str(tmp_path / "hanging"))
        began = time.monotonic()
        await session.interrupt()
        assert (await running).reason is EndReason.INTERRUPTED
        judge(time.monotonic() - began, 2.5)
        assert find(session.id) == []


@pytest.mark.timed
async def test_an_interrupt_ends_a_program_that_hangs_at_start(tmp_path: Path) -> None:
    settings = settings_for(write_fake_program(tmp_path, "mute-claude"))
    async with sandbox(tmp_path, {}) as here, asyncio.timeout(LIMIT):
        async with here.open(using=settings) as session:
            running = asyncio.create_task(end(session, "hello"))
            await appears(session.id)
            began = time.monotonic()
            await session.interrupt()
            assert (await running).reason is EndReason.INTERRUPTED
        judge(time.monotonic() - began, 5)
        assert find(session.id) == []
