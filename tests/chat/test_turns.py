"""Turns of a conversation: their events, questions, stops and failures."""

from __future__ import annotations

import os
import signal
from time import monotonic

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
from tests.chat.engine_client import EngineClient, engine
from tests.support.entity_files import agent as agent_file
from tests.support.fake_acp import AGENT, form, steps, use_fake_acp
from tests.support.timing import judge
from tests.support.user import User, processes
from tests.support.user_workflows import call, end, recording, text
from tests.support.waits import eventually


def question(text: str, *labels: str) -> dict[str, object]:
    return {"text": text, "options": [{"label": label} for label in labels]}


async def wait_for_activity(client: EngineClient, run: str) -> None:
    """Wait for the first event from the agent of a run."""
    await client.until(lambda event: isinstance(event, Activity) and event.run == run)


async def test_a_turn_is_streamed_with_its_tools(user: User) -> None:
    tool = {"type": "tool_started", "id": "1", "name": "Bash", "input": {"command": "ls"}}
    over = {"type": "tool_ended", "id": "1", "output": "x.py"}
    thinking = {"type": "thinking_delta", "text": "hm"}
    usage = {"input": 7, "output": 2, "cost": 0.5}
    agent = recording(user, call(thinking, tool, over, text("All "), text("done."), end("All done.", usage=usage)))
    async with engine(user, "--agent", agent) as client:
        run = client.submit("look around")
        assert (await client.ended(run)).status == "done"
        kinds = [type(event) for event in client.agent_events(run)]
        assert kinds == [ThinkingDelta, ToolStarted, ToolEnded, TextDelta, TextDelta, TurnEnded]
        assert client.text(run) == "All done."
        started = client.started(run)
        assert (started.kind, started.prompt) == (RunKind.TURN, "look around")
        status = await client.until(lambda event: isinstance(event, StatusChanged) and event.usage.input == 7)
        assert isinstance(status, StatusChanged)
        assert (status.usage.cost, status.session != "", status.provider) == (0.5, True, agent)
        client.check_ends()


async def test_commands_and_agents_are_listed_and_help_is_shown(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        listed = await client.until_type(CommandsListed)
        by_name = {command.name: command for command in listed.commands}
        assert {"help", "ralph", "commit"} <= {*by_name}
        assert "loop" in by_name["ralph"].aliases
        assert "--review-rounds N" in by_name["ralph"].argument_hint
        assert "planner" in {agent.name for agent in listed.agents}
        assert (await client.ask("/help")).status == "done"
        assert "/compact" in client.notices("r1")
        assert (await client.ask("/help loop")).status == "done"
        assert "--review-rounds N" in client.notices("r2")
        assert (client.started("r1").kind, client.started("r1").prompt) == (RunKind.COMMAND, "/help")
        wrong = await client.ask("/hlep")
        assert (wrong.status, "/help" in wrong.message) == ("failed", True)
        before = len(client.received)
        skills = user.home / ".claude" / "skills" / "tidy"
        skills.mkdir(parents=True)
        (skills / "SKILL.md").write_text("---\nname: tidy\ndescription: tidy up\n---\nTidy.\n")
        await client.ask("/help tidy")
        listed = await client.until_type(CommandsListed, after=before)
        assert "tidy" in {command.name for command in listed.commands}


async def test_a_question_is_answered_or_dismissed(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit(steps({"ask": form("Which?", "red", "blue")}))
        opened = await client.question()
        assert (opened.run, [option.label for option in opened.question.options]) == (run, ["red", "blue"])
        client.answer(opened.id, "blue")
        assert (await client.ended(run)).status == "done"
        assert '"answer": "blue"' in client.text(run)
        assert await client.until_type(QuestionClosed, id=opened.id) == QuestionClosed(id=opened.id, answers=("blue",))
        for given, expected in ((form("And?", "x", "y"), '"decline"'), (form("Or?", "x", "y", default="y"), '"y"')):
            run = client.submit(steps({"ask": given}))
            opened = await client.question(text=given["message"])
            client.answer(opened.id)
            assert (await client.ended(run)).status == "done"
            assert expected in client.text(run)
        client.check_ends()


async def test_two_open_questions_each_get_their_own_answer(user: User) -> None:
    asked = {"type": "question_asked", "questions": [question("One?", "a", "b"), question("Two?", "c", "d")]}
    agent = recording(user, call(asked, text("Thanks."), end("Thanks.")))
    async with engine(user, "--agent", agent) as client:
        run = client.submit("ask me")
        two = await client.question(text="Two?")
        one = await client.question(text="One?")
        assert one.id != two.id
        client.answer(two.id, "d")
        await client.until_type(QuestionClosed, id=two.id)
        client.answer(two.id, "c")  # too late, has no effect
        client.answer(one.id, "a")
        assert (await client.ended(run)).status == "done"
        assert [event for event in client.received if isinstance(event, QuestionClosed)] == [
            QuestionClosed(id=two.id, answers=("d",)),
            QuestionClosed(id=one.id, answers=("a",)),
        ]


async def test_the_conversation_continues_after_an_interrupted_turn(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit(steps({"say": "now"}, {"wait": True}))
        await wait_for_activity(client, run)
        client.stop(run)
        assert (await client.ended(run)).status == "interrupted"
        assert (await client.ask(steps({"say": "again"}))).status == "done"
        run = client.submit(steps({"ask": form("Which?", "a")}))
        opened = await client.question()
        client.stop(run)
        assert (await client.ended(run)).status == "interrupted"
        await client.until_type(QuestionClosed, id=opened.id)
        client.answer(opened.id, "a")  # too late, has no effect
        assert (await client.ask("/help")).status == "done"
        client.check_ends()


@pytest.mark.timed
async def test_a_forced_stop_ends_an_unresponsive_agent_and_leaves_no_process(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit(steps({"say": "now"}, {"deaf": True}))
        await wait_for_activity(client, run)
        client.stop(run)
        began = monotonic()
        client.stop(run, force=True)
        assert (await client.ended(run)).status == "interrupted"
        judge(monotonic() - began, 1)
        assert (await client.ask(steps({"say": "again"}))).status == "done"
        assert client.text("r2") == "again"
        client.check_ends()
        puppets = [line for line in processes(user.home).values() if "fake_acp.py" in line]
        assert len(puppets) == 1


async def test_a_turn_fails_when_its_agent_dies_and_the_next_one_works(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        assert (await client.ask(steps({"say": "one"}))).status == "done"
        broken = await client.ask(steps({"say": "two"}, {"exit": 3}))
        assert (broken.status, "puppet" in broken.message) == ("failed", True)
        assert (await client.ask(steps({"say": "three"}))).status == "done"
        assert client.text("r3") == "three"
        client.check_ends()


async def test_during_a_turn_commands_run_and_a_second_prompt_is_refused(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit(steps({"say": "now"}, {"wait": True}))
        await wait_for_activity(client, run)
        refused = await client.ask(steps({"say": "me too"}))
        assert (refused.status, "answering" in refused.message) == ("failed", True)
        assert (await client.ask("/help")).status == "done"
        assert "has to wait" in (await client.ask("/compact")).message
        assert "answering" in (await client.ask("/clear")).message
        client.stop(run)
        assert (await client.ended(run)).status == "interrupted"


@pytest.mark.timed
@pytest.mark.parametrize(
    "how",
    ["hang up", *(pytest.param(name, marks=pytest.mark.full) for name in ("SIGTERM", "SIGHUP")), "SIGKILL"],
)
async def test_agents_end_when_the_screen_ends(user: User, how: str) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit(steps({"say": "now"}, {"deaf": True}))
        await wait_for_activity(client, run)
        shell = client.shell("sleep 300 & sleep 300")
        await client.until(lambda event: getattr(event, "run", "") == shell)
        if how == "hang up":
            await client.hang_up()
        else:
            os.kill(client.process.pid, getattr(signal, how))
        judge(await client.gone(), 6)
        await eventually(lambda: not processes(user.home))


@pytest.mark.ci
async def test_a_shell_command_streams_its_output_and_can_be_stopped(user: User) -> None:
    use_fake_acp(user)
    user.env["SHELL"] = "/bin/bash"
    async with engine(user, "--agent", AGENT) as client:
        run = client.shell("echo out; echo err >&2; echo ${BASH_VERSION:+bash}; exit 3")
        ended = await client.ended(run)
        assert (ended.status, ended.message) == ("failed", "exit code 3")
        assert client.started(run).kind is RunKind.SHELL
        output = "".join(getattr(event, "text", "") for event in client.events_of(run))
        assert output == "out\nerr\nbash\n"
        run = client.shell("yes | head -c 3000000")
        assert (await client.ended(run)).status == "done"
        output = "".join(getattr(event, "text", "") for event in client.events_of(run))
        assert 1_000_000 < len(output) < 1_100_000
        assert "1,951,424 more bytes omitted" in output
        run = client.shell("echo begun; sleep 300")
        await client.until(lambda event: getattr(event, "text", "") == "begun\n")
        client.stop(run)
        assert (await client.ended(run)).status == "interrupted"
        client.check_ends()


@pytest.mark.ci
async def test_shell_output_is_sent_to_the_agent_once(user: User) -> None:
    agent = recording(
        user,
        call(text("I see."), end("I see."), match=r"\$ echo 4711\n4711"),
        call(text("Plain."), end("Plain."), match="^go on$"),
    )
    async with engine(user, "--agent", agent) as client:
        assert (await client.ended(client.shell("echo 4711"))).status == "done"
        await client.ask("what was it?")
        await client.ask("go on")
        assert (client.text("r2"), client.text("r3")) == ("I see.", "Plain.")


@pytest.mark.ci
async def test_without_an_agent_the_user_learns_how_to_install_one(user: User) -> None:
    user.has_no_agents()
    async with engine(user) as client:
        status = await client.until(lambda event: isinstance(event, StatusChanged) and event.problem != "")
        assert isinstance(status, StatusChanged)
        assert not status.ready
        assert "npm install" in status.problem
        assert "atomic demo" in status.problem
        ended = await client.ask("hello")
        assert (ended.status, ended.message) == ("failed", status.problem)
        assert (await client.ask("/help")).status == "done"
    assert not (user.home / ".atomic" / "sessions").exists()


@pytest.mark.ci
async def test_a_failed_turn_reports_why_and_how_to_retry(user: User) -> None:
    agent = recording(user, call(end(reason="error", error="it broke")), call(end(reason="limit", error="429")))
    async with engine(user, "--agent", agent) as client:
        ended = await client.ask("one")
        assert ended.status == "failed"
        assert ended.message.startswith("replay: it broke. Send the message again to retry")
        ended = await client.ask("two")
        assert ended.status == "limit"
        assert ended.message.startswith("replay: 429. Send the message again later")
        assert [event.reason for event in client.agent_events("r1") if isinstance(event, TurnEnded)] == [
            EndReason.ERROR
        ]
        assert not any(isinstance(event, QuestionOpened) for event in client.received)


@pytest.mark.ci
async def test_an_agent_that_does_not_start_is_an_error(user: User) -> None:
    user.env["ATOMIC_START_SECONDS"] = "10"
    user.sets('[acp.mute]\ncommand = ["sleep", "300"]\n')
    agent_file(user.project / ".atomic", "thinker", "You plan.")
    async with engine(user, "--agent", "acp:mute") as client:
        sub_agents = client.submit("@thinker plan it")
        turn = client.submit("hello")
        for run in (sub_agents, turn):
            ended = await client.ended(run)
            assert ended.status == "failed"
            assert "within 10 s" in ended.message
        run = client.submit("and now?")
        await client.until_type(RunStarted, run=run)
        client.stop(run)
        assert (await client.ended(run)).status == "interrupted"
        client.check_ends()
