"""An MCP server with two tools, `plus` and `minus`, on its standard streams."""

from __future__ import annotations

import json
import sys
from typing import Any

_NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = message.get("params") or {}
    match message["method"]:
        case "initialize":
            info = {"name": "two", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {
                "tools": [{"name": name, "description": name, "inputSchema": _NUMBERS} for name in ("plus", "minus")]
            }
        case "tools/call":
            a = params["arguments"]["a"]
            b = params["arguments"]["b"]
            return {"content": [{"type": "text", "text": str(a + b if params["name"] == "plus" else a - b)}]}
        case _:
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)
