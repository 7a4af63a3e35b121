"""An ACP agent that repairs what killed agents left; each role is a function of its prompt and the files.

`tests/support/fake_acp.py` plays a script instead, which does not know the state of the project.

It writes the begin and end of each turn to a ledger that Atomic does not know. Its changes
to the project are real files and commits. It imports little, so that a turn is cheap.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

LAYERS = (4, 5, 6, 5, 4)
FEWER_LAYERS = (2, 6, 2)  # with workspaces, of which each takes a second of the processor
BREAKS = ("t12", "t33")  # their first attempt writes a file that fails the check
POLISH = "work/polish.txt"  # the file that the reviewer requests
GATE = "! grep -rqs BROKEN work"
PAUSE = 0.02  # minimum seconds of a turn, so that it can be interrupted
DRAFTS = "drafts"  # a folder for files that are never committed, and are there only during a turn


def plan(layers: Sequence[int] = LAYERS) -> list[dict[str, Any]]:
    """Return the tasks; each depends on one to three tasks of the layer before it."""
    tasks: list[dict[str, Any]] = []
    before: list[str] = []
    for layer, size in enumerate(layers):
        ids = [f"t{layer}{place}" for place in range(size)]
        for place, id in enumerate(ids):
            blockers = sorted({before[(place + step) % len(before)] for step in range(1 + place % 3)}) if before else []
            tasks.append({"id": id, "title": f"Write the part {id}", "blocked_by": blockers})
        before = ids
    return tasks


def agent_number(mark: str) -> int:
    """Return a number of an agent that it has inside and outside of a workspace."""
    return int(mark[:12], 16)


class Turn:
    """One turn: the facts in its first line, and its working folder."""

    def __init__(self, prompt: str, cwd: str, ledger: int, pause: float, *, drafts: bool) -> None:
        words = prompt.partition("\n")[0].strip("[]").split()
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        self.role = facts.get("role", "")
        self.task = facts.get("task", "")
        self.attempt = int(facts.get("attempt", "1"))
        self._cwd = cwd
        self._ledger = ledger
        self._pause = pause
        self._drafts = drafts
        self._tasks = plan(FEWER_LAYERS if drafts else LAYERS)

    def play(self) -> str:
        self._witness("begin")
        if self._drafts:
            self._delete_drafts()  # of a killed agent, which Atomic must have kept
            self._write_draft()
        answer = {"planner": self._plan, "reviewer": self._review, "fixer": self._fix}.get(self.role, self._work)()
        if self._drafts:
            self._witness("tidy")
            self._delete_drafts()
        self._witness("end")
        self.may_die("before")
        return answer

    def may_die(self, moment: str) -> None:
        """Die once, if a file next to the ledger names this role and this moment."""
        order = os.readlink(f"/proc/self/fd/{self._ledger}") + ".die"
        if os.path.exists(order) and _read(order).split() == [self.role, moment]:
            os.unlink(order)
            os.kill(os.getpid(), signal.SIGKILL)

    def _write_draft(self) -> None:
        text = f"{self.role} {self.task} {self.attempt} {os.environ['ATOMIC_MARK']} {time.time_ns()}"
        self._write(f"{DRAFTS}/{time.time_ns()}.txt", text)
        self._witness("draft", text)

    def _delete_drafts(self) -> None:
        folder = os.path.join(self._cwd, DRAFTS)
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)

    def _witness(self, what: str, text: str = "") -> None:
        line = {"what": what, "role": self.role, "task": self.task, "attempt": self.attempt}
        line |= {"agent": agent_number(os.environ["ATOMIC_MARK"]), "text": text}
        os.write(self._ledger, json.dumps(line).encode() + b"\n")
        os.fsync(self._ledger)

    # The roles

    def _plan(self) -> str:
        time.sleep(PAUSE)
        return json.dumps({"tasks": self._tasks})

    def _work(self) -> str:
        for blocker in next(task["blocked_by"] for task in self._tasks if task["id"] == self.task):
            if not self._has(f"work/{blocker}.txt"):
                self._witness("early")
        name = f"work/{self.task}.txt"
        with self._alone():
            is_bad = self.task in BREAKS and self.attempt == 1 and not self._has(name)
            self._write(name, "BROKEN" if is_bad else f"This is {self.task}.")
        time.sleep(self._pause)
        with self._alone():
            # Repair a failed check that the prompt reports, even one of another task.
            broken = [] if self.attempt == 1 else self._broken()
            for one in broken:
                self._write(one, f"This is {one[5:-4]}.")
            self._commit(f"Write {self.task}", name, *broken)
        return "All is done, and it is excellent."

    def _fix(self) -> str:
        with self._alone():
            self._write(POLISH, "Polished.")
            self._commit(f"Repair {self.task}", POLISH)
        time.sleep(self._pause)
        return "It is repaired."

    def _review(self) -> str:
        time.sleep(self._pause)
        parts = [f"work/{task['id']}.txt" for task in self._tasks]
        findings = [_finding(f"{part} is missing", 0, part) for part in parts if not self._has(part)]
        if not self._has(POLISH):
            findings += [_finding(f"{POLISH} is missing", 1, parts[0]), _finding("The parts are short", 3, parts[1])]
        verdict = "request_changes" if findings else "approve"
        return json.dumps({"verdict": verdict, "findings": findings, "summary": "I have looked at every part."})

    # The project

    def _has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._cwd, name))

    def _broken(self) -> list[str]:
        folder = os.path.join(self._cwd, "work")
        return [f"work/{name}" for name in sorted(os.listdir(folder)) if "BROKEN" in _read(os.path.join(folder, name))]

    def _write(self, name: str, text: str) -> None:
        path = os.path.join(self._cwd, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text + "\n")

    def _commit(self, subject: str, *names: str) -> None:
        # A killed agent may have left locks. The caller holds the only lock between agents.
        for name in ("index", "HEAD", "refs/heads/main"):
            lock = os.path.join(self._cwd, ".git", f"{name}.lock")
            if os.path.exists(lock):
                os.unlink(lock)
        if self.attempt > 1:
            # A killed agent may have repaired a file without adding it.
            self._git("add", "--update", "work")
        self._git("add", "--", *names)
        # The index may also hold files that a killed agent added.
        if self._git("diff", "--cached", "--quiet", may_fail=True):
            self._git("commit", "--quiet", "--no-verify", "-m", subject)
            self._witness("commit", self._head())

    def _head(self) -> str:
        """Return the last commit, as git has it in its files."""
        head = _read(os.path.join(self._cwd, ".git", "HEAD")).split()[-1]
        return _read(os.path.join(self._cwd, ".git", head)).strip()

    def _git(self, *words: str, may_fail: bool = False) -> int:
        _, status = os.waitpid(os.posix_spawnp("git", ["git", "-C", self._cwd, *words], os.environ), 0)
        code = os.waitstatus_to_exitcode(status)
        if code and not may_fail:
            raise RuntimeError(f"git {words[0]} ended with {code}")
        return code

    def _alone(self) -> _Alone:
        return _Alone(os.path.join(self._cwd, ".git", "agents.lock"))


class _Alone:
    """A lock that agents share; a git process that outlives its agent still holds it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.set_inheritable(self._file, True)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _finding(title: str, priority: int, location: str) -> dict[str, Any]:
    return {"title": title, "body": title, "priority": priority, "location": f"{location}:1", "confidence": 0.9}


# The protocol


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main(ledger_path: str, pause: float = PAUSE, *, drafts: bool = False) -> None:
    ledger = os.open(ledger_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    cwd = os.getcwd()
    session = "torture"
    turn: Turn | None = None
    for line in sys.stdin:
        message = json.loads(line)
        params: dict[str, Any] = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                can = {"mcpCapabilities": {"http": True}}
                result: Any = {"protocolVersion": 1, "agentCapabilities": can, "agentInfo": {"name": "torture"}}
            case "session/new":
                cwd = params["cwd"]
                result = {"sessionId": session}
            case "session/prompt":
                # The parts before the last one are instructions for the whole session.
                prompt = params["prompt"][-1]["text"]
                turn = Turn(prompt, cwd, ledger, pause, drafts=drafts)
                text = turn.play()
                said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
                send({"method": "session/update", "params": {"sessionId": session, "update": said}})
                result = {"stopReason": "end_turn"}
            case _:
                if "id" in message and "method" in message:
                    send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
                continue
        send({"id": message["id"], "result": result})
        if turn is not None:
            turn.may_die("after")


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("torture 1.0.0")
    else:
        main(sys.argv[1], *map(float, sys.argv[2:3]), drafts="--drafts" in sys.argv)
