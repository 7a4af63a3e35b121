"""A coding agent that speaks the Agent Client Protocol and plays `script.json`.

`agent.py FOLDER [--forgetful]`. The script is a list of parts:

    {"role", "task", "attempt", "match", "unless", "do": [step, …]}

The first part that fits is played: the words of the prompt's first line must be those of the part, `match` must be in
the prompt, and the file `unless` must not be in the project. A step is a verb and a value; `do` lists them. Each turn
adds a line to `calls.txt`, before it does anything: `worker 1 1`, or where the prompt has no role the `match`.

It is not `tests/support/fake_acp.py`: the archives contain its scripts and its `calls.txt`, so it does not change.
It uses only the standard library, so that it starts quickly and does not depend on the code under test.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from typing import Any

SESSION = "player-1"


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(content: dict[str, Any]) -> None:
    send({"method": "session/update", "params": {"sessionId": SESSION, "update": content}})


def say(text: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


class Turn:
    """One turn: the prompt, the folder to work in, and the part that fits."""

    def __init__(self, folder: str, prompt: str, cwd: str) -> None:
        self._folder = folder
        self._prompt = prompt
        self._cwd = cwd
        words = prompt.partition("\n")[0].strip("[]").split()
        self._facts = dict(word.split("=", 1) for word in words if "=" in word)

    def play(self) -> dict[str, Any]:
        """Play the part; the result of `session/prompt`."""
        part = self._part()
        words = [self._facts[key] for key in ("role", "task", "attempt") if key in self._facts]
        with open(os.path.join(self._folder, "calls.txt"), "a", encoding="utf-8") as calls:
            calls.write((" ".join(words) or part.get("match", "?")) + "\n")
        for step in part["do"]:
            if self._do(step):
                return {"stopReason": "cancelled"}
        return {"stopReason": "end_turn"}

    def _part(self) -> dict[str, Any]:
        with open(os.path.join(self._folder, "script.json"), encoding="utf-8") as script:
            parts: list[dict[str, Any]] = json.load(script)
        for part in parts:
            if self._fits(part):
                return part
        return {"do": [{"say": "I have no part in this."}]}

    def _fits(self, part: dict[str, Any]) -> bool:
        if any(str(part[key]) != self._facts.get(key) for key in ("role", "task", "attempt") if key in part):
            return False
        if part.get("match", "") not in self._prompt:
            return False
        return "unless" not in part or not os.path.exists(os.path.join(self._cwd, part["unless"]))

    def _do(self, step: dict[str, Any]) -> bool:
        """Do one step; return whether the turn was cancelled meanwhile."""
        [(verb, value)] = step.items()
        match verb:
            case "say":
                say(value)
            case "write":
                for name, text in value.items():
                    with open(os.path.join(self._cwd, name), "w", encoding="utf-8") as file:
                        file.write(text)
            case "sh":  # one agent at a time: a second git would find the index locked
                lock = os.open(self._folder, os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_EX)
                subprocess.run(["sh", "-ec", value], cwd=self._cwd, check=True, stdout=subprocess.DEVNULL)
                os.close(lock)
            case "update":
                update(value)
            case "ask":
                self._ask(value)
            case "hold":  # until the turn is cancelled, or Atomic is gone
                with open(os.path.join(self._folder, "held"), "w"):
                    pass
                while receive().get("method") != "session/cancel":
                    pass
                return True
            case _:
                raise ValueError(verb)
        return False

    def _ask(self, form: dict[str, Any]) -> None:
        send({"id": "ask", "method": "elicitation/create", "params": {"sessionId": SESSION, **form}})
        while (answer := receive()).get("id") != "ask":
            pass
        say(f"You said {json.dumps(answer.get('result'))}.")


def main(folder: str) -> None:
    cwd = os.getcwd()
    sessions: dict[str, Any] = {} if "--forgetful" in sys.argv else {"resume": {}}
    while True:
        message = receive()
        params: dict[str, Any] = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                capabilities: dict[str, Any] = {"sessionCapabilities": sessions}
                info = {"name": "player", "version": "1.0.0"}
                result: Any = {"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info}
            case "session/new" | "session/resume":
                cwd = params["cwd"]
                result = {"sessionId": SESSION}
            case "session/prompt":
                prompt = "\n".join(block.get("text", "") for block in params["prompt"])
                result = Turn(folder, prompt, cwd).play()
            case _:
                if "id" in message and "method" in message:
                    send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
                continue
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("player 1.0.0")
    else:
        main(sys.argv[1])
