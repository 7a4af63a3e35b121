"""What starts a server of an agent again and again takes minutes: `make test` leaves it to `make test-full`."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = (HERE / "acp", HERE / "copilot", HERE / "opencode", HERE / "conformance" / "test_opencode.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(slow) for slow in SLOW):
            item.add_marker(pytest.mark.full)
