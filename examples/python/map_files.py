"""Summarize each file with an agent, four at once, and join the summaries.

python map_files.py "*.md"
"""

import asyncio
import sys
from pathlib import Path

from atomic.workflows import Flow, RunNotFoundError, SqliteJournal, step, workflow


@step
async def find_files(pattern: str) -> list[str]:
    """List the files. A step, so that the list stays the same after a kill."""
    return sorted(str(path) for path in Path().glob(pattern))


@workflow
async def summarize(flow: Flow, pattern: str) -> str:
    async def read(path: str) -> str:
        return await flow.agent("read", f"Summarize the file {path} in one sentence.")

    files = await find_files(pattern)
    summaries = await flow.map(read, files, max_concurrency=4)
    lines = [f"{path}: {summary}" for path, summary in zip(files, summaries, strict=True)]
    return await flow.agent("join", "Join these summaries into one paragraph:\n" + "\n".join(lines))


async def main(pattern: str) -> None:
    run_id = pattern
    with SqliteJournal("summaries.db") as journal:
        try:  # continue the run, if there is one
            ended = await summarize.resume(journal, run_id, agent="claude")
        except RunNotFoundError:
            ended = await summarize.run(pattern, agent="claude", journal=journal, execution_id=run_id)
    print(ended.error or ended.result)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
