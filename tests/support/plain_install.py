"""The wheel in a virtual environment of its own, without any extra."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.waits import HANG

ROOT = Path(__file__).parents[2]
_SDK = find_spec("claude_agent_sdk")  # not imported: that takes two seconds
assert _SDK is not None
assert _SDK.origin is not None
CLAUDE = Path(_SDK.origin).parent / "_bundled" / "claude"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout and return its path."""
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    [wheel] = folder.glob("*.whl")
    return wheel


def install_wheel(folder: Path, *more: str) -> Path:
    """Build the wheel, install it and more packages with only pip, and return the folder of its programs."""
    wheel = build_wheel(folder / "dist")
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "venv"), "--disable-pip-version-check")
    _run(*pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel), *more)
    return folder / "venv" / "bin"


def _run(*words: str) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
