"""Checks after which nobody knows on which files they have run are no proof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, Sandbox, worker

pytestmark = pytest.mark.ci

COMMIT = "git add -A && git commit -qm 'Write it'"
# It leaves a daemon that stops each git in its view.
DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for file in (0, 1, 2):
        os.close(file)
    while True:
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and open(f"/proc/{name}/comm").read().strip() == "git":
                    os.kill(int(name), signal.SIGSTOP)
            except OSError:
                pass
"""


def one_task(sandbox: Sandbox) -> str:
    path = sandbox.user.home / "tasks.json"
    path.write_text(json.dumps({"tasks": [{"id": "1", "title": "Write part 1"}]}))
    return str(path)


@pytest.mark.parametrize("kind", ["overlay", "clone"])
async def test_a_daemon_of_a_check_cannot_stop_the_look_at_its_files(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, isolate=kind)
    sandbox.play(worker("1", {"write": {"d.py": DAEMON, "part1.txt": "part 1\n"}}, {"sh": COMMIT}), APPROVE)
    done = await sandbox.ralph("--tasks", one_task(sandbox), "--verify", "test ! -f d.py || python3 d.py")
    assert done.status == ("completed", "done", 0)
    assert sandbox.evidence("1")["tree_after"] == sandbox.evidence("1")["tree"]


@pytest.mark.parametrize("kind", ["overlay", "clone"])
async def test_a_check_that_deletes_the_repository_is_red(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, isolate=kind)
    sandbox.play(worker("1", {"sh": f"echo more >> part1.txt; {COMMIT}"}), APPROVE)
    check = "test ! -f part1.txt || rm -rf .git"
    done = await sandbox.ralph("--tasks", one_task(sandbox), "--verify", check)
    assert done.status[0] == "blocked"
    evidence = sandbox.evidence("1")
    assert evidence["status"] == "failed"
    assert "left files that git cannot read" in evidence["reason"]
    assert "must leave .git as it is" in evidence["gates"][0]["output_tail"]
