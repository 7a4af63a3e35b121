"""An engine program for tests. Each prompt triggers another fault."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = r"""
import json, os, signal, socket, sys, time

fd = int(sys.argv[sys.argv.index("--fd") + 1])
wire = socket.socket(fileno=fd)
lines = wire.makefile("r", encoding="utf-8")

def emit(**event):
    wire.sendall(json.dumps(event).encode() + b"\n")

emit(type="status_changed", session="s-1", provider=" ".join(sys.argv[1:-2]), model=str(os.getpid()))
for line in lines:
    intent = json.loads(line)
    match intent["type"]:
        case "submit":
            run, text = intent["run"], intent["text"]
            emit(type="run_started", run=run, kind="workflow" if text == "workflow" else "turn", session="w-1")
            if text == "die":
                print("last message", file=sys.stderr, flush=True)
                os._exit(3)
            if text == "leave a child":
                if os.fork() == 0:
                    time.sleep(30)
                os._exit(4)
            if text == "flood":
                for _ in range(20000):
                    emit(type="activity", run=run, event={"type": "text_delta", "text": "x" * 20})
                emit(type="run_ended", run=run, status="done")
            if text == "stick":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(60)
            if text == "garbage":
                wire.sendall(b'{"type": "nonsense"}\n')
                emit(type="run_ended", run=run, status="done")
            if text == "echo":
                emit(type="run_ended", run=run, status="done", message=" ".join(sys.argv[1:]))
        case "interrupt":
            if not intent.get("force"):
                emit(type="said", text="I do not stop")
            else:
                emit(type="said", text="I do not stop at all")
        case "leave":
            emit(type="left", message="resume with it")
            break
"""


def engine_program(folder: Path) -> list[str]:
    """Write the program to `folder` and return its command line."""
    file = folder / "engine.py"
    file.write_text(_PROGRAM)
    return [sys.executable, str(file)]
