"""Conversations: kept on the disk, taken up again, switched to another model or agent, begun anew."""

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
from tests.chat.puppets import AGENT, has_puppet, steps
from tests.chat.screen import EngineScreen, engine
from tests.cli.command import User
from tests.cli.files import agent as agent_file
from tests.cli.flows import call, end, recording, session, sessions, text
from tests.timing import judge


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / "events.jsonl").read_text().splitlines()]


async def history(screen: EngineScreen) -> list[Any]:
    """What was said before, all of it."""
    await screen.until_type(History, last=True)
    return [decode_event(raw) for news in screen.heard if isinstance(news, History) for raw in news.events]


async def test_a_conversation_is_saved_from_its_first_prompt(user: User) -> None:
    user.env["MY_API_TOKEN"] = "sk-very-secret-token-4711"
    agent = recording(user, call(text("It is sk-very-sec"), text("ret-token-4711."), end("It is."), pause=0.01))
    async with engine(user, "--agent", agent, "--model", "m1") as screen:
        await screen.ready()
        await screen.ask("/help")
        assert sessions(user) == []
        await screen.ask("tell me")
        (folder,) = sessions(user)
        assert session(user)["owner"]["pid"] == screen.process.pid
        screen.send(Leave())
        left = await screen.until_type(Left)
        assert left.message == f"Resume with: atomic chat --resume {folder.name}"
        await screen.gone()
    record = session(user)
    assert (record["status"], record["workflow"], record["prompt"], record["owner"]) == ("chat", "", "tell me", None)
    assert (record["config"]["provider"], record["config"]["model"]) == (agent, "m1")
    assert (folder / "journal.db").exists()
    assert [line["type"] for line in log_of(folder)] == ["run_started", "activity", "activity", "run_ended"]
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
    has_puppet(user)
    user.env["MY_API_TOKEN"] = "sk-very-secret-token-4711"
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask(steps({"say": "one"}))
        run = screen.shell("printf sk-very-sec; sleep 0.3; printf 'ret-token-4711 here\\nand on'")
        await screen.ended(run)
        assert len(screen.of(run)) > 3  # in pieces
    (folder,) = sessions(user)
    assert [line["text"] for line in log_of(folder) if line["type"] == "shell_said"] == ["[redacted] here\n", "and on"]


async def test_broken_settings_are_reported_when_an_agent_is_needed(user: User) -> None:
    user.sets("agent = = nonsense")
    async with engine(user) as screen:
        status = await screen.until(lambda news: isinstance(news, StatusChanged) and news.problem != "")
        assert "config.toml" in getattr(status, "problem", "")
        assert "config.toml" in (await screen.ask("hello")).message
        assert (await screen.ask("/help")).status == "done"


async def test_a_conversation_is_resumed_in_another_engine(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask(steps({"say": "one"}))
        await screen.ended(screen.shell("echo two"))
    (folder,) = sessions(user)
    assert session(user)["config"]["provider_session"] == "puppet-1"
    async with engine(user, "--resume", folder.name[:8]) as screen:
        run = screen.submit(steps({"say": "at once"}))  # it waits until the conversation is there
        assert (await screen.ended(run)).status == "done"
        cleared = await screen.until_type(Cleared)
        assert cleared.session == folder.name
        told = await history(screen)
        assert [type(news) for news in told if isinstance(news, RunStarted | RunEnded)] == [RunStarted, RunEnded] * 2
        status = await screen.ready()
        assert (status.provider, status.session) == (AGENT, folder.name)
        assert (await screen.ask(steps({"say": "three"}))).status == "done"
        async with engine(user, "--agent", AGENT) as other:
            await other.ready()
            other.send(Watch(session=folder.name))
            await other.until(lambda news: "open in another window" in getattr(news, "text", ""))
    assert sessions(user) == [folder]
    assert [line["event"]["text"] for line in log_of(folder) if line["type"] == "activity"][::2] == [
        "one",
        "at once",
        "three",
    ]


async def test_an_agent_that_cannot_resume_gets_the_last_exchanges(user: User) -> None:
    has_puppet(user, "--forgetful")
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask(steps({"say": "one"}))
    (folder,) = sessions(user)
    async with engine(user, "--resume", folder.name) as screen:
        await screen.until_type(History, last=True)
        run = screen.submit(steps({"prompt": True}))
        assert (await screen.ended(run)).status == "done"
        assert "Its last exchanges" in screen.text(run)
        assert "The agent:\\none" in screen.text(run)
        assert "lost" in screen.said()


@pytest.mark.timed
async def test_a_conversation_of_five_thousand_messages_opens_quickly(user: User) -> None:
    agent = recording(user, call(text("one"), end("one")))
    async with engine(user, "--agent", agent) as screen:
        await screen.ask("begin")
    (folder,) = sessions(user)
    log = folder / "logs" / "events.jsonl"
    exchange = log.read_bytes()
    log.write_bytes(exchange * 2500 + b'{"type":"activity","run":"cut by a ki\n' + exchange)
    async with engine(user, "--agent", agent) as screen:
        await screen.ready()
        began = time.monotonic()
        screen.send(Watch(session=folder.name))
        told = await history(screen)
        judge(time.monotonic() - began, 3)
        assert len(told) == 2501 * len(exchange.splitlines())
        assert all(len(news.events) <= 500 for news in screen.heard if isinstance(news, History))


async def test_clear_starts_a_new_conversation(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask(steps({"say": "one"}))
        assert (await screen.ask("/clear")).status == "done"
        cleared = await screen.until_type(Cleared)
        assert len(sessions(user)) == 1
        await screen.ask(steps({"say": "two"}))
        assert {folder.name for folder in sessions(user)} >= {cleared.session}
        assert len(sessions(user)) == 2
        status = [news for news in screen.heard if isinstance(news, StatusChanged)][-1]
        assert status.session == cleared.session
        screen.check_ends()


@pytest.mark.ci
async def test_models_are_listed_picked_and_set(user: User) -> None:
    models = [call(text("x"), end("x"), match="go", model="m1"), call(text("y"), end("y"), match="go", model="m2")]
    agent = recording(user, *models)
    async with engine(user, "--agent", agent) as screen:
        assert (await screen.ask("/model m2")).status == "done"
        await screen.until_type(StatusChanged, model="m2")
        await screen.ask("/model list")
        assert screen.said("r2").split() == ["m1", "m2"]
        assert (await screen.ask("/model")).status == "done"
        opened = await screen.until_type(PickOpened, kind=PickKind.MODEL)
        assert [(row.value, row.current) for row in opened.rows] == [("m1", False), ("m2", True)]
        screen.choose(opened.request, "m1")
        await screen.until_type(StatusChanged, model="m1")
        screen.send(Picked(request=opened.request, value="m2"))  # twice is once
        await screen.ask("go")
        assert session(user)["config"]["model"] == "m1"
        screen.check_ends()


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
    async with engine(user, "--agent", first) as screen:
        await screen.ask("begin")
        switched = await screen.ask(f"/agent replay:{second}")
        assert (switched.status, screen.text("r2")) == ("done", "")
        await screen.until_type(StatusChanged, provider=f"replay:{second}")
        await screen.ask("sail it")
        assert screen.text("r3") == "Aye."
        assert session(user)["config"]["provider"] == f"replay:{second}"
        wrong = await screen.ask("/agent cluade")
        assert (wrong.status, "claude" in wrong.message) == ("failed", True)
        screen.check_ends()


@pytest.mark.ci
async def test_another_agent_gets_the_last_exchanges_when_the_summary_fails(user: User) -> None:
    first = recording(user, call(text("I did it."), end("I did it."), match="begin"))
    second = user.home / "second.jsonl"
    answers = [call(text("Aye."), end("Aye."), match="begin(.|\n)*I did it(.|\n)*sail it")]
    second.write_bytes(b"\n".join(map(msgspec.json.encode, ({"atomic_recording": 1}, *answers))) + b"\n")
    async with engine(user, "--agent", first) as screen:
        await screen.ask("begin")
        assert (await screen.ask(f"/agent replay:{second}")).status == "done"
        await screen.ask("sail it")
        assert screen.text("r3") == "Aye."


@pytest.mark.ci
async def test_themes_are_set_and_picked(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask("/theme LIGHT")
        await screen.until_type(ThemeSet, name="light")
        assert "did you mean" in (await screen.ask("/theme lihgt")).message
        await screen.ask("/theme")
        opened = await screen.until_type(PickOpened, kind=PickKind.THEME)
        assert [row.value for row in opened.rows] == ["dark", "light", "ansi", "contrast"]
        screen.choose(opened.request, "contrast")
        await screen.until_type(ThemeSet, name="contrast")
        await screen.ask("/agent")
        opened = await screen.until_type(PickOpened, kind=PickKind.PROVIDER)
        assert [row.value for row in opened.rows if row.current] == [AGENT]
        screen.choose(opened.request, None)


@pytest.mark.ci
async def test_sessions_are_picked(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask("/sessions")
        assert "There are no sessions." in screen.said()
        await screen.ask(steps({"say": "one"}))
        await screen.ask("/clear")
        await screen.ask("/resume")
        opened = await screen.until_type(PickOpened, kind=PickKind.SESSION)
        (row,) = opened.rows
        screen.choose(opened.request, row.value)
        assert len(await history(screen)) == 4
        await screen.until_type(StatusChanged, session=row.value)
        screen.check_ends()


@pytest.mark.ci
async def test_mcp_servers_are_shown_and_switched(user: User) -> None:
    has_puppet(user)
    (user.home / ".claude.json").write_text('{"mcpServers": {"docs": {"command": "/does/not/exist"}}}')
    async with engine(user, "--agent", AGENT) as screen:
        await screen.ask("/mcp")
        opened = await screen.until_type(PickOpened, kind=PickKind.MCP)
        (row,) = opened.rows
        assert (row.value, row.detail.partition(":")[0]) == ("docs", "failed")
        screen.choose(opened.request, "docs")
        await screen.until(lambda news: "docs is off" in getattr(news, "text", ""))
        await screen.ask("/mcp enable docs")
        assert "docs is on." in screen.said()


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
    async with engine(user, "--agent", agent) as screen:
        ended = await screen.ask("@thinker plan it @checker check it")
        assert (ended.status, screen.started("r1").kind) == ("done", "crew")
        events = [(type(event).__name__, getattr(event, "agent", None)) for event in screen.events("r1")]
        assert events[:2] == [("SubagentStarted", None)] * 2
        assert events.count(("SubagentEnded", None)) == 2
        assert {who for kind, who in events if kind == "TextDelta"} == {"thinker-1", "checker-2"}
        await screen.until(lambda news: isinstance(news, StatusChanged) and news.usage.input == 7)
        ended = await screen.ask("/thinker fail")
        assert (ended.status, ended.message) == ("failed", "thinker: no idea")
        screen.check_ends()
