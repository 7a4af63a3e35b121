"""A small MCP server with one tool, `add`: on its standard streams, or over HTTP."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
_ADD = {"name": "add", "description": "adds", "inputSchema": {"type": "object", "properties": _NUMBERS}}


def answer(message: dict[str, Any], secret: str | None) -> dict[str, Any] | None:
    """Return the server's response to a message, or None for a notification."""
    if "id" not in message:
        return None
    result: dict[str, Any] = {}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        result = {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "b", "version": "1"},
        }
    elif message["method"] == "tools/list":
        result = {"tools": [_ADD]}
    elif message["method"] == "tools/call":
        numbers = message["params"]["arguments"]
        result = {"content": [{"type": "text", "text": f"{numbers['a'] + numbers['b']} {secret}"}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@contextmanager
def serve_over_http() -> Generator[str]:
    """Serve over HTTP and yield the address; results repeat the header `x-secret`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        response = answer(message, self.headers["x-secret"])
        body = b"" if response is None else json.dumps(response).encode()
        self.send_response(202 if response is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    for line in sys.stdin:
        response = answer(json.loads(line), os.environ.get("SECRET"))
        if response is not None:
            print(json.dumps(response), flush=True)
