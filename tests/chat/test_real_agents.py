"""Conversations with the real agents, each on a scripted model."""

from __future__ import annotations

import os
import signal

import pytest

from atomic.chat.protocol import Activity, History, QuestionOpened, StatusChanged
from atomic.providers import TextDelta, ToolEnded, ToolStarted
from atomic.testing import Drip, Fail, ModelServer
from atomic.testing.conformance.agents import AGENTS
from atomic.tui.state.model import BlockKind
from tests.chat.engine_client import EngineClient, engine
from tests.support.entity_files import agent as agent_file
from tests.support.entity_files import skill
from tests.support.programs import CACHE
from tests.support.user import User, processes
from tests.support.user_workflows import session, sessions
from tests.support.waits import eventually

pytestmark = pytest.mark.ci

FAILURES = (BlockKind.ERROR, BlockKind.WARNING)
COLOUR = {"text": "Which colour?", "header": "Colour", "options": ["Red", "Blue"]}
SIZE = {"text": "Which size?", "header": "Size", "options": ["Small", "Large"]}


def prepare(user: User, name: str, server: ModelServer) -> None:
    """Make `name` the only usable agent, with the scripted model and an empty home."""
    user.env |= {**AGENTS[name].environment(server, user.home, CACHE), "PATH": f"{user.bin}:{os.environ['PATH']}"}
    for program in ("ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH"):
        user.env[program] = os.environ[program]
    (user.home / ".atomic").mkdir()


async def wait_for_text(client: EngineClient, run: str) -> None:
    await client.until(
        lambda event: isinstance(event, Activity) and event.run == run and isinstance(event.event, TextDelta)
    )


@pytest.mark.parametrize(
    "name",
    ["claude", pytest.param("opencode", marks=pytest.mark.full), pytest.param("copilot", marks=pytest.mark.full)],
)
async def test_a_conversation(user: User, name: str) -> None:
    words = AGENTS[name].words
    scripts = {
        "tool": [[words.bash("echo 4711")], "It said {{tool_result}}"],
        "ask": [[words.ask([COLOUR])], "You said {{tool_result}}"],
        "dismiss": [[words.ask([SIZE])], "You said {{tool_result}}"],
        "slow": Drip("word", times=400, every=0.05),
        "next": "Still here.",
        "again": "I remember.",
    }
    async with ModelServer(scripts, models=("scripted-1", "scripted-2")) as server:
        prepare(user, name, server)
        async with engine(user, "--agent", name) as client:
            run = client.submit("@@tool@@ run it")
            assert (await client.ended(run)).status == "done", client.received[-3:]
            assert "4711" in client.text(run)
            tools = [type(event) for event in client.agent_events(run) if isinstance(event, ToolStarted | ToolEnded)]
            assert tools == [ToolStarted, ToolEnded]

            run = client.submit("@@ask@@ ask me")
            client.answer((await client.question(text="Which colour?")).id, "Blue")
            assert (await client.ended(run)).status == "done"
            assert "Blue" in client.text(run)

            run = client.submit("@@dismiss@@ ask me")
            opened = await client.until(
                lambda event: isinstance(event, QuestionOpened) and "size" in event.question.text
            )
            assert isinstance(opened, QuestionOpened)
            client.answer(opened.id)
            assert (await client.ended(run)).status == "done"

            run = client.submit("@@slow@@ take your time")
            await wait_for_text(client, run)
            client.stop(run)
            assert (await client.ended(run)).status == "interrupted"
            assert (await client.ask("@@next@@ and now?")).status == "done"
            await client.until(lambda event: isinstance(event, StatusChanged) and event.usage.input > 0)
            client.check_ends()
        await eventually(lambda: not processes(user.home))
        (folder,) = sessions(user)
        assert session(user)["config"]["provider"] == name
        async with engine(user, "--resume", folder.name) as client:
            await client.until_type(History, last=True)
            assert (await client.ask("@@again@@ do you remember?")).status == "done", client.received[-3:]
            assert "Still here." in str([call for call in server.calls if call.script == "again"][-1].body)
            assert "lost" not in client.notices()


@pytest.mark.parametrize("status", [529, 429, 401])
async def test_an_error_of_the_agent_is_shown_once_with_what_to_do(user: User, status: int) -> None:
    async with ModelServer({"fail": Fail(status, message="There is no more tea.")}) as server:
        prepare(user, "claude", server)
        async with engine(user, "--agent", "claude") as client:
            await client.ask("@@fail@@ hello")
            shown = [block.text for block in client.blocks() if block.kind in FAILURES]
            reported = [text for text in shown if "There is no more tea." in text]
            assert len(reported) == 1, shown
            assert "Send the message again" in reported[0]


async def test_a_killed_agent_is_reported_once_with_what_to_do(user: User) -> None:
    async with ModelServer({"slow": Drip("word", times=400, every=0.05)}) as server:
        prepare(user, "claude", server)
        async with engine(user, "--agent", "claude") as client:
            run = client.submit("@@slow@@ take your time")
            await wait_for_text(client, run)
            [agent] = [pid for pid, line in processes(user.home).items() if "claude" in line.split(" ")[0]]
            os.kill(agent, signal.SIGKILL)
            await client.ended(run)
            [shown] = [block.text for block in client.blocks() if block.kind in FAILURES]
            assert "Send the message again" in shown


@pytest.mark.full
@pytest.mark.parametrize("name", ["claude", "opencode", "copilot"])
async def test_commands_of_a_conversation(user: User, name: str) -> None:
    agent_file(user.project / ".atomic", "thinker", "You plan better than the others.")
    agent_file(user.project / ".atomic", "checker", "You check better than the others.")
    skill(user.project / ".claude", "tidy", "Tidy $ARGUMENTS. @@tidy@@", head="allowed-tools: Bash, Read\n")
    scripts = {
        "one": "One. " * 50,
        "tidy": "All tidy.",
        "two": "Two.",
        "plan": "A plan.",
        "check": "All well.",
        "three": "Three.",
    }
    models = AGENTS[name].models
    async with ModelServer(scripts, models=("scripted-1", "scripted-2")) as server:
        prepare(user, name, server)
        async with engine(user, "--agent", name) as client:
            assert (await client.ask("@@one@@ begin")).status == "done"
            ended = await client.ask("/tidy the tests")
            assert (ended.status, client.text("r2")) == ("done", "All tidy.")
            tidy = [call for call in server.calls if call.script == "tidy"][-1]
            assert "Tidy the tests." in tidy.user_text
            # The command is part of the conversation.
            assert "One. One." in str(tidy.body)
            assert not {tool.casefold() for tool in tidy.tools} & {"write", "edit", "create", "apply_patch"}
            ended = await client.ask(f"/model {models[0]}")
            assert ended.status == "done", ended
            assert (await client.ask("@@two@@ go on")).status == "done"
            two = [call for call in server.calls if call.script == "two"][-1]
            assert {tool.casefold() for tool in two.tools} & {"write", "create"}
            ended = await client.ask("@thinker go @@plan@@ @checker see @@check@@")
            assert ended.status == "done", ended
            assert (
                "You plan better than the others."
                in next(call for call in server.calls if call.script == "plan").system
            )
            ended = await client.ask("/compact")
            assert ended.status == "done", ended
            assert (await client.ask("@@three@@ and?")).status == "done"
            assert "One. One." not in str([call for call in server.calls if call.script == "three"][-1].body)
            client.check_ends()


@pytest.mark.full
async def test_another_agent_continues_the_conversation(user: User) -> None:
    scripts = {"one": "The boat is built.", "two": "Aye."}
    async with ModelServer(scripts, models=("scripted-1", "scripted-2")) as server:
        prepare(user, "claude", server)
        user.env |= {
            key: value
            for key, value in AGENTS["copilot"].environment(server, user.home, CACHE).items()
            if key.startswith("COPILOT")
        }
        async with engine(user, "--agent", "claude") as client:
            assert (await client.ask("@@one@@ build a boat")).status == "done"
            assert (await client.ask("/agent copilot")).status == "done"
            await client.until_type(StatusChanged, provider="copilot", ready=True)
            assert (await client.ask("@@two@@ sail it")).status == "done"
            assert client.text("r3") == "Aye."
            asked = next(call for call in server.calls if call.script == "two")
            assert "You take over a conversation" in asked.user_text
            assert not any("claude" in line.split(" ")[0] for line in processes(user.home).values())
        assert session(user)["config"]["provider"] == "copilot"


@pytest.mark.parametrize(
    "name",
    ["claude", pytest.param("opencode", marks=pytest.mark.full), pytest.param("copilot", marks=pytest.mark.full)],
)
async def test_the_status_names_the_model_that_answered(user: User, name: str) -> None:
    async with ModelServer({"hi": "Hello."}, models=("scripted-1", "scripted-2")) as server:
        prepare(user, name, server)
        async with engine(user, "--agent", name) as client:
            assert (await client.ask("@@hi@@ hello")).status == "done"
            await client.until(lambda event: isinstance(event, StatusChanged) and bool(event.model))
