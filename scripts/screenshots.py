"""Draw the screenshots of the documentation: `make screenshots` writes docs/screens/*.svg.

They show states of the real app, the same ones that the tests compare.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.tui.snapshots.capture import frames_of  # noqa: E402
from tests.tui.snapshots.images import svg_of  # noqa: E402  # found from anywhere
from tests.tui.snapshots.states import STATES  # noqa: E402

SCREENSHOTS = {
    "everything": (
        "120x40",
        "dark",
        "A workflow, its agents and tasks, three questions, and a conversation next to it",
    ),
    "answer": ("120x40", "light", "An answer with a table and code"),
    "idle": ("80x24", "dark", "Before the first word"),
    "question": ("80x24", "dark", "An agent asks"),
    "popup": ("80x24", "dark", "Commands while one types"),
    "overlay-tasks": ("80x24", "dark", "Two hundred tasks on a narrow screen"),
}


async def main() -> None:
    folder = ROOT / "docs" / "screens"
    folder.mkdir(exist_ok=True)
    for name, (size, theme, title) in SCREENSHOTS.items():
        states = [state for state in STATES if state.name == name]
        async for _, frames in frames_of(states, size):
            (folder / f"{name}.svg").write_text(svg_of(frames[theme], title), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
