"""The tests of Copilot choose the program themselves: the real one or an imitation."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def chosen_by_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATOMIC_COPILOT_PATH", raising=False)
