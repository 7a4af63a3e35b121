"""What every test shares: Hypothesis tries the same examples each time, so that a red run can be run again.

`make test` tries a fifth to a quarter of the examples (`quick`), the others all of them (`repeatable`).
`HYPOTHESIS_PROFILE=explore make test-full` looks at new ones.
"""

from __future__ import annotations

import gc
import os
import signal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import timing
from tests.support.programs import use_programs

# The machine may be shared: how long an example took says nothing about the code.
QUICK = 20  # examples, where a law names no number of its own; no law names this one
LEAST = 5
SLOW_MACHINE = (HealthCheck.too_slow,)

# The folders with the longest files begin first: a worker that took such a file at last would leave the others idle.
FIRST = ("workspaces", "ralph", "journeys", "hostile", "torture", "cli", "providers", "tui")

settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE
)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=QUICK)
settings.register_profile(
    "explore", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)

use_programs()
for _variable in ("ATOMIC_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):  # some continuous integrations set them
    os.environ.pop(_variable, None)
os.environ.setdefault("ATOMIC_START_SECONDS", "600")  # a busy machine is not an agent that does not start
# Tests that are started in the background, or under nohup, have children that ignore these, and programs respect that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a law that names its own number of examples try a quarter of them too: a small number means costly ones."""
    if PROFILE == "quick" and isinstance(item, pytest.Function):
        own = getattr(item.obj, "_hypothesis_internal_use_settings", None)
        if own is not None and own.max_examples != QUICK:
            fewer = max(LEAST, own.max_examples // 4)
            item.obj._hypothesis_internal_use_settings = settings(own, max_examples=fewer)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let `judge` see whether `make bench` would find the test."""
    timing.begin(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders that take longest; xdist would begin with the files that have the most tests."""
    tests = Path(__file__).parent
    place = {str(tests / name): number for number, name in enumerate(FIRST)}

    @cache
    def order(path: Path) -> int:
        return min((place.get(str(folder), len(FIRST)) for folder in path.parents), default=len(FIRST))

    items.sort(key=lambda item: order(item.path))


def pytest_collection_finish() -> None:
    """Exclude the collected tests, which stay in memory, from every later search for garbage."""
    gc.collect()
    gc.freeze()
