"""The branch of a run, from a conversation: the same commands as at a terminal."""

from __future__ import annotations

import json

import pytest

from atomic.chat.protocol import QuestionOpened, ShellOutput
from tests.chat.engine_client import EngineClient, engine
from tests.cli.test_branch_verbs import BRANCH, ID, SHORT, BranchRun
from tests.ralph.sandbox import APPROVE, Sandbox, writing
from tests.support.fake_acp import AGENT, use_fake_acp
from tests.support.repositories import git
from tests.support.user import User


@pytest.fixture
def run(user: User) -> BranchRun:
    use_fake_acp(user)
    return BranchRun(user)


def output(client: EngineClient, run: str) -> str:
    return "".join(event.text for event in client.events_of(run) if isinstance(event, ShellOutput))


async def test_a_conversation_shows_undoes_and_accepts_the_last_run_of_the_project(run: BranchRun) -> None:
    run.save()
    async with engine(run.user, "--agent", AGENT) as client:
        shown = client.submit("/diff 2")
        assert (await client.ended(shown)).status == "done"
        assert output(client, shown) == git(run.root, "diff", run.landed[1].base, run.landed[1].commit)
        assert client.started(shown).kind == "shell"
        undone = client.submit("/undo 2")
        assert (await client.ended(undone)).status == "done"
        assert f"Task 2 is undone on {BRANCH}" in output(client, undone)
        unchecked = await client.ask(f"/accept {SHORT}")
        assert (unchecked.status, unchecked.message) == ("failed", "exit code 1")
        accepted = client.submit(f"/accept {SHORT} --unchecked")
        assert (await client.ended(accepted)).status == "done"
        assert f"Merged {BRANCH} into main as a fast-forward" in output(client, accepted)
        again = await client.ask("/accept")
        assert (again.status, again.message) == ("failed", "exit code 1")
        client.check_ends()
    assert run.git("rev-parse", "main") == run.git("rev-parse", BRANCH)
    assert run.text("a.txt").endswith("line 10\n")


async def test_discard_asks_first(run: BranchRun) -> None:
    run.save()
    async with engine(run.user, "--agent", AGENT) as client:
        for answer, is_left in (("Keep it", True), ("Remove it", False)):
            after = len(client.received)
            asking = client.submit("/discard")
            asked = await client.until_type(QuestionOpened, after=after)
            client.answer(asked.id, answer)
            assert (await client.ended(asking)).status == "done"
            assert bool(run.git("for-each-ref", f"refs/heads/{BRANCH}")) is is_left
    assert run.git("for-each-ref", f"refs/atomic/{ID}/discarded")


async def test_without_a_run_a_command_says_how_to_name_one(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        ended = await client.ask("/accept")
    assert (ended.status, ended.message) == (
        "failed",
        "There is no run in this project yet: /accept ID names another one",
    )


@pytest.mark.ci
async def test_a_run_that_has_ended_offers_its_branch(tmp_path_factory: pytest.TempPathFactory) -> None:
    sandbox = Sandbox(tmp_path_factory.mktemp("run"), writing("1"), APPROVE, isolate="clone")
    tasks = sandbox.user.home / "tasks.json"
    tasks.write_text(json.dumps({"tasks": [{"id": "1", "title": "Write part 1"}]}))
    async with engine(sandbox.user) as client:
        work = client.submit(f"/ralph --verify 'test -f README.md' --tasks {tasks}")
        ended = await client.ended(work)
        assert (ended.status, ended.actions) == ("completed", ("/diff", "/accept", "/undo TASK", "/discard"))
        assert (await client.ask("/accept")).status == "done"
    assert (sandbox.project / "part1.txt").read_text() == "part 1\n"
