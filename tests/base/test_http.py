"""The loopback client against a server that sends arbitrary bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from atomic.base.http import Body, HttpError, LoopbackClient, TooLongError, read_all
from atomic.base.http_server import listen

BIG = b"x" * 3_000_000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def server(*answer: bytes, seen: list[bytes] | None = None) -> AsyncGenerator[LoopbackClient]:
    """Answer each request with these bytes, one write each, and close the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        (seen if seen is not None else []).append(head + await reader.readexactly(length))
        for piece in answer:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    failures: list[BaseException] = []
    async with listen(serve, failures.append) as port:
        yield LoopbackClient(f"http://127.0.0.1:{port}/", user="atomic", password="p:ä")
    assert not failures


async def body_of(client: LoopbackClient) -> tuple[int, bytes]:
    async with asyncio.timeout(30), client.request("GET", "/x") as response:
        return response.status, await read_all(response.body, 2**30)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more"], 200, b"hello"),
        ([b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"], 404, b""),
        ([b"HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n"], 204, b""),
        ([b"HTTP/1.1 200\r\n\r\nuntil", b" the end"], 200, b"until the end"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 201 Made\r\nContent-Length: 1\r\n\r\n1"], 201, b"1"),
        ([CHUNKED, b"5;x=1\r\nhel", b"lo\r\n1\r", b"\n!\r\n0\r\nTrailer: x\r\n\r\n"], 200, b"hello!"),
        ([CHUNKED, b"%x\r\n" % len(BIG), BIG, b"\r\n0\r\n\r\n"], 200, BIG),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BIG), BIG], 200, BIG),
    ],
)
async def test_a_body_is_read_however_its_end_is_marked(answer: Sequence[bytes], status: int, body: bytes) -> None:
    async with server(*answer) as client:
        assert await body_of(client) == (status, body)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "middle of its answer"),
        (b"HTTP/1.1 200 OK\r\n", "middle of its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "middle of its answer"),
        (CHUNKED + b"5\r\nhel", "middle of its answer"),
        (CHUNKED + b"5\r\nhello\r\n", "middle of its answer"),
        (CHUNKED + b"five\r\nhello\r\n", '"five" is not a length'),
        (CHUNKED + b"9" * 70_000, "a line is too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", '"-5" is not a length'),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000 + b"\r\n\r\n", "head is too long"),
        (b"\x00\xff\r\n\r\n", "is not a status"),
        (b"HTTP/1.1 2xx OK\r\n\r\n", "is not a status"),
    ],
)
async def test_an_invalid_response_is_an_error_with_the_reason(answer: bytes, reason: str) -> None:
    async with server(answer) as client:
        with pytest.raises(HttpError, match=reason):
            await body_of(client)


async def test_a_request_is_json_for_its_path_with_the_password() -> None:
    seen: list[bytes] = []
    async with server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", seen=seen) as client:
        query = {"directory": "/wörk 日本&x"}
        async with client.request("POST", "/a b/ü", query=query, content=b'{"x": 1}') as response:
            assert response.status == 200
        assert client.url.count("/") == 2
    [request] = seen
    head, _, content = request.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"POST /a%20b/%C3%BC?directory=%2Fw%C3%B6rk+%E6%97%A5%E6%9C%AC%26x HTTP/1.1"
    assert b"authorization: Basic YXRvbWljOnA6w6Q=" in lines
    assert b"content-type: application/json" in lines
    assert content == b'{"x": 1}'


async def test_an_unreachable_server_is_an_error_with_the_reason() -> None:
    async with server() as client:
        pass
    with pytest.raises(HttpError, match=r"Connect call failed"):
        await body_of(client)


async def test_leaving_closes_the_connection_at_once() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        while await _read(reader):
            pass
        gone.set()

    async with listen(serve, _nothing) as port:
        client = LoopbackClient(f"http://127.0.0.1:{port}", user="", password="")
        async with client.request("GET", "/events") as response:
            assert await response.body.read() == b"first"
        async with asyncio.timeout(30):
            await gone.wait()


async def test_a_body_beyond_its_limit_is_not_read() -> None:
    async with server(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n") as client, client.request("GET", "/") as response:
        with pytest.raises(TooLongError):
            await read_all(response.body, 4)
    with pytest.raises(TooLongError):
        await read_all(Body(asyncio.StreamReader(), {"content-length": "5"}), 4)


async def test_a_response_that_is_too_long_is_not_reported_as_invalid() -> None:
    async with server(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n") as client:
        with pytest.raises(HttpError, match=r"^its answer is too long: its body is longer than 4 bytes$"):
            async with client.request("GET", "/") as response:
                await read_all(response.body, 4)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(100)
    except ConnectionError:
        return b""


def _nothing(error: BaseException) -> None:
    raise AssertionError from error
