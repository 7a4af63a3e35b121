"""The pytest fixture `replay` for tests of workflows.

To use it, write `pytest_plugins = ["atomic.testing.pytest_plugin"]` in conftest.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from os import PathLike
from typing import Protocol

import pytest

from atomic.testing.replay import ReplayProvider, play


class Replay(Protocol):
    """The type of the fixture: call it with a file."""

    def __call__(self, file: str | PathLike[str], *, speed: float = math.inf, all_used: bool = False) -> ReplayProvider:
        """Return a provider that plays the recording.

        A path is relative to the test's file.

        With `all_used`, the test fails if it ends before all calls were played.
        """
        ...


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Generator[Replay]:
    """Play recordings: `provider = replay("recordings/login.jsonl")`."""
    checks: list[Callable[[], None]] = []

    def start(file: str | PathLike[str], *, speed: float = math.inf, all_used: bool = False) -> ReplayProvider:
        provider = play(request.path.parent / file, speed=speed)
        if all_used:
            checks.append(lambda: _fail_if_unused(provider))
        return provider

    yield start
    for check in checks:
        check()


def _fail_if_unused(provider: ReplayProvider) -> None:
    lines = [f"  role {call.role}, task {call.task}: {call.prompt[:100]!r}" for call in provider.unused]
    if lines:
        pytest.fail("\n".join([f"{len(lines)} calls of {provider.path} were not played:", *lines]), pytrace=False)
