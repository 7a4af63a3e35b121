"""Test custom tools over MCP on loopback: only with the token, and until the context ends."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from atomic.base.http import MAX_HEAD
from atomic.providers import CustomTool, tool, tool_server
from atomic.providers.tool_server import MAX_BODY, ToolServer, serving_tools
from tests.support.waits import HANG as LIMIT

if TYPE_CHECKING:
    from mcp.client.client import Client


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail(why: str) -> str:
    """Fail."""
    raise ValueError(f"out of stock: {why}")


@asynccontextmanager
async def connect(server: ToolServer) -> AsyncGenerator[Client]:
    """Connect a client of the official package."""
    from mcp.client.client import Client  # two seconds, which the collection of all tests need not take
    from mcp.client.streamable_http import streamable_http_client

    headers = {"authorization": f"Bearer {server.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=LIMIT) as http,
        Client(streamable_http_client(server.url, http_client=http)) as client,
    ):
        yield client


def text_of(result: Any) -> str:
    return "".join(part.text for part in result.content)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def authorized(server: ToolServer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"authorization": f"Bearer {server.token}"}, timeout=LIMIT, trust_env=False)


async def test_a_client_finds_the_tools_and_calls_them() -> None:
    async with asyncio.timeout(LIMIT), serving_tools([tool(add), tool(fail)]) as server, connect(server) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert list(tools) == ["add", "fail"]
        assert tools["add"].description == "Add two numbers."
        assert tools["add"].input_schema["required"] == ["a", "b"]
        result = await client.call_tool("add", {"a": 40, "b": 2})
        assert (text_of(result), result.is_error) == ("42", False)


async def test_an_error_of_a_tool_is_its_result() -> None:
    async with asyncio.timeout(LIMIT), serving_tools([tool(add), tool(fail)]) as server, connect(server) as client:
        result = await client.call_tool("fail", {"why": "numbers"})
        assert (text_of(result), result.is_error) == ("out of stock: numbers", True)
        result = await client.call_tool("add", {"a": "many", "b": 2})
        assert result.is_error
        assert "int" in text_of(result)


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}, {"authorization": "Basic dXNlcjpwYXNz"}],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_request_without_the_token_is_refused(headers: Mapping[str, str], method: str) -> None:
    async with serving_tools([tool(add)]) as server, httpx2.AsyncClient(trust_env=False) as client:
        response = await client.request(method, server.url, headers=headers, json=request("tools/list"))
        assert response.status_code == 401
        assert not response.content


async def test_the_server_listens_only_on_loopback() -> None:
    async with serving_tools([tool(add)]) as server:
        address = urlsplit(server.url)
        assert address.hostname == "127.0.0.1"
        with socket.socket() as other:
            other.bind(("127.0.0.2", address.port or 0))  # fails if the server listens on all addresses


async def test_a_long_call_sends_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_server, "HEARTBEAT", 0.05)
    release = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await release.wait()
        return "done at last"

    async with asyncio.timeout(LIMIT), serving_tools([tool(wait)]) as server, authorized(server) as client:
        call = request("tools/call", name="wait")
        async with client.stream("POST", server.url, json=call) as response:
            seen = ""
            async for line in response.aiter_lines():
                seen += line + "\n"
                if seen.count("still running") == 3:
                    release.set()
        assert seen.count("still running") >= 3
        assert "done at last" in seen


async def test_a_call_ends_when_its_client_disconnects() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(LIMIT), serving_tools([tool(wait)]) as server:
        async with authorized(server) as client:
            calling = asyncio.create_task(client.post(server.url, json=request("tools/call", name="wait")))
            await began.wait()
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        await ended.wait()


async def test_only_its_own_client_can_cancel_a_call() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with asyncio.timeout(LIMIT), serving_tools([tool(wait)]) as server, authorized(server) as client:
        mine = {"mcp-session-id": "me"}
        call = request("tools/call", name="wait")
        calling = asyncio.create_task(client.post(server.url, json=call, headers=mine))
        await began.wait()
        other = await client.post(server.url, json=cancel, headers={"mcp-session-id": "another"})
        assert other.status_code == 202
        assert not ended.is_set()
        await client.post(server.url, json=cancel, headers=mine)
        await ended.wait()
        assert "result" not in (await calling).text


async def test_calls_run_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    async def meet(name: str) -> str:
        """Wait for the others."""
        await together.wait()
        return f"{name} was there"

    async with asyncio.timeout(LIMIT), serving_tools([tool(meet)]) as server, connect(server) as client:
        results = await asyncio.gather(*(client.call_tool("meet", {"name": name}) for name in ("a", "b", "c")))
    assert [text_of(result) for result in results] == ["a was there", "b was there", "c was there"]


async def test_closing_ends_all_calls_and_releases_everything() -> None:
    began = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        await asyncio.Event().wait()

    async def open_resources() -> tuple[int, int]:
        for _ in range(3):
            await asyncio.sleep(0)
        return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

    before = await open_resources()
    async with asyncio.timeout(LIMIT):
        async with serving_tools([tool(wait)]) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
            body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}'
            head = f"POST /mcp HTTP/1.1\r\nauthorization: Bearer {server.token}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
            await began.wait()
        assert b"result" not in await reader.read()
        assert await idle_reader.read() == b""
        for one in (writer, idle_writer):
            one.close()
            await one.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
    assert await open_resources() == before


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_that_connects_during_the_close_leaves_no_resources(turns: int) -> None:
    """Close after each step of the event loop that accepts a connection."""
    before = len(os.listdir("/proc/self/fd")), asyncio.all_tasks()
    async with serving_tools([]) as server:
        address = "127.0.0.1", urlsplit(server.url).port
        callers = [socket.create_connection(address, timeout=LIMIT) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
    for caller in callers:
        caller.close()
    assert (len(os.listdir("/proc/self/fd")), asyncio.all_tasks()) == before


async def test_a_cancellation_during_the_close_leaves_no_resources() -> None:
    before = len(os.listdir("/proc/self/fd")), asyncio.all_tasks()

    async def serve() -> None:
        async with serving_tools([]) as server:
            callers.append(socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=LIMIT))
            await asyncio.sleep(0.05)
            asyncio.get_running_loop().call_soon(serving.cancel)

    callers: list[socket.socket] = []
    serving = asyncio.create_task(serve())
    with pytest.raises(asyncio.CancelledError):
        await serving
    callers[0].close()
    assert (len(os.listdir("/proc/self/fd")), asyncio.all_tasks()) == before


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\xff garbage\r\n\r\n", b"400"),
        (b"POST /mcp HTTP/1.1\r\n" + b"x: " + b"y" * MAX_HEAD + b"\r\n\r\n", b"431"),
        (b"POST /mcp HTTP/1.1\r\nauthorization: Bearer %s\r\ncontent-length: %d\r\n\r\n", b"413"),
        (b"POST /mcp HTTP/1.1\r\nauthorization: Bearer %s\r\ncontent-length: two\r\n\r\n", b"400"),
        (b"POST /mcp HTTP/1.1\r\nauthorization: Bearer %s\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
async def test_an_invalid_request_is_refused_and_the_server_continues(sent: bytes, status: bytes) -> None:
    async with asyncio.timeout(LIMIT), serving_tools([tool(add)]) as server:
        sent = sent.replace(b"%s", server.token.encode()).replace(b"%d", str(MAX_BODY + 1).encode())
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        writer.write(sent)
        assert (await reader.readline()).split()[1] == status
        writer.close()
        async with connect(server) as client:
            assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[" * 200_000, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"missing"}}', -32602),
    ],
)
async def test_an_invalid_message_gets_an_error(body: bytes, code: int) -> None:
    async with asyncio.timeout(LIMIT), serving_tools([tool(add)]) as server, authorized(server) as client:
        assert f'"code":{code}' in (await client.post(server.url, content=body)).text


async def test_the_protocol_version_of_the_client_is_used_if_known() -> None:
    async with serving_tools([]) as server, authorized(server) as client:
        for wanted, given in (("2025-03-26", "2025-03-26"), ("2031-01-01", "2025-11-25")):
            response = await client.post(server.url, json=request("initialize", protocolVersion=wanted))
            assert response.json()["result"]["protocolVersion"] == given


async def test_a_request_body_may_be_chunked() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b'{"jsonrpc":"2.0","id":1,'
        yield b'"method":"ping"}'

    async with serving_tools([]) as server, authorized(server) as client:
        response = await client.post(server.url, content=chunks())
        assert response.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_tool_may_be_called_without_arguments() -> None:
    async def run(arguments: Mapping[str, Any]) -> str:
        return f"got {dict(arguments)}"

    bare = CustomTool(name="bare", description="Takes nothing.", schema={}, run=run)
    async with asyncio.timeout(LIMIT), serving_tools([bare]) as server, connect(server) as client:
        assert text_of(await client.call_tool("bare")) == "got {}"
