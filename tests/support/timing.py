"""Time limits in tests: `make bench` alone judges them, on a machine that has nothing else to do.

A slow machine never makes a test of `make test`, `make test-ci` or `make test-full` fail. A test with such a limit has
the marker `timed`, by which `make bench` finds it; whatever else it asserts holds everywhere.
"""

from __future__ import annotations

import os

import pytest

JUDGED = os.environ.get("ATOMIC_JUDGE_TIMES") == "1"
_now: list[pytest.Item] = []


def begin(item: pytest.Item) -> None:
    """Remember which test runs."""
    _now[:] = [item]


def judge(seconds: float, limit: float) -> None:
    """Fail in `make bench` if something took longer than `limit`. Only for tests that are marked `timed`."""
    assert _now[0].get_closest_marker("timed"), "a test with a time limit needs the marker `timed`"
    if JUDGED and seconds > limit:
        pytest.fail(f"it took {seconds:.6g} s and may take {limit:g} s")
