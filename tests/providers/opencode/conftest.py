"""Let the tests of OpenCode choose the program: the real one or a fake."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def take_program_from_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATOMIC_OPENCODE_PATH", raising=False)
