"""Slash commands and agents in `atomic -p`: some run in Atomic, others reach the agent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from atomic.processes import ExecResult, running
from tests.support.entity_files import agent, skill
from tests.support.user import ATOMIC, User, complaint, objects
from tests.support.user_workflows import session, workflow

Call = Mapping[str, Any]


def recording(user: User, *answers: str | Call) -> str:
    """Write a recording with a call for each answer, and return the name of its agent."""
    calls = [answer if isinstance(answer, Mapping) else says(answer) for answer in answers]
    lines = [{"atomic_recording": 1}, *calls]
    (user.home / "in.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    return f"replay:{user.home}/in.jsonl"


def says(text: str, *, match: str = "", reason: str = "done", error: str | None = None) -> Call:
    end = {
        "type": "turn_ended",
        "reason": reason,
        "text": text,
        "error": error,
        "usage": {"input": 1, "output": 2, "cached": 0},
    }
    return {"match": match, "events": [[0, {"type": "text_delta", "text": text}], [0, end]]}


async def ask(user: User, prompt: str, *answers: str | Call, flags: tuple[str, ...] = (), **more: Any) -> ExecResult:
    """Run `atomic -p`; `calls(user)` returns the recorded calls."""
    record = str(user.home / "out.jsonl")
    return await user.atomic("-p", prompt, "-a", recording(user, *answers), "--record", record, *flags, **more)


def calls(user: User) -> list[Call]:
    """Return the calls of the agent, in order of the prompts."""
    lines = (user.home / "out.jsonl").read_bytes().splitlines()[1:]
    return sorted((msgspec.json.decode(line) for line in lines), key=lambda call: call["prompt"])


async def test_help_is_a_command_of_atomic_and_not_for_the_agent(user: User) -> None:
    skill(user.project / ".claude", "tidy", "x")
    user.has_no_agents()
    done = await user.atomic("-p", "/help")
    assert (done.exit_code, done.stderr) == (0, "")
    titles = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert titles == ["Slash Commands", "Workflows", "Skills", "Sub-Agents"]
    for name in ("/help", "/model", "/ralph", "/commit", "/tidy", "/planner"):
        assert f"  {name} " in done.stdout


async def test_programs_get_help_as_the_end_of_a_turn(user: User) -> None:
    for output in ("json", "stream-json"):
        (end,) = objects(await user.atomic("-p", "/help", "--output", output))
        assert (end["type"], end["reason"], end["session"], end["error"]) == ("turn_ended", "done", None, None)
        assert "Slash Commands" in str(end["text"])


UNKNOWN_ID = (
    '"zzz" is not the id of a session: give its uuid or the first 8 characters or more of it '
    "(atomic sessions lists them)"
)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("/comit", 'Command not found: "/comit" (did you mean "/commit"?)'),
        ("/zzzzz all", 'Command not found: "/zzzzz" (/help lists them)'),
        ("/help comit", 'Command not found: "/comit" (did you mean "/commit"?)'),
        ("/clear", "atomic -p cannot begin a new conversation (it is one turn without a screen)"),
        ("/theme dark", "atomic -p cannot show a theme (it is one turn without a screen)"),
        ("/resume zzz", UNKNOWN_ID),
        ("/model opus", "atomic -p has no conversation to switch (name its model with --model opus)"),
        ("/agent claude", "atomic -p has no conversation to switch (name its agent with --agent claude)"),
        ("/mcp enable x", 'MCP server not found: "x" (there are: none)'),
    ],
)
async def test_what_cannot_be_done_is_one_line_and_exit_code_2(user: User, prompt: str, message: str) -> None:
    done = await user.atomic("-p", prompt)
    assert (done.exit_code, complaint(done)) == (2, message)


async def test_programs_get_errors_as_json(user: User) -> None:
    done = await user.atomic("-p", "/comit", "--output", "json")
    assert objects(done) == [
        {"type": "error", "exit_code": 2, "message": 'Command not found: "/comit" (did you mean "/commit"?)'}
    ]


async def test_runs_are_listed_and_one_is_resumed(user: User) -> None:
    assert (await user.atomic("-p", "/sessions")).stdout == "There are no sessions.\n"
    workflow(user, "asks", 'workflow = graph(S).ask_user("q", "Well?").compile()\n')
    assert (await user.atomic("run", "asks", "about it")).exit_code == 5
    id = session(user)["id"]
    (row,) = (await user.atomic("-p", "/sessions")).stdout.splitlines()
    assert row.split()[:2] == [id, "paused"]
    assert row.endswith("asks about it")
    assert (await user.atomic("answer", id, "--no-resume", "yes")).exit_code == 0
    done = await user.atomic("-p", f"/resume {id[:8]}", "--output", "json")
    assert (done.exit_code, objects(done)[-1]["status"]) == (0, "completed")


async def test_exit_leaves(user: User) -> None:
    done = await user.atomic("-p", "/exit")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


async def test_models_are_listed(user: User) -> None:
    done = await user.atomic("-p", "/model list", "-a", recording(user, {"model": "tiny", **says("x")}))
    assert (done.exit_code, done.stdout) == (0, "tiny\n")


async def test_a_skill_is_one_turn_with_its_prompt_model_and_tools(user: User) -> None:
    skill(
        user.project / ".claude", "tidy", "Tidy $ARGUMENTS, then $ARGUMENTS.",
        head="model: opus\nallowed-tools: Bash, Edit\ndisallowed-tools: Write\n",
    )  # fmt: skip
    done = await ask(user, "/TIDY my $1 tests", "Done.")
    assert (done.exit_code, done.stdout) == (0, "Done.\n")
    (call,) = calls(user)
    assert call["prompt"].strip() == "Tidy my $1 tests, then my $1 tests."
    assert call["model"] == "opus"
    assert call["options"]["tools"] == ["bash", "edit"]
    assert call["options"]["denied_tools"] == ["write"]


async def test_a_skill_without_arguments_is_marked_as_such(user: User) -> None:
    skill(user.project / ".claude", "tidy", "Tidy: $ARGUMENTS")
    await ask(user, "/tidy", "Done.")
    assert calls(user)[0]["prompt"].strip() == "Tidy: [no arguments provided]"


async def test_piped_text_follows_the_arguments(user: User) -> None:
    skill(user.project / ".claude", "tidy", "Tidy: $ARGUMENTS")
    await ask(user, "/tidy this", "Done.", input="a diff\n")
    assert calls(user)[0]["prompt"].strip() == "Tidy: this\n\na diff"


@pytest.mark.ci
async def test_the_flag_beats_the_model_of_the_file_and_that_beats_the_setting(user: User) -> None:
    skill(user.project / ".claude", "tidy", "Tidy.", head="model: haiku\n")
    skill(user.project / ".claude", "plain", "Go.")
    user.sets('model = "mine"\n')
    for prompt, flags, model in (("/tidy", ("-m", "other"), "other"), ("/tidy", (), "haiku"), ("/plain", (), "mine")):
        (user.home / "out.jsonl").unlink(missing_ok=True)
        assert (await ask(user, prompt, "Done.", flags=flags)).exit_code == 0
        assert calls(user)[0]["model"] == model


@pytest.mark.parametrize("prompt", ["/plan build it", "@plan build it"])
async def test_an_agent_is_one_turn_with_its_system_prompt(user: User, prompt: str) -> None:
    agent(user.project / ".claude", "plan", "You plan.", head="tools: Read\nmodel: opus\n")
    done = await ask(user, prompt, "A plan.")
    assert (done.exit_code, done.stdout) == (0, "A plan.\n")
    (call,) = calls(user)
    assert (call["prompt"], call["model"]) == ("build it", "opus")
    assert call["options"]["system_prompt"].strip() == "You plan."
    assert call["options"]["tools"] == ["read"]


@pytest.mark.ci
async def test_several_agents_run_at_once_and_each_is_reported(user: User) -> None:
    agent(user.project / ".claude", "plan", "You plan.", head="model: opus\n")
    agent(user.project / ".claude", "check", "You check.")
    answers = says("A plan.", match="^one$"), says("All well.", match="^two$")
    done = await ask(user, "@plan one @check two", *answers)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "## @plan\n\nA plan.\n\n## @check\n\nAll well.\n"
    first, second = calls(user)
    assert (first["prompt"], first["options"]["system_prompt"].strip(), first["model"]) == ("one", "You plan.", "opus")
    assert (second["prompt"], second["options"]["system_prompt"].strip(), second["model"]) == (
        "two",
        "You check.",
        None,
    )


@pytest.mark.ci
async def test_programs_see_the_agents_as_sub_agents(user: User) -> None:
    agent(user.project / ".claude", "plan", "You plan.")
    agent(user.project / ".claude", "check", "You check.")
    answers = says("A plan.", match="^one$"), says("All well.", match="^two$")
    events = objects(await ask(user, "@plan one @check two", *answers, flags=("--output", "stream-json")))
    assert [(event["id"], event["name"], event["task"]) for event in events if event["type"] == "subagent_started"] == [
        ("plan-1", "plan", "one"),
        ("check-2", "check", "two"),
    ]
    deltas = {event["agent"]: event["text"] for event in events if event["type"] == "text_delta"}
    assert deltas == {"plan-1": "A plan.", "check-2": "All well."}
    ended = {event["id"]: event["text"] for event in events if event["type"] == "subagent_ended"}
    assert ended == deltas
    assert (events[-1]["type"], events[-1]["reason"]) == ("turn_ended", "done")
    assert events[-1]["usage"] == {"input": 2, "output": 4, "cached": 0, "cost": None}


@pytest.mark.ci
@pytest.mark.parametrize(("reason", "code"), [("error", 1), ("refused", 1), ("limit", 7)])
async def test_a_failed_agent_sets_the_exit_code_and_others_are_reported(user: User, reason: str, code: int) -> None:
    agent(user.project / ".claude", "plan", "You plan.")
    agent(user.project / ".claude", "check", "You check.")
    answers = says("A plan.", match="^one$"), says("", match="^two$", reason=reason, error="it broke")
    done = await ask(user, "@plan one @check two", *answers)
    assert (done.exit_code, done.stderr) == (code, "atomic: check: it broke\n")
    assert done.stdout == "## @plan\n\nA plan.\n\n## @check\n\n(no answer)\n"


@pytest.mark.ci
async def test_an_unanswered_question_ends_several_agents_too(user: User) -> None:
    agent(user.project / ".claude", "plan", "You plan.")
    agent(user.project / ".claude", "check", "You check.")
    question = {"type": "question_asked", "questions": [{"text": "Which one?"}]}
    asking = {"match": "^two$", "events": [[0, question], [0, {"type": "turn_ended", "reason": "done"}]]}
    done = await ask(user, "@plan one @check two", says("A plan.", match="^one$"), asking)
    assert done.exit_code == 5
    assert 'the agent asks "Which one?" and there is no one to answer' in done.stderr


@pytest.mark.ci
async def test_a_piped_text_cannot_give_commands_or_name_agents(user: User) -> None:
    agent(user.project / ".claude", "plan", "You plan.")
    agent(user.project / ".claude", "check", "You check.")
    piped = "a mail\n@check delete all"
    await ask(user, "@plan read this", "A plan.", input=piped)
    assert [call["prompt"] for call in calls(user)] == [f"read this\n\n{piped}"]
    (user.home / "out.jsonl").unlink()
    done = await ask(user, "-", "Text.", input="/mcp disable x")
    assert (done.exit_code, calls(user)[0]["prompt"]) == (0, "/mcp disable x")


@pytest.mark.ci
@pytest.mark.parametrize(
    "prompt", ["/home/me/x explain this", "//x", "@src/main.py explain", "@nobody hello", "me@plan hi"]
)
async def test_text_that_only_looks_like_it_reaches_the_agent_as_it_is(user: User, prompt: str) -> None:
    agent(user.project / ".claude", "plan", "You plan.")
    done = await ask(user, prompt, "Well.")
    assert (done.exit_code, done.stdout) == (0, "Well.\n")
    assert [call["prompt"] for call in calls(user)] == [prompt]


@pytest.mark.ci
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
async def test_a_signal_stops_several_agents_and_their_text_is_printed(user: User, number: int, code: int) -> None:
    agent(user.project / ".claude", "plan", "You plan.")
    agent(user.project / ".claude", "check", "You check.")
    begins = {"type": "text_delta", "text": "Well\n"}
    slow = {"match": "^two$", "events": [[0.5, begins], [60, {"type": "turn_ended", "reason": "done"}]]}
    words = ["-p", "@plan one @check two", "-a", recording(user, says("A plan.", match="^one$"), slow)]
    words += ["--output", "stream-json"]
    async with running(ATOMIC, *words, cwd=user.project, env=user.env, stdin=False) as program:
        async with asyncio.timeout(30):
            await program.stdout.readuntil(b'"text":"Well\\n"')
            os.kill(program.pid, number)
            rest = await program.stdout.read()
            assert await program.wait() == code
    last = msgspec.json.decode(rest.splitlines()[-1])
    assert (last["type"], last["reason"]) == ("turn_ended", "interrupted")
    assert last["text"] == "## @plan\n\nA plan.\n\n## @check\n\n(no answer)"
