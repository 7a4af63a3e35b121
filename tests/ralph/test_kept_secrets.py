"""No secret of the project's files is kept with a run or leaves with its archive, packed or not."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from atomic.providers import McpServer, SessionOptions
from atomic.providers.recording import Recorder
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, TASKS, Sandbox, worker, writing
from tests.support.entity_files import servers

SECRET = "Zk8sQ2v7Lr4Tn1Wb9Xc3"
KNOWN = "over-the-hills-and-far-away"


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file below a folder, and the content of packed ones."""
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            yield file, data
            try:
                yield file, zlib.decompress(data)
            except zlib.error:
                continue


def pass_variable(sandbox: Sandbox, name: str) -> None:
    """Let checks see a variable that looks like a secret."""
    settings = sandbox.user.home / ".atomic" / "config.toml"
    settings.write_text(f'{settings.read_text()}\n[checks]\nenv = ["{name}"]\n')


@pytest.fixture
async def paused(tmp_path: Path) -> Sandbox:
    """Return a run that stopped at a cap, in a project with secrets in untracked files."""
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"write": {"one.txt": f"{KNOWN}\n"}}), writing("2"), APPROVE)
    sandbox.user.env["SERVICE_TOKEN"] = KNOWN
    (sandbox.project / ".env.local").write_text(f"FOO_API_KEY={SECRET}\n")
    (sandbox.project / "bytes.bin").write_bytes(b"\0\xff" + KNOWN.encode())
    pass_variable(sandbox, "SERVICE_TOKEN")
    outcome = await sandbox.ralph("--max-iterations", "1", "--verify", 'echo "it is $SERVICE_TOKEN"', GOAL)
    assert outcome.exit_code != 0, outcome.stderr
    return sandbox


async def test_no_file_of_a_paused_run_has_a_secret_of_the_project(paused: Sandbox) -> None:
    assert (paused.session / "pictures").is_dir(), "the run cannot continue"
    for file, data in contents(paused.session):
        assert SECRET.encode() not in data, file
        assert KNOWN.encode() not in data, file


async def test_an_exported_run_has_no_snapshot_of_the_project(paused: Sandbox, tmp_path: Path) -> None:
    done = await paused.user.atomic("sessions", "export", paused.session.name, "run.tar.gz")
    assert done.exit_code == 0, done.stderr
    with tarfile.open(paused.project / "run.tar.gz") as archive:
        assert not [name for name in archive.getnames() if "pictures" in name or "/objects/" in name]
        archive.extractall(tmp_path / "out", filter="data")
    for file, data in contents(tmp_path / "out"):
        assert SECRET.encode() not in data, file
        assert KNOWN.encode() not in data, file


async def test_a_header_of_an_mcp_server_is_in_no_file_of_a_run(tmp_path: Path) -> None:
    said = worker("1", {"write": {"one.txt": "1\n"}}, {"say": f"the server wants {KNOWN} and {SECRET}"})
    sandbox = Sandbox(tmp_path, PLAN, said, writing("2"), APPROVE)
    headers = {"Authorization": f"Bearer {KNOWN}", "X-Tenant": SECRET, "Accept": "application/json"}
    servers(
        sandbox.user.home / ".claude.json", own={"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": headers}
    )
    await sandbox.ralph("--max-iterations", "1", "--verify", "true", GOAL)
    for file, data in contents(sandbox.session):
        assert KNOWN.encode() not in data, file
        assert SECRET.encode() not in data, file


def test_a_header_of_an_mcp_server_is_in_no_recording(tmp_path: Path) -> None:
    server = McpServer(name="own", url="http://127.0.0.1:9/mcp", headers={"Authorization": f"Bearer {KNOWN}"})
    recorder = Recorder("claude", SessionOptions(record=tmp_path / "calls.jsonl", mcp_servers=[server]))
    assert recorder.redactor.text(f"it is {KNOWN}") == "it is [redacted]"


@pytest.mark.ci
@pytest.mark.parametrize("way", ["--verify", "config.toml"])
async def test_a_check_with_a_secret_in_it_is_refused_before_the_run(tmp_path: Path, way: str) -> None:
    check = f"DB_PASSWORD={SECRET} sh -c 'echo $DB_PASSWORD > seen.txt'"
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    if way == "config.toml":
        settings = sandbox.user.home / ".atomic" / "config.toml"
        settings.write_text(f'{settings.read_text()}\nverify = ["{check}"]\n')
    outcome = await sandbox.ralph(*(("--verify", check) if way == "--verify" else ()), GOAL)
    assert outcome.exit_code == 2, outcome
    assert 'the check "DB_PASSWORD=[redacted] sh -c' in outcome.stderr
    assert f"({way}) contains a secret" in outcome.stderr
    assert "[checks] env" in outcome.stderr
    assert SECRET not in outcome.stderr
    assert sandbox.prompts == []
    assert not (sandbox.user.home / ".atomic" / "sessions").exists()
    assert not (sandbox.project / "seen.txt").exists(), "no check ran with another value"


@pytest.mark.ci
async def test_a_check_with_a_secret_of_an_mcp_server_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    headers = {"Authorization": f"Bearer {KNOWN}"}
    servers(
        sandbox.user.home / ".claude.json", own={"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": headers}
    )
    outcome = await sandbox.ralph("--verify", f"echo {KNOWN} > seen.txt", GOAL)
    assert outcome.status[0] == "failed"
    assert 'the check "echo [redacted] > seen.txt" (--verify) contains a secret' in outcome.end["message"]
    assert sandbox.prompts == []
    assert not (sandbox.project / "seen.txt").exists()


@pytest.mark.ci
async def test_a_check_of_the_plan_with_a_secret_in_it_is_not_run(tmp_path: Path) -> None:
    said = json.dumps({"tasks": TASKS, "check": f"DB_PASSWORD={SECRET} sh -c 'echo $DB_PASSWORD > seen.txt'"})
    sandbox = Sandbox(tmp_path, {"role": "planner", "do": [{"say": said}]}, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert outcome.end["verified"] is False
    assert "is not run: it contains a secret" in outcome.warnings
    assert not (sandbox.project / "seen.txt").exists()


@pytest.mark.ci
async def test_a_check_gets_a_secret_by_the_name_of_its_variable(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    sandbox.user.env["SERVICE_TOKEN"] = KNOWN
    pass_variable(sandbox, "SERVICE_TOKEN")
    check = 'DB_PASSWORD="$SERVICE_TOKEN" sh -c \'test "$DB_PASSWORD" = "$(cat word)"\''
    (sandbox.project / "word").write_text(KNOWN)
    sandbox.commit_all("Add the word")
    assert (await sandbox.ralph("--verify", check, GOAL)).status == ("completed", "done", 0)
