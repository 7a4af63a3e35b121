"""The modules and the CPU time that the screen needs for its first frame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.timing import judge

SRC = Path(__file__).parents[3] / "src"

# Modules that load slowly or that only the engine needs. Markdown and syntax colours
# are loaded with the first answer.
LATE = (
    "atomic.cli",
    "atomic.commands",
    "atomic.entities",
    "atomic.graph",
    "atomic.sessions",
    "atomic.chat.conversation",
    "atomic.chat.engine",
    "atomic.tui.screens.lists",
    "atomic.tui.screens.question",
    "atomic.wiring",
    "atomic.workflows",
    "acp",
    "claude_agent_sdk",
    "copilot",
    "importlib.metadata",
    "markdown_it",
    "pygments",
    "rapidfuzz",
    "yaml",
)

_PROGRAM = """
import asyncio, json, sys, time
from atomic.config import Settings
from atomic.tui.app import AtomicApp

class Client:
    def __init__(self):
        self.at_first = None
    def send(self, intent):
        if self.at_first is None:  # sent after the first frame
            self.at_first = time.process_time(), sorted(sys.modules)
    async def events(self):
        await asyncio.Event().wait()
        yield
    async def close(self):
        pass

client = Client()
app = AtomicApp(client, settings=Settings())

async def main():
    async with app.run_test(size=(80, 24)) as pilot:
        while client.at_first is None:
            await pilot.pause(0.01)

asyncio.run(main())
seconds, modules = client.at_first
print(json.dumps({"seconds": seconds, "modules": modules}))
"""

_SKELETON = """
import asyncio, time
from textual.app import App
from textual.widgets import Static, TextArea

class Skeleton(App):
    def compose(self):
        yield Static("header")
        yield TextArea()

async def main():
    async with Skeleton().run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        print(time.process_time())

asyncio.run(main())
"""


def run(program: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_heavy_module_is_loaded_before_the_first_frame() -> None:
    modules = json.loads(run(_PROGRAM))["modules"]

    late = [name for name in modules if any(name == heavy or name.startswith(f"{heavy}.") for heavy in LATE)]
    assert late == []
    assert "atomic.tui.app" in modules


@pytest.mark.timed
def test_the_first_frame_costs_little_more_than_a_bare_textual_app() -> None:
    """Compare CPU times, each the best of two, because the machine may be busy.

    The contract is 500 ms; a bare Textual app takes about 250.
    """
    ours = min(json.loads(run(_PROGRAM))["seconds"] for _ in range(2))
    theirs = min(float(run(_SKELETON)) for _ in range(2))

    judge(ours, max(0.5, theirs * 2))
