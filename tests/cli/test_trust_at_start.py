"""What a run says about code that is not trusted: at a terminal a question, elsewhere a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint

FLOW = """from atomic.workflows import State, graph
def greet(state):
    print({text!r})
    return {{}}
workflow = graph(State).tool("greet", greet).compile()
"""


def flow(user: User, text: str, name: str = "hi") -> Path:
    file = user.project / ".atomic" / "workflows" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FLOW.format(text=text))
    return file


async def shown(user: User) -> dict[str, Any]:
    return msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)


async def approve(user: User) -> None:
    assert (await user.atomic("trust", (await shown(user))["hash"])).exit_code == 0


async def test_the_refusal_names_only_what_changed_and_a_short_hash(user: User) -> None:
    flow(user, "same", "other")
    flow(user, "one")
    await approve(user)
    flow(user, "two")
    done = await user.atomic("run", "hi")
    said = complaint(done)
    assert done.exit_code == 4
    assert "this project has changed since you approved it: workflow .atomic/workflows/hi.py (changed: you, or" in said
    assert "other.py" not in said
    hash = (await shown(user))["hash"]
    assert hash[:12] in said
    assert hash[:13] not in said
    assert "in CI: --trust HASH" in said


async def test_ci_gives_the_whole_hash(user: User) -> None:
    flow(user, "one")
    hash = (await shown(user))["hash"]
    done = await user.atomic("run", "hi", "--trust", hash[:12])
    assert (done.exit_code, "in its current state, only its beginning: give all of it" in complaint(done)) == (4, True)
    done = await user.atomic("run", "hi", "--trust", "0" * 64)
    assert (done.exit_code, "is not the hash of this project in its current state" in complaint(done)) == (4, True)
    done = await user.atomic("run", "hi", "--trust", hash)
    assert (done.exit_code, "one\n" in done.stderr) == (0, True)


async def test_a_run_at_a_terminal_shows_the_difference_and_asks(user: User) -> None:
    flow(user, "same", "other")
    flow(user, "one")
    await approve(user)
    flow(user, "two")
    async with in_terminal([ATOMIC, "run", "hi"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("Allow exactly this to run, now and from now on? [y/N] ")
        assert "-    print('one')" in terminal.screen
        assert "+    print('two')" in terminal.screen
        assert "~ workflow .atomic/workflows/hi.py: changed: you, or a program of yours, saved it 20" in terminal.screen
        assert "other.py" not in terminal.screen
        assert (await shown(user))["hash"] not in terminal.screen
        terminal.type("y\n")
        assert await terminal.exit_code() == 0
        assert "two" in await terminal.rest()
    assert (await shown(user))["trusted"]


@pytest.mark.parametrize("typed", ["\n", "n\n"])
async def test_without_a_yes_nothing_runs(user: User, typed: str) -> None:
    flow(user, "one")
    async with in_terminal([ATOMIC, "run", "hi"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N] ")
        assert "+    print('one')" in terminal.screen
        terminal.type(typed)
        assert await terminal.exit_code() == 4
        assert "nothing was approved, and nothing was started" in await terminal.rest()
    assert not (await shown(user))["trusted"]


async def test_ctrl_c_at_the_question_runs_nothing(user: User) -> None:
    flow(user, "one")
    async with in_terminal([ATOMIC, "run", "hi"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N] ")
        terminal.type("\x03")
        assert await terminal.exit_code() == 130
    assert not (await shown(user))["trusted"]
