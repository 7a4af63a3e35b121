"""Shared fixtures of the screen tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def all_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test as in a terminal with all colours."""
    monkeypatch.setenv("COLORTERM", "truecolor")
