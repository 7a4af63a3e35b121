"""A minimal ACP agent that runs the steps in its prompt.

A prompt is a JSON list of steps, each a verb and a value: `{"say": "hello"}`,
`{"update": {...}}`, `{"exit": 1}`. `play` lists all verbs. A turn without an explicit end
ends with `end_turn`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

SESSION = "puppet-1"
requests = 0
is_cancelled = False


def send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def update(content: dict[str, Any]) -> None:
    send({"method": "session/update", "params": {"sessionId": SESSION, "update": content}})


def say(text: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def request(method: str, params: dict[str, Any]) -> Any:
    """Send a request to the client and return its answer."""
    global requests, is_cancelled
    requests += 1
    send({"id": f"p{requests}", "method": method, "params": params})
    while (answer := receive()).get("id") != f"p{requests}":
        is_cancelled = is_cancelled or answer.get("method") == "session/cancel"
    return answer.get("result", answer.get("error"))


def play(step: dict[str, Any]) -> dict[str, Any] | None:
    """Run a step and return the end of the turn if the step ends it."""
    [(verb, value)] = step.items()
    match verb:
        case "say":
            say(value)
        case "update":
            update(value)
        case "print":
            raw(value.encode() + b"\n")
        case "bytes":
            raw(bytes.fromhex(value) + b"\n")
        case "deep":
            raw(b'{"a":' * value + b"1" + b"}" * value + b"\n")
        case "long":
            raw(b'{"a":"' + b"x" * value + b'"}\n')
        case "ask":
            say(json.dumps(request("elicitation/create", {"sessionId": SESSION, **value})))
        case "leave":
            say(json.dumps(request("session/request_permission", {"sessionId": SESSION, **value})))
        case "call":
            say(json.dumps(request(value, {"sessionId": SESSION})))
        case "tell":
            send(value)
        case "pause":
            time.sleep(value)
        case "spawn":
            child = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL)
            say(str(child.pid))
        case "log":
            print(value, file=sys.stderr, flush=True)
        case "exit":
            print("the puppet breaks", file=sys.stderr, flush=True)
            os._exit(value)
        case "wait":
            while receive().get("method") != "session/cancel":
                pass
            return {"result": {"stopReason": "cancelled"}}
        case "deaf":
            while True:
                receive()
        case "refuse":
            return {"error": value}
        case "stop":
            return {"result": value}
        case _:
            raise ValueError(verb)
    return None


def prompt(params: dict[str, Any]) -> dict[str, Any]:
    content = params["prompt"][0]["text"].partition("\n\n<system_prompt>")[0]
    if not content.startswith(("[", "/")):  # additions to a prompt precede it
        content = content.rpartition("\n\n")[2]
    for step in json.loads("[]" if content.startswith("/") else content):
        if step == {"prompt": True}:
            say(json.dumps([block["text"] for block in params["prompt"]]))
            continue
        end = play(step)
        if end is not None:
            return end
    return {"result": {"stopReason": "cancelled" if is_cancelled else "end_turn"}}


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    if "--stale" in sys.argv:
        return {"protocolVersion": 7}
    sessions: dict[str, Any] = {} if "--forgetful" in sys.argv else {"resume": {}}
    capabilities: dict[str, Any] = params.get("clientCapabilities", {})
    may_ask = "elicitation" in capabilities
    login = {"type": "env_var", "id": "key", "name": "Key", "vars": [{"name": "PUPPET_KEY"}]}
    return {
        "protocolVersion": 1,
        "agentCapabilities": {"sessionCapabilities": sessions, "mcpCapabilities": {"http": "--http" in sys.argv}},
        "agentInfo": {"name": "puppet", "version": "may ask" if may_ask else "may not ask"},
        "authMethods": [login],
    }


def main() -> None:
    if "--version" in sys.argv:
        print("puppet 1.2.3")
        return
    is_logged_in = "--logged-out" not in sys.argv
    while True:
        message = receive()
        method = message["method"]
        id = message.get("id")
        params: dict[str, Any] = message.get("params", {})
        if method == "initialize":
            send({"id": id, "result": initialize(params)})
        elif method == "authenticate":
            is_logged_in = True
            send({"id": id, "result": {}})
        elif method == "session/new" and not is_logged_in:
            send({"id": id, "error": {"code": -32000, "message": "Authentication required"}})
        elif method in ("session/new", "session/resume"):
            send({"id": id, "result": {"sessionId": SESSION}})
        elif method == "session/prompt":
            send({"id": id, **prompt(params)})
        elif id is not None:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
