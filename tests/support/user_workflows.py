"""Workflows of a user, recordings for their agents, and runs that a test watches."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.user import User
from tests.support.waits import HANG, eventually

Event = Mapping[str, Any]
HEAD = '''"""A workflow."""
import asyncio, os
from typing import Annotated
from atomic.workflows import *

class S(State):
    prompt: str = ""
    said: Annotated[list[str], reducers.concat] = []

def note(*words):
    with open("ledger.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

'''

QUESTION = {  # as Claude Code asks it
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Blue", "description": "calm"}, {"label": "Red", "description": "hot"}],
}


def workflow(user: User, name: str, code: str) -> None:
    """Give the user a workflow of that name; it needs no trust."""
    folder = user.home / ".atomic" / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(HEAD + code, encoding="utf-8")


def recording(user: User, *calls: Mapping[str, Any]) -> str:
    """Write a recording and return the name of its agent."""
    lines = ({"atomic_recording": 1}, *calls)
    path = user.home / "agents.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    return f"replay:{path}"


def call(*events: Event, match: str = "", pause: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return a call for prompts that match, with a pause between its events."""
    return {"match": match, "events": [[place * pause, event] for place, event in enumerate(events)], **more}


def text(words: str) -> Event:
    return {"type": "text_delta", "text": words}


def end(words: str = "", reason: str = "done", **more: Any) -> Event:
    return {"type": "turn_ended", "reason": reason, "text": words, **more}


def sessions(user: User) -> list[Path]:
    return sorted((user.home / ".atomic" / "sessions").glob("*"))


def session(user: User) -> dict[str, Any]:
    """Return the `session.json` of the only session."""
    (folder,) = sessions(user)
    return msgspec.json.decode((folder / "session.json").read_bytes())


def ledger(user: User) -> list[str]:
    path = user.project / "ledger.txt"
    return path.read_text().splitlines() if path.exists() else []


async def noted(user: User, line: str, *, limit: float = HANG) -> None:
    """Wait until a workflow has noted that line."""
    await eventually(lambda: line in ledger(user), limit=limit)


class Running:
    """A command that runs with `--json`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[Mapping[str, Any]] = []

    async def until(self, type: str, *, limit: float = HANG, **facts: Any) -> Mapping[str, Any]:
        """Read events up to one of that type with these facts."""
        async with asyncio.timeout(limit):
            while True:
                event = await self.next()
                assert event is not None, f"it ended without {type}: {self.events[-3:]}"
                if event["type"] == type and all(event[name] == fact for name, fact in facts.items()):
                    return event

    async def next(self) -> Mapping[str, Any] | None:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            return None
        event = msgspec.json.decode(line, type=dict[str, Any])
        self.events.append(event)
        return event

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def over(self, *, limit: float = HANG) -> int:
        """Read all events and return the exit code."""
        async with asyncio.timeout(limit):
            while await self.next() is not None:
                pass
            return await self.process.wait()


@asynccontextmanager
async def started(user: User, *words: str, cwd: Path | None = None) -> AsyncGenerator[Running]:
    """Start a command; leaving kills it."""
    process = await asyncio.create_subprocess_exec(
        str(user.program), *words, env=user.env, cwd=cwd or user.project, stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE, stderr=PIPE, limit=2**26,
    )  # fmt: skip
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()


def kinds(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [event["type"] for event in events]
