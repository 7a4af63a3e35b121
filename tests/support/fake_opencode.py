"""A fake `opencode serve` that can send invalid events.

The prompt is the name of the data to send into the event stream.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator
from typing import Any

SESSION = "ses_fake"
MB = 1024 * 1024


def sse(type: str, **properties: Any) -> bytes:
    return b"data: " + json.dumps({"payload": {"type": type, "properties": properties}}).encode() + b"\n\n"


def answer(id: str, *, completed: bool) -> bytes:
    info = {"id": id, "role": "assistant", "time": {"created": 1}, "sessionID": SESSION}
    if completed:
        info |= {"time": {"created": 1, "completed": 2}, "finish": "stop"}
    return sse("message.updated", sessionID=SESSION, info=info)


def text(id: str, content: str) -> bytes:
    part = {"id": f"prt_{id}", "messageID": id, "sessionID": SESSION, "type": "text", "text": content}
    return sse("message.part.updated", sessionID=SESSION, part=part)


IDLE = sse("session.idle", sessionID=SESSION)
BAD: dict[str, bytes] = {
    "big": b'data: {"payload":{"properties":{"sessionID":"ses_fake","x":"' + b"x" * (64 * MB) + b'"}}}\n\n',
    "big without session": b"data: " + b"x" * (64 * MB) + b"\n\n",
    "garbage": b"data: \x00\xfe\xff not JSON at all\n\n",
    "half a character": sse("message.part.updated", sessionID=SESSION, part={"id": "p", "text": "EURO"}).replace(
        b"EURO", b"\xe2\x82"
    ),
    "deep": b'data: {"payload":{"type":"x","properties":{"sessionID":"ses_fake","x":' + b"[" * 200_000 + b"}}}\n\n",
    "unknown": sse("session.juggled", sessionID=SESSION, balls=3),
    "new shape": sse("message.updated", sessionID=SESSION, info="changed their mind"),
    "comment": b": nothing\n\nretry: 3\n\nevent: x\nid: 7\n\n",
}


class Fake:
    def __init__(self) -> None:
        self.streams: set[asyncio.Queue[bytes | None]] = set()
        self.messages: list[dict[str, Any]] = []
        self.number = 0

    def send(self, data: bytes | None) -> None:
        for stream in self.streams:
            stream.put_nowait(data)

    def prompt(self, body: dict[str, Any]) -> None:
        self.number += 1
        mine = f"msg_{self.number}"
        content = body["parts"][0]["text"]
        user = {"id": body["messageID"], "role": "user", "time": {"created": 1}}
        self.send(sse("message.updated", sessionID=SESSION, info=user))
        self.send(sse("session.status", sessionID=SESSION, status={"type": "busy"}))
        self.send(answer(mine, completed=False))
        if content == "close":
            self.send(sse("message.part.delta", sessionID=SESSION)[:25])
            info = {"id": mine, "role": "assistant", "time": {"created": 1, "completed": 2}, "finish": "stop"}
            part = {"id": "prt_1", "messageID": mine, "type": "text", "text": "received after all"}
            self.messages = [{"info": user, "parts": []}, {"info": info, "parts": [part]}]
            self.send(None)
            return
        self.send(BAD.get(content, b""))
        self.send(text(mine, f"answer {self.number}") + answer(mine, completed=True) + IDLE)

    def answer(self, method: str, path: str, body: bytes) -> Any:
        match method, path.partition("?")[0]:
            case "POST", "/session":
                return {"id": SESSION}
            case "POST", path if path.endswith("/prompt_async"):
                asyncio.get_running_loop().call_soon(self.prompt, json.loads(body))
                return None
            case "POST", path if path.endswith("/abort"):
                self.send(IDLE)
                return True
            case "GET", path if path.endswith("/message"):
                return self.messages
            case "GET", "/session/status" | "/mcp":
                return {}
            case "GET", path if path.endswith(("/children", "/todo", "/question", "/permission")):
                return []
            case _:
                return {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")
            method, path, _ = lines[0].split(" ")
            headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines[1:]}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if headers.get("authorization") != f"Basic {secret()}":
                writer.write(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n")
            elif path.startswith("/global/event"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                async for data in self.events():
                    writer.write(data)
                    await writer.drain()
                writer.close()
                return
            else:
                content = json.dumps(self.answer(method, path, body)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content)
            await writer.drain()

    async def events(self) -> AsyncGenerator[bytes]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.streams.add(queue)
        yield sse("server.connected")
        while (data := await queue.get()) is not None:
            yield data
        self.streams.discard(queue)


def secret() -> str:
    content = f"{os.environ['OPENCODE_SERVER_USERNAME']}:{os.environ['OPENCODE_SERVER_PASSWORD']}"
    return base64.b64encode(content.encode()).decode()


async def main() -> None:
    server = await asyncio.start_server(Fake().serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"opencode server listening on http://{os.environ.get('FAKE_HOST', '127.0.0.1')}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
