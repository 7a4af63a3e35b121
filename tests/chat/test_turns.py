"""Turns of the conversation: what is told of them, and that each of them ends whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from atomic.chat.protocol import (
    Activity,
    CommandsListed,
    QuestionClosed,
    QuestionOpened,
    RunKind,
    RunStarted,
    StatusChanged,
)
from atomic.providers import EndReason, TextDelta, ThinkingDelta, ToolEnded, ToolStarted, TurnEnded
from tests.chat.puppets import AGENT, form, has_puppet, steps
from tests.chat.screen import LIMIT, EngineScreen, engine
from tests.cli.command import User, processes
from tests.cli.files import agent as agent_file
from tests.cli.flows import call, end, recording, text
from tests.timing import judge


def question(words: str, *labels: str) -> dict[str, object]:
    return {"text": words, "options": [{"label": label} for label in labels]}


async def spoken(screen: EngineScreen, run: str) -> None:
    """Wait until its agent says something."""
    await screen.until(lambda news: isinstance(news, Activity) and news.run == run)


async def test_a_turn_is_streamed_with_its_tools(user: User) -> None:
    tool = {"type": "tool_started", "id": "1", "name": "Bash", "input": {"command": "ls"}}
    over = {"type": "tool_ended", "id": "1", "output": "x.py"}
    thinking = {"type": "thinking_delta", "text": "hm"}
    usage = {"input": 7, "output": 2, "cost": 0.5}
    agent = recording(user, call(thinking, tool, over, text("All "), text("done."), end("All done.", usage=usage)))
    async with engine(user, "--agent", agent) as screen:
        run = screen.submit("look around")
        assert (await screen.ended(run)).status == "done"
        kinds = [type(event) for event in screen.events(run)]
        assert kinds == [ThinkingDelta, ToolStarted, ToolEnded, TextDelta, TextDelta, TurnEnded]
        assert screen.text(run) == "All done."
        started = screen.started(run)
        assert (started.kind, started.prompt) == (RunKind.TURN, "look around")
        status = await screen.until(lambda news: isinstance(news, StatusChanged) and news.usage.input == 7)
        assert isinstance(status, StatusChanged)
        assert (status.usage.cost, status.session != "", status.provider) == (0.5, True, agent)
        screen.check_ends()


async def test_commands_and_agents_are_listed_and_help_is_shown(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        listed = await screen.until_type(CommandsListed)
        by_name = {command.name: command for command in listed.commands}
        assert {"help", "ralph", "commit"} <= {*by_name}
        assert "loop" in by_name["ralph"].aliases
        assert "--review-rounds N" in by_name["ralph"].argument_hint
        assert "planner" in {agent.name for agent in listed.agents}
        assert (await screen.ask("/help")).status == "done"
        assert "/compact" in screen.said("r1")
        assert (await screen.ask("/help loop")).status == "done"
        assert "--review-rounds N" in screen.said("r2")
        assert (screen.started("r1").kind, screen.started("r1").prompt) == (RunKind.COMMAND, "/help")
        wrong = await screen.ask("/hlep")
        assert (wrong.status, "/help" in wrong.message) == ("failed", True)
        before = len(screen.heard)
        skills = user.home / ".claude" / "skills" / "tidy"
        skills.mkdir(parents=True)
        (skills / "SKILL.md").write_text("---\nname: tidy\ndescription: tidy up\n---\nTidy.\n")
        await screen.ask("/help tidy")
        listed = await screen.until_type(CommandsListed, after=before)
        assert "tidy" in {command.name for command in listed.commands}


async def test_a_question_is_answered_or_dismissed(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        run = screen.submit(steps({"ask": form("Which?", "red", "blue")}))
        opened = await screen.question()
        assert (opened.run, [option.label for option in opened.question.options]) == (run, ["red", "blue"])
        screen.answer(opened.id, "blue")
        assert (await screen.ended(run)).status == "done"
        assert '"answer": "blue"' in screen.text(run)
        assert await screen.until_type(QuestionClosed, id=opened.id) == QuestionClosed(id=opened.id, answers=("blue",))
        for given, told in ((form("And?", "x", "y"), '"decline"'), (form("Or?", "x", "y", default="y"), '"y"')):
            run = screen.submit(steps({"ask": given}))
            opened = await screen.question(text=given["message"])
            screen.answer(opened.id)
            assert (await screen.ended(run)).status == "done"
            assert told in screen.text(run)
        screen.check_ends()


async def test_two_open_questions_each_get_their_own_answer(user: User) -> None:
    asked = {"type": "question_asked", "questions": [question("One?", "a", "b"), question("Two?", "c", "d")]}
    agent = recording(user, call(asked, text("Thanks."), end("Thanks.")))
    async with engine(user, "--agent", agent) as screen:
        run = screen.submit("ask me")
        two, one = await screen.question(text="Two?"), await screen.question(text="One?")
        assert one.id != two.id
        screen.answer(two.id, "d")
        await screen.until_type(QuestionClosed, id=two.id)
        screen.answer(two.id, "c")  # too late: nobody waits for it
        screen.answer(one.id, "a")
        assert (await screen.ended(run)).status == "done"
        assert [news for news in screen.heard if isinstance(news, QuestionClosed)] == [
            QuestionClosed(id=two.id, answers=("d",)),
            QuestionClosed(id=one.id, answers=("a",)),
        ]


async def test_the_conversation_continues_after_an_interrupted_turn(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        run = screen.submit(steps({"say": "now"}, {"wait": True}))
        await spoken(screen, run)
        screen.stop(run)
        assert (await screen.ended(run, limit=5)).status == "interrupted"
        assert (await screen.ask(steps({"say": "again"}))).status == "done"
        run = screen.submit(steps({"ask": form("Which?", "a")}))
        opened = await screen.question()
        screen.stop(run)
        assert (await screen.ended(run, limit=5)).status == "interrupted"
        await screen.until_type(QuestionClosed, id=opened.id)
        screen.answer(opened.id, "a")  # to nobody
        assert (await screen.ask("/help")).status == "done"
        screen.check_ends()


async def test_a_forced_stop_ends_an_unresponsive_agent_and_leaves_no_process(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        run = screen.submit(steps({"say": "now"}, {"deaf": True}))
        await spoken(screen, run)
        screen.stop(run)
        screen.stop(run, force=True)
        assert (await screen.ended(run, limit=1)).status == "interrupted"
        assert (await screen.ask(steps({"say": "again"}), limit=20)).status == "done"
        assert screen.text("r2") == "again"
        screen.check_ends()
        puppets = [line for line in processes(user.home).values() if "puppet.py" in line]
        assert len(puppets) == 1


async def test_a_turn_fails_when_its_agent_dies_and_the_next_one_works(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        assert (await screen.ask(steps({"say": "one"}))).status == "done"
        broken = await screen.ask(steps({"say": "two"}, {"exit": 3}))
        assert (broken.status, "puppet" in broken.message) == ("failed", True)
        assert (await screen.ask(steps({"say": "three"}))).status == "done"
        assert screen.text("r3") == "three"
        screen.check_ends()


async def test_during_a_turn_commands_run_and_a_second_prompt_is_refused(user: User) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        run = screen.submit(steps({"say": "now"}, {"wait": True}))
        await spoken(screen, run)
        refused = await screen.ask(steps({"say": "me too"}))
        assert (refused.status, "answering" in refused.message) == ("failed", True)
        assert (await screen.ask("/help")).status == "done"
        assert "has to wait" in (await screen.ask("/compact")).message
        assert "answering" in (await screen.ask("/clear")).message
        screen.stop(run)
        assert (await screen.ended(run)).status == "interrupted"


@pytest.mark.timed
@pytest.mark.parametrize(
    "how",
    ["hang up", *(pytest.param(name, marks=pytest.mark.full) for name in ("SIGTERM", "SIGHUP")), "SIGKILL"],
)
async def test_agents_end_when_the_screen_ends(user: User, how: str) -> None:
    has_puppet(user)
    async with engine(user, "--agent", AGENT) as screen:
        run = screen.submit(steps({"say": "now"}, {"deaf": True}))
        await spoken(screen, run)
        shell = screen.shell("sleep 300 & sleep 300")
        await screen.until(lambda news: getattr(news, "run", "") == shell)
        if how == "hang up":
            await screen.hang_up()
        else:
            os.kill(screen.process.pid, getattr(signal, how))
        judge(await screen.gone(), 6)
        async with asyncio.timeout(LIMIT):
            while processes(user.home):
                await asyncio.sleep(0.05)


@pytest.mark.ci
async def test_a_shell_command_streams_its_output_and_can_be_stopped(user: User) -> None:
    has_puppet(user)
    user.env["SHELL"] = "/bin/bash"
    async with engine(user, "--agent", AGENT) as screen:
        run = screen.shell("echo out; echo err >&2; echo ${BASH_VERSION:+bash}; exit 3")
        ended = await screen.ended(run)
        assert (ended.status, ended.message) == ("failed", "exit code 3")
        assert screen.started(run).kind is RunKind.SHELL
        said = "".join(getattr(news, "text", "") for news in screen.of(run))
        assert said == "out\nerr\nbash\n"
        run = screen.shell("yes | head -c 3000000")
        assert (await screen.ended(run)).status == "done"
        said = "".join(getattr(news, "text", "") for news in screen.of(run))
        assert 1_000_000 < len(said) < 1_100_000
        assert "1,951,424 more bytes omitted" in said
        run = screen.shell("echo begun; sleep 300")
        await screen.until(lambda news: getattr(news, "text", "") == "begun\n")
        screen.stop(run)
        assert (await screen.ended(run, limit=10)).status == "interrupted"
        screen.check_ends()


@pytest.mark.ci
async def test_shell_output_is_sent_to_the_agent_once(user: User) -> None:
    agent = recording(
        user,
        call(text("I see."), end("I see."), match=r"\$ echo 4711\n4711"),
        call(text("Plain."), end("Plain."), match="^go on$"),
    )
    async with engine(user, "--agent", agent) as screen:
        assert (await screen.ended(screen.shell("echo 4711"))).status == "done"
        await screen.ask("what was it?")
        await screen.ask("go on")
        assert (screen.text("r2"), screen.text("r3")) == ("I see.", "Plain.")


@pytest.mark.ci
async def test_without_an_agent_the_user_learns_how_to_install_one(user: User) -> None:
    user.has_no_agents()
    async with engine(user) as screen:
        status = await screen.until(lambda news: isinstance(news, StatusChanged) and news.problem != "")
        assert isinstance(status, StatusChanged)
        assert not status.ready
        assert "npm install" in status.problem
        assert "atomic demo" in status.problem
        ended = await screen.ask("hello")
        assert (ended.status, ended.message) == ("failed", status.problem)
        assert (await screen.ask("/help")).status == "done"
    assert not (user.home / ".atomic" / "sessions").exists()


@pytest.mark.ci
async def test_a_failed_turn_reports_why_and_how_to_retry(user: User) -> None:
    agent = recording(user, call(end(reason="error", error="it broke")), call(end(reason="limit", error="429")))
    async with engine(user, "--agent", agent) as screen:
        ended = await screen.ask("one")
        assert ended.status == "failed"
        assert ended.message.startswith("replay: it broke. Send the message again to retry")
        ended = await screen.ask("two")
        assert ended.status == "limit"
        assert ended.message.startswith("replay: 429. Send the message again later")
        assert [event.reason for event in screen.events("r1") if isinstance(event, TurnEnded)] == [EndReason.ERROR]
        assert not any(isinstance(news, QuestionOpened) for news in screen.heard)


@pytest.mark.ci
async def test_an_agent_that_does_not_start_is_an_error(user: User) -> None:
    user.env["ATOMIC_START_SECONDS"] = "10"
    user.sets('[acp.mute]\ncommand = ["sleep", "300"]\n')
    agent_file(user.project / ".atomic", "thinker", "You plan.")
    async with engine(user, "--agent", "acp:mute") as screen:
        crew = screen.submit("@thinker plan it")
        turn = screen.submit("hello")
        for run in (crew, turn):
            ended = await screen.ended(run)
            assert ended.status == "failed"
            assert "within 10 s" in ended.message
        run = screen.submit("and now?")
        await screen.until_type(RunStarted, run=run)
        screen.stop(run)
        assert (await screen.ended(run)).status == "interrupted"
        screen.check_ends()
