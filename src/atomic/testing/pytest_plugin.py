"""The fixture `replay` for tests of workflows: `pytest_plugins = ["atomic.testing.pytest_plugin"]` in conftest.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from os import PathLike
from typing import Protocol

import pytest

from atomic.testing.replay import ReplayProvider, play


class Replay(Protocol):
    """What the fixture is: call it with a file."""

    def __call__(self, file: str | PathLike[str], *, speed: float = math.inf, all_used: bool = False) -> ReplayProvider:
        """A provider that plays the recording. A path is relative to the test's own file.

        `all_used`: the test fails if, at its end, there are calls that nobody asked for.
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
        pytest.fail("\n".join([f"nobody asked for {len(lines)} calls of {provider.path}:", *lines]), pytrace=False)
