"""The real Claude Code runs, on a model that answers from a script."""

import asyncio
from pathlib import Path

import pytest
from map_files import summarize

from atomic.testing import ModelServer


def which(prompt: str) -> str:
    """Return the name of the script for a prompt."""
    return "join" if prompt.startswith("Join these summaries") else "read"


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.md", "b.md", "c.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        scripts = {"read": ["One sentence."], "join": ["One paragraph."]}
        async with ModelServer(scripts, named=which) as server:
            ended = await summarize.run("*.md", agent=server.connect("claude"))
        assert ended.result == "One paragraph."
        assert [call.script for call in server.calls if call.script] == ["read", "read", "join"]
        assert "a.md: One sentence.\nb.md: One sentence." in server.calls[-1].user_text

    asyncio.run(run())
