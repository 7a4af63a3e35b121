"""A clone costs seconds and megabytes at most, and Ctrl+C ends everything."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.hostile import bombs
from tests.hostile.visit import Visit
from tests.support.user import ATOMIC
from tests.support.waits import eventually

MEMORY = 3 * 1024**3  # address space, which is larger than the memory in use
SECONDS = 60  # of CPU time: ends a parser that would take minutes
MORE = (("workflows", "list"), ("trust", "--show"), ("run", "ralph", "--dry-run", "x"))
VERBS = [("config",), ("-p", "hi"), *(pytest.param(words, marks=pytest.mark.full) for words in MORE)]
assert bombs


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


async def limited(visit: Visit, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with limits on memory and CPU; the timeout only ends a hang."""
    return await asyncio.to_thread(
        subprocess.run,
        [ATOMIC, *words],
        env=visit.user.env,
        cwd=visit.place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=_limit,
    )


@pytest.mark.parametrize("words", VERBS)
@pytest.mark.parametrize("name", ["a_key_of_many_parts", "a_key_of_very_many_parts"])
async def test_a_key_of_many_parts_is_reported_in_one_sentence(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    done = await limited(Visit(tmp_path, name), *words)
    assert done.returncode in (0, 1, 2, 4), done
    if words == ("config",):
        assert "a key has more than 20 parts" in done.stderr
    assert "Memory" not in done.stderr
    assert "internal" not in done.stderr


@pytest.mark.parametrize("name", ["codex_settings_with_a_key_of_many_parts", "settings_of_very_many_values"])
async def test_settings_of_an_agent_are_read_within_limits(tmp_path: Path, name: str) -> None:
    done = await limited(Visit(tmp_path, name), "trust", "--show")
    assert done.returncode == 0, done
    assert "settings" in done.stdout or "config.toml" in done.stdout
    assert "Memory" not in done.stderr


@pytest.mark.parametrize("words", VERBS)
@pytest.mark.parametrize("name", ["opencode_settings_without_an_end", "pipes_in_place_of_settings"])
async def test_devices_and_pipes_are_not_read(tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    visit = Visit(tmp_path, name)
    program = visit.user.has("opencode", "print('1.0')")
    with visit.user.sets("").open("a") as config:
        config.write(f'agent = "acp:any"\n[acp.any]\ncommand = ["{program}"]\n')
    done = await limited(visit, *words)
    assert done.returncode >= 0, done
    assert "Memory" not in done.stderr
    assert "internal" not in done.stderr


async def test_a_file_that_takes_minutes_to_parse_gives_one_diagnostic(tmp_path: Path) -> None:
    visit = Visit(tmp_path, "a_workflow_that_takes_minutes_to_parse")
    done = await limited(visit, "workflows", "list")
    assert done.returncode == 0, done
    diagnostic = r"bomb\.py:1: this file (takes more than 5 s to read|was not read within 30 s)"
    assert len(re.findall(diagnostic, done.stderr)) == 1  # a busy machine may stop the second
    assert "ralph" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_wait_for_a_slow_file(tmp_path: Path, number: signal.Signals) -> None:
    visit = Visit(tmp_path, "a_workflow_that_takes_minutes_to_parse")
    process = subprocess.Popen(
        [ATOMIC, "workflows", "list"],
        env=visit.user.env,
        cwd=visit.place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        await until_child(process.pid)
        process.send_signal(number)
        said = (await asyncio.to_thread(process.communicate, timeout=60))[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert b"to read" not in said, "the command waited for the parser"


async def until_child(pid: int) -> None:
    """Wait until a process has started a child."""
    await eventually(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().strip())


async def test_code_in_another_encoding_is_refused_even_in_a_trusted_project(tmp_path: Path) -> None:
    visit = Visit(tmp_path, "a_workflow_in_a_hidden_encoding")
    listed = await visit.user.atomic("workflows", "list")
    assert "this file declares the encoding utf-7: code must be UTF-8" in listed.stderr
    assert "this file declares the encoding shift_jis: code must be UTF-8" in listed.stderr
    snapshot = await visit.user.atomic("trust", "--show", "--json")
    await visit.user.atomic("trust", json.loads(snapshot.stdout)["hash"])
    done = await visit.user.atomic("run", "ralph", "x")
    assert done.exit_code != 0
    assert not visit.canary.exists()
