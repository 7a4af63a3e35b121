"""Session folders as a run leaves them, written by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

from atomic.sessions import SqliteJournal
from atomic.workflows import State, graph


class PlanState(State):
    prompt: str = ""
    rounds: int = 0


def folder_of(home: Path, id: str) -> Path:
    return home / ".atomic" / "sessions" / id


def make_session(home: Path, id: str | None = None, **fields: Any) -> str:
    """Write a session folder and return its id; its journal has the nodes that `steps` names."""
    id = id or str(uuid4())
    folder = folder_of(home, id)
    (folder / "logs").mkdir(parents=True)
    steps = fields.pop("steps", ())
    record: dict[str, Any] = {
        "id": id, "workflow": "review", "workflow_version": "1.0.0", "project": "", "prompt": "fix the login",
        "status": "completed", "reason": "done", "created_at": "2026-11-15T10:00:00.000Z",
        "updated_at": "2026-11-15T10:05:00.000Z", "ended_at": "2026-11-15T10:05:00.000Z", "config": {},
        "cost": {"usd": 0.75, "input_tokens": 1200, "output_tokens": 300}, "questions": [], "owner": None, "pr": None,
        "atomic_version": "0.1.0", "state_version": 1, **fields,
    }  # fmt: skip
    (folder / "session.json").write_text(json.dumps(record))
    with ThreadPoolExecutor(1) as thread:  # the test has an event loop of its own
        thread.submit(_journal, folder / "journal.db", id, steps).result(timeout=60)
    return id


def add_call(home: Path, id: str, **fields: Any) -> None:
    line = {
        "time": 1_800_000_000.0, "node": "plan", "task": None, "role": "planner", "provider": "claude",
        "model": "opus", "prompt": "p", "reason": "done", "seconds": 10.0,
        "usage": {"input": 100, "output": 10, "cached": 0, "cost": 0.25}, **fields,
    }  # fmt: skip
    with (folder_of(home, id) / "logs" / "agent-calls.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def owned_by(pid: int) -> dict[str, Any]:
    return {"pid": pid}


def _journal(path: Path, id: str, nodes: Sequence[str]) -> None:
    """Write a journal of nodes that ran in sequence; a name that begins with `bad` fails."""
    with SqliteJournal(path) as journal:
        if nodes:
            builder = graph(PlanState)
            for node in nodes:
                builder = builder.tool(node, _bad if node.startswith("bad") else _good)
            asyncio.run(builder.compile().run({}, journal=journal, execution_id=id))


def _good(state: PlanState) -> str:
    return "fine"


def _bad(state: PlanState) -> str:
    raise ValueError("<b>it broke</b>")
