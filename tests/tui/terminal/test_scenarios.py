"""Scenarios in a real terminal with real processes behind the screen: workflows, and agents that die."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from atomic.testing import Drip, ModelServer
from tests.cli.command import User, processes
from tests.cli.flows import ledger, workflow
from tests.tui.engine.puppets import AGENT, has_puppet
from tests.tui.engine.test_real_agents import prepare
from tests.tui.engine.test_workflows import ASKS, SLOW
from tests.tui.terminal.test_real_agents import ATOMIC, atomic
from tests.tui.terminal.tmux import Tmux
from tests.tui.terminal.window import eventually, is_alive, tree, window


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def _command(tmux: Tmux, text: str) -> None:
    tmux.type(text)
    tmux.shows(text[-8:])
    tmux.keys("Enter")


def test_a_workflow_is_paused_by_escape_and_goes_on(user: User) -> None:
    has_puppet(user)
    workflow(user, "steps", SLOW)
    with atomic(user, "-a", AGENT) as tmux:
        tmux.shows("puppet")
        _command(tmux, "/steps build it")
        eventually(lambda: "slow" in ledger(user), "the second step")
        tmux.shows("steps")
        tmux.keys("Escape")
        text = tmux.shows("atomic resume", timeout=10)
        found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", text)
        assert found is not None, text
        (user.project / "go").touch()
        _command(tmux, f"/resume {found[0]}")
        tmux.shows("completed")
        assert ledger(user)[-1] == "over"


def test_a_run_outlives_a_screen_that_is_killed(user: User) -> None:
    has_puppet(user)
    workflow(user, "steps", SLOW)
    with window((*ATOMIC, "-a", AGENT), env=user.env, cwd=user.project) as one:
        one.shows("puppet")
        one.type("/steps build it\r")
        eventually(lambda: "slow" in ledger(user), "the second step")
        one.shows("slow")
        os.kill(tree(one.process.pid)[1], signal.SIGKILL)
        assert one.exit_code() == 1
        assert one.modes_left() == set()
        one.shows("atomic attach")
        (user.project / "go").touch()
        eventually(lambda: ledger(user)[-1] == "over", "end of the run")
    eventually(lambda: not processes(user.home), "end of all processes", 20)


def test_a_question_of_a_workflow_is_answered_on_the_screen(user: User) -> None:
    has_puppet(user)
    workflow(user, "asks", ASKS)
    with atomic(user, "-a", AGENT) as tmux:
        tmux.shows("puppet")
        _command(tmux, "/asks now")
        tmux.shows("Which one?")
        tmux.keys("F6")
        tmux.shows("Esc")
        tmux.keys("Down", "Enter")
        tmux.shows("completed")
        assert ledger(user) == ["done"]


async def test_an_agent_that_is_killed_is_a_turn_that_failed(user: User) -> None:
    async with ModelServer({"slow": Drip("word", times=2_000, every=0.05), "next": "Still here."}) as server:
        prepare(user, "claude", server)
        await asyncio.to_thread(_kill_the_agent, user)


def _kill_the_agent(user: User) -> None:
    with atomic(user, "-a", "claude") as tmux:
        tmux.shows("claude")
        _command(tmux, "@@slow@@ take your time")
        tmux.shows("word3 word4", timeout=60)
        (agent,) = [pid for pid, line in processes(user.home).items() if "/claude " in line.partition("--")[0] + " "]
        os.kill(agent, signal.SIGKILL)
        tmux.lacks("Esc stops", timeout=20)
        _command(tmux, "@@next@@ and now?")
        tmux.shows("Still here.", timeout=60)


async def test_a_window_that_is_closed_in_a_turn_leaves_nothing(user: User) -> None:
    async with ModelServer({"slow": Drip("word", times=2_000, every=0.05)}) as server:
        prepare(user, "claude", server)
        await asyncio.to_thread(_close_the_window, user)


def _close_the_window(user: User) -> None:
    with window((*ATOMIC, "-a", "claude"), env=user.env, cwd=user.project) as one:
        one.shows("claude")
        one.type("@@slow@@ take your time\r")
        one.shows("word3 word4", timeout=60)
        pids = list(processes(user.home))
        one.hang_up()
        assert one.process.wait(20) == 129
        eventually(lambda: not any(map(is_alive, pids)), "end of all processes", 15)
