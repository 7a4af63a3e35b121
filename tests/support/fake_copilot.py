"""A fake Copilot that sends invalid messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_CODE = r"""
import json, os, sys, time, uuid

OUT = sys.stdout.buffer

def raw(data):
    OUT.write(data)
    OUT.flush()

def send(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

def send_event(session, kind, agent=None, **data):
    event = {"id": str(uuid.uuid4()), "timestamp": "2026-01-01T00:00:00Z", "parentId": None, "type": kind, "data": data}
    send(method="session.event", params={"sessionId": session, "event": event | ({"agentId": agent} if agent else {})})

def answer(session, text):
    send_event(session, "assistant.message", messageId="m1", content=text)
    send_event(session, "session.idle")

def turn(session, prompt, id):
    if prompt == "stale":  # ends of earlier turns come first
        send_event(session, "session.idle")
        send_event(session, "session.idle", aborted=True)
    send_event(session, "user.message", content=prompt, messageId=id)
    if prompt == "garbage":
        raw(b"\xff\xfe not a message\r\n\r\n")
    elif prompt == "no-json":
        raw(b"Content-Length: 5\r\n\r\n{]{]{")
    elif prompt == "no-object":
        raw(b"Content-Length: 2\r\n\r\n17")
    elif prompt == "deep":
        body = b"[" * 200_000 + b"]" * 200_000
        raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    elif prompt == "long":
        raw(b"Content-Length: 99999999999\r\n\r\n{")
    elif prompt == "endless":
        try:
            while True:
                raw(b"x" * 1024 * 1024)
        except BrokenPipeError:
            os._exit(0)
    elif prompt == "half":
        raw(b"Content-Length: 500\r\n\r\n{")
        print("it hurts", file=sys.stderr, flush=True)
        os._exit(7)
    elif prompt == "unreadable-end":
        send_event(session, "session.idle", aborted="perhaps")
    elif prompt == "new":
        send_event(session, "session.hologram", depth=3)
        send_event(session, "session.hologram", depth=4)
        send_event(session, "assistant.usage", inputTokens="many")
        send_event(session, "tool.execution_complete", toolCallId="never begun", success=True)
        send_event(session, "subagent.completed", agent="never begun")
        answer(session, prompt)
    elif prompt == "asks":  # a method that Atomic does not offer; `main` handles the response
        send(id=session, method="hooks.invoke", params={})
    elif prompt == "deaf":
        send_event(session, "assistant.message_delta", messageId="m1", deltaContent="I do not stop")
    else:
        answer(session, prompt)

def result_of(method, params):
    if method == "connect":
        return {"ok": True, "protocolVersion": 4 if "newer" in sys.argv[0] else 3, "version": "1.0.102"}
    if method == "user.settings.get":
        return {"settings": {}}
    if method in ("session.create", "session.resume"):
        return {"sessionId": params["sessionId"], "workspacePath": None, "capabilities": {}}
    if method == "session.tasks.list":
        return {"tasks": []}
    if method == "session.send":
        return {"messageId": "p-" + params["prompt"]}
    return {"success": True}

def main():
    if "--version" in sys.argv:
        print("GitHub Copilot CLI 0.9.1." if "old" in sys.argv[0] else "hello")
        return
    if "broken" in sys.argv[0]:
        sys.exit("the engine is missing")
    while line := sys.stdin.buffer.readline():
        length = int(line.split(b":")[1])
        sys.stdin.buffer.readline()
        message = json.loads(sys.stdin.buffer.read(length))
        if "error" in message:
            answer(message["id"], message["error"]["message"])
            continue
        method, params = message["method"], message.get("params") or {}
        send(id=message["id"], result=result_of(method, params))
        if method == "session.send":
            turn(params["sessionId"], params["prompt"], "p-" + params["prompt"])

main()
"""


def write_fake_program(folder: Path, name: str = "copilot") -> Path:
    """Write the program to a file and return its path.

    With `old` in its name it reports an old version, with `newer` it uses another protocol,
    with `broken` it does not start.
    """
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{_CODE}")
    os.chmod(path, 0o755)
    return path
