"""The real programs are those that `make agents` installed. One that is missing is an error, never a skipped test."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".programs" / "bin"
CACHE = FOLDER.with_name("cache")


def use_programs() -> None:
    """Let the agents be found there, unless somebody named others."""
    for name in ("opencode", "copilot"):
        os.environ.setdefault(f"ATOMIC_{name.upper()}_PATH", str(FOLDER / name))
