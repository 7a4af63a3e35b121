"""Shared fixtures of the terminal tests: an empty home, and the screen in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.window import Window, window

ROOT = Path(__file__).parents[3]
SCRIPTED = (sys.executable, "-m", "tests.tui.terminal.scripted_screen")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a terminal, with the code under test."""
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


@pytest.fixture
def screen(env: dict[str, str]) -> Iterator[Window]:
    """Start the real screen on the scripted engine and wait until it is ready."""
    with window(SCRIPTED, env=env, cwd=ROOT) as one:
        one.shows("opus")
        yield one
