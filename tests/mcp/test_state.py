"""Test servers that the user enables and disables in Atomic."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from atomic.mcp import McpStateError, load_mcp_entries, set_enabled
from tests.support.repositories import git

SERVERS = {"on": {"command": "a"}, "off": {"command": "b", "disabled": True}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "COPILOT_HOME", "ATOMIC_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def project_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": SERVERS}))
    return folder


def enabled_in(project: Path) -> dict[str, bool]:
    found = load_mcp_entries(project)
    assert not found.diagnostics
    return {entry.name: entry.enabled for entry in found.entries}


def test_the_users_choice_overrides_the_file_in_one_project(tmp_path: Path) -> None:
    here = project_in(tmp_path / "here")
    there = project_in(tmp_path / "there")
    before = (here / ".mcp.json").read_text()
    set_enabled("on", False, project=here)
    set_enabled("off", True, project=here)
    assert enabled_in(here) == {"on": False, "off": True}
    assert enabled_in(there) == {"on": True, "off": False}
    set_enabled("on", True, project=here)
    assert enabled_in(here) == {"on": True, "off": True}
    assert (here / ".mcp.json").read_text() == before


def test_the_default_is_the_current_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = project_in(tmp_path / "here")
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    set_enabled("on", False)
    assert enabled_in(here)["on"] is False


def test_a_project_is_identified_by_its_real_path(tmp_path: Path) -> None:
    here = project_in(tmp_path / "here")
    (tmp_path / "link").symlink_to(here)
    set_enabled("on", False, project=tmp_path / "link")
    assert enabled_in(here)["on"] is False


def test_the_state_is_a_private_file_in_the_users_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project_in(tmp_path / "here")
    set_enabled("on", False, project=here)
    file = home / ".atomic/mcp-state.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setenv("ATOMIC_HOME", str(tmp_path / "elsewhere"))
    set_enabled("off", True, project=here)
    assert json.loads((tmp_path / "elsewhere/mcp-state.json").read_text())["projects"] == {str(here): {"off": True}}
    assert sorted(path.name for path in file.parent.iterdir()) == ["mcp-state.json", "mcp-state.lock"]


@pytest.mark.parametrize("content", ["{", '{"projects": 5}', '{"projects": {"/a": {"b": "c"}}}'])
def test_a_damaged_state_is_reported_and_not_overwritten(content: str, tmp_path: Path, home: Path) -> None:
    here = project_in(tmp_path / "here")
    file = home / ".atomic/mcp-state.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    found = load_mcp_entries(here)
    assert [entry.name for entry in found.entries] == ["on", "off"]
    assert [problem.path for problem in found.diagnostics] == [file]
    with pytest.raises(McpStateError, match="mcp-state"):
        set_enabled("on", False, project=here)
    assert file.read_text() == content


def test_parallel_changes_of_several_processes_are_all_saved(tmp_path: Path, home: Path) -> None:
    here = project_in(tmp_path / "here")
    program = (
        "import sys\nfrom pathlib import Path\nfrom atomic.mcp import set_enabled\n"
        "for n in range(20): set_enabled(f'{sys.argv[2]}-{n}', False, project=Path(sys.argv[1]))"
    )
    children = [subprocess.Popen([sys.executable, "-c", program, str(here), str(child)]) for child in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    state = json.loads((home / ".atomic/mcp-state.json").read_text())
    assert len(state["projects"][str(here)]) == 60
