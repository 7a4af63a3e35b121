"""Killed at random instants, a run loses nothing and repeats nothing that it has recorded."""

from __future__ import annotations

import os

from tests.torture.run import torture

SEED = 20261115


def test_a_killed_run_loses_nothing_and_repeats_nothing() -> None:
    total = torture(20, int(os.environ.get("TORTURE_SEED", SEED)))
    print(total)
    assert total.clean, f"{total} (seed {SEED})"
    assert total.kills >= 10
