"""What every test shares: Hypothesis tries the same examples each time, so that a red run can be run again.

`HYPOTHESIS_PROFILE=explore make test-full` looks at new ones.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

from tests.programs import use_programs

# The machine may be shared: how long an example took says nothing about the code.
SLOW_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE
)
settings.register_profile(
    "explore", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

use_programs()
# Under nohup a child would ignore what a closed terminal tells it, and programs respect that: tests close some.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
