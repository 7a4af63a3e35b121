"""A recording as the agent in a test of a workflow: no program, no network, no waiting."""

from __future__ import annotations

import math
import os

from atomic.config import Settings
from atomic.providers.replay import ReplayProvider

__all__ = ["ReplayProvider", "play"]


def play(file: str | os.PathLike[str], *, speed: float = math.inf) -> ReplayProvider:
    """A provider that plays a recording, without its pauses unless a speed is given; `unused` is what is left of it."""
    return ReplayProvider(file, Settings(), speed=speed)
