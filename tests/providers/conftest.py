"""Mark tests that start many programs: they take minutes, and only `make test-full` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Folders of tests for one adapter. Tests of its contract and of untrusted projects always run.
SLOW = (HERE / "acp", HERE / "copilot", HERE / "opencode")
ALWAYS = {HERE / "acp" / name for name in ("test_names.py", "test_protocol.py", "test_real_programs.py")} | {
    HERE / agent / "test_trust.py" for agent in ("acp", "copilot", "opencode")
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(slow) for slow in SLOW) and item.path not in ALWAYS:
            item.add_marker(pytest.mark.full)
