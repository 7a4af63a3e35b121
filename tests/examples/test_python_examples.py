"""The programs of `examples/python/` keep what their page says about kills; their own tests run in tests/docs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from atomic.testing import CallState, ModelServer, Stall, claude_env
from atomic.workflows import SqliteJournal
from tests.support.waits import HANG, eventually

pytestmark = pytest.mark.ci

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "python" / "map_files.py"


def which(prompt: str) -> str:
    """Return the name of the script for a prompt: a file, or the join."""
    return "join" if prompt.startswith("Join") else prompt.split()[3]


async def start(folder: Path, server: ModelServer) -> asyncio.subprocess.Process:
    env = claude_env(server, folder / "home")
    return await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), "*.md", cwd=folder / "project", env=env, stdout=asyncio.subprocess.PIPE
    )


def recorded(journal: Path) -> list[str]:
    with SqliteJournal(journal) as opened:
        return [record.node_id for record in opened.records("*.md")]


async def test_a_killed_map_reads_only_the_files_that_were_not_finished(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("a.md", "b.md"):
        (project / name).write_text(name)
    async with ModelServer({"a.md": ["About a."], "b.md": [Stall()]}, named=which) as server:
        child = await start(tmp_path, server)
        await server.wait_for(lambda call: call.state is CallState.STALLED)
        await eventually(lambda: recorded(project / "summaries.db") == ["find_files", "read"])
        child.kill()
        await child.wait()
    async with ModelServer({"b.md": ["About b."], "join": ["About both."]}, named=which) as server:
        child = await start(tmp_path, server)
        output, _ = await asyncio.wait_for(child.communicate(), HANG)
        assert (child.returncode, output.decode()) == (0, "About both.\n")
        assert [call.script for call in server.calls if call.script] == ["b.md", "join"]
        assert "a.md: About a.\nb.md: About b." in server.calls[-1].user_text
