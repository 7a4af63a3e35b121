"""Requests in both directions: each gets one answer, in time or not at all, and the program's end answers all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from atomic.providers import ProgramFailedError
from atomic.providers.claude.control import Control, Json, Request, ToolUse

LIMIT = 60
USE = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "agent_id": "task-1", "new": 1}


class Wire:
    """A program that does nothing by itself; `said` is what it was told."""

    def __init__(self, answer: Callable[[Request], Any] | None = None) -> None:
        self.said: list[Json] = []
        self.failure: ProgramFailedError | None = None
        self._answer = answer
        self.control = Control(self._receive, self._answered)

    def says(self, kind: str, **fields: Any) -> None:
        self.control.receive(kind, msgspec.json.encode({"type": kind, **fields}))

    def answers(self, **fields: Any) -> None:
        id = self.said[-1]["request_id"]
        self.says("control_response", response={"subtype": "success", "request_id": id, **fields})

    async def told(self, count: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(self.said) < count:
                await asyncio.sleep(0)

    async def _receive(self, message: Json) -> None:
        if self.failure is not None:
            self.control.fail(self.failure)
            raise self.failure
        self.said.append(message)

    async def _answered(self, request: Request) -> Json:
        assert self._answer is not None
        return await self._answer(request)


async def test_answers_find_their_questions_in_any_order() -> None:
    wire = Wire()
    asking = [asyncio.create_task(wire.control.request({"subtype": "count", "to": number})) for number in range(3)]
    await wire.told(3)
    for message in reversed(wire.said):
        response = {"to": message["request"]["to"]}
        wire.says("control_response", response={"request_id": message["request_id"], "response": response})
    assert await asyncio.gather(*asking) == [{"to": number} for number in range(3)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"subtype": "error", "error": "no such model"}, "Claude Code refused a request: no such model"),
        ({"subtype": "error"}, "Claude Code refused a request: no reason given"),
    ],
)
async def test_a_refusal_has_a_reason(answer: Json, error: str) -> None:
    wire = Wire()
    asking = asyncio.create_task(wire.control.request({"subtype": "set_model"}))
    await wire.told(1)
    wire.answers(**answer)
    with pytest.raises(ProgramFailedError, match=error):
        await asking


async def test_an_answer_without_content_is_one() -> None:
    wire = Wire()
    asking = asyncio.create_task(wire.control.request({"subtype": "set_model"}))
    await wire.told(1)
    wire.answers()
    assert await asking == {}


async def test_who_does_not_answer_in_time_is_not_waited_for() -> None:
    wire = Wire()
    with pytest.raises(ProgramFailedError, match='Claude Code did not answer "initialize" within 0 s'):
        await wire.control.request({"subtype": "initialize"}, seconds=0.01)
    wire.answers()  # too late: nobody asks any more
    wire.says("control_response", response={"request_id": "never asked"})


async def test_the_end_of_the_program_answers_all_who_wait() -> None:
    wire = Wire()
    asking = [asyncio.create_task(wire.control.request({"subtype": "initialize"})) for _ in range(2)]
    await wire.told(2)
    gone = ProgramFailedError("it has gone", provider="claude")
    wire.control.fail(gone)
    assert await asyncio.gather(*asking, return_exceptions=True) == [gone, gone]


async def test_an_unsendable_message_fails_at_once() -> None:
    wire = Wire()
    wire.failure = ProgramFailedError("it has gone", provider="claude")
    with pytest.raises(ProgramFailedError, match="it has gone"):
        await wire.control.request({"subtype": "initialize"})
    with pytest.raises(ProgramFailedError, match="it has gone"):
        await wire.control.notify({"subtype": "interrupt"})


async def test_a_request_of_the_program_is_answered_under_its_id() -> None:
    async def allow(request: Request) -> Json:
        assert request == ToolUse("Bash", {"command": "ls"}, "task-1")
        return {"behavior": "allow"}

    wire = Wire(allow)
    wire.says("control_request", request_id="r1", request=USE)
    await wire.told(1)
    answer = {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow"}}
    assert wire.said == [{"type": "control_response", "response": answer}]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (USE, "KeyError"),
        ({"subtype": "read_minds"}, "Invalid value 'read_minds'"),
        ({"subtype": "can_use_tool"}, "missing required field `tool_name`"),
    ],
)
async def test_a_request_that_fails_or_is_unknown_is_answered_too(request_: Json, error: str) -> None:
    async def fail(request: Request) -> Json:
        raise KeyError

    wire = Wire(fail)
    wire.says("control_request", request_id="r1", request=request_)
    await wire.told(1)
    (said,) = wire.said
    assert (said["response"]["subtype"], said["response"]["request_id"]) == ("error", "r1")
    assert error in said["response"]["error"]


async def test_a_request_that_is_taken_back_is_not_answered() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> Json:
        began.set()
        try:
            return await asyncio.Future[Json]()
        finally:
            ended.set()

    wire = Wire(wait)
    async with asyncio.timeout(LIMIT):
        wire.says("control_request", request_id="r1", request=USE)
        await began.wait()
        wire.says("control_cancel_request", request_id="another")
        await asyncio.sleep(0)
        assert not ended.is_set()
        wire.says("control_cancel_request", request_id="r1")
        await ended.wait()
    await wire.control.close()
    assert wire.said == []


async def test_closing_ends_what_is_being_answered_and_begins_nothing(caplog: pytest.LogCaptureFixture) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> Json:
        began.set()
        try:
            return await asyncio.Future[Json]()
        finally:
            ended.set()

    wire = Wire(wait)
    async with asyncio.timeout(LIMIT):
        wire.says("control_request", request_id="r1", request=USE)
        await began.wait()
        with caplog.at_level(logging.WARNING):
            await wire.control.close()
        began.clear()
        wire.says("control_request", request_id="r2", request=USE)
        await asyncio.sleep(0.01)
    assert (ended.is_set(), began.is_set(), wire.said, caplog.records) == (True, False, [], [])


async def test_an_answer_to_a_program_that_has_gone_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    answered = asyncio.Event()

    async def allow(request: Request) -> Json:
        answered.set()
        return {}

    wire = Wire(allow)
    wire.failure = ProgramFailedError("it has gone", provider="claude")
    wire.says("control_request", request_id="r1", request=USE)
    async with asyncio.timeout(LIMIT):
        await answered.wait()
    await wire.control.close()
    assert caplog.records == []


def test_a_message_of_another_shape_is_not_understood() -> None:
    with pytest.raises(msgspec.ValidationError):
        Wire().says("control_response", response="yes")
