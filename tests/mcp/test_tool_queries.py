"""Test that tools are listed over every transport, and that faulty servers are reported."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from atomic.mcp import Location, McpAnswer, McpEntry, Origin, Transport
from atomic.mcp.tool_queries import ask_for_tools
from atomic.providers import tool
from atomic.providers.tool_server import serving_tools
from atomic.testing.conformance.cases.tools import MCP_SERVER
from tests.mcp.servers import over_events, over_http
from tests.support.timing import judge
from tests.support.waits import eventually

PROGRAM = Path(__file__).with_name("servers.py")
TOOLS = ["one", "two", "three"]


def entry(**given: Any) -> McpEntry:
    fields: dict[str, Any] = {
        "name": "x",
        "transport": Transport.HTTP if "url" in given else Transport.STDIO,
        "origin": Origin.ATOMIC,
        "location": Location.USER,
        "path": Path("/p/mcp.json"),
    }
    return McpEntry(**{**fields, **given})


def program(behaviour: str, **given: Any) -> McpEntry:
    return entry(command=(sys.executable, str(PROGRAM), behaviour), **given)


async def ask(*entries: McpEntry, patience: float = 20, **variables: str) -> list[McpAnswer]:
    return await ask_for_tools(entries, variables=variables, env=os.environ, patience=patience)


async def only(given: McpEntry, **more: Any) -> McpAnswer:
    (found,) = await ask(given, **more)
    assert found.entry is given
    return found


async def test_tools_of_a_program_that_sends_requests_and_pages_are_listed() -> None:
    assert (await only(program("good"))).tools == TOOLS


async def test_tools_of_a_minimal_server_and_of_atomics_own_are_listed() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with serving_tools([tool(add)]) as ours:
        small = entry(command=(sys.executable, str(MCP_SERVER)))
        own = entry(url=ours.url, headers={"Authorization": "Bearer ${OURS}"})
        found = await ask(small, own, OURS=ours.token)
    assert [(one.tools, one.error) for one in found] == [(["add"], "")] * 2


@pytest.mark.parametrize("as_events", [False, True])
async def test_http_requests_follow_the_protocol(as_events: bool) -> None:
    with over_http(TOOLS, as_events=as_events) as server:
        found = await only(entry(url=server.url, headers={"x-secret": "${WORD}"}), WORD="sesame")
    assert (found.tools, found.error, found.resolved.transport) == (TOOLS, "", Transport.HTTP)
    methods = [message.get("method", "reply") for _, _, message in server.requests if message]
    assert [method for method in methods if method != "reply"] == [
        "initialize", "notifications/initialized", "tools/list", "tools/list",
    ]  # fmt: skip
    assert ("reply" in methods) is as_events
    assert {headers["x-secret"] for _, headers, _ in server.requests} == {"sesame"}
    first, *rest = server.requests
    assert "mcp-session-id" not in first[1]
    assert {(headers["mcp-session-id"], headers["mcp-protocol-version"]) for _, headers, message in rest
            if message.get("method")} == {("s1", "2025-06-18")}  # fmt: skip
    assert rest[-1][0] == "DELETE"


@pytest.mark.parametrize("transport", [Transport.SSE, Transport.HTTP])
async def test_the_older_http_transport_works_even_if_the_file_names_the_newer(transport: Transport) -> None:
    with over_events(TOOLS) as server:
        found = await only(entry(url=server.url, transport=transport, headers={"x-secret": "sesame"}))
    assert (found.tools, found.error, found.resolved.transport) == (TOOLS, "", Transport.SSE)
    assert {headers["x-secret"] for _, headers, _ in server.requests} == {"sesame"}


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/messages", "https://elsewhere.test/messages", ""])
async def test_requests_and_secrets_are_sent_to_no_other_host(endpoint: str) -> None:
    with over_events(TOOLS, endpoint=endpoint) as server:
        found = await only(entry(url=server.url, transport=Transport.SSE, headers={"x-secret": "sesame"}))
    assert found.error == "it names no address for requests"
    assert server.requests == []


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("garbage", "its answer is not JSON"),
        ("huge", "it sends more than 1,048,576 bytes"),
        ("endless", "its list of tools has no end"),
        ("refusing", "it refuses initialize: not today"),
        ("nameless", "one of its tools has no name"),
    ],
)
async def test_a_faulty_program_is_reported_in_one_sentence(behaviour: str, error: str) -> None:
    found = await only(program(behaviour))
    assert (found.tools, found.error) == ((), error)


async def test_secrets_in_the_output_of_a_failed_program_are_redacted() -> None:
    found = await only(program("${TOKEN_OF_MINE}", env={"TOKEN_OF_MINE": "s3cr3t-value"}), TOKEN_OF_MINE="s3cr3t-value")
    assert found.error == "it ended with exit code 3: cannot log in with [redacted]"


async def test_a_missing_server_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
        found = await ask(entry(command=("no-such-program-here",)), entry(url=closed), entry(url="file:///etc/passwd"),
                          entry(url="${NOT_SET}"))  # fmt: skip
    program, refused, file, variable = [one.error for one in found]
    assert program.startswith('Program not found: "no-such-program-here"')
    assert refused == "it cannot be reached: Connection refused"
    assert file == "its address is not http or https"
    assert variable == 'it needs the variable "NOT_SET", which is not set'


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, "HTTP 401 Unauthorized: it wants a login"), (500, "HTTP 500 Internal Server Error"),
     (307, "HTTP 307 Temporary Redirect"), (404, "HTTP 404 Not Found")],
)  # fmt: skip
async def test_an_http_error_is_reported(status: int, error: str) -> None:
    with over_http(TOOLS, status=status) as server:
        assert (await only(entry(url=server.url))).error == error


@pytest.mark.timed
async def test_servers_are_queried_concurrently() -> None:
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts connections and never answers
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"
        found = await ask(program("silent"), entry(url=url), program("silent"), entry(url=url), patience=2)
    assert {one.error for one in found} == {"it does not answer within 2 s"}
    judge(time.monotonic() - started, 7)


async def test_a_cancelled_query_ends_the_program(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    waiting = entry(command=("/bin/sh", "-c", f"echo $$ > '{file}'; exec sleep 600"))
    asking = asyncio.create_task(only(waiting))
    async with asyncio.timeout(120):
        await eventually(lambda: file.exists() and file.read_text())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
