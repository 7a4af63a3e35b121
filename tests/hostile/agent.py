"""The user's own ACP agent: it plans one task for a planner and greets otherwise."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

LEDGER = "AGENT_LEDGER"  # names a file for the prompts
PLAN: dict[str, Any] = {"tasks": [{"id": "t1", "title": "Greet", "description": "Write a greeting.", "blocked_by": []}]}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                result: Any = {"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": {"name": "own"}}
            case "session/new":
                result = {"sessionId": "s"}
            case "session/prompt":
                prompt = json.dumps(message["params"]["prompt"])
                if LEDGER in os.environ:
                    with open(os.environ[LEDGER], "a", encoding="utf-8") as ledger:
                        ledger.write(f"{prompt}\n")
                text = json.dumps(PLAN) if "role=planner" in prompt else "Hello, I am your own agent."
                said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
                send({"method": "session/update", "params": {"sessionId": "s", "update": said}})
                result = {"stopReason": "end_turn"}
            case _:
                if "id" in message and "method" in message:
                    send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
                continue
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("own 1.0.0")
    else:
        main()
