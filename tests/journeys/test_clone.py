"""The first screen of the README: a clone, `make demo`, and the line that it ends with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.plain_install import ROOT
from tests.support.user import User
from tests.support.waits import HANG

pytestmark = pytest.mark.full


def test_a_clone_shows_the_demo_and_leaves_a_command(tmp_path: Path) -> None:
    user = User(tmp_path)
    clone = user.project / "atomic"
    env = {name: value for name, value in user.env.items() if name != "PYTHONPATH"}
    env |= {"ATOMIC_REPLAY_SPEED": "max", "SHELL": "/bin/sh"}

    def shell(line: str, folder: Path) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shell(f"git clone --quiet {ROOT} atomic", user.project)
    shown = shell("make demo", clone)
    assert "# Ralph completed" in shown
    [command] = re.findall(r"So that `atomic` is enough: (.+)$", shown, re.MULTILINE)
    assert shell(f"{command} && cd && atomic --version", clone).startswith("atomic ")
    # Everything else is below the clone, or a run.
    assert {path.name for path in user.home.iterdir()} <= {".atomic", ".local", ".cache"}
