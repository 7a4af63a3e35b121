"""Test MCP for custom tools with one client that exchanges single messages."""

from __future__ import annotations

import asyncio
from typing import Any

from atomic.providers import tool
from atomic.providers.tool_server import ToolProtocol
from tests.support.waits import HANG as LIMIT


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def request(method: str, id: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def test_a_client_can_connect_list_tools_and_call_one() -> None:
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


async def test_a_cancelled_call_ends() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

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


async def test_cancelling_the_exchange_ends_the_call() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

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


async def test_two_calls_may_have_the_same_id() -> None:
    release = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await release.wait()
        return "done"

    protocol = ToolProtocol([tool(wait)])
    async with asyncio.timeout(LIMIT):
        calls = [asyncio.create_task(protocol.exchange(request("tools/call", name="wait"))) for _ in range(2)]
        await asyncio.sleep(0)
        release.set()
        answers = await asyncio.gather(*calls)
    assert [answer["result"]["isError"] for answer in answers] == [False, False]
