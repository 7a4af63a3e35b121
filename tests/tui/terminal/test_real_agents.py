"""The screen in tmux with the real agents, each on a scripted model."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atomic.testing import Drip, ModelServer
from atomic.testing.conformance.agents import AGENTS
from tests.chat.test_real_agents import COLOUR, prepare
from tests.support.entity_files import agent as agent_file
from tests.support.programs import CACHE
from tests.support.tmux import Tmux, in_tmux
from tests.support.user import User, processes
from tests.support.waits import wait_until

pytestmark = pytest.mark.ci

ATOMIC = (sys.executable, "-P", "-m", "atomic")


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@contextmanager
def atomic(user: User, *words: str) -> Generator[Tmux]:
    """Run `atomic` in a pane wide enough for the agent and a long folder name."""
    with in_tmux((*ATOMIC, *words), env=user.env, cwd=user.project, columns=180, rows=30) as tmux:
        yield tmux


@pytest.mark.parametrize(
    "name",
    ["claude", "opencode", "copilot"],
)
async def test_a_conversation_with(user: User, name: str) -> None:
    words = AGENTS[name].words
    scripts = {
        "tool": [[words.bash("echo 4711")], "It said {{tool_result}}"],
        "ask": [[words.ask([COLOUR])], "You said {{tool_result}}"],
        "slow": Drip("word", times=2_000, every=0.05),
        "late": Drip("late", times=2_000, every=0.05),
        "next": "Still here.",
        "again": "I remember.",
    }
    async with ModelServer(scripts, models=("scripted-1", "scripted-2")) as server:
        prepare(user, name, server)
        await asyncio.to_thread(_hold_conversation, user, name)


def _hold_conversation(user: User, name: str) -> None:
    with atomic(user, "-a", name) as tmux:
        tmux.shows(name)
        _send(tmux, "@@tool@@ run it")
        tmux.shows("It said 4711")

        _send(tmux, "@@ask@@ ask me")
        tmux.opens_question()
        tmux.keys("Down", "Enter")
        tmux.shows("You said")

        _send(tmux, "@@slow@@ take your time")
        tmux.shows("word3 word4")
        tmux.keys("Escape")
        tmux.shows("Interrupted.")
        _send(tmux, "@@next@@ and now?")
        tmux.shows("Still here.")

        _send(tmux, "@@late@@ once more")
        tmux.shows("late3 late4")
        tmux.keys("C-c", "C-c")
        text = tmux.shows("EXIT CODE 0")
        found = re.search(r"atomic chat --resume (\S+)", text)
        assert found is not None, text
    wait_until(lambda: not processes(user.home), "end of all processes")
    with atomic(user, "chat", "--resume", found[1]) as tmux:
        tmux.shows("Still here.")
        _send(tmux, "@@again@@ do you remember?")
        tmux.shows("I remember.")


def _send(tmux: Tmux, text: str) -> None:
    tmux.type(text)
    tmux.shows(text[-8:])
    tmux.keys("Enter")


async def test_commands_of_a_conversation(user: User) -> None:
    """Call sub-agents, switch the model, compact, and switch the agent."""
    agent_file(user.project / ".atomic", "thinker", "You plan better than the others.")
    scripts = {"one": "One. " * 50, "plan": "A plan.", "two": "Two.", "three": "Aye."}
    async with ModelServer(scripts, models=("scripted-1", "scripted-2")) as server:
        prepare(user, "claude", server)
        other = AGENTS["copilot"].environment(server, user.home, CACHE)
        user.env |= {name: value for name, value in other.items() if name.startswith("COPILOT")}
        await asyncio.to_thread(_use_commands, user, AGENTS["claude"].models[0])


def _use_commands(user: User, model: str) -> None:
    with atomic(user, "-a", "claude") as tmux:
        tmux.shows("claude")
        _send(tmux, "@@one@@ begin")
        tmux.shows("One. One.")
        _send(tmux, "/thinker think @@plan@@ of it")
        tmux.shows("A plan.")
        _send(tmux, f"/model {model}")
        tmux.shows(f"claude · {model}")
        _send(tmux, "@@two@@ go on")
        tmux.shows("Two.")
        _send(tmux, "/compact the plan")
        tmux.lacks("Esc stops", timeout=90)
        _send(tmux, "/agent copilot")
        tmux.shows("atomic · copilot")
        _send(tmux, "@@three@@ sail it")
        tmux.shows("Aye.")
