"""Record what real agents do on the scripted model, for the tests to play: scripts/record.py claude opencode copilot.

The recordings are in tests/providers/recordings/; look at the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.providers import recorded  # noqa: E402
from tests.support.programs import use_programs  # noqa: E402  # the root of the project has to be on the path first


async def record(agent: str) -> Path:
    """Record one agent; the file is replaced only when all went well."""
    kept = recorded.RECORDINGS / f"{agent.replace(':', '-')}.jsonl"
    with tempfile.TemporaryDirectory(dir=Path(tempfile.gettempdir()).resolve()) as temporary:  # noqa: ASYNC240
        folder = Path(temporary)
        file, project, home = folder / kept.name, folder / "project", folder / "home"
        recorded.project(project)
        turns = await recorded.record_run(agent, file, project, home)
        for turn in turns:
            print(f"{agent}: {len(turn)} events, {turn[-1]}")
        recorded.settle(file, {str(project): "$PROJECT", str(home): "$HOME", str(folder): "$TMP", str(ROOT): "$ATOMIC"})
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(file.read_bytes())
    return kept


async def main(agents: list[str]) -> None:
    for agent in agents:
        print(await record(agent))


if __name__ == "__main__":
    use_programs()
    asyncio.run(main(sys.argv[1:] or ["claude", "opencode", "copilot"]))
