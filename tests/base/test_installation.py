"""The commands that a user is told fit the way in which Atomic was installed.

`tests/cli/test_installers.py` runs them with the real installers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from atomic.base.installation import Installation, Kind

WEB = "textual-serve==1.1.3"
METADATA = f"""Metadata-Version: 2.4
Name: atomic-workflows
Version: 0.2.0
Requires-Dist: msgspec>=0.19
Requires-Dist: textual-speedups<0.3,>=0.2.1; python_version < '3.15'
Requires-Dist: claude-agent-sdk<0.3,>=0.2.182; extra == 'claude'
Requires-Dist: {WEB}; extra == 'web'
"""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Return a virtual environment with Atomic from an index."""
    prefix = tmp_path / "tools" / "atomic-workflows"
    package = prefix / "atomic_workflows-0.2.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(METADATA)
    (prefix / "pyvenv.cfg").write_text("uv = 0.9.9\n")
    return prefix


def from_wheel(prefix: Path) -> None:
    url = '{"url": "file:///tmp/my%20wheels/atomic.whl", "archive_info": {}}'
    (prefix / "atomic_workflows-0.2.0.dist-info/direct_url.json").write_text(url)


def installation(prefix: Path) -> Installation:
    return Installation(prefix, package=PathDistribution(prefix / "atomic_workflows-0.2.0.dist-info"))


def test_uv_tool_keeps_what_was_added_before(prefix: Path) -> None:
    (prefix / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "atomic-workflows" }, { name = "ruff", specifier = "==0.9" }]\n'
    )
    found = installation(prefix)
    assert found.kind is Kind.UV_TOOL
    assert found.add_extra("web") == f"uv tool install --with ruff==0.9 --with {WEB} atomic-workflows"
    assert (found.upgrade, found.on_path) == ("uv tool upgrade atomic-workflows", "uv tool update-shell")
    from_wheel(prefix)
    wheel = installation(prefix)
    assert wheel.add_extra("web").endswith(f"--with {WEB} '/tmp/my wheels/atomic.whl'")
    assert wheel.upgrade == "uv tool install --reinstall '/tmp/my wheels/atomic.whl'"


def test_uvx_starts_again_with_the_package(tmp_path: Path, prefix: Path) -> None:
    cached = tmp_path / "cache" / "archive-v0" / "x1"
    cached.parent.mkdir(parents=True)
    prefix.rename(cached)
    found = installation(cached)
    assert (found.kind, found.add_extra("web")) == (Kind.UVX, f"uvx --with {WEB} --from atomic-workflows atomic")
    assert found.run == "uvx atomic-workflows"
    assert found.on_path == "uv tool install atomic-workflows"


def test_pipx_injects(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").write_text("{}")
    found = installation(prefix)
    assert (found.kind, found.add_extra("web")) == (Kind.PIPX, f"pipx inject atomic-workflows {WEB}")
    assert (found.upgrade, found.on_path) == ("pipx upgrade atomic-workflows", "pipx ensurepath")
    from_wheel(prefix)
    assert installation(prefix).upgrade == "pipx install --force '/tmp/my wheels/atomic.whl'"


def test_a_virtual_environment_uses_its_own_pip(prefix: Path) -> None:
    found = installation(prefix)
    assert (found.kind, found.add_extra("web")) == (Kind.VENV, f"{sys.executable} -m pip install {WEB}")
    assert found.upgrade == f"{sys.executable} -m pip install --upgrade atomic-workflows"
    assert found.on_path == f'export PATH={Path(sys.executable).parent}:"$PATH"'


def test_a_checkout_is_upgraded_with_git(prefix: Path) -> None:
    url = '{"url": "file:///home/me/atomic", "dir_info": {"editable": true}}'
    (prefix / "atomic_workflows-0.2.0.dist-info/direct_url.json").write_text(url)
    found = installation(prefix)
    assert (found.kind, found.source, found.upgrade) == (
        Kind.CHECKOUT,
        "/home/me/atomic",
        "git -C /home/me/atomic pull",
    )
    assert found.add_extra("claude") == f"{sys.executable} -m pip install 'claude-agent-sdk<0.3,>=0.2.182'"


def test_an_address_of_a_repository_is_given_again(prefix: Path) -> None:
    vcs = {"vcs": "git", "requested_revision": "v1", "commit_id": "0" * 40}
    url = {"url": "https://forge.test/me/atomic", "vcs_info": vcs}
    (prefix / "atomic_workflows-0.2.0.dist-info/direct_url.json").write_text(json.dumps(url))
    assert installation(prefix).source == "git+https://forge.test/me/atomic@v1"


def test_windows_is_refused_with_one_sentence() -> None:
    code = "import sys; sys.platform = 'win32'; import atomic"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: Atomic runs on Linux and macOS. On Windows,")
