"""MCP for our own tools where one client sends message after message, and each gets its whole answer."""

from __future__ import annotations

import asyncio
from typing import Any

from atomic.providers import tool
from atomic.providers.tool_server import ToolProtocol

LIMIT = 60


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def request(method: str, id: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def test_the_handshake_the_list_and_a_call() -> None:
    protocol = ToolProtocol([tool(add)])
    greeting = await protocol.exchange(request("initialize", protocolVersion="2025-06-18"))
    assert greeting["result"]["protocolVersion"] == "2025-06-18"
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert await protocol.exchange(note) == {"jsonrpc": "2.0", "result": {}}
    (described,) = (await protocol.exchange(request("tools/list")))["result"]["tools"]
    assert (described["name"], described["inputSchema"]["required"]) == ("add", ["a", "b"])
    answer = await protocol.exchange(request("tools/call", 7, name="add", arguments={"a": 40, "b": 2}))
    result = {"content": [{"type": "text", "text": "42"}], "isError": False}
    assert answer == {"jsonrpc": "2.0", "id": 7, "result": result}


async def test_a_call_that_is_not_wanted_any_more_ends() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    protocol = ToolProtocol([tool(wait)])
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
    async with asyncio.timeout(LIMIT):
        calling = asyncio.create_task(protocol.exchange(request("tools/call", 3, name="wait")))
        await began.wait()
        await protocol.exchange(cancel)
        assert (await calling)["error"] == {"code": -32800, "message": "cancelled"}
        assert ended.is_set()


async def test_who_leaves_a_call_ends_it() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    protocol = ToolProtocol([tool(wait)])
    async with asyncio.timeout(LIMIT):
        calling = asyncio.create_task(protocol.exchange(request("tools/call", name="wait")))
        await began.wait()
        calling.cancel()
        await asyncio.wait({calling})
    assert (calling.cancelled(), ended.is_set()) == (True, True)


async def test_a_number_that_is_used_twice_does_no_harm() -> None:
    go_on = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "done"

    protocol = ToolProtocol([tool(wait)])
    async with asyncio.timeout(LIMIT):
        calls = [asyncio.create_task(protocol.exchange(request("tools/call", name="wait"))) for _ in range(2)]
        await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(*calls)
    assert [answer["result"]["isError"] for answer in answers] == [False, False]
