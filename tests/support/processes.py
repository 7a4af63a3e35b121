"""Look at processes from outside, and what they need to be measured."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def coverage_variables() -> dict[str, str]:
    """Return the variables by which `make coverage` measures child processes; otherwise none."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


def is_alive(pid: int) -> bool:
    """Return whether a process still runs. A zombie has ended, only its parent has not read that yet."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"


def kill(pid: int) -> None:
    """Kill a process of the test; one that has already ended is fine."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
