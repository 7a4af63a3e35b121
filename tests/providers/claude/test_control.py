"""Test control requests in both directions.

Each request gets at most one answer, and all pending ones fail when the program ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from atomic.providers import ProgramFailedError
from atomic.providers.claude.control import Control, Json, Request, ToolUse
from tests.support.waits import HANG as LIMIT
from tests.support.waits import eventually

USE = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "agent_id": "task-1", "new": 1}


class Wire:
    """A passive program; `received` holds the messages that were sent to it."""

    def __init__(self, answer: Callable[[Request], Any] | None = None) -> None:
        self.received: list[Json] = []
        self.failure: ProgramFailedError | None = None
        self._answer = answer
        self.control = Control(self._receive, self._answered)

    def send(self, kind: str, **fields: Any) -> None:
        self.control.receive(kind, msgspec.json.encode({"type": kind, **fields}))

    def respond(self, **fields: Any) -> None:
        id = self.received[-1]["request_id"]
        self.send("control_response", response={"subtype": "success", "request_id": id, **fields})

    async def wait_for_messages(self, count: int) -> None:
        await eventually(lambda: len(self.received) >= count)

    async def _receive(self, message: Json) -> None:
        if self.failure is not None:
            self.control.fail(self.failure)
            raise self.failure
        self.received.append(message)

    async def _answered(self, request: Request) -> Json:
        assert self._answer is not None
        return await self._answer(request)


async def test_responses_may_arrive_in_any_order() -> None:
    wire = Wire()
    requests = [asyncio.create_task(wire.control.request({"subtype": "count", "to": number})) for number in range(3)]
    await wire.wait_for_messages(3)
    for message in reversed(wire.received):
        response = {"to": message["request"]["to"]}
        wire.send("control_response", response={"request_id": message["request_id"], "response": response})
    assert await asyncio.gather(*requests) == [{"to": number} for number in range(3)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"subtype": "error", "error": "no such model"}, "Claude Code refused a request: no such model"),
        ({"subtype": "error"}, "Claude Code refused a request: no reason given"),
    ],
)
async def test_a_refused_request_raises_the_reason(answer: Json, error: str) -> None:
    wire = Wire()
    request = asyncio.create_task(wire.control.request({"subtype": "set_model"}))
    await wire.wait_for_messages(1)
    wire.respond(**answer)
    with pytest.raises(ProgramFailedError, match=error):
        await request


async def test_an_empty_response_is_an_answer() -> None:
    wire = Wire()
    request = asyncio.create_task(wire.control.request({"subtype": "set_model"}))
    await wire.wait_for_messages(1)
    wire.respond()
    assert await request == {}


async def test_a_request_without_a_response_times_out() -> None:
    wire = Wire()
    with pytest.raises(ProgramFailedError, match='Claude Code did not answer "initialize" within 0 s'):
        await wire.control.request({"subtype": "initialize"}, seconds=0.01)
    wire.respond()  # too late: the request has timed out
    wire.send("control_response", response={"request_id": "never asked"})


async def test_all_pending_requests_fail_when_the_program_ends() -> None:
    wire = Wire()
    requests = [asyncio.create_task(wire.control.request({"subtype": "initialize"})) for _ in range(2)]
    await wire.wait_for_messages(2)
    gone = ProgramFailedError("it has gone", provider="claude")
    wire.control.fail(gone)
    assert await asyncio.gather(*requests, return_exceptions=True) == [gone, gone]


async def test_a_request_fails_at_once_if_it_cannot_be_sent() -> None:
    wire = Wire()
    wire.failure = ProgramFailedError("it has gone", provider="claude")
    with pytest.raises(ProgramFailedError, match="it has gone"):
        await wire.control.request({"subtype": "initialize"})
    with pytest.raises(ProgramFailedError, match="it has gone"):
        await wire.control.notify({"subtype": "interrupt"})


async def test_a_response_to_the_program_has_the_id_of_its_request() -> None:
    async def allow(request: Request) -> Json:
        assert request == ToolUse("Bash", {"command": "ls"}, "task-1")
        return {"behavior": "allow"}

    wire = Wire(allow)
    wire.send("control_request", request_id="r1", request=USE)
    await wire.wait_for_messages(1)
    answer = {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow"}}
    assert wire.received == [{"type": "control_response", "response": answer}]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (USE, "KeyError"),
        ({"subtype": "read_minds"}, "Invalid value 'read_minds'"),
        ({"subtype": "can_use_tool"}, "missing required field `tool_name`"),
    ],
)
async def test_a_failing_or_unknown_request_gets_an_error_response(request_: Json, error: str) -> None:
    async def fail(request: Request) -> Json:
        raise KeyError

    wire = Wire(fail)
    wire.send("control_request", request_id="r1", request=request_)
    await wire.wait_for_messages(1)
    (received,) = wire.received
    assert (received["response"]["subtype"], received["response"]["request_id"]) == ("error", "r1")
    assert error in received["response"]["error"]


async def test_a_cancelled_request_gets_no_response() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def wait(request: Request) -> Json:
        began.set()
        try:
            return await asyncio.Future[Json]()
        finally:
            ended.set()

    wire = Wire(wait)
    async with asyncio.timeout(LIMIT):
        wire.send("control_request", request_id="r1", request=USE)
        await began.wait()
        wire.send("control_cancel_request", request_id="another")
        await asyncio.sleep(0)
        assert not ended.is_set()
        wire.send("control_cancel_request", request_id="r1")
        await ended.wait()
    await wire.control.close()
    assert wire.received == []


async def test_closing_cancels_handlers_and_starts_no_new_ones(caplog: pytest.LogCaptureFixture) -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def wait(request: Request) -> Json:
        began.set()
        try:
            return await asyncio.Future[Json]()
        finally:
            ended.set()

    wire = Wire(wait)
    async with asyncio.timeout(LIMIT):
        wire.send("control_request", request_id="r1", request=USE)
        await began.wait()
        with caplog.at_level(logging.WARNING):
            await wire.control.close()
        began.clear()
        wire.send("control_request", request_id="r2", request=USE)
        await asyncio.sleep(0.01)
    assert (ended.is_set(), began.is_set(), wire.received, caplog.records) == (True, False, [], [])


async def test_a_response_to_a_program_that_has_exited_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    answered = asyncio.Event()

    async def allow(request: Request) -> Json:
        answered.set()
        return {}

    wire = Wire(allow)
    wire.failure = ProgramFailedError("it has gone", provider="claude")
    wire.send("control_request", request_id="r1", request=USE)
    async with asyncio.timeout(LIMIT):
        await answered.wait()
    await wire.control.close()
    assert caplog.records == []


def test_a_malformed_message_raises_a_validation_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        Wire().send("control_response", response="yes")
