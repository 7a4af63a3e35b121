"""A first durable workflow: count words in files, and continue after an interruption.

    python examples/hello.py README.md CHANGELOG.md

Kill it while it runs (Ctrl+C, or `kill -9`) and start it again with the same arguments: no finished file is read twice.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

from atomic.workflows import Node, RunNotFoundError, SqliteJournal, State, graph, reducers, tool_node

JOURNAL = Path(".hello.db")
RUN = "hello"


class Words(State):
    """The state of the workflow between two steps."""

    files: list[str] = []
    total: Annotated[int, reducers.sum] = 0  # updates are added up
    report: str = ""


def count(path: str) -> int:
    """Work slowly, so that there is time to kill it. A plain function runs in a thread."""
    time.sleep(0.2)
    words = len(Path(path).read_text(encoding="utf-8").split())
    print(f"  {path}: {words} words", flush=True)
    return words


def summarise(state: Words) -> str:
    return f"{state.total} words in {len(state.files)} files"


count_one: Node[Words] = tool_node("count", count, output_mapper=lambda words, state: {"total": words})

hello = (
    graph(Words)
    .map("files", over=lambda s: s.files, node=count_one, max_concurrency=2)
    .tool("report", summarise, output_mapper=lambda text, state: {"report": text})
    .compile("hello", "Count words, durably.")
)


async def main(files: list[str]) -> int:
    with SqliteJournal(JOURNAL) as journal:
        try:
            result = await hello.resume(journal, RUN)
            print("(resumed where it stopped)")
        except RunNotFoundError:
            result = await hello.run({"files": files}, journal=journal, execution_id=RUN)
    if result.error:
        print(result.error, file=sys.stderr)
        return 1
    print(result.state.report)
    JOURNAL.unlink()  # done: the next start is a new run
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:] or [__file__])))
