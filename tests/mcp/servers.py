"""MCP servers for tests: a program with faults chosen by its argument, and two over HTTP."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


def answer(message: Json, tools: list[str], page: int = 2) -> Json | None:
    """Return the answer of a server that lists its tools in pages."""
    if "id" not in message or "method" not in message:
        return None
    result: Json = {}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "fake", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        start = int(message["params"].get("cursor", 0))
        result = {"tools": [{"name": name, "inputSchema": {}} for name in tools[start : start + page]]}
        if start + page < len(tools):
            result["nextCursor"] = str(start + page)
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


class Seen:
    """The address of a server and the requests that it received."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, dict[str, str], Json]] = []


@contextmanager
def over_http(tools: list[str], *, as_events: bool = False, status: int = 200) -> Generator[Seen]:
    """Serve streamable HTTP; with `as_events`, answer with events and a request of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.requests.append(("POST", {name.lower(): value for name, value in self.headers.items()}, message))
            reply = answer(message, tools)
            if status != 200:
                self._send(status, "text/plain", b"no")
            elif reply is None:
                self._send(202, "text/plain", b"")
            elif as_events:
                ping = b'data: {"jsonrpc": "2.0", "id": "p", "method": "ping"}\r\n\r\n'
                lines = json.dumps(reply, indent=1).splitlines()
                body = b": hello\n\nid: 1\n" + ping + b"".join(f"data: {line}\n".encode() for line in lines) + b"\n"
                self._send(200, "text/event-stream", body)
            else:
                self._send(200, "application/json; charset=utf-8", json.dumps(reply).encode())

        def do_GET(self) -> None:
            self._send(405, "text/plain", b"")

        def do_DELETE(self) -> None:
            seen.requests.append(("DELETE", {name.lower(): value for name, value in self.headers.items()}, {}))
            self._send(200, "text/plain", b"")

        def _send(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            for name, value in {"content-type": kind, "content-length": len(body), "mcp-session-id": "s1"}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serve(Handler) as url:
        seen = Seen(url)
        yield seen


@contextmanager
def over_events(tools: list[str], *, endpoint: str = "/messages") -> Generator[Seen]:
    """Serve the older HTTP with events: one stream, whose first event names the address."""
    answers: queue.Queue[Json | None] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(f"event: endpoint\ndata: {endpoint}\n\n".encode())
            while (reply := answers.get(timeout=20)) is not None:
                self.wfile.write(f"event: message\ndata: {json.dumps(reply)}\n\n".encode())

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_endpoint = self.path == endpoint
            if is_endpoint:
                seen.requests.append(("POST", {name.lower(): value for name, value in self.headers.items()}, message))
                reply = answer(message, tools)
                if reply is not None:
                    answers.put(reply)
            self.send_response(202 if is_endpoint else 405)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serve(Handler) as url:
        seen = Seen(url)
        try:
            yield seen
        finally:
            answers.put(None)


@contextmanager
def _serve(handler: type[BaseHTTPRequestHandler]) -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main(behaviour: str) -> None:
    """Run as a program: `good`, or with the fault that the argument names."""
    match behaviour:
        case "good":
            for line in sys.stdin:
                print(json.dumps({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}), flush=True)
                reply = answer(json.loads(line), ["one", "two", "three"])
                if reply is not None:
                    print(json.dumps(reply), flush=True)
        case "garbage":
            print("Server listening...", flush=True)
            sys.stdin.read()
        case "huge":
            print("x" * 2_000_000, flush=True)
        case "endless":
            for line in sys.stdin:
                reply = answer(json.loads(line), ["one"]) or {}
                if "tools" in reply.get("result", {}):
                    reply["result"]["nextCursor"] = "0"
                print(json.dumps(reply), flush=True)
        case "silent":
            sys.stdin.read()
        case "refusing":
            request = json.loads(sys.stdin.readline())
            error = {"code": -1, "message": "not\ntoday"}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
        case "nameless":
            for line in sys.stdin:
                reply = answer(json.loads(line), ["one"])
                if reply is not None:
                    reply["result"]["tools"] = [{"title": "no name"}]
                    print(json.dumps(reply), flush=True)
        case _:
            print(f"cannot log in with {behaviour}", file=sys.stderr)
            sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1])
