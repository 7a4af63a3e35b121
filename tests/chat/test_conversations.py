"""Conversations: saved, resumed, cleared, or continued by another model or agent."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.chat.protocol import (
    Cleared,
    History,
    Leave,
    Left,
    Picked,
    PickKind,
    PickOpened,
    RunEnded,
    RunStarted,
    StatusChanged,
    ThemeSet,
    Watch,
    decode_event,
)
from tests.chat.engine_client import EngineClient, engine
from tests.support.entity_files import agent as agent_file
from tests.support.entity_files import write
from tests.support.fake_acp import AGENT, steps, use_fake_acp
from tests.support.timing import judge
from tests.support.user import User
from tests.support.user_workflows import call, end, recording, session, sessions, text


def read_log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / "events.jsonl").read_text().splitlines()]


async def receive_history(client: EngineClient) -> list[Any]:
    """Wait for the whole history and return its events."""
    await client.until_type(History, last=True)
    return [decode_event(raw) for event in client.received if isinstance(event, History) for raw in event.events]


async def test_a_conversation_is_saved_from_its_first_prompt(user: User) -> None:
    user.env["MY_API_TOKEN"] = "sk-very-secret-token-4711"
    agent = recording(user, call(text("It is sk-very-sec"), text("ret-token-4711."), end("It is."), pause=0.01))
    async with engine(user, "--agent", agent, "--model", "m1") as client:
        await client.ready()
        await client.ask("/help")
        assert sessions(user) == []
        await client.ask("tell me")
        (folder,) = sessions(user)
        assert session(user)["owner"]["pid"] == client.process.pid
        client.send(Leave())
        left = await client.until_type(Left)
        assert left.message == f"Resume with: atomic chat --resume {folder.name}"
        await client.gone()
    record = session(user)
    assert (record["status"], record["workflow"], record["prompt"], record["owner"]) == ("chat", "", "tell me", None)
    assert (record["config"]["provider"], record["config"]["model"]) == (agent, "m1")
    assert (folder / "journal.db").exists()
    assert [line["type"] for line in read_log(folder)] == ["run_started", "activity", "activity", "run_ended"]
    assert "very-secret" not in (folder / "logs" / "events.jsonl").read_text()
    listed = await user.atomic("sessions")
    assert listed.stdout.split()[:2] == [folder.name[:8], "chat"]
    shown = await user.atomic("sessions", "show", folder.name)
    assert shown.exit_code == 0
    assert f"atomic chat --resume {folder.name}" in shown.stdout
    assert "agent    replay:/" in shown.stdout
    for verb, code in (("attach", 1), ("stop", 0)):
        done = await user.atomic(verb, folder.name)
        assert (done.exit_code, "is a conversation" in done.stderr) == (code, True)
    refused = await user.atomic("resume", folder.name)
    assert (refused.exit_code, f"atomic chat --resume {folder.name}" in refused.stderr) == (2, True)


async def test_a_secret_split_over_several_writes_is_not_saved(user: User) -> None:
    use_fake_acp(user)
    user.env["MY_API_TOKEN"] = "sk-very-secret-token-4711"
    async with engine(user, "--agent", AGENT) as client:
        await client.ask(steps({"say": "one"}))
        run = client.shell("printf sk-very-sec; sleep 0.3; printf 'ret-token-4711 here\\nand on'")
        await client.ended(run)
        assert len(client.events_of(run)) > 3  # in pieces
    (folder,) = sessions(user)
    assert [line["text"] for line in read_log(folder) if line["type"] == "shell_said"] == [
        "[redacted] here\n",
        "and on",
    ]


async def test_broken_settings_are_reported_when_an_agent_is_needed(user: User) -> None:
    user.sets("agent = = nonsense")
    async with engine(user) as client:
        status = await client.until(lambda event: isinstance(event, StatusChanged) and event.problem != "")
        assert "config.toml" in getattr(status, "problem", "")
        assert "config.toml" in (await client.ask("hello")).message
        assert (await client.ask("/help")).status == "done"


async def test_a_conversation_is_resumed_in_another_engine(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        await client.ask(steps({"say": "one"}))
        await client.ended(client.shell("echo two"))
    (folder,) = sessions(user)
    assert session(user)["config"]["provider_session"] == "puppet-1"
    async with engine(user, "--resume", folder.name[:8]) as client:
        run = client.submit(steps({"say": "at once"}))  # waits until the conversation is open
        assert (await client.ended(run)).status == "done"
        cleared = await client.until_type(Cleared)
        assert cleared.session == folder.name
        past = await receive_history(client)
        assert [type(event) for event in past if isinstance(event, RunStarted | RunEnded)] == [RunStarted, RunEnded] * 2
        status = await client.ready()
        assert (status.provider, status.session) == (AGENT, folder.name)
        assert (await client.ask(steps({"say": "three"}))).status == "done"
        async with engine(user, "--agent", AGENT) as other:
            await other.ready()
            other.send(Watch(session=folder.name))
            await other.until(lambda event: "open in another window" in getattr(event, "text", ""))
    assert sessions(user) == [folder]
    assert [line["event"]["text"] for line in read_log(folder) if line["type"] == "activity"][::2] == [
        "one",
        "at once",
        "three",
    ]


async def test_an_agent_that_cannot_resume_gets_the_last_exchanges(user: User) -> None:
    use_fake_acp(user, "--forgetful")
    async with engine(user, "--agent", AGENT) as client:
        await client.ask(steps({"say": "one"}))
    (folder,) = sessions(user)
    async with engine(user, "--resume", folder.name) as client:
        await client.until_type(History, last=True)
        run = client.submit(steps({"prompt": True}))
        assert (await client.ended(run)).status == "done"
        assert "Its last exchanges" in client.text(run)
        assert "The agent:\\none" in client.text(run)
        assert "lost" in client.notices()


@pytest.mark.timed
async def test_a_conversation_of_five_thousand_messages_opens_quickly(user: User) -> None:
    agent = recording(user, call(text("one"), end("one")))
    async with engine(user, "--agent", agent) as client:
        await client.ask("begin")
    (folder,) = sessions(user)
    log = folder / "logs" / "events.jsonl"
    exchange = log.read_bytes()
    log.write_bytes(exchange * 2500 + b'{"type":"activity","run":"cut by a ki\n' + exchange)
    async with engine(user, "--agent", agent) as client:
        await client.ready()
        began = time.monotonic()
        client.send(Watch(session=folder.name))
        past = await receive_history(client)
        judge(time.monotonic() - began, 3)
        assert len(past) == 2501 * len(exchange.splitlines())
        assert all(len(event.events) <= 500 for event in client.received if isinstance(event, History))


async def test_clear_starts_a_new_conversation(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        await client.ask(steps({"say": "one"}))
        assert (await client.ask("/clear")).status == "done"
        cleared = await client.until_type(Cleared)
        assert len(sessions(user)) == 1
        await client.ask(steps({"say": "two"}))
        assert {folder.name for folder in sessions(user)} >= {cleared.session}
        assert len(sessions(user)) == 2
        status = [event for event in client.received if isinstance(event, StatusChanged)][-1]
        assert status.session == cleared.session
        client.check_ends()


@pytest.mark.ci
async def test_models_are_listed_picked_and_set(user: User) -> None:
    models = [call(text("x"), end("x"), match="go", model="m1"), call(text("y"), end("y"), match="go", model="m2")]
    agent = recording(user, *models)
    async with engine(user, "--agent", agent) as client:
        assert (await client.ask("/model m2")).status == "done"
        await client.until_type(StatusChanged, model="m2")
        await client.ask("/model list")
        assert client.notices("r2").split() == ["m1", "m2"]
        assert (await client.ask("/model")).status == "done"
        opened = await client.until_type(PickOpened, kind=PickKind.MODEL)
        assert [(row.value, row.current) for row in opened.rows] == [("m1", False), ("m2", True)]
        client.choose(opened.request, "m1")
        await client.until_type(StatusChanged, model="m1")
        client.send(Picked(request=opened.request, value="m2"))  # twice is once
        await client.ask("go")
        assert session(user)["config"]["model"] == "m1"
        client.check_ends()


@pytest.mark.ci
async def test_another_agent_gets_a_summary_from_the_first(user: User) -> None:
    first = recording(
        user,
        call(text("I did it."), end("I did it."), match="begin"),
        call(text("We built a boat."), end("We built a boat."), match="takes this conversation over"),
    )
    second = user.home / "second.jsonl"
    answers = [call(text("Aye."), end("Aye."), match="We built a boat(.|\n)*sail it")]
    second.write_bytes(b"\n".join(map(msgspec.json.encode, ({"atomic_recording": 1}, *answers))) + b"\n")
    async with engine(user, "--agent", first) as client:
        await client.ask("begin")
        switched = await client.ask(f"/agent replay:{second}")
        assert (switched.status, client.text("r2")) == ("done", "")
        await client.until_type(StatusChanged, provider=f"replay:{second}")
        await client.ask("sail it")
        assert client.text("r3") == "Aye."
        assert session(user)["config"]["provider"] == f"replay:{second}"
        wrong = await client.ask("/agent cluade")
        assert (wrong.status, "claude" in wrong.message) == ("failed", True)
        client.check_ends()


@pytest.mark.ci
async def test_another_agent_gets_the_last_exchanges_when_the_summary_fails(user: User) -> None:
    first = recording(user, call(text("I did it."), end("I did it."), match="begin"))
    second = user.home / "second.jsonl"
    answers = [call(text("Aye."), end("Aye."), match="begin(.|\n)*I did it(.|\n)*sail it")]
    second.write_bytes(b"\n".join(map(msgspec.json.encode, ({"atomic_recording": 1}, *answers))) + b"\n")
    async with engine(user, "--agent", first) as client:
        await client.ask("begin")
        assert (await client.ask(f"/agent replay:{second}")).status == "done"
        await client.ask("sail it")
        assert client.text("r3") == "Aye."


@pytest.mark.ci
async def test_themes_are_set_and_picked(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        await client.ask("/theme LIGHT")
        await client.until_type(ThemeSet, name="light")
        assert "did you mean" in (await client.ask("/theme lihgt")).message
        await client.ask("/theme")
        opened = await client.until_type(PickOpened, kind=PickKind.THEME)
        assert [row.value for row in opened.rows] == ["dark", "light", "ansi", "contrast"]
        client.choose(opened.request, "contrast")
        await client.until_type(ThemeSet, name="contrast")
        await client.ask("/agent")
        opened = await client.until_type(PickOpened, kind=PickKind.PROVIDER)
        assert [row.value for row in opened.rows if row.current] == [AGENT]
        client.choose(opened.request, None)


@pytest.mark.ci
async def test_sessions_are_picked(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        await client.ask("/sessions")
        assert "There are no sessions." in client.notices()
        await client.ask(steps({"say": "one"}))
        await client.ask("/clear")
        await client.ask("/resume")
        opened = await client.until_type(PickOpened, kind=PickKind.SESSION)
        (row,) = opened.rows
        client.choose(opened.request, row.value)
        assert len(await receive_history(client)) == 4
        await client.until_type(StatusChanged, session=row.value)
        client.check_ends()


@pytest.mark.ci
async def test_mcp_servers_are_shown_and_switched(user: User) -> None:
    use_fake_acp(user)
    (user.home / ".claude.json").write_text('{"mcpServers": {"docs": {"command": "/does/not/exist"}}}')
    async with engine(user, "--agent", AGENT) as client:
        await client.ask("/mcp")
        opened = await client.until_type(PickOpened, kind=PickKind.MCP)
        (row,) = opened.rows
        assert (row.value, row.detail.partition(":")[0]) == ("docs", "failed")
        client.choose(opened.request, "docs")
        await client.until(lambda event: "docs is off" in getattr(event, "text", ""))
        await client.ask("/mcp enable docs")
        assert "docs is on." in client.notices()


async def test_a_turn_in_a_session_of_its_own_counts_in_the_saved_cost(user: User) -> None:
    command = user.project / ".atomic" / "commands" / "note.md"
    write(command, "---\ndescription: Notes\nagent: build\nsubtask: true\n---\nNote it.")
    agent = recording(user, call(text("Noted."), end("Noted.", usage={"input": 3}), match="Note it"))
    async with engine(user, "--agent", agent) as client:
        assert (await client.ask("/note")).status == "done"
        assert session(user)["cost"]["input_tokens"] == 3


@pytest.mark.ci
async def test_several_sub_agents_work_at_the_same_time(user: User) -> None:
    for name in ("thinker", "checker"):
        agent_file(user.project / ".atomic", name, f"You are the {name}.")
    agent = recording(
        user,
        call(text("A plan."), end("A plan.", usage={"input": 3}), match="plan it"),
        call(text("All well."), end("All well.", usage={"input": 4}), match="check it"),
        call(end(reason="error", error="no idea"), match="fail"),
    )
    async with engine(user, "--agent", agent) as client:
        ended = await client.ask("@thinker plan it @checker check it")
        assert (ended.status, client.started("r1").kind) == ("done", "crew")
        events = [(type(event).__name__, getattr(event, "agent", None)) for event in client.agent_events("r1")]
        assert events[:2] == [("SubagentStarted", None)] * 2
        assert events.count(("SubagentEnded", None)) == 2
        assert {who for kind, who in events if kind == "TextDelta"} == {"thinker-1", "checker-2"}
        await client.until(lambda event: isinstance(event, StatusChanged) and event.usage.input == 7)
        ended = await client.ask("/thinker fail")
        assert (ended.status, ended.message) == ("failed", "thinker: no idea")
        client.check_ends()
