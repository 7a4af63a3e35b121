"""A newcomer: the wheel in a virtual environment, an empty home folder, no agent. `make journeys` times them all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.plain_install import install_wheel
from tests.support.user import User
from tests.support.waits import HANG


class Newcomer(User):
    """A user who has installed only the wheel, and types into a shell."""

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder)
        self.program = programs / "atomic"
        del self.env["PYTHONPATH"]
        self.env["PATH"] = f"{programs}:{self.env['PATH']}"
        self.env["ATOMIC_REPLAY_SPEED"] = "max"

    def types(self, line: str, *, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run a line in the project, without a terminal."""
        return subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self.project, env={**self.env, **env}, input=input, capture_output=True, text=True,
            timeout=HANG, check=False,
        )  # fmt: skip

    def makes_repository(self) -> None:
        """Commit a file in the project."""
        (self.project / "README.md").write_text("# Project\n")
        name = "-c user.name=Newcomer -c user.email=newcomer@example.com"
        done = self.types(f"git init -q -b main && git add . && git {name} commit -qm 'Add a login page'")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of a virtual environment with the wheel and pytest."""
    return install_wheel(tmp_path_factory.mktemp("wheel"), "pytest")


@pytest.fixture
def newcomer(tmp_path: Path, programs: Path) -> Newcomer:
    return Newcomer(tmp_path, programs)
