"""The real programs are those that `make agents` installed. One that is missing is an error, never a skipped test."""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".programs" / "bin"
CACHE = FOLDER.with_name("cache")
MORE = FOLDER.with_name("more") / "bin"  # of `make agents-more`, for tests marked `full`


def use_programs() -> None:
    """Let the agents be found there, unless somebody named others."""
    for name in ("opencode", "copilot"):
        os.environ.setdefault(f"ATOMIC_{name.upper()}_PATH", str(FOLDER / name))


def use_opencode_before(home: Path) -> None:
    """Let OpenCode find the package for plugins that its first start installs.

    Without it each server tries to, for many seconds, one after the other.
    """
    folder = home / ".config" / "opencode"
    (folder / "node_modules").mkdir(parents=True)
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (folder / "package-lock.json").write_text(json.dumps(lock))


def path_with_more_programs() -> str:
    """Return a PATH on which the agents of `make agents-more` are."""
    return f"{os.environ['PATH']}:{MORE}"
