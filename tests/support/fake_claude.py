"""A fake Claude Code that sends invalid messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_CODE = r"""
import json, os, signal, subprocess, sys, time

def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def answer(text):
    body = {"id": "m1", "content": [{"type": "text", "text": text}]}
    say(type="assistant", message=body, parent_tool_use_id=None)
    say(type="result", subtype="success", is_error=False, num_turns=1, result=text, total_cost_usd=0.5,
        usage={"input_tokens": 3, "output_tokens": 2})

def turn(id, prompt):
    if prompt == "old":  # a version without command_lifecycle and session_state_changed
        answer("old")
        return
    if prompt == "woken":  # by a background task of an earlier program
        say(type="system", subtype="session_state_changed", state="running")
        say(type="result", subtype="success", num_turns=0, result="", origin={"kind": "task-notification"})
        say(type="system", subtype="session_state_changed", state="idle")
    say(type="system", subtype="session_state_changed", state="running")
    say(type="command_lifecycle", command_uuid=id, state="started")
    if prompt == "garbage":
        raw(b"\xff\xfe not json\n")
    elif prompt == "deep":
        raw(b'{"type":"assistant","message":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
    elif prompt == "huge":
        for _ in range(65):
            raw(b"x" * 1024 * 1024)
        time.sleep(60)
    elif prompt == "half":
        raw(b'{"type":"assistant","mess')
        print("it hurts", file=sys.stderr, flush=True)
        os._exit(7)
    elif prompt == "hang":
        mark = os.path.dirname(sys.argv[0]) + "/hanging"
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", mark])
        time.sleep(60)
    elif prompt == "silent":
        os.close(1)
        time.sleep(60)
    else:
        if prompt == "new":
            say(type="hologram", depth=3)
            say(type="hologram", depth=4)
            say(type="system", subtype="weather", rain=True)
            say(type="assistant", message=5)
            say(type="system", subtype="task_started")
        if prompt == "surrogate":
            raw(b'{"type":"assistant","message":{"id":"m0","content":[{"type":"text","text":"cut \\ud83d"}]}}\n')
        answer(prompt)
        say(type="command_lifecycle", command_uuid=id, state="completed")
        say(type="system", subtype="session_state_changed", state="idle")

def main():
    if "deaf" in sys.argv[0]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "mute" in sys.argv[0]:
        time.sleep(60)
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            response = {"subtype": "success", "request_id": message["request_id"], "response": {}}
            say(type="control_response", response=response)
        elif message["type"] == "user":
            turn(message["uuid"], message["message"]["content"])

main()
"""


def write_fake_program(folder: Path, name: str = "claude") -> Path:
    """Write the program to a file and return its path.

    With `deaf` in its name it ignores SIGTERM, with `mute` it never answers.
    """
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{_CODE}")
    os.chmod(path, 0o755)
    return path
