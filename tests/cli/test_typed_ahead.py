"""Text that was typed before a question was shown does not answer it."""

from __future__ import annotations

import pytest

from tests.cli.test_workflows import flow, hash_of
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User

ASKS = """import asyncio
from pathlib import Path
from atomic.workflows import *

class S(State):
    pass

async def wait(ctx):
    while not Path("go").exists():
        await asyncio.sleep(0.05)

def keep(state):
    Path("answer").write_text(state.outputs["publish"])

workflow = (graph(S).node("wait", wait)
    .ask_user("publish", "Publish?", options=["yes", "no"]).tool("keep", keep).compile())
"""


@pytest.mark.ci
async def test_a_line_typed_during_a_run_does_not_answer_its_next_question(user: User) -> None:
    flow(user, "publish", ASKS)
    words = [ATOMIC, "run", "publish", "--trust", await hash_of(user)]
    async with in_terminal(words, env={**user.env, "TERM": "xterm"}, cwd=user.project) as terminal:
        await terminal.shows("Session: ")
        terminal.type("yes\n")
        await terminal.shows("yes")  # the terminal has it
        (user.project / "go").touch()
        await terminal.shows("number, or an answer of your own> ")
        terminal.type("no\n")
        assert await terminal.exit_code() == 0
    assert (user.project / "answer").read_text() == "no"
