"""Play a recording as the agent in a test: no program, no network, no waiting."""

from __future__ import annotations

import math
import os

from atomic.config import Settings
from atomic.providers.replay import ReplayProvider

__all__ = ["ReplayProvider", "play"]


def play(file: str | os.PathLike[str], *, speed: float = math.inf) -> ReplayProvider:
    """Return a provider that plays a recording, without pauses unless a speed is given.

    Its `unused` lists the calls that were not played.
    """
    return ReplayProvider(file, Settings(), speed=speed)
