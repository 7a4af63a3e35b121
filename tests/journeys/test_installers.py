"""Atomic installed from its wheel by uv and by pipx: it runs, and the commands that it names work."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plain_install import ROOT, build_wheel
from tests.support.user import User
from tests.support.waits import HANG

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with uv and pipx from the package index, and a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    run(str(folder / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", "uv", "pipx")
    build_wheel(folder / "dist")
    return folder


def run(*words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Newcomer(User):
    """A user with an empty home folder and the two installers, without an agent."""

    def __init__(self, folder: Path, tools: Path) -> None:
        super().__init__(folder)
        [wheel] = (tools / "dist").iterdir()
        self.wheel = str(wheel)
        self.program = self.home / ".local" / "bin" / "atomic"
        del self.env["PYTHONPATH"]
        self.env["PATH"] = f"{self.program.parent}:{tools}/venv/bin:/usr/bin:/bin"
        self.env["UV_PYTHON"] = sys.executable
        self.env["PIPX_DEFAULT_PYTHON"] = sys.executable
        self.env["TMPDIR"] = str(self.home)
        self.env["ATOMIC_REPLAY_SPEED"] = "max"
        # Where packages come from is up to the machine.
        self.env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        index = os.environ.get("PIP_INDEX_URL") or configured("global.index-url")
        if index:
            self.env.setdefault("UV_DEFAULT_INDEX", index)
            self.env.setdefault("PIP_INDEX_URL", index)

    def shell(self, command: str) -> str:
        return run("/bin/sh", "-c", command, env=self.env)


def configured(key: str) -> str:
    """Return a setting of pip, which uv does not read."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", key], capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def newcomer(tmp_path: Path, tools: Path) -> Newcomer:
    return Newcomer(tmp_path, tools)


INSTALL = {"uv": "uv tool install --quiet {}", "pipx": "pipx install --quiet {}"}
REMOVE = {"uv": "uv tool uninstall atomic-workflows", "pipx": "pipx uninstall atomic-workflows"}


@pytest.mark.parametrize("installer", ["uv", "pipx"])
async def test_a_newcomer_without_an_agent(installer: str, newcomer: Newcomer) -> None:
    newcomer.shell(INSTALL[installer].format(shlex.quote(newcomer.wheel)))
    assert (await newcomer.atomic("--version")).stdout.startswith("atomic ")
    assert newcomer.shell("atomic-workflows --version").startswith("atomic ")

    # No agent: one line each says what to do, and the demo needs none.
    doctor = await newcomer.atomic("doctor")
    assert (doctor.exit_code, doctor.stderr) == (1, "")
    refused = await newcomer.atomic("-p", "hello")
    assert (refused.exit_code != 0, "atomic demo" in refused.stderr) == (True, True)
    assert len(refused.stderr.splitlines()) == 1
    demo = await newcomer.atomic("demo")
    assert demo.exit_code == 0, demo.stderr
    assert "So that" not in demo.stdout  # it is on the PATH

    # The extra that is missing: the command that is named adds it, and nothing else is lost.
    missing = await newcomer.atomic("chat", "--web")
    [command] = re.findall(r"textual-serve: (.+)$", missing.stderr, re.MULTILINE)
    assert command.split()[0] == installer
    newcomer.shell(command)
    python = next(newcomer.home.rglob("*/atomic-workflows/bin/python"))
    newcomer.shell(f"{python} -c 'import textual_serve, atomic'")
    assert json.loads((await newcomer.atomic("sessions", "--json")).stdout)  # the demo's run

    newcomer.shell(REMOVE[installer])
    assert not newcomer.program.exists()


async def test_it_can_be_tried_without_installing_it(newcomer: Newcomer) -> None:
    said = newcomer.shell(f"uvx --from {shlex.quote(newcomer.wheel)} atomic demo")
    assert "# Ralph completed" in said
    [command] = re.findall(r"So that `atomic` is enough: (.+)$", said, re.MULTILINE)
    newcomer.shell(command)
    assert (await newcomer.atomic("--version")).exit_code == 0
