"""Scenarios in a real terminal with real processes: workflows, and agents that die."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from atomic.testing import Drip, ModelServer
from tests.chat.test_real_agents import COLOUR, prepare
from tests.chat.test_workflows import ASKS, SLOW
from tests.ralph.agents import AGENT_NAMES, Stage, stage_for
from tests.ralph.nim import APPROVAL
from tests.support.fake_acp import AGENT, use_fake_acp
from tests.support.processes import is_alive
from tests.support.tmux import Tmux
from tests.support.user import User, processes
from tests.support.user_workflows import ledger, session, workflow
from tests.support.waits import wait_until
from tests.support.window import Window, tree, window
from tests.tui.terminal.test_real_agents import ATOMIC, atomic

pytestmark = pytest.mark.ci


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def _command(tmux: Tmux, text: str) -> None:
    tmux.type(text)
    tmux.shows(text[-8:])
    tmux.keys("Enter")


def test_a_workflow_is_paused_by_escape_and_resumed(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "steps", SLOW)
    with atomic(user, "-a", AGENT) as tmux:
        tmux.shows("puppet")
        _command(tmux, "/steps build it")
        wait_until(lambda: "slow" in ledger(user), "the second step")
        tmux.shows("steps")
        tmux.keys("Escape")
        text = tmux.shows("atomic resume")
        found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", text)
        assert found is not None, text
        (user.project / "go").touch()
        _command(tmux, f"/resume {found[0]}")
        tmux.shows("completed")
        assert ledger(user)[-1] == "over"


def _start_slow_workflow(one: Window, user: User) -> str:
    """Start a workflow that waits in its second step and return its session id."""
    one.shows("puppet")
    one.type("/steps build it\r")
    wait_until(lambda: "slow" in ledger(user), "the second step")
    one.shows("slow")
    return session(user)["id"]


@pytest.mark.parametrize(
    ("how", "exit_code"),
    [
        ("signal", 143),
        ("ctrl+c twice", 0),
        ("esc, then ctrl+d", 0),
    ],
)
def test_leaving_during_a_workflow_prints_how_to_resume_it(user: User, how: str, exit_code: int) -> None:
    use_fake_acp(user)
    workflow(user, "steps", SLOW)
    with window((*ATOMIC, "-a", AGENT), env=user.env, cwd=user.project) as one:
        id = _start_slow_workflow(one, user)
        if how == "signal":
            one.process.terminate()
        elif how == "ctrl+c twice":
            one.type("\x03\x03")
        else:
            one.type("\x1b")
            one.shows("paused")
            one.type("\x04")
        assert one.exit_code() == exit_code
        assert one.modes_left() == set()
        one.shows(f"Resume with: atomic resume {id[:20]}")
        wait_until(lambda: session(user)["status"] == "paused", "pause")
    wait_until(lambda: not processes(user.home), "end of all processes")


def test_a_closed_window_pauses_a_workflow(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "steps", SLOW)
    with window((*ATOMIC, "-a", AGENT), env=user.env, cwd=user.project) as one:
        _start_slow_workflow(one, user)
        one.hang_up()
        assert one.process.wait(20) == 129
    assert session(user)["status"] == "paused"
    wait_until(lambda: not processes(user.home), "end of all processes")


def test_a_run_survives_a_killed_screen(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "steps", SLOW)
    with window((*ATOMIC, "-a", AGENT), env=user.env, cwd=user.project) as one:
        one.shows("puppet")
        one.type("/steps build it\r")
        wait_until(lambda: "slow" in ledger(user), "the second step")
        one.shows("slow")
        os.kill(tree(one.process.pid)[1], signal.SIGKILL)
        assert one.exit_code() == 1
        assert one.modes_left() == set()
        one.shows("atomic attach")
        (user.project / "go").touch()
        wait_until(lambda: ledger(user)[-1] == "over", "end of the run")
    wait_until(lambda: not processes(user.home), "end of all processes")


def test_a_question_of_a_workflow_is_answered_on_the_screen(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "asks", ASKS)
    with atomic(user, "-a", AGENT) as tmux:
        tmux.shows("puppet")
        _command(tmux, "/asks now")
        tmux.opens_question()
        tmux.keys("Escape")
        tmux.lacks("F6 reopens")
        assert session(user)["status"] == "running"
        tmux.keys("F6")
        tmux.opens_question()
        tmux.keys("Down", "Enter")
        tmux.shows("completed")
        assert ledger(user) == ["done"]


async def test_a_turn_fails_when_its_agent_is_killed(user: User) -> None:
    async with ModelServer({"slow": Drip("word", times=2_000, every=0.05), "next": "Still here."}) as server:
        prepare(user, "claude", server)
        await asyncio.to_thread(_kill_the_agent, user)


def _kill_the_agent(user: User) -> None:
    with atomic(user, "-a", "claude") as tmux:
        tmux.shows("claude")
        _command(tmux, "@@slow@@ take your time")
        tmux.shows("word3 word4")
        (agent,) = [pid for pid, line in processes(user.home).items() if "/claude " in line.partition("--")[0] + " "]
        os.kill(agent, signal.SIGKILL)
        tmux.lacks("Esc stops")
        _command(tmux, "@@next@@ and now?")
        tmux.shows("Still here.")


async def test_closing_the_window_during_a_turn_leaves_no_process(user: User) -> None:
    async with ModelServer({"slow": Drip("word", times=2_000, every=0.05)}) as server:
        prepare(user, "claude", server)
        await asyncio.to_thread(_close_the_window, user)


def _close_the_window(user: User) -> None:
    with window((*ATOMIC, "-a", "claude"), env=user.env, cwd=user.project) as one:
        one.shows("claude")
        one.type("@@slow@@ take your time\r")
        one.shows("word3 word4")
        pids = list(processes(user.home))
        one.hang_up()
        assert one.process.wait(20) == 129
        wait_until(lambda: not any(map(is_alive, pids)), "end of all processes")


@pytest.fixture(params=AGENT_NAMES)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stage]:
    async with stage_for(tmp_path, request.param) as stage:
        yield stage


async def test_ralph_with_two_workers_a_pause_and_a_question(stage: Stage) -> None:
    stage.leaves("todo.json", {"tasks": [{"id": name, "title": f"Write {name}.txt"} for name in "ab"]})
    stage.model.play({"worker": Drip("word", times=4_000, every=0.05)})
    await asyncio.to_thread(_ralph, stage)
    assert stage.statuses == {"a": "completed", "b": "completed"}
    assert sorted(stage.subjects) == ["Write a.txt", "Write b.txt"]
    assert "Blue" in stage.model.tool_results("worker")


def _ralph(stage: Stage) -> None:
    with atomic(stage.user) as tmux:
        tmux.shows(stage.name)
        _command(tmux, "/ralph --workers 2 --verify true --tasks todo.json")
        tmux.shows("Write a.txt")
        wait_until(lambda: len(stage.model.begun) == 2, "two workers")
        tmux.keys("Escape")
        tmux.shows("paused")
        ask = [[stage.words.ask([COLOUR])], *stage.work({"a.txt": "a\n"})]
        stage.model.play({"worker.a": ask, "worker.b": stage.work({"b.txt": "b\n"}), "reviewer": json.dumps(APPROVAL)})
        _command(tmux, f"/resume {stage.session.name}")
        tmux.opens_question()
        tmux.keys("Down", "Enter")
        tmux.shows("completed", timeout=120)
        tmux.keys("C-d")
        tmux.shows("EXIT CODE 0")


def test_a_new_user_without_an_agent_learns_how_to_get_one(user: User) -> None:
    user.has_no_agents()
    with window(ATOMIC, env=user.env, cwd=user.project) as one:
        one.shows("no agent")
        one.shows("No agent can be used here")
        one.type("hello\r")
        one.shows("atomic demo")
        one.type("\x04")
        assert one.exit_code() == 0
        assert one.modes_left() == set()
