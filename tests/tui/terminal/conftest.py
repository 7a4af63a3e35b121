"""Shared fixtures of the terminal tests: an empty home, and the screen in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.window import ROOT, Window, terminal_environment, window

SCRIPTED = (sys.executable, "-m", "tests.tui.terminal.scripted_screen")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return terminal_environment(tmp_path)


@pytest.fixture
def screen(env: dict[str, str]) -> Iterator[Window]:
    """Start the real screen on the scripted engine and wait until it is ready."""
    with window(SCRIPTED, env=env, cwd=ROOT) as one:
        one.shows("opus")
        yield one
