"""An ACP agent that follows a script; the first line of a prompt selects its part.

`scripted_agent.py SCRIPT LOG`: the script is a JSON list of parts {"role", "task",
"attempt", "times", "do": [step, …]}. The first part that fits, and is not used up, is
played. A step is a verb and a value: {"say": text}, {"write": {path: text}},
{"delete": [path]}, {"sh": command}, {"alone": command} (one agent at a time: a second
git would find the index locked), {"exit": code}, {"wait": seconds}, {"obey": true} (run
the first shell block of the prompt), {"cost": dollars of the session so far}. Each prompt
is written to the log. Standard library only: it starts quickly.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from typing import Any


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(said: dict[str, Any]) -> None:
    send({"method": "session/update", "params": {"sessionId": "actor", "update": said}})


def facts_of(prompt: str) -> dict[str, str]:
    first = prompt.partition("\n")[0].strip("[]")
    return dict(word.split("=", 1) for word in first.split() if "=" in word)


def log_of(path: str) -> list[dict[str, Any]]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def part_for(facts: dict[str, str], script: list[dict[str, Any]], log: str) -> int:
    played = [line["part"] for line in log_of(log)]
    for at, part in enumerate(script):
        fits = all(str(part[key]) == facts.get(key) for key in ("role", "task", "attempt") if key in part)
        if fits and played.count(at) < part.get("times", 10**9):
            return at
    return -1


def play(prompt: str, cwd: str, script: list[dict[str, Any]], log: str) -> str:
    facts = facts_of(prompt)
    at = part_for(facts, script, log)
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps({"part": at, **facts, "prompt": prompt, "pid": os.getpid()}) + "\n")
    said = [do(step, cwd, prompt) for step in (script[at]["do"] if at >= 0 else [{"say": "I have no part in this."}])]
    return "".join(said)


def do(step: dict[str, Any], cwd: str, prompt: str) -> str:
    [(verb, value)] = step.items()
    match verb:
        case "say":
            return value
        case "write":
            for name, text in value.items():
                path = os.path.join(cwd, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
        case "delete":
            for name in value:
                os.unlink(os.path.join(cwd, name))
        case "sh":
            subprocess.run(["sh", "-c", value], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
        case "alone":
            folder = os.open(cwd, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            subprocess.run(["sh", "-c", value], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
            os.close(folder)
        case "obey":
            block = prompt.partition("```sh\n")[2].partition("```")[0]
            subprocess.run(["sh", "-ec", block], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
        case "exit":
            os._exit(value)
        case "wait":
            time.sleep(value)
        case "cost":
            cost = {"amount": value, "currency": "USD"}
            update({"sessionUpdate": "usage_update", "used": 600_000, "size": 1_000_000, "cost": cost})
        case _:
            raise ValueError(verb)
    return ""


def main(script_path: str, log: str) -> None:
    with open(script_path, encoding="utf-8") as file:
        script = json.load(file)
    cwd = os.getcwd()
    for line in sys.stdin:
        message = json.loads(line)
        params: dict[str, Any] = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                result: Any = {"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": {"name": "actor"}}
            case "session/new":
                cwd = params["cwd"]
                result = {"sessionId": "actor"}
            case "session/prompt":
                prompt = "\n".join(block.get("text", "") for block in params["prompt"])
                text = play(prompt, cwd, script, log)
                update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
                result = {"stopReason": "end_turn"}
            case _:
                if "id" in message and "method" in message:
                    send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
                continue
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("actor 1.0.0")
    else:
        main(sys.argv[1], sys.argv[2])
