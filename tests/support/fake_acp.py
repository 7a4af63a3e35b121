"""A fake agent that speaks the Agent Client Protocol (ACP), and what tests need to use it.

A turn is a list of steps, each a verb and a value: `{"say": "hello"}`, `{"update": {...}}`,
`{"exit": 1}`. `run_step` and `change_project` list all verbs. A turn that no step ends, ends
with `end_turn`.

The steps are in the prompt, as JSON. With `--script FILE` they come from a file instead: a JSON
list of parts {"role", "task", "attempt", "match", "times", "do": [step, …]}. The first part that
fits the first line of the prompt, has its `match` in the prompt and is not used up, is played.
`--log FILE`, or the variable FAKE_ACP_LOG, names a file to which each prompt is written.

The program needs only the standard library, so that it starts quickly with `python -I -S`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.user import User

PROGRAM = __file__
AGENT = "acp:puppet"
SESSION = "puppet-1"
requests = 0
is_cancelled = False


# For tests


def use_fake_acp(user: User, *flags: str) -> str:
    """Configure this program as an agent of the user and return its name."""
    user.sets(f"[acp.puppet]\ncommand = {json.dumps([sys.executable, PROGRAM, *flags])}\n")
    return AGENT


def steps(*given: Mapping[str, Any]) -> str:
    """Return a prompt that has these steps."""
    return json.dumps(given)


def form(text: str, *choices: str, default: str | None = None) -> dict[str, Any]:
    """Return the value of an `ask` step with one question."""
    field: dict[str, Any] = {"type": "string", "title": text}
    if choices:
        field["enum"] = list(choices)
    if default is not None:
        field["default"] = default
    schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
    return {"mode": "form", "message": text, "requestedSchema": schema}


def read_log(path: str) -> list[dict[str, Any]]:
    """Return the prompts of a log with role, task and attempt, oldest first."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# The protocol


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: dict[str, Any]) -> None:
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


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


# Steps


def run_step(step: dict[str, Any], prompt: str, cwd: str) -> dict[str, Any] | None:
    """Run a step and return the end of the turn if the step ends it."""
    [(verb, value)] = step.items()
    match verb:
        case "say":
            say(value)
        case "update":
            update(value)
        case "cost":  # dollars of the session so far
            cost = {"amount": value, "currency": "USD"}
            update({"sessionUpdate": "usage_update", "used": 600_000, "size": 1_000_000, "cost": cost})
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
            change_project(verb, value, prompt, cwd)
    return None


def change_project(verb: str, value: Any, prompt: str, cwd: str) -> None:
    """Run a step that changes files or starts a program."""
    match verb:
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
            shell(value, cwd)
        case "alone":  # one agent at a time: a second git would find the index locked
            import fcntl

            folder = os.open(cwd, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            shell(value, cwd)
            os.close(folder)
        case "obey":  # the first shell block of the prompt
            shell("set -e\n" + prompt.partition("```sh\n")[2].partition("```")[0], cwd)
        case "spawn":
            import subprocess

            child = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL)
            say(str(child.pid))
        case _:
            raise ValueError(verb)


def shell(command: str, cwd: str) -> None:
    import subprocess

    subprocess.run(["sh", "-c", command], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


# Turns


def take_turn(params: dict[str, Any], cwd: str) -> dict[str, Any]:
    blocks = [block["text"] for block in params["prompt"]]
    prompt = "\n".join(blocks)
    given = steps_of_part(prompt) if "--script" in sys.argv else steps_in(blocks[0])
    for step in given:
        if step == {"prompt": True}:
            say(json.dumps(blocks))
            continue
        end = run_step(step, prompt, cwd)
        if end is not None:
            return end
    return {"result": {"stopReason": "cancelled" if is_cancelled else "end_turn"}}


def steps_in(prompt: str) -> list[dict[str, Any]]:
    content = prompt.partition("\n\n<system_prompt>")[0]
    if not content.startswith(("[", "/")):  # additions to a prompt precede it
        content = content.rpartition("\n\n")[2]
    return json.loads("[]" if content.startswith("/") else content)


def steps_of_part(prompt: str) -> list[dict[str, Any]]:
    """Return the steps of the part that fits, and log the prompt."""
    with open(argument("--script"), encoding="utf-8") as file:
        script = json.load(file)
    first = prompt.partition("\n")[0].strip("[]")
    facts = dict(word.split("=", 1) for word in first.split() if "=" in word)
    log = argument("--log") or os.environ.get("FAKE_ACP_LOG", "")
    played = [line["part"] for line in read_log(log)]
    number = -1
    for at, part in enumerate(script):
        fits = all(str(part[key]) == facts.get(key) for key in ("role", "task", "attempt") if key in part)
        if fits and part.get("match", "") in prompt and played.count(at) < part.get("times", 10**9):
            number = at
            break
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps({"part": number, **facts, "prompt": prompt, "pid": os.getpid()}) + "\n")
    return script[number]["do"] if number >= 0 else [{"say": "I have no part in this."}]


def argument(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else ""


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
    cwd = os.getcwd()
    while True:
        message = receive()
        method = message.get("method")
        id = message.get("id")
        params: dict[str, Any] = message.get("params") or {}
        if method == "initialize":
            send({"id": id, "result": initialize(params)})
        elif method == "authenticate":
            is_logged_in = True
            send({"id": id, "result": {}})
        elif method == "session/new" and not is_logged_in:
            send({"id": id, "error": {"code": -32000, "message": "Authentication required"}})
        elif method in ("session/new", "session/resume"):
            cwd = params["cwd"]
            send({"id": id, "result": {"sessionId": SESSION}})
        elif method == "session/prompt":
            send({"id": id, **take_turn(params, cwd)})
        elif id is not None and method is not None:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
