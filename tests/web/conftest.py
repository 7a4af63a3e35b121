"""An empty home folder for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.window import terminal_environment


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return terminal_environment(tmp_path)
