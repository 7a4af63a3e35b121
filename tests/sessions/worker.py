"""A process with a journal that follows commands, one line of JSON each: `worker.py PATH`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from atomic.base.errors import AtomicError
from atomic.graph.engine.errors import RunOwnedError
from atomic.graph.engine.journal import RunLog
from atomic.sessions import SqliteJournal
from tests.sessions.rows import start_row, step_row


def main(path: str) -> None:
    journal = SqliteJournal(path)
    logs: dict[str, RunLog] = {}

    def act(do: str, run: str = "", at: float = 0.0, steps: tuple[int, ...] = ()) -> None:
        while time.monotonic() < at:  # both of a race start in the same instant: this clock is the machine's
            pass
        match do:
            case "create":
                logs[run] = journal.create(run, start_row(run))
            case "acquire":
                logs[run] = journal.acquire(run)
            case "append":
                logs[run].append([step_row(step, n=step) for step in steps])
            case "each":
                for step in steps:
                    logs[run].append([step_row(step, n=step)])
            case "snapshot":
                logs[run].snapshot(1, b"state")
            case "release":
                logs.pop(run).release()
            case "close":
                journal.close()
            case _:
                raise ValueError(do)

    for line in sys.stdin:
        answer: dict[str, Any] = {"ok": True}
        try:
            act(**json.loads(line))
        except AtomicError as error:
            pid = error.pid if isinstance(error, RunOwnedError) else None
            answer = {"ok": False, "error": type(error).__name__, "pid": pid, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
