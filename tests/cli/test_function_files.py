"""Workflow files that hold a function: `atomic run` and the verbs around it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.user import User, complaint, objects, told
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
from tests.support.waits import HANG, eventually

SHIP = """
from typing import Literal

description = "Ship a version"
config_descriptions = {"depth": "how many charges"}
node_descriptions = {"charge": "Charging…"}

@step
async def charge(n: int) -> int:
    note("charge", n)
    return n * 2

@step
async def refund(n: int) -> None:
    note("refund", n)

@workflow
async def release(
    flow: Flow, version: str, *, depth: int = 1, dry: bool = False, how: Literal["a", "b"] = "a",
    rate: float = 0.5, tags: list[str] = [],
) -> dict[str, object] | Failed | Blocked:
    flow.compensate(refund, depth)
    charged = [await charge(n) for n in range(depth)]
    answer = await flow.ask("Ship it?", options=["yes", "no", "never"])
    if answer == "no":
        return Failed("not wanted", {"version": version})
    if answer == "never":
        return Blocked("ask the owner")
    return {"version": version, "charged": charged, "dry": dry, "how": how, "rate": rate, "tags": tags}
"""
WHOLE = {"version": "1.2", "charged": [0, 2], "dry": True, "how": "b", "rate": 2.0, "tags": ["x", "y"]}


def id_of(user: User) -> str:
    return session(user)["id"]


async def test_flags_and_the_prompt_are_the_arguments_and_the_result_is_printed(user: User) -> None:
    workflow(user, "ship", SHIP)
    flags = ("--depth", "2", "--dry", "--how", "b", "--rate", "2", "--tags", "x", "--tags", "y")
    paused = await user.atomic("run", "ship", *flags, "1.2")
    assert (paused.exit_code, paused.stdout) == (5, ""), paused.stderr
    assert "Charging…\n" in paused.stderr
    done = await user.atomic("answer", id_of(user), "yes")
    assert (done.exit_code, msgspec.json.decode(done.stdout)) == (0, WHOLE), done.stderr
    assert "completed after" in done.stderr
    assert ledger(user) == ["charge 0", "charge 1"]
    for words in (("resume", id_of(user)), ("resume", id_of(user), "-q"), ("sessions", "result", id_of(user))):
        again = await user.atomic(*words)
        assert (again.exit_code, again.stdout) == (0, done.stdout), words
    assert session(user)["result"] == WHOLE
    assert ledger(user) == ["charge 0", "charge 1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--depth", "x", "1"], '--depth cannot be "x": give a whole number'),
        (["--how", "c", "1"], '--how cannot be "c": it is one of a, b'),
        ([], 'ship needs a prompt, for its parameter "version": atomic run ship "PROMPT"'),
        (["--deph", "3", "1"], 'Unknown flag: "--deph" (did you mean "--depth"?)'),
    ],
)
async def test_wrong_arguments_are_refused_before_there_is_a_session(
    user: User, words: list[str], message: str
) -> None:
    workflow(user, "ship", SHIP)
    done = await user.atomic("run", "ship", *words)
    assert (done.exit_code, complaint(done), sessions(user)) == (2, message, [])


@pytest.mark.parametrize(
    ("head", "words", "message"),
    [
        ("flow, amount: int, to: str", ["--to", "x"],
         'pay needs a value for its parameter "amount": atomic run pay --amount VALUE'),
        ("flow, amount: int, to: str", ["--to", "x", "--amount", "1", "hello"],
         "pay takes no prompt (it takes --amount, --to)"),
        ("flow, amount: int", ["many"],
         'pay: its prompt, "many", does not fit: pay, amount: Expected `int`, got `str`'),
        ("flow, *, more: dict[str, int] = {}", ["--more", "["],
         "--more cannot be \"[\": give JSON, such as '[1, 2]' (Input data was truncated)"),
        ("flow, *, more: dict[str, int] = {}", ["--more", '{"a": "b"}'],
         "--more of pay does not fit: Expected `int`, got `str` - at `$[...]`"),
    ],
)  # fmt: skip
async def test_arguments_that_do_not_fit_are_refused(user: User, head: str, words: list[str], message: str) -> None:
    workflow(user, "pay", f"@workflow\nasync def pay({head}): pass\n")
    done = await user.atomic("run", "pay", *words)
    assert (done.exit_code, complaint(done), sessions(user)) == (2, message, [])


async def test_the_prompt_is_read_by_the_type_of_its_parameter(user: User) -> None:
    workflow(user, "twice", "@workflow\nasync def twice(flow: Flow, n: int) -> int:\n    return n * 2\n")
    done = await user.atomic("run", "twice", "21")
    assert (done.exit_code, done.stdout) == (0, "42\n")


async def test_settings_and_default_config_are_arguments_and_help_shows_them(user: User) -> None:
    code = (
        'default_config = {"depth": 3}\n@workflow\nasync def f(flow, *, depth: int, rate=1.5): return [depth, rate]\n'
    )
    workflow(user, "f", code)
    user.sets("[workflows.f]\nrate = 2.5\n")
    assert (await user.atomic("run", "f")).stdout == "[3,2.5]\n"
    assert (await user.atomic("run", "f", "--depth", "4")).stdout == "[4,2.5]\n"
    help = (await user.atomic("run", "f", "--help")).stdout
    assert "--depth N      a whole number; default 3\n" in help
    assert "--rate NUMBER  a number; default 1.5\n" in help


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [
        ("@workflow\nasync def a(flow): pass\n@workflow\nasync def b(flow): pass\n", 17,
         "the file has several workflows (a, b): name the one to run: workflow = b"),
        ("def create_state(params): pass\n@workflow\nasync def a(flow): pass\n", 14,
         "create_state is for graphs: a workflow function has parameters and local variables; remove it"),
        ('default_config = {"dpth": 1}\n@workflow\nasync def a(flow, depth: int = 2): pass\n', 14,
         'default_config has "dpth", but a has no such parameter (did you mean "depth"?)'),
        ("async def workflow(flow): pass\n", 14,
         "workflow is an async function without its decorator: write @workflow above it"),
        ("@workflow\nasync def a(flow):\n    await flow.run('nowhere')\n", 16, 'there is no workflow "nowhere"'),
    ],
)  # fmt: skip
async def test_a_file_that_cannot_run_is_reported_with_its_line(user: User, code: str, line: int, reason: str) -> None:
    workflow(user, "bad", code)
    done = await user.atomic("workflows", "check")
    file = user.home / ".atomic" / "workflows" / "bad.py"
    assert (done.exit_code, done.stdout) == (1, f"{file}:{line}: {reason}\n")


async def test_the_one_function_among_several_is_named(user: User) -> None:
    code = "@workflow\nasync def a(flow): return 'a'\n@workflow\nasync def b(flow): return await flow.run(a) + 'b'\n"
    workflow(user, "both", f"{code}workflow = b\n")
    assert (await user.atomic("run", "both")).stdout == "ab\n"


async def test_a_run_that_failed_or_is_blocked_for_good_is_over(user: User) -> None:
    workflow(user, "ship", SHIP)
    await user.atomic("run", "ship", "1")
    done = await user.atomic("answer", id_of(user), "no", "--json")
    last: Any = objects(done)[-1]
    assert (done.exit_code, last["status"], last["reason"], last["plain"]) == (1, "failed", "failed", "not wanted")
    assert (last["result"], last["resume"]) == ({"version": "1"}, "")
    assert ledger(user) == ["charge 0", "refund 1"]
    again = await user.atomic("resume", id_of(user))
    assert again.exit_code == 1
    assert "not wanted (this end is final: nothing is left to resume)" in again.stderr
    shown = (await user.atomic("sessions", "show", id_of(user))).stdout
    assert ("not wanted" in shown, "atomic resume" in shown) == (True, False)
    assert ledger(user) == ["charge 0", "refund 1"]


async def test_blocked_has_its_own_exit_code(user: User) -> None:
    workflow(user, "ship", SHIP)
    await user.atomic("run", "ship", "1")
    done = await user.atomic("answer", id_of(user), "never")
    assert done.exit_code == 5
    assert "blocked: ask the owner\n" in done.stderr
    again = await user.atomic("resume", id_of(user))
    assert (again.exit_code, "ask the owner (this end is final" in again.stderr) == (5, True)
    assert session(user)["status"] == "blocked"


async def test_a_paused_run_that_is_cancelled_is_compensated(user: User) -> None:
    workflow(user, "ship", SHIP)
    await user.atomic("run", "ship", "--depth", "2", "1")
    done = await user.atomic("stop", "--cancel", id_of(user))
    assert (done.exit_code, ledger(user)) == (0, ["charge 0", "charge 1", "refund 2"]), done.stderr
    assert session(user)["status"] == "cancelled"
    refused = await user.atomic("resume", id_of(user))
    assert (refused.exit_code, "was cancelled for good" in told(refused)) == (2, True)


SLOW = """
@step
async def book(n: int) -> None:
    note("book", n)

@step
async def linger() -> None:
    note("lingers")
    await asyncio.sleep(3600)

@step
async def unbook(n: int) -> None:
    note("unbook", n)

@workflow
async def trip(flow: Flow) -> None:
    for n in range(2):
        await book(n)
        flow.compensate(unbook, n)
    await linger()
"""


@pytest.mark.parametrize("cancel", [True, False])
async def test_a_running_function_is_stopped_or_cancelled(user: User, *, cancel: bool) -> None:
    workflow(user, "trip", SLOW)
    async with started(user, "run", "trip", "--json") as run:
        await noted(user, "lingers")
        stop = await user.atomic("stop", id_of(user), *(["--cancel"] if cancel else []))
        assert stop.exit_code == 0, stop.stderr
        assert await run.over() == 130
    assert run.events[-1]["message"] == ("cancelled" if cancel else "stopped by atomic stop")
    undone = ["unbook 1", "unbook 0"] if cancel else []
    assert ledger(user) == ["book 0", "book 1", "lingers", *undone]
    assert session(user)["status"] == ("cancelled" if cancel else "paused")


async def test_a_compensation_that_failed_is_in_the_last_line_and_in_show(user: User) -> None:
    code = """
@step
async def refund() -> None:
    raise ValueError("no account")

@workflow
async def pay(flow: Flow) -> Failed:
    flow.compensate(refund)
    return Failed("not wanted")
"""
    workflow(user, "pay", code)
    done = await user.atomic("run", "pay")
    reason = "not wanted; the compensation 'refund' failed too: ValueError: no account"
    assert (done.exit_code, f"failed: {reason}\n" in done.stderr) == (1, True), done.stderr
    assert reason in (await user.atomic("sessions", "show", id_of(user))).stdout


async def test_the_files_and_lists_of_a_run_show_its_steps(user: User) -> None:
    workflow(user, "ship", SHIP)
    done = await user.atomic("run", "ship", "--depth", "2", "--json", "1")
    events: list[Any] = [*objects(done)]
    assert kinds(events) == ["run_started", *["node_started", "node_ended"] * 2, "node_started", "question_asked",
                             "node_ended", "run_ended"]  # fmt: skip
    assert [event["node"] for event in events if event["type"] == "node_started"] == ["charge", "charge", "ask"]
    shown = (await user.atomic("sessions", "show", id_of(user))).stdout
    assert "✓charge ×2" in shown
    report = await user.atomic("sessions", "report", id_of(user))
    assert (report.exit_code, "charge" in report.stdout) == (0, True)
    listed = (await user.atomic("workflows", "list")).stdout
    assert "Ship a version" in listed
    details = (await user.atomic("workflows", "show", "ship")).stdout
    assert "--depth N" in details
    assert "how many charges; default 1" in details
    assert "can:       questions" in details
    assert (await user.atomic("workflows", "graph", "ship")).exit_code == 0
    archive = user.home / "run.tar.gz"
    assert (await user.atomic("sessions", "export", id_of(user), str(archive))).exit_code == 0


async def test_changed_code_is_refused_and_the_run_stays_as_it_was(user: User) -> None:
    workflow(user, "ship", SHIP)
    await user.atomic("run", "ship", "1")
    before = session(user)
    workflow(user, "ship", SHIP.replace("charge(n) for", "charge(n + 1) for"))
    done = await user.atomic("answer", id_of(user), "yes")
    assert done.exit_code == 1
    assert "The code has changed since the run was recorded: step 1 was charge(0), is now charge(1)" in done.stderr
    # The same command would be refused again.
    assert f"Then: atomic workflows check --runs; if it can continue: atomic answer {id_of(user)}" in done.stderr
    assert "Resume with:" not in done.stderr
    after = session(user)
    assert [after[name] for name in ("status", "reason", "questions")] == [
        before[name] for name in ("status", "reason", "questions")
    ]
    workflow(user, "ship", SHIP)
    assert (await user.atomic("answer", id_of(user), "yes", "-q")).exit_code == 0
    assert ledger(user) == ["charge 0"]


async def test_a_run_whose_parameter_is_gone_is_refused_and_stays_as_it_was(user: User) -> None:
    workflow(user, "ship", SHIP)
    await user.atomic("run", "ship", "1")
    workflow(user, "ship", SHIP.replace("dry: bool = False, ", "").replace('"dry": dry, ', ""))
    done = await user.atomic("resume", id_of(user), "--json")
    last: Any = objects(done)[-1]
    assert (done.exit_code, last["resume"]) == (1, "")
    assert 'the argument "dry", which ship no longer takes' in str(last["message"])
    assert "Then: atomic workflows check --runs" in str(last["message"])
    assert session(user)["status"] == "paused"
    workflow(user, "ship", SHIP)
    assert (await user.atomic("answer", id_of(user), "yes", "-q")).exit_code == 0


WRITE = """
@workflow
async def write(flow: Flow, topic: str) -> str:
    draft = await flow.agent("draft", f"Write about {topic}")
    await flow.ask("Go on?")
    return await flow.agent("polish", f"Polish {draft}")
"""


async def test_agents_caps_and_the_cost_work_as_for_graphs(user: User) -> None:
    workflow(user, "write", WRITE)
    usage = {"input": 10, "output": 5, "cost": 0.25}
    agent = recording(
        user,
        call(text("Tea."), end("Tea.", usage=usage), match="Write"),
        call(end("Tea!", usage=usage), match="Polish"),
    )
    paused = await user.atomic("run", "write", "-a", agent, "--max-cost", "0.2", "tea")
    assert paused.exit_code in (5, 6), paused.stderr
    done = await user.atomic("resume", id_of(user), "--max-cost", "9")
    assert done.exit_code == 5, done.stderr
    done = await user.atomic("answer", id_of(user), "yes", "--json")
    last: Any = objects(done)[-1]
    assert (last["result"], last["cost"], last["session_dir"]) == ("Tea!", 0.5, str(sessions(user)[0]))


async def test_a_function_that_calls_an_agent_needs_one_before_it_starts(user: User) -> None:
    user.has_no_agents()
    workflow(user, "write", WRITE)
    done = await user.atomic("run", "write", "tea")
    assert (done.exit_code != 0, sessions(user)) == (True, [])


async def test_a_large_result_is_whole_on_standard_output_and_named_in_the_event(user: User) -> None:
    workflow(user, "big", "@workflow\nasync def big(flow) -> str:\n    return 'x' * 100_000\n")
    done = await user.atomic("run", "big", "-q")
    assert (done.stdout, done.stderr) == ("x" * 100_000 + "\n", "")
    (file,) = sessions(user)[0].glob("logs/events.jsonl")
    last = msgspec.json.decode(file.read_bytes().splitlines()[-1])
    assert (last["result"], last["result_omitted"]) == (None, True)
    assert (await user.atomic("sessions", "result", id_of(user))).stdout == done.stdout


async def test_numbers_that_are_not_finite_are_texts_in_json(user: User) -> None:
    code = "return {'nan': float('nan'), 'all': [float('inf'), -float('inf'), 1.5]}"
    workflow(user, "odd", f"@workflow\nasync def odd(flow: Flow) -> dict[str, object]:\n    {code}\n")
    expected = {"nan": "NaN", "all": ["Infinity", "-Infinity", 1.5]}
    done = await user.atomic("run", "odd", "--json")
    assert objects(done)[-1]["result"] == session(user)["result"] == expected
    for words in (("resume", id_of(user)), ("sessions", "result", id_of(user))):
        again = await user.atomic(*words)
        assert (again.exit_code, msgspec.json.decode(again.stdout)) == (0, expected), words


async def test_a_function_that_gets_a_mark_for_a_secret_after_an_answer_warns(user: User) -> None:
    user.env["SERVICE_TOKEN"] = secret = "a1b2c3d4e5f6a1b2c3d4e5f6"
    code = """
@step
async def log_in() -> str:
    return "Bearer " + os.environ["SERVICE_TOKEN"]

@workflow
async def visit(flow: Flow) -> str:
    session = await log_in()
    await flow.ask("Go on?")
    return session
"""
    workflow(user, "visit", code)
    paused = await user.atomic("run", "visit")
    assert paused.exit_code == 5, paused.stderr
    done = await user.atomic("answer", id_of(user), "yes")
    assert (done.exit_code, done.stdout) == (0, "Bearer [redacted]\n")
    assert 'the recorded result of log_in has "[redacted]" in place of a secret' in done.stderr
    assert secret not in done.stderr


async def test_a_secret_in_a_result_is_removed_everywhere(user: User) -> None:
    user.env["ANTHROPIC_API_KEY"] = secret = "sk-ant-api03-" + "q1w2e3r4t5" * 6
    workflow(user, "leak", f"@workflow\nasync def leak(flow):\n    return {{'key': {secret!r}, 'n': 1}}\n")
    done = await user.atomic("run", "leak")
    assert (done.exit_code, secret in done.stdout, '"n":1' in done.stdout) == (0, False, True)
    assert secret not in (sessions(user)[0] / "session.json").read_text()
    assert secret not in (await user.atomic("sessions", "result", id_of(user))).stdout


async def test_output_of_the_code_is_not_mixed_with_the_result(user: User) -> None:
    code = (
        "@workflow\nasync def loud(flow):\n    print('printed')\n    os.write(1, b'written\\n')\n    return 'result'\n"
    )
    workflow(user, "loud", code)
    done = await user.atomic("run", "loud", "-q")
    assert done.stdout == "result\n"
    assert sorted(done.stderr.splitlines()) == ["printed", "written"]


GRAPH = """
async def say(ctx): return {"said": ["one", "two"], "outputs": {"say": "last"}}
workflow = graph(S).node("say", say).compile()
"""


@pytest.mark.parametrize(
    ("more", "printed"),
    [
        ("", "last\n"),
        ("result = lambda state: state.said\n", '["one","two"]\n'),
        ("def at_end(end): return 'by at_end'\n", "by at_end\n"),
        ("def at_end(end): return 'by at_end'\nresult = lambda state: {'n': len(state.said)}\n", '{"n":2}\n'),
        ("result = lambda state: None\n", ""),
    ],
)
async def test_a_graph_has_a_result_too(user: User, more: str, printed: str) -> None:
    workflow(user, "say", GRAPH + more)
    done = await user.atomic("run", "say")
    assert (done.exit_code, done.stdout) == (0, printed), done.stderr
    assert (await user.atomic("sessions", "result", id_of(user))).stdout == printed


async def test_a_graph_may_end_for_good_by_its_result(user: User) -> None:
    workflow(user, "say", f"{GRAPH}result = lambda state: Failed('too short', len(state.said))\n")
    done = await user.atomic("run", "say")
    assert (done.exit_code, done.stdout) == (1, "2\n")
    assert "failed: too short\n" in done.stderr
    again = await user.atomic("resume", id_of(user))
    assert (again.exit_code, "this end is final" in again.stderr) == (1, True)


async def test_quiet_and_json_exclude_each_other(user: User) -> None:
    workflow(user, "say", GRAPH)
    done = await user.atomic("run", "say", "--json", "--quiet")
    assert (done.exit_code, objects(done)[-1]["message"]) == (2, "--quiet and --json exclude each other: choose one")


async def test_a_paused_run_has_no_result(user: User) -> None:
    workflow(user, "ship", SHIP)
    await user.atomic("run", "ship", "1")
    done = await user.atomic("sessions", "result", id_of(user))
    assert (done.exit_code, complaint(done)) == (1, f"{id_of(user)} has no result: it is paused")


async def test_a_file_is_run_by_its_path(user: User) -> None:
    file = Path(user.project / "flow.py")
    file.write_text("from atomic.workflows import *\n@workflow\nasync def flow(flow, n: int): return n + 1\n")
    done = await user.atomic("run", "./flow.py", "2")
    assert (done.exit_code, done.stdout) == (0, "3\n"), done.stderr


CUT = """
@step
async def call(header: str) -> int:
    return 1

@workflow
async def calls(flow: Flow, prompt: str) -> str:
    for n in range(30, 62):
        await call("p" * n + " " + os.environ["DEPLOY_PASSWORD"])
    return "ok"
"""


async def test_a_secret_at_the_end_of_shown_arguments_is_in_no_file(user: User) -> None:
    secret = "kZ7qVw9xT2mRb4LsYd8nQc3P"
    user.env["DEPLOY_PASSWORD"] = secret
    workflow(user, "calls", CUT)
    done = await user.atomic("run", "calls", "x")
    assert (done.exit_code, done.stdout) == (0, "ok\n"), done.stderr
    (folder,) = sessions(user)
    for file in folder.rglob("*"):
        if file.is_file():
            assert secret[:8].encode() not in file.read_bytes(), file


FOREVER = """
@step
async def slow() -> None:
    note("slow")
    await asyncio.sleep(3600)

@workflow
async def forever(flow: Flow, prompt: str) -> None:
    while True:
        try:
            await slow()
        except BaseException:
            pass
"""


@pytest.mark.ci
@pytest.mark.parametrize("twice", [False, True])
async def test_a_function_that_catches_everything_is_ended_by_ctrl_c(user: User, twice: bool) -> None:
    workflow(user, "forever", FOREVER)
    async with started(user, "run", "forever", "x") as run:
        await eventually(lambda: (user.project / "ledger.txt").exists())
        run.signal(signal.SIGINT)
        if twice:
            await asyncio.sleep(0.2)  # as a user presses it: at once it would count as one keypress
            run.signal(signal.SIGINT)
        assert await asyncio.wait_for(run.process.wait(), HANG) == 130
    assert session(user)["status"] in ("paused", "running")  # a process that was left at once cannot say it


CALLS = """
@workflow
async def NAME(flow: Flow, prompt: str) -> str:
    return await flow.run("shout", prompt) + "!"
"""
SHOUT = """
@step
async def upper(text: str) -> str:
    return text.upper()

@workflow
async def shout(flow: Flow, prompt: str) -> str:
    return await upper(prompt)
"""


async def test_a_function_calls_the_function_of_another_file_by_its_name(user: User) -> None:
    workflow(user, "greet", CALLS.replace("NAME", "greet"))
    missing = await user.atomic("run", "greet", "tea")
    assert (missing.exit_code, 'there is no workflow "shout"' in missing.stderr) == (2, True)
    assert sessions(user) == []
    workflow(user, "shout", SHOUT)
    done = await user.atomic("run", "greet", "tea")
    assert (done.exit_code, done.stdout) == (0, "TEA!\n"), done.stderr
    events = objects(await user.atomic("run", "greet", "--json", "tea"))
    assert [one["node"] for one in events if one["type"] == "node_ended"] == ["shout/upper"]
