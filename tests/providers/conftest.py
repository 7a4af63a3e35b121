"""What starts a program again and again takes minutes: `make test-full` alone runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The tests of an adapter's own ways. Its contract and what it does in a stranger's repository are always tried.
SLOW = (HERE / "acp", HERE / "copilot", HERE / "opencode")
ALWAYS = {
    HERE / "acp" / name
    for name in ("test_opencode_contract.py", "test_copilot_contract.py", "test_protocol.py", "test_strangers.py")
} | {HERE / agent / "test_trust.py" for agent in ("copilot", "opencode")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(slow) for slow in SLOW) and item.path not in ALWAYS:
            item.add_marker(pytest.mark.full)
