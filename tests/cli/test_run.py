"""`atomic run`, `resume`, `answer`, `stop` and `attach`: their output, files and exit codes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.graph.engine.errors import RunNotFoundError
from atomic.graph.engine.journal import RowKind
from atomic.sessions import SqliteJournal
from tests.support.terminal import in_terminal
from tests.support.timing import judge
from tests.support.user import ATOMIC, User, complaint, cpu_seconds, objects, processes
from tests.support.user_workflows import (
    call,
    end,
    kinds,
    ledger,
    noted,
    recording,
    session,
    sessions,
    started,
    text,
    workflow,
)
from tests.support.waits import HANG

ASK = """
async def first(ctx):
    note("first", ctx.attempt)
    return {"said": [await ctx.deps.turn("say hello")]}

async def last(ctx):
    note("last", ctx.state.outputs["colour"], *ctx.state.said)

node_descriptions = {"first": "Thinking…"}
workflow = (graph(S).node("first", first)
    .ask_user("colour", "Which colour?", options=["red", "blue"]).node("last", last).compile())
"""
SAY = """
node_descriptions = {"say": "Saying…"}

async def say(ctx):
    return {"said": [await ctx.deps.turn("[atomic role=worker task=3 attempt=1]\\nhi")]}

workflow = graph(S).node("say", say).compile()
"""
HELLO = call(text("Hello "), text("you.\n"), end("Hello you.", usage={"input": 10, "output": 5, "cost": 0.25}))
SLOW = """
async def work(ctx):
    note("begin", ctx.node_id, ctx.attempt)
    await ctx.deps.turn("work on " + ctx.node_id)
    note("end", ctx.node_id)

branches = {name: node(name, work) for name in ("one", "two", "three")}
workflow = graph(S).node("before", lambda_before).parallel(branches).compile()
""".replace(
    "branches =",
    "async def lambda_before(ctx):\n    note('before')\n\nbranches =",
)

LINGER = """
async def linger():
    await asyncio.sleep(0.1)  # until a second signal is a second keypress
    note("stopping")
    await asyncio.sleep(9)
"""


def slow_call(seconds: float) -> dict[str, Any]:
    return call(*[text(".\n") for _ in range(int(seconds * 20))], end("done."), pause=0.05)


async def test_a_run_prints_its_events_as_json_lines(user: User) -> None:
    workflow(user, "hello", SAY)
    agent = recording(user, {**HELLO, "role": "worker", "task": "3"})
    done = await user.atomic("run", "hello", "-a", agent, "--json", "the", "prompt", "--with", "dashes")
    events: list[Any] = [*objects(done)]
    assert (done.exit_code, done.stderr) == (0, "")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len({event["run"] for event in events}) == 1
    first, started_node, *activity, ended_node, last = events
    assert (first["type"], first["workflow"], first["prompt"], first["resumed"]) == (
        "run_started", "hello", "the prompt --with dashes", False,
    )  # fmt: skip
    assert first["session_dir"] == str(sessions(user)[0])
    step = {"node": "say", "step_id": f"{first['run']}:say#1", "attempt": 1, "description": "Saying…"}
    assert started_node.items() >= {"type": "node_started", **step}.items()
    assert ended_node.items() >= {"type": "node_ended", **step, "status": "completed", "error": None}.items()
    assert {(event["node"], event["task"], event["role"]) for event in activity} == {("say", "3", "worker")}
    assert activity[-1]["event"]["type"] == "turn_ended"
    assert last.items() >= {"type": "run_ended", "status": "completed", "reason": "done", "exit_code": 0}.items()


async def test_output_of_a_workflow_is_not_mixed_with_json_lines(user: User) -> None:
    code = """
def loud():
    print("printed")
    os.system("echo by a child")
    os.write(1, b"written\\n")

def create_state(params):
    print("created")
    return S()

workflow = graph(S).tool("loud", run=loud).compile()
"""
    workflow(user, "loud", code)
    done = await user.atomic("run", "loud", "--json")
    assert [event["type"] for event in objects(done)] == ["run_started", "node_started", "node_ended", "run_ended"]
    assert sorted(done.stderr.splitlines()) == ["by a child", "created", "printed", "written"]


TOOL = "workflow = graph(S).tool('t', run=note).compile()\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def create_state(params):\n    return params.config['nope']", "create_state failed: {}:16: KeyError: 'nope'"),
        ("def create_state(params):\n    raise SystemExit(2)", "create_state failed: {}:16: SystemExit: 2"),
        ("def create_state(params): pass", "create_state failed: {}:15: it returned nothing, not a state"),
        ("def create_state(params):\n    raise AtomicError('no way')", "create_state failed: {}:16: no way"),
        (
            "def create_state(params):\n    return {'promt': 'x'}",
            (
                "create_state failed: {}:15: it returned a state that does not fit: promt: "
                'S has no such field (did you mean "prompt"?)'
            ),
        ),
        (
            "def create_state(params):\n    return S(prompt=3)",
            "create_state failed: {}:15: it returned a state that does not fit: prompt: Expected `str`, got `int`",
        ),
    ],
)
async def test_an_error_in_create_state_names_file_and_line(user: User, code: str, message: str) -> None:
    workflow(user, "flow", f"{TOOL}{code}\n")
    done = await user.atomic("run", "flow", "--json")
    last = objects(done)[-1]
    file = user.home / ".atomic" / "workflows" / "flow.py"
    assert (last["type"], last["reason"], last["message"]) == ("run_ended", "error", message.format(file))
    assert (done.exit_code, session(user)["status"]) == (1, "failed")


async def test_an_error_in_check_start_names_file_and_line(user: User) -> None:
    workflow(user, "flow", f"{TOOL}def check_start(params): raise SystemExit(4)\n")
    done = await user.atomic("run", "flow")
    file = user.home / ".atomic" / "workflows" / "flow.py"
    assert (done.exit_code, complaint(done)) == (1, f"check_start failed: {file}:15: SystemExit: 4")
    assert sessions(user) == []


@pytest.mark.parametrize(
    ("folder", "calls"), [("tools", "custom_tool('c', tool='count')"), ("workflows", "subgraph('s', 'count')")]
)
async def test_a_user_workflow_cannot_call_workflows_of_an_untrusted_project(
    user: User, folder: str, calls: str
) -> None:
    workflow(user, "flow", f"workflow = graph(S).{calls}.compile()")
    file = user.project / ".atomic" / folder / "count.py"
    file.parent.mkdir(parents=True)
    file.write_text('def count():\n    """Count."""\nopen("ledger.txt", "w").close()\n')
    done = await user.atomic("run", "flow")
    assert (done.exit_code, f".atomic/{folder}/count.py" in complaint(done)) == (4, True)
    assert (sessions(user), ledger(user)) == ([], [])


async def test_a_run_in_a_pipe_prints_plain_lines(user: User) -> None:
    workflow(user, "ask", ASK)
    done = await user.atomic("run", "ask", "-a", recording(user, HELLO), "go")
    id = sessions(user)[0].name
    assert done.exit_code == 5
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"Session: {id}", "Thinking…", "[first] Hello you.", "? Which colour?", "  1. red", "  2. blue",
        f'atomic: paused: waits for an answer to "Which colour?": atomic answer {id} "ANSWER"',
        f'Resume with: atomic answer {id} "ANSWER"',
    ]  # fmt: skip


async def test_a_workflow_is_a_slash_command(user: User) -> None:
    workflow(user, "ask", ASK)
    agent = recording(user, HELLO)
    done = await user.atomic("-p", "/ask go on", "-a", agent)
    id = sessions(user)[0].name
    assert (done.exit_code, done.stderr.splitlines()[:3]) == (5, [f"Session: {id}", "Thinking…", "[first] Hello you."])
    assert session(user)["prompt"] == "go on"
    done = await user.atomic("-p", "/ask again", "-a", agent, "--output", "stream-json")
    assert (done.exit_code, objects(done)[-1]["reason"]) == (5, "question")


async def test_a_workflow_without_a_graph_sends_its_prompt_to_one_turn(user: User) -> None:
    workflow(user, "talk", "")
    done = await user.atomic("run", "talk", "-a", recording(user, call(end("Hi."), match="^hey$")), "hey")
    assert (done.exit_code, done.stdout, "[chat] Hi." in done.stderr) == (0, "Hi.\n", True)
    assert (session(user)["status"], session(user)["reason"]) == ("chat", "done")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nowhere", "x"), 2, 'Workflow not found: "nowhere"'),
        (("hello", "-a", "cluade", "x"), 2, 'Unknown agent: "cluade" (did you mean "claude"?)'),
        (("hello", "--max-cost", "much"), 2, '--max-cost cannot be "much": give dollars, such as 2.50'),
        (
            ("hello", "--max-time", "-1"),
            2,
            '--max-time cannot be "-1": a negative value is not allowed (--max-time TIME)',
        ),
        (("hello", "--agent", "worker="), 2, '--agent cannot be "worker=": give NAME, or ROLE=NAME'),
        (("broken", "x"), 2, 'Workflow "broken" cannot be loaded'),
        (("lost", "x"), 2, 'lost.py:14: s: there is no workflow "helo" (did you mean "hello"?)'),
        (("calls", "x"), 2, 'Workflow "broken" cannot be loaded'),
        (("calls-lost", "x"), 2, 'there is no workflow "helo"'),
        (("toolless", "x"), 2, 'toolless.py:14: c: Tool not found: "count" (there are: none)'),
        (("hello", "--recrod", "x"), 2, 'Unknown flag: "--recrod" (did you mean "--record"?)'),
    ],
)
async def test_a_refused_run_leaves_no_session(user: User, words: tuple[str, ...], code: int, message: str) -> None:
    workflow(user, "hello", "workflow = graph(S).tool('t', run=note).compile()")
    workflow(user, "broken", "import nothing_like_that\n")
    for name, called in (("lost", "helo"), ("calls", "broken"), ("calls-lost", "lost")):
        workflow(user, name, f"workflow = graph(S).tool('t', run=note).subgraph('s', '{called}').compile()")
    workflow(user, "toolless", "workflow = graph(S).tool('t', run=note).custom_tool('c', tool='count').compile()")
    done = await user.atomic("run", *words)
    assert (done.exit_code, message in complaint(done)) == (code, True)
    assert sessions(user) == []
    if not any(part in message for part in ("Unknown flag", "needs a value", "a negative value")):
        done = await user.atomic("run", words[0], "--json", *words[1:])
        (said,) = objects(done)
        assert (said["type"], said["exit_code"], done.exit_code) == ("error", code, code)
        assert message in str(said["message"])


async def test_an_unknown_agent_in_the_environment_is_refused_before_the_run(user: User) -> None:
    workflow(user, "talk", "")
    user.env["ATOMIC_AGENT"] = "cluade"
    done = await user.atomic("run", "talk", "x")
    told = 'Unknown agent: "cluade" (did you mean "claude"?), set by ATOMIC_AGENT or the configuration'
    assert (done.exit_code, complaint(done), sessions(user)) == (2, told, [])


async def test_only_the_user_can_read_the_files_of_a_run(user: User) -> None:
    workflow(user, "ask", ASK)
    await user.atomic("run", "ask", "-a", recording(user, HELLO), "go")
    (folder,) = sessions(user)
    for path in (folder.parent, folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert {path.name for path in folder.iterdir()} >= {"session.json", "journal.db", "logs"}
    said = session(user)
    assert said["cost"] == {"usd": 0.25, "input_tokens": 10, "output_tokens": 5}
    assert said["owner"] is None
    assert {name: said["questions"][0][name] for name in ("id", "text", "options", "node")} == {
        "id": "colour", "text": "Which colour?", "options": ["red", "blue"], "node": "colour",
    }  # fmt: skip
    (line,) = (folder / "logs" / "agent-calls.jsonl").read_bytes().splitlines()
    made = msgspec.json.decode(line)
    assert {"time", "node", "task", "role", "provider", "model", "prompt", "reason", "usage", "seconds"} <= made.keys()
    assert (made["node"], made["prompt"], made["reason"], made["usage"]["cost"]) == ("first", "say hello", "done", 0.25)


async def test_a_question_is_answered_days_later_by_another_process(user: User) -> None:
    workflow(user, "ask", ASK)
    agent = recording(user, HELLO)
    done = await user.atomic("run", "ask", "-a", agent, "go")
    assert (done.exit_code, session(user)["status"], session(user)["reason"]) == (5, "paused", "question")
    id = session(user)["id"]
    done = await user.atomic("answer", id[:8], "--json", "2", cwd=user.home)
    assert (done.exit_code, kinds([*objects(done)])[-1]) == (0, "run_ended")
    assert ledger(user) == ["first 1", "last blue Hello you."]
    assert (session(user)["status"], session(user)["questions"]) == ("completed", [])
    done = await user.atomic("answer", id, "red")
    assert (done.exit_code, complaint(done)) == (2, '"Which colour?" is answered already: blue')


async def test_the_printed_answer_command_works_in_any_shell(user: User) -> None:
    code = """
async def each(ctx):
    await ctx.ask(Question(f"{ctx.item}?"))

workflow = graph(S).map("all", over=lambda s: ["x", "y"], node=node("each", each)).compile()
"""
    workflow(user, "ask", code)
    done = await user.atomic("run", "ask", "go")
    id = session(user)["id"]
    assert f"atomic answer {id} 'each[0]-1' \"ANSWER\"" in done.stderr
    assert f"atomic answer {id} 'each[0]-1' \"…\"" in (await user.atomic("sessions", "show", id)).stdout


GROUPS = """
async def work(ctx):
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(ctx.ask(Question("Which colour?", id="colour")))
        said = group.create_task(ctx.deps.turn("say hello"))
    note(asked.result(), said.result())

async def cut(ctx):
    helper = asyncio.create_task(asyncio.sleep(1000))
    asyncio.get_running_loop().call_soon(helper.cancel)
    await helper

workflow = graph(S).node("work", work).parallel([node("cut", cut)]).compile()
"""


@pytest.mark.ci
async def test_a_run_always_prints_its_end(user: User) -> None:
    """A question or a cap inside a task group of a node pauses the run; a cancelled helper of a node is a failure."""
    workflow(user, "groups", GROUPS)
    agent = recording(user, HELLO)
    done = await user.atomic("run", "groups", "--json", "-a", agent, "go")
    last = objects(done)[-1]
    assert (done.exit_code, last["type"], last["reason"]) == (5, "run_ended", "question"), done.stderr
    id = session(user)["id"]
    done = await user.atomic("answer", id, "--json", "-a", agent, "blue")
    last = objects(done)[-1]
    assert (done.exit_code, last["type"], last["status"], last["reason"]) == (1, "run_ended", "failed", "error")
    assert "cut: CancelledError: something that the node waited for was cancelled" in str(last["message"])
    assert ledger(user) == ["blue Hello you."]


async def test_a_cap_inside_a_task_group_pauses_the_run(user: User) -> None:
    code = """
async def work(ctx):
    for _ in range(2):
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.deps.turn("say hello"))

workflow = graph(S).node("work", work).compile()
"""
    workflow(user, "groups", code)
    done = await user.atomic("run", "groups", "--json", "-a", recording(user, HELLO, HELLO), "--max-cost", "0.2", "go")
    last = objects(done)[-1]
    assert (done.exit_code, last["type"], last["reason"]) == (6, "run_ended", "max_cost"), done.stderr


@pytest.mark.ci
async def test_the_same_answer_may_be_given_twice(user: User) -> None:
    code = """
async def both(ctx):
    name, age = await asyncio.gather(ctx.ask(Question("Name?", id="name")), ctx.ask(Question("Age?", id="age")))
    note(name, age)

workflow = graph(S).node("both", both).compile()
"""
    workflow(user, "ask", code)
    assert (await user.atomic("run", "ask", "go")).exit_code == 5
    id = session(user)["id"]
    assert [question["id"] for question in session(user)["questions"]] == ["name", "age"]
    for _ in range(2):
        assert (await user.atomic("answer", id, "--no-resume", "age", "42")).exit_code == 0
    for _ in range(2):
        assert (await user.atomic("answer", id, "age", "42")).exit_code == 5
        assert [question["id"] for question in session(user)["questions"]] == ["name"]
    done = await user.atomic("answer", id, "age", "43")
    assert (done.exit_code, complaint(done)) == (2, '"Age?" is answered already: 42')
    for _ in range(2):
        assert (await user.atomic("answer", id, "name", "Bob")).exit_code == 0
    assert ledger(user) == ["Bob 42"]


@pytest.mark.ci
async def test_a_refused_answer_is_not_recorded(user: User) -> None:
    code = 'class T(S):\n    old: int = 1\n\nworkflow = graph(T).ask_user("q", "Well?").compile()\n'
    workflow(user, "grow", f"state_version = 1\n{code}")
    assert (await user.atomic("run", "grow")).exit_code == 5
    newer = f"state_version = 2\n{code.replace('old', 'new')}"
    workflow(user, "grow", newer)
    id = session(user)["id"]
    done = await user.atomic("answer", id, "yes")
    assert (done.exit_code, "give migrate_state" in done.stderr, session(user)["state_version"]) == (1, True, 1)
    assert done.stderr.splitlines()[-1] == "atomic: the answer was not recorded"
    workflow(
        user, "grow", f"{newer}\ndef migrate_state(old, version):\n    return {{'prompt': old['prompt'], 'new': 2}}\n"
    )
    assert (await user.atomic("resume", id)).exit_code == 5
    assert (await user.atomic("answer", id, "yes")).exit_code == 0
    assert (session(user)["status"], session(user)["state_version"]) == ("completed", 2)


@pytest.mark.ci
async def test_a_finished_node_that_was_renamed_continues_when_the_file_says_so(user: User) -> None:
    code = (
        'workflow = graph(S).tool("build", lambda: "built").ask_user("q", "Well?").tool("ship", lambda: 1).compile()\n'
    )
    workflow(user, "grow", code)
    assert (await user.atomic("run", "grow")).exit_code == 5
    id = session(user)["id"]
    newer = code.replace('"build"', '"make"').replace('"q"', '"ready"')
    workflow(user, "grow", newer)
    done = await user.atomic("resume", id)
    assert (done.exit_code, 'renamed={"build": "its new id"}' in complaint(done)) == (1, True)
    workflow(user, "grow", f'renamed = {{"build": "make", "q": "ready"}}\n{newer}')
    done = await user.atomic("answer", id, "q", "yes")
    assert (done.exit_code, session(user)["status"]) == (0, "completed"), complaint(done)


@pytest.mark.ci
async def test_a_repeated_question_needs_a_new_answer(user: User) -> None:
    code = """
async def heard(ctx):
    note(ctx.output_of("q"))
    return {"said": ["x"]}

body = graph(S).ask_user("q", "Well?").node("heard", heard)
workflow = graph(S).loop(body, until=lambda s: len(s.said) > 1).compile()
"""
    workflow(user, "twice", code)
    assert (await user.atomic("run", "twice")).exit_code == 5
    id = session(user)["id"]
    secret = "sk-ant-api03-abcdefgh12345678"
    assert (await user.atomic("answer", id, secret)).exit_code == 5
    assert (await user.atomic("resume", id)).exit_code == 5
    assert (await user.atomic("answer", id, "two")).exit_code == 0
    assert ledger(user) == [secret, "two"]


@pytest.mark.ci
async def test_a_saved_answer_is_used_by_the_next_resume(user: User) -> None:
    workflow(user, "ask", ASK)
    await user.atomic("run", "ask", "-a", recording(user, HELLO), "go")
    id = session(user)["id"]
    assert (await user.atomic("answer", id, "--no-resume", "colour", "green")).exit_code == 0
    assert ledger(user) == ["first 1"]
    assert (await user.atomic("resume", id)).exit_code == 0
    assert ledger(user)[-1] == "last green Hello you."


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("3",), "No answer 3: they are numbered 1 to 2."),
        (("size", "2"), 'There is no open question "size" (open: colour: "Which colour?")'),
        (("",), "Please type an answer: there is no default."),
        (("1,2",), 'This question takes one answer, not "1,2"; choose one of: 1. red, 2. blue.'),
        (("colour", "red, blue"), 'This question takes one answer, not "red, blue"; choose one of: 1. red, 2. blue.'),
    ],
)
async def test_an_answer_without_a_question_is_refused(user: User, words: tuple[str, ...], message: str) -> None:
    workflow(user, "ask", ASK)
    await user.atomic("run", "ask", "-a", recording(user, HELLO), "go")
    done = await user.atomic("answer", session(user)["id"], *words)
    assert (done.exit_code, complaint(done)) == (2, message)
    assert session(user)["status"] == "paused"


@pytest.mark.ci
async def test_a_user_at_a_terminal_is_asked_at_once(user: User) -> None:
    workflow(user, "ask", ASK)
    words = [ATOMIC, "run", "ask", "-a", recording(user, HELLO), "go"]
    async with in_terminal(words, env={**user.env, "TERM": "xterm"}, cwd=user.project) as terminal:
        await terminal.shows("number, or an answer of your own> ")
        terminal.type("1\n")
        assert await terminal.exit_code() == 0
    assert ledger(user)[-1] == "last red Hello you."


@pytest.mark.ci
async def test_with_two_open_questions_the_prompt_shows_which_one_it_asks(user: User) -> None:
    code = """
branches = {"a": ask_user_node("size", "Which size?"), "b": ask_user_node("colour", "Which colour?")}
async def last(ctx):
    note(ctx.state.outputs["size"], ctx.state.outputs["colour"])
workflow = graph(S).parallel(branches).node("last", last).compile()
"""
    workflow(user, "ask", code)
    words = [ATOMIC, "run", "ask", "go"]
    async with in_terminal(words, env={**user.env, "TERM": "xterm"}, cwd=user.project) as terminal:
        await terminal.shows("? Which size?\nanswer> ")
        terminal.type("big\n")
        await terminal.shows("? Which colour?\nanswer> ")
        terminal.type("red\n")
        assert await terminal.exit_code() == 0
    assert ledger(user) == ["big red"]


@pytest.mark.ci
async def test_a_terminal_shows_running_steps_and_no_control_characters(user: User) -> None:
    workflow(user, "slow", SLOW)
    evil = "\x1b[2J\x1b]0;owned\x07gone"
    tool = {"type": "tool_started", "id": "1", "name": "Bash", "input": {"command": f"ls {evil}"}}
    agent = recording(user, *[call(tool, text("."), end(f"All {evil}."), pause=0.8)] * 3)
    words = [ATOMIC, "run", "slow", "-a", agent, "x"]
    async with in_terminal(words, env={**user.env, "TERM": "xterm"}, cwd=user.project) as terminal:
        await terminal.shows("  two ")
        await terminal.shows("s · Bash ls ␛[2J␛]0;owned␇gone")
        await terminal.shows("[two] All ␛[2J␛]0;owned␇gone.")
        assert await terminal.exit_code() == 0
    assert "\x1b[2J" not in terminal.screen
    assert "\x1b[4A\r\x1b[J" in terminal.screen  # three agents and the sum are painted again


@pytest.mark.ci
async def test_an_agents_question_pauses_the_run_and_the_answer_reaches_the_next_turn(user: User) -> None:
    workflow(user, "talk", "")
    asked = {"type": "question_asked", "questions": [{"text": "Tabs or blanks?", "options": [{"label": "Tabs"}]}]}
    agent = recording(user, call(asked, end("Blanks then."), match="Tabs or blanks"), call(asked, end("Well.")))
    done = await user.atomic("run", "talk", "-a", agent, "format it")
    assert (done.exit_code, session(user)["reason"]) == (5, "question")
    done = await user.atomic("answer", session(user)["id"], "blanks")
    assert (done.exit_code, done.stdout) == (0, "Blanks then.\n")


@pytest.mark.ci
async def test_a_run_resumes_only_with_the_code_that_was_trusted_at_its_start(user: User) -> None:
    workflow(user, "ask", ASK)
    file = user.project / ".atomic" / "workflows" / "ask.py"
    file.parent.mkdir(parents=True)
    file.write_bytes((user.home / ".atomic" / "workflows" / "ask.py").read_bytes())
    agent = recording(user, HELLO)
    done = await user.atomic("run", "ask", "-a", agent, "go")
    assert (done.exit_code, sessions(user)) == (4, [])
    shown = msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)
    done = await user.atomic("run", "ask", "-a", agent, "--trust", shown["hash"], "go")
    assert done.exit_code == 5
    trusted = file.read_text()
    file.write_text(trusted + "note('a stranger')\n")
    done = await user.atomic("answer", session(user)["id"], "1")
    assert (done.exit_code, session(user)["status"], ledger(user)) == (4, "paused", ["first 1"])
    file.write_text(trusted)
    assert (await user.atomic("answer", session(user)["id"], "1")).exit_code == 0
    assert ledger(user) == ["first 1", "last red Hello you."]


CHANGE = """
async def change(ctx):
    await ctx.deps.turn("first")
    open(".mcp.json", "w").write('{"more": 1}')
    note("changed", await ctx.deps.turn("second"))

async def last(ctx):
    note(await ctx.deps.turn("last"))

workflow = graph(S).node("change", change).node("last", last).compile()
"""


def in_the_project(user: User, name: str) -> Path:
    """Move a workflow of the user into the project, where it needs trust."""
    file = user.project / ".atomic" / "workflows" / f"{name}.py"
    file.parent.mkdir(parents=True)
    (user.home / ".atomic" / "workflows" / f"{name}.py").rename(file)
    return file


async def trust_all(user: User) -> None:
    shown = msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)
    assert (await user.atomic("trust", shown["hash"])).exit_code == 0


@pytest.mark.ci
async def test_a_killed_run_resumes_with_its_own_changes_only(user: User) -> None:
    workflow(user, "change", CHANGE)
    in_the_project(user, "change")
    made = user.project / ".mcp.json"
    await trust_all(user)
    agent = recording(user, call(end("1"), match="first"), call(end("2"), match="second"), slow_call(60))
    async with started(user, "run", "change", "-a", agent, "--json", "x") as run:
        await run.until("node_started", node="last")
        async with asyncio.timeout(30):
            while not session(user)["trust"]["own"]:  # another process writes it
                await asyncio.sleep(0.05)
        run.signal(signal.SIGKILL)
        await run.process.wait()
    id = run.events[0]["run"]
    recording(user, call(end("3"), match="last"))
    made.write_text('{"by a stranger": 1}')
    assert (await user.atomic("resume", id)).exit_code == 4
    made.write_text('{"more": 1}')
    (user.project / ".vscode").mkdir()
    (user.project / ".vscode" / "mcp.json").write_text("{}")
    assert (await user.atomic("resume", id)).exit_code == 4
    (user.project / ".vscode" / "mcp.json").unlink()
    done = await user.atomic("resume", id)
    assert (done.exit_code, ledger(user)) == (0, ["changed 2", "3"])


@pytest.mark.ci
async def test_a_resume_uses_the_workflow_of_the_start(user: User) -> None:
    """Whatever an agent or a `git pull` has put in its place since, also in a project that is trusted."""
    (user.project / ".mcp.json").write_text("{}")
    await trust_all(user)
    workflow(user, "change", CHANGE)
    agent = recording(user, call(end("1"), match="first"), call(end("2"), match="second"), slow_call(60))
    async with started(user, "run", "change", "-a", agent, "--json", "x") as run:
        await run.until("node_started", node="last")
        run.signal(signal.SIGKILL)
        await run.process.wait()
    id = run.events[0]["run"]
    kept = session(user)
    assert (kept["workflow_source"], len(kept["workflow_sha256"])) == ("user", 64)
    recording(user, call(end("3"), match="last"))
    evil = user.project / ".atomic" / "workflows" / "change.py"
    evil.parent.mkdir(parents=True)
    evil.write_text("open('evil', 'w').close()\n" + (user.home / ".atomic/workflows/change.py").read_text())
    done = await user.atomic("resume", id)
    assert (done.exit_code, ledger(user)) == (0, ["changed 2", "3"])
    assert not (user.project / "evil").exists()
    (user.home / ".atomic" / "workflows" / "change.py").unlink()
    done = await user.atomic("resume", id)
    assert (done.exit_code, "restore it" in done.stderr) == (2, True)
    assert not (user.project / "evil").exists()


@pytest.mark.ci
async def test_changes_of_others_to_an_untrusted_project_are_not_saved_as_the_runs_own(user: User) -> None:
    workflow(user, "ask", ASK)
    hooks = user.project / ".mcp.json"
    hooks.write_text('{"mcpServers": {}}')
    await trust_all(user)
    agent = recording(user, HELLO)
    assert (await user.atomic("run", "ask", "-a", agent, "go")).exit_code == 5
    hooks.write_text('{"mcpServers": {"evil": {"command": "x"}}}')
    done = await user.atomic("answer", session(user)["id"], "1")
    assert (done.exit_code, session(user)["status"]) == (0, "completed")
    assert session(user)["trust"]["own"] == {}


@pytest.mark.ci
async def test_stop_pauses_the_run_like_ctrl_c_and_it_can_be_resumed(user: User) -> None:
    workflow(user, "slow", SLOW)
    agent = recording(user, *[slow_call(60)] * 3, *[call(end("done."))] * 3)
    async with started(user, "run", "slow", "-a", agent, "--json", "x") as run:
        await run.until("agent_activity")
        id = run.events[0]["run"]
        done = await user.atomic("stop", id)
        assert (done.exit_code, "paused" in done.stderr) == (0, True)
        assert await run.over() == 130
    last = run.events[-1]
    assert (last["type"], last["status"], last["resume"]) == ("run_ended", "paused", f"atomic resume {id}")
    (user.home / "agents.jsonl").write_bytes(
        b"\n".join(map(msgspec.json.encode, [{"atomic_recording": 1}, *[call(end("done."))] * 3]))
    )
    assert (await user.atomic("resume", id)).exit_code == 0
    assert sorted(line for line in ledger(user) if "end" in line) == ["end one", "end three", "end two"]
    assert ledger(user).count("before") == 1


@pytest.mark.ci
async def test_stop_cancel_ends_a_run_for_good(user: User) -> None:
    workflow(user, "slow", SLOW)
    async with started(user, "run", "slow", "-a", recording(user, *[slow_call(60)] * 3), "--json", "x") as run:
        await run.until("agent_activity")
        assert (await user.atomic("stop", "--cancel", run.events[0]["run"])).exit_code == 0
        assert await run.over() == 130
    assert (run.events[-1]["status"], run.events[-1]["resume"], session(user)["status"]) == (
        "cancelled",
        "",
        "cancelled",
    )
    id = session(user)["id"]
    (user.home / ".atomic" / "sessions" / id / "session.json").unlink()
    done = await user.atomic("resume", id)
    assert (done.exit_code, f"Run {id} was cancelled for good" in done.stderr) == (2, True)


@pytest.mark.ci
async def test_a_cancelled_run_without_an_owner_has_no_open_questions(user: User) -> None:
    workflow(user, "ask", ASK)
    await user.atomic("run", "ask", "-a", recording(user, HELLO), "go")
    assert (await user.atomic("stop", "--cancel", session(user)["id"])).exit_code == 0
    assert (session(user)["status"], session(user)["questions"]) == ("cancelled", [])
    assert (await user.atomic("answer", session(user)["id"], "red")).exit_code == 2
    assert session(user)["status"] == "cancelled"


@pytest.mark.ci
async def test_a_cancelled_run_is_not_resumed(user: User) -> None:
    workflow(user, "ask", ASK)
    await user.atomic("run", "ask", "-a", recording(user, HELLO), "go")
    id = session(user)["id"]
    said = f"Run {id} was cancelled for good (atomic stop --cancel), so it does not continue; start a new run: "
    assert (await user.atomic("stop", "--cancel", id)).exit_code == 0
    before = ledger(user)
    record = session(user)
    done = await user.atomic("resume", id)
    assert (done.exit_code, done.stderr) == (2, f"atomic: {said}atomic run ask …\n")
    done = await user.atomic("resume", "--json", id)
    assert (done.exit_code, msgspec.json.decode(done.stdout)["message"]) == (2, f"{said}atomic run ask …")
    assert (ledger(user), session(user)) == (before, record)


@pytest.mark.ci
async def test_attach_shows_the_run_of_another_terminal_to_its_end(user: User) -> None:
    workflow(user, "slow", SLOW)
    async with started(user, "run", "slow", "-a", recording(user, *[slow_call(2)] * 3), "--json", "x") as run:
        await run.until("agent_activity")
        async with started(user, "attach", run.events[0]["run"][:8], "--json") as watching:
            assert await watching.over() == 0
        assert await run.over() == 0
    assert kinds(watching.events)[0] == "run_started"
    assert kinds(watching.events)[-1] == "run_ended"
    assert [e for e in kinds(watching.events) if "node" in e] == [e for e in kinds(run.events) if "node" in e]


@pytest.mark.ci
async def test_attach_shows_events_written_after_the_owner_left(user: User) -> None:
    workflow(user, "hello", SAY)
    await user.atomic("run", "hello", "-a", recording(user, {**HELLO, "role": "worker", "task": "3"}), "x")
    log = sessions(user)[0] / "logs" / "events.jsonl"
    *lines, last = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines))  # session.json has no owner already
    async with started(user, "attach", sessions(user)[0].name, "--json") as watching:
        await watching.until("node_ended")
        with log.open("ab") as file:
            file.write(last)
        assert await watching.over() == 0
    assert kinds(watching.events)[-1] == "run_ended"


async def test_attach_reports_that_a_paused_run_was_cancelled(user: User) -> None:
    workflow(user, "asks", "workflow = graph(S).ask_user('q', 'Which?', options=['a', 'b']).compile()\n")
    assert (await user.atomic("run", "asks", "x")).exit_code == 5
    id = sessions(user)[0].name
    assert (await user.atomic("stop", id, "--cancel")).exit_code == 0
    done = await user.atomic("attach", id)
    assert done.exit_code == 130
    assert "cancelled" in done.stderr
    assert "atomic answer" not in done.stdout + done.stderr
    last = msgspec.json.decode((await user.atomic("attach", id, "--json")).stdout.splitlines()[-1])
    assert (last["type"], last["status"], last["exit_code"], last["resume"]) == ("run_ended", "cancelled", 130, "")


@pytest.mark.ci
async def test_attach_reports_a_killed_owner(user: User) -> None:
    workflow(user, "slow", SLOW)
    async with started(user, "run", "slow", "-a", recording(user, *[slow_call(60)] * 3), "--json", "x") as run:
        await run.until("agent_activity")
        async with started(user, "attach", run.events[0]["run"]) as watching:
            assert watching.process.stderr is not None
            await asyncio.wait_for(watching.process.stderr.readuntil(b"\n"), HANG)  # it shows the events
            run.signal(signal.SIGKILL)
            _, said = await asyncio.wait_for(watching.process.communicate(), HANG)
    assert watching.process.returncode == 1
    assert f"atomic resume {run.events[0]['run']}" in said.decode()


@pytest.mark.ci
async def test_a_run_has_one_owner_process(user: User) -> None:
    workflow(user, "slow", SLOW)
    async with started(user, "run", "slow", "-a", recording(user, *[slow_call(60)] * 3), "--json", "x") as run:
        await run.until("agent_activity")
        before = session(user)
        done = await user.atomic("resume", run.events[0]["run"], "--json")
        (said,) = objects(done)
        assert (done.exit_code, said["exit_code"]) == (3, 3)
        assert str(run.process.pid) in str(said["message"])
        assert session(user)["owner"] == before["owner"]
        run.signal(signal.SIGINT)
        assert await run.over() == 130


@pytest.mark.ci
async def test_an_answer_reaches_a_running_process(user: User) -> None:
    code = ASK.replace(
        "workflow =", "async def slow(ctx):\n    await asyncio.sleep(4)\n    note('slow')\n\nworkflow ="
    ).replace('.node("first", first)', '.node("first", first).parallel({"q": graph(S)').replace(
        'options=["red", "blue"])', 'options=["red", "blue"]), "s": node("slow", slow)})'
    )  # fmt: skip
    workflow(user, "both", code)
    async with started(user, "run", "both", "-a", recording(user, HELLO), "--json", "x") as run:
        await run.until("question_asked")
        done = await user.atomic("answer", run.events[0]["run"], "1")
        assert (done.exit_code, str(run.process.pid) in done.stderr) == (0, True)
        assert await run.over() == 0
    assert ledger(user) == ["first 1", "slow", "last red Hello you."]


@pytest.mark.ci
async def test_a_killed_run_is_interrupted_and_resumes_where_it_was(user: User) -> None:
    workflow(user, "slow", SLOW)
    agent = recording(user, *[slow_call(60)] * 3)
    async with started(user, "run", "slow", "-a", agent, "--json", "x") as run:
        await run.until("agent_activity")
        run.signal(signal.SIGKILL)
        await run.process.wait()
    id = run.events[0]["run"]
    assert session(user)["status"] == "running"
    done = await user.atomic("sessions", "list", "--json")
    assert [said["status"] for said in msgspec.json.decode(done.stdout)] == ["interrupted"]
    recording(user, *[call(end("done."))] * 3)
    done = await user.atomic("resume", id, "--json", cwd=user.home)
    assert done.exit_code == 0
    assert ledger(user).count("before") == 1
    assert sorted(line for line in ledger(user) if line.startswith("begin")) == [
        f"begin {name} {attempt}" for name in ("one", "three", "two") for attempt in (1, 2)
    ]


CREW = """
def said(results, state):
    note(*[result.text for result in results])

workflow = graph(S).parallel_subagent(
    "all", agents=[SubagentRequest("debugger", f"task {name}") for name in ("one", "two", "three")], merge=said
).compile(name="crew")
"""


async def rows_of_kind(user: User, kind: RowKind, count: int) -> None:
    """Wait until the run of the only session has so many rows of a kind; what it keeps beside them does not count."""
    (folder,) = sessions(user)
    async with asyncio.timeout(60):
        while True:
            with SqliteJournal(folder / "journal.db") as journal, suppress(RunNotFoundError):
                if [row.kind for row in journal.history(folder.name).rows].count(kind) >= count:
                    return
            await asyncio.sleep(0.05)


@pytest.mark.ci
async def test_finished_agent_calls_of_a_killed_run_are_not_paid_again(user: User) -> None:
    workflow(user, "crew", CREW)
    calls = [call(end(name), match=f"task {name}") for name in ("one", "two")]
    agent = recording(user, *calls, {**slow_call(60), "match": "task three"})
    async with started(user, "run", "crew", "-a", agent, "--json", "x") as run:
        await run.until("run_started")
        await rows_of_kind(user, RowKind.PART, 2)
        run.signal(signal.SIGKILL)
        await run.process.wait()
    recording(user, call(end("three"), match="task three"))
    done = await user.atomic("resume", run.events[0]["run"], cwd=user.home)
    assert (done.exit_code, ledger(user)) == (0, ["one two three"])


@pytest.mark.ci
@pytest.mark.timed
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_pauses_the_run(user: User, number: int, code: int) -> None:
    workflow(user, "slow", SLOW.replace("await ctx.deps.turn", "await ctx.exec('sleep', '0.1'); await ctx.deps.turn"))
    async with started(user, "run", "slow", "-a", recording(user, *[slow_call(60)] * 3), "--json", "x") as run:
        await run.until("agent_activity")
        clock = asyncio.get_running_loop().time
        begun = clock()
        run.signal(number)
        assert await run.over() == code
        judge(clock() - begun, 5)
    by = "Ctrl+C" if number == signal.SIGINT else f"the signal {signal.Signals(number).name}"
    assert run.events[-1]["message"] == f"stopped by {by}"
    assert (run.events[-1]["status"], run.events[-1]["exit_code"]) == ("paused", code)
    assert (session(user)["status"], session(user)["owner"]) == ("paused", None)


@pytest.mark.ci
async def test_show_has_the_step_that_ctrl_c_has_cut_off(user: User) -> None:
    workflow(user, "slow", SLOW)
    async with started(user, "run", "slow", "-a", recording(user, *[slow_call(60)] * 3), "--json", "x") as run:
        node = (await run.until("agent_activity"))["node"]
        run.signal(signal.SIGINT)
        assert await run.over() == 130
    done = await user.atomic("sessions", "show", run.events[0]["run"], "--json")
    shown = msgspec.json.decode(done.stdout)
    assert (node, "interrupted") in [(step["node"], step["status"]) for step in shown["steps"]]


@pytest.mark.ci
async def test_ctrl_c_twice_ends_at_once_with_a_valid_journal(user: User) -> None:
    stubborn = LINGER + SLOW.replace(
        "    await ctx.deps.turn", "    try: await asyncio.sleep(60)\n    finally: await linger(); str"
    )
    workflow(user, "slow", stubborn)
    async with started(user, "run", "slow", "-a", recording(user), "--json", "x") as run:
        await run.until("node_started", node="one")
        run.signal(signal.SIGINT)
        await noted(user, "stopping")
        run.signal(signal.SIGINT)
        assert await run.over() == 130
    assert "run_ended" not in kinds(run.events)
    workflow(user, "slow", SLOW.replace("await ctx.deps.turn", "str"))
    assert (await user.atomic("resume", run.events[0]["run"])).exit_code == 0
    assert ledger(user).count("before") == 1


@pytest.mark.ci
async def test_a_closed_standard_output_does_not_end_a_run(user: User) -> None:
    workflow(user, "slow", SLOW)
    reading, writing = os.pipe()
    words = ["run", "slow", "-a", recording(user, *[slow_call(1)] * 3), "--json", "x"]
    process = subprocess.Popen([ATOMIC, *words], env=user.env, cwd=user.project, stdout=writing)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    assert await asyncio.to_thread(process.wait, 60) == 0
    assert session(user)["status"] == "completed"


@pytest.mark.ci
async def test_signals_at_random_moments_leave_a_run_that_resumes(user: User) -> None:
    from tests.torture.signals import interrupt_once

    async def round(seed: int) -> str | None:
        folder = user.home.parent / f"round-{seed}"
        folder.mkdir()
        return await interrupt_once(User(folder), seed)

    problems = [problem for half in (range(5), range(5, 10)) for problem in await asyncio.gather(*map(round, half))]
    assert problems == [None] * 10


@pytest.mark.ci
@pytest.mark.timed
async def test_the_first_agent_call_comes_within_half_a_second_of_work(user: User) -> None:
    workflow(user, "talk", "")
    agent = recording(user, call(end("Hi.")))
    await user.atomic("run", "talk", "-a", agent, "warm")
    recording(user, call(end("Hi.")))
    judge(cpu_seconds(user, "run", "talk", "-a", agent, "x"), 0.5)  # the whole run, not only that


@pytest.mark.ci
def test_a_run_imports_only_what_it_needs(user: User) -> None:
    workflow(user, "talk", "")
    agent = recording(user, call(end("Hi.")))
    run = f"from atomic.cli.main import main; main(['run', 'talk', '-a', {agent!r}, 'x'])"
    words = (sys.executable, "-c", f"{run}; import sys; print(*sys.modules)")
    said = subprocess.check_output(words, env=user.env, cwd=user.project, text=True, timeout=60)
    # Trust needs to know entities and settings, redaction the headers of MCP servers, the start old temporary folders.
    # A run may have workspaces, which need git.
    for_others = {"atomic.commands", "atomic.sessions.recovery", "atomic.tui", "textual"}
    assert {*said.split()} & {*for_others, "dataclasses", "secrets"} == set()


@pytest.mark.full
async def test_fifty_runs_at_once_do_not_wait_for_each_other(user: User) -> None:
    """Each waits in its middle for all others, which none could if one kept another out."""
    workflow(
        user,
        "meet",
        """
async def meet(ctx):
    open(f"met/{ctx.state.prompt}", "w").close()
    while len(os.listdir("met")) < 50:
        await asyncio.sleep(0.1)

workflow = graph(S).agent("before", "Hi.").node("meet", meet).agent("after", "Hi.").compile()
""",
    )
    (user.project / "met").mkdir()
    agent = recording(user, *[call(end("Hi."))] * 2)
    runs = (user.atomic("run", "meet", "-a", agent, str(number), timeout=300) for number in range(50))
    assert {done.exit_code for done in await asyncio.gather(*runs)} == {0}
    records = [msgspec.json.decode((folder / "session.json").read_bytes()) for folder in sessions(user)]
    assert sorted(int(record["prompt"]) for record in records) == [*range(50)]
    for folder in sessions(user):
        assert len((folder / "logs" / "agent-calls.jsonl").read_bytes().splitlines()) == 2


@pytest.mark.ci
async def test_a_thousand_old_sessions_slow_nothing_down(user: User) -> None:
    workflow(user, "talk", "")
    agent = recording(user, *[call(end("Hi."))] * 4)
    await user.atomic("run", "talk", "-a", agent, "x")
    (old,) = sessions(user)
    record = session(user)
    for number in range(1000):
        id = f"{number:08x}-0000-4000-8000-000000000000"
        (old.parent / id / "logs").mkdir(parents=True)
        (old.parent / id / "session.json").write_bytes(msgspec.json.encode({**record, "id": id}))
    clock = asyncio.get_running_loop().time
    times: list[float] = []
    for words in (("run", "talk", "-a", agent, "x"), ("resume", old.name), ("resume", old.name[:8])):
        recording(user, call(end("Hi.")))
        began = clock()
        assert (await user.atomic(*words)).exit_code == 0
        times.append(clock() - began)
    assert max(times) < 3, times
    assert processes(user.home) == {}


TASKS = """
from atomic.tasks import TaskList, Task

def give_up(task): raise ValueError("it cannot be done")

async def look(ctx):
    ctx.emit("warning", {"text": "the cache is old"})
    TaskList([Task(id="1", title="one"), Task(id="2", title="two", blocked_by=["1"])]).write("tasks.json")

workflow = (graph(S).node("look", look)
    .task_loop("each", tasks_path="tasks.json", task_nodes=[tool_node("give-up", give_up, args=lambda s: {"task": s})])
    .compile())
"""


@pytest.mark.ci
async def test_plain_output_has_no_names_of_nodes(user: User) -> None:
    workflow(user, "flow", TASKS)
    done = await user.atomic("run", "flow")
    assert done.exit_code == 5
    assert done.stdout == ""
    assert done.stderr.splitlines()[1:-1] == [
        "atomic: warning: the cache is old",
        "task 1 in_progress: one (0/2 done)",
        "task 1 failed: one (0/2 done)",
        "task 1 failed: ValueError: it cannot be done",
        'atomic: blocked: 2 of 2 tasks are not done and none can run: task 1 failed; task 2: "1" failed',
    ]


@pytest.mark.ci
async def test_a_failed_run_prints_its_reason_and_json_has_the_node(user: User) -> None:
    workflow(user, "flow", 'def no(): raise ValueError("no luck")\nworkflow = graph(S).tool("roll", no).compile()\n')
    done = await user.atomic("run", "flow")
    assert done.stdout == ""
    _, step, end, *_ = done.stderr.splitlines()
    assert step == "roll failed: ValueError: no luck"
    assert re.fullmatch(r"atomic: failed: .*, at \S+\.py:\d+", end)
    events = objects(await user.atomic("run", "flow", "--json"))
    assert [event["error"] for event in events if event["type"] == "node_ended"] == ["roll: ValueError: no luck"]
    assert str(events[-1]["message"]).startswith("roll: ValueError: no luck, at ")
