"""Killed at random instants, a run loses nothing and repeats nothing that it has recorded."""

from __future__ import annotations

import os

from tests.torture.run import torture

SEED = 20261115


def test_a_killed_run_loses_nothing_and_repeats_nothing() -> None:
    """A machine that gets quicker or slower meanwhile makes a kill come too late: then there are more runs."""
    seed, kills = int(os.environ.get("TORTURE_SEED", SEED)), 0
    for batch in range(8):
        total = torture(20, seed + batch)
        print(total)
        assert total.clean, f"{total} (seed {seed + batch})"
        kills += total.kills
        if kills >= 10:
            return
    raise AssertionError(f"only {kills} kills hit")
