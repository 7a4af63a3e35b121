"""What the tests of the screen share: a terminal with all colours, wherever they are run."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def all_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
