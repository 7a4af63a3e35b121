"""Test the calls that a model server records, its HTTP, and that it leaves no resources."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atomic.processes import execute
from atomic.testing import (
    CallState,
    Drip,
    ModelServer,
    NoSuchCallError,
    NotRunningError,
    Pause,
    Protocol,
    Script,
    Stall,
    in_thread,
)
from tests.support.timing import judge
from tests.support.waits import eventually
from tests.testing.wire import LIMIT, PATHS, ask, client, request_body

each_protocol = pytest.mark.parametrize("protocol", list(Protocol))


@each_protocol
async def test_a_call_is_recorded_with_its_request_and_state(protocol: Protocol) -> None:
    async with ModelServer({"go": ["", "Done."]}) as server, client(server) as http:
        body = request_body(protocol, "@@go@@ please", results=["it printed ü"], tools=["a", "b"], system="Be brief.")
        await http.post(PATHS[protocol] + "?beta=true", json=body, headers={"X-Api-Key": "secret"})
    [call] = server.calls
    assert (call.protocol, call.path, call.model, call.stream) == (protocol, PATHS[protocol], "scripted-1", True)
    assert (call.tools, call.system, call.user_text) == (("a", "b"), "Be brief.", "@@go@@ please")
    assert (call.tool_result, call.script, call.turn) == ("it printed ü", "go", 1)
    assert (call.headers["x-api-key"], call.body, call.state) == ("secret", body, CallState.ANSWERED)
    assert str(call) == f"go[1] answered ({protocol}, scripted-1)"


async def test_other_requests_are_listed_separately() -> None:
    async with ModelServer(models=["m1", "m2"]) as server, client(server) as http:
        models = (await http.get("/v1/models")).json()
        counted = (await http.post("/v1/messages/count_tokens", json={"messages": []})).json()
        assert not server.other
        statuses = [
            (await http.post("/telemetry", content=b"what I did")).status_code,
            (await http.head("/")).status_code,
            (await http.get("/v1/messages")).status_code,
            (await http.post("/v1/messages", content=b"no json")).status_code,
            (await http.post("/v1/responses", json={"input": 7, "model": "m"})).status_code,
        ]
    assert [model["id"] for model in models["data"]] == ["m1", "m2"]
    assert counted["input_tokens"] >= 0
    assert statuses == [404, 404, 404, 400, 400]
    assert [(request.method, request.path) for request in server.other] == [
        ("POST", "/telemetry"),
        ("HEAD", "/"),
        ("GET", "/v1/messages"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/responses"),
    ]
    assert server.other[0].body == b"what I did"
    assert not server.calls


async def test_waiting_for_a_missing_call_reports_the_calls_that_came() -> None:
    async with ModelServer({"go": "Hello.", "late": [[Pause(0.1), "Hello."]]}) as server:
        waiting = asyncio.create_task(server.wait_for(lambda call: call.script == "late"))
        await asyncio.gather(ask(server, Protocol.ANTHROPIC, "@@late@@"), ask(server, Protocol.OPENAI_CHAT, "@@go@@"))
        assert (await waiting).script == "late"
        with pytest.raises(NoSuchCallError, match=r"go\[0\] answered \(openai-chat, scripted-1\)"):
            await server.wait_for(lambda call: call.script == "never", timeout=0.05)


async def test_a_connection_is_reused_for_plain_chunked_and_compressed_bodies() -> None:
    body = json.dumps(request_body(Protocol.OPENAI_CHAT, "@@go@@ " + "x" * 2_000_000)).encode()

    async def in_chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 70_000):
            yield body[start : start + 70_000]

    async with ModelServer({"go": "Hello."}) as server:
        limits = httpx2.Limits(max_connections=1)
        async with httpx2.AsyncClient(base_url=server.url, timeout=LIMIT, trust_env=False, limits=limits) as http:
            path = PATHS[Protocol.OPENAI_CHAT]
            streams: list[Any] = []
            for content, headers in (
                (body, {}),
                (in_chunks(), {}),
                (gzip.compress(body), {"content-encoding": "gzip"}),
                (body, {"expect": "100-continue"}),
            ):
                response = await http.post(path, content=content, headers=headers)
                assert response.text.endswith("data: [DONE]\n\n")
                streams.append(response.extensions["network_stream"].get_extra_info("socket").getsockname())
    assert len(set(streams)) == 1
    assert {len(call.user_text) for call in server.calls} == {2_000_007}


@pytest.mark.parametrize(
    "invalid",
    [
        b"rubbish\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /v1/messages HTTP/1.1\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_an_invalid_request_is_refused_and_recorded(invalid: bytes) -> None:
    async with ModelServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(invalid)
        async with asyncio.timeout(LIMIT):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert len(server.other) == 1


async def test_a_client_that_disconnects_during_its_request_does_not_affect_others() -> None:
    async with ModelServer({"go": "Hello."}) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 100\r\n\r\nhalf")
        writer.close()
        await writer.wait_closed()
        assert (await ask(server, Protocol.ANTHROPIC, "@@go@@")).text == "Hello."


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
async def test_the_server_listens_only_on_loopback() -> None:
    async with ModelServer() as server:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", int(server.url.rpartition(":")[2])), timeout=LIMIT)


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.timed
async def test_closing_ends_every_connection_and_leaves_no_resources() -> None:
    scripts: dict[str, Script] = {"stall": Stall(), "pause": Pause(1000), "drip": Drip(times=100_000), "done": "Done."}
    before = open_files(), threading.active_count(), asyncio.all_tasks()
    async with ModelServer(scripts) as server:
        url = server.url
        asking = [asyncio.create_task(ask(server, p, f"@@{name}@@")) for p in Protocol for name in scripts]
        idle = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        half = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        half[1].write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 100\r\n\r\nhalf")
        await eventually(lambda: len(server.calls) >= len(asking))
        started = time.monotonic()
    took = time.monotonic() - started
    async with asyncio.timeout(LIMIT):
        ends = await asyncio.gather(*asking, return_exceptions=True)
    for _, writer in (idle, half):
        writer.close()
        await writer.wait_closed()
    assert [isinstance(end, httpx2.TransportError) for end in ends] == [True, True, True, False] * len(Protocol)
    judge(took, 5)
    assert (open_files(), threading.active_count(), asyncio.all_tasks()) == before
    with pytest.raises(NotRunningError):
        _ = server.url


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_that_connects_during_the_close_leaves_no_resources(turns: int) -> None:
    """Close after each step of the event loop that accepts a connection."""
    before = open_files(), asyncio.all_tasks()
    async with ModelServer() as server:
        port = int(server.url.rpartition(":")[2])
        callers = [socket.create_connection(("127.0.0.1", port), timeout=LIMIT) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
    for caller in callers:
        caller.close()
    assert (open_files(), asyncio.all_tasks()) == before


async def test_a_server_may_be_opened_in_one_task_and_closed_in_another() -> None:
    server = ModelServer({"go": "Hello."})
    await asyncio.create_task(server.__aenter__())
    assert (await ask(server, Protocol.ANTHROPIC, "@@go@@")).text == "Hello."
    await asyncio.create_task(server.__aexit__(None, None, None))


def test_a_server_runs_in_a_thread_for_tests_without_an_event_loop() -> None:
    before = open_files(), threading.active_count()
    with in_thread(ModelServer({"go": "Hello."})) as server:
        body = request_body(Protocol.OPENAI_CHAT, "@@go@@", stream=False)
        answer = httpx2.post(server.url + PATHS[Protocol.OPENAI_CHAT], json=body, timeout=LIMIT, trust_env=False)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."
    assert [call.script for call in server.calls] == ["go"]
    assert (open_files(), threading.active_count()) == before


def test_a_thread_that_cannot_start_raises_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), in_thread(ModelServer(port=port)):
            pytest.fail("it started on a port in use")


def test_a_server_runs_as_a_command(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"scripts": {"go": [[{"do": "think", "text": "hm"}, "Hello."], {"do": "call", "tool": "x"}]}}')
    argv = [sys.executable, "-m", "atomic.testing.model_server", "--script", str(script), "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = request_body(Protocol.ANTHROPIC, "@@go@@", stream=False)
        answer = httpx2.post(url + PATHS[Protocol.ANTHROPIC], json=body, timeout=LIMIT, trust_env=False).json()
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=LIMIT)
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]
    assert process.returncode == 0
    assert "go[0] answered (anthropic, scripted-1)" in stderr


@pytest.mark.parametrize(
    "content", ["no json", '{"scripts": {"go": {"do": "shout"}}}', '{"scripts": {"a b": ""}}', None]
)
async def test_an_invalid_script_file_is_a_one_line_error(tmp_path: Path, content: str | None) -> None:
    script = tmp_path / "script.json"
    if content is not None:
        script.write_text(content)
    result = await execute(sys.executable, "-m", "atomic.testing.model_server", "--script", script, timeout=LIMIT)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1


async def test_importing_the_package_imports_no_agent_sdk_and_no_pytest() -> None:
    code = "import sys, atomic.testing; print(*sys.modules)"
    modules = (await execute(sys.executable, "-c", code, timeout=LIMIT)).stdout.split()
    assert "atomic.testing.model_server.server" in modules
    assert not {"claude_agent_sdk", "copilot", "acp", "pydantic", "pytest"} & set(modules)
