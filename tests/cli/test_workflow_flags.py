"""The keys of a workflow's `default_config` as flags: on `run`, `resume`, `answer`, `-p "/…"`, in help and at Tab."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from atomic.loading.catalog import builtin_workflows
from atomic.workflows.definition import WorkflowDefinition
from tests.support.terminal import in_terminal
from tests.support.user import User, complaint, objects
from tests.support.user_workflows import call, end, ledger, recording, session, sessions, workflow

FLOW = """
aliases = ["fl"]
default_config = {
    "review_rounds": 3, "ratio": 0.5, "verify": [], "isolate": "none", "tasks": None, "yolo": False, "gates": True,
    "max_iterations": 100, "table": {"a": 1}, "model": "mine", "max_cost": 1, "json": False, "odd key": 1, "resume": "",
}

class C(S):
    given: str = ""

def create_state(params):
    note("begin", params.max_iterations, params.prompt)
    return C(prompt=params.prompt, given=repr(sorted(params.config.items(), key=str)))

async def show(ctx):
    note(repr({key: ctx.deps.config[key] for key in ("review_rounds", "verify", "yolo", "gates", "tasks")}))

workflow = graph(C).node("show", show).ask_user("q", "Well?").node("again", show).compile()
"""
ASKED = 5  # its exit code: it waits for an answer


@pytest.fixture
def flow(user: User) -> User:
    workflow(user, "flow", FLOW)
    return user


def config(user: User) -> dict[str, Any]:
    return session(user)["config"]


async def run(user: User, *words: str, **more: Any) -> Any:
    done = await user.atomic("run", *words, **more)
    assert done.exit_code == ASKED, done.stderr
    return config(user)


async def test_the_type_of_a_default_decides_how_its_flag_is_read(flow: User) -> None:
    said = await run(
        flow, "flow", "--review-rounds", "2", "--ratio=0.25", "--verify", "make test", "--verify", "make lint",
        "--yolo", "--no-gates", "--isolate", "worktree", "--tasks", "a.json", "--max-iterations", "7",
        "--", "the", "prompt", "--yolo",
    )  # fmt: skip
    wanted = {
        "review_rounds": 2, "ratio": 0.25, "verify": ["make test", "make lint"], "yolo": True, "gates": False,
        "isolate": "worktree", "tasks": "a.json", "max_iterations": 7, "table": {"a": 1}, "model": "mine",
    }  # fmt: skip
    assert said.items() >= wanted.items()
    assert ledger(flow)[0] == "begin 7 the prompt --yolo"
    assert eval(ledger(flow)[1]) == {key: wanted[key] for key in ("review_rounds", "verify", "yolo", "gates", "tasks")}


@pytest.mark.parametrize(
    "words",
    [
        ("--review-rounds", "2", "--yolo", "flow", "go"),
        ("--yolo", "flow", "--review-rounds", "2", "go"),
        ("fl", "--yolo", "--review-rounds=2", "--", "go"),
        ("--verify", "other", "--yolo", "--review-rounds", "2", "/FLOW", "go"),
        ("--verify", "flow", "--yolo", "--review-rounds", "2", "flow", "go"),
    ],
)
async def test_flags_come_before_or_after_the_name(flow: User, words: tuple[str, ...]) -> None:
    workflow(flow, "other", 'default_config = {"verify": []}\n')
    said = await run(flow, *words)
    assert (said["review_rounds"], said["yolo"], session(flow)["prompt"]) == (2, True, "go")


async def test_flags_override_settings_and_settings_override_the_file(flow: User) -> None:
    flow.sets("[workflows.flow]\nreview_rounds = 5\nratio = 0.75\nmax_iterations = 9\n")
    said = await run(flow, "flow", "--review-rounds", "6", "go")
    assert (said["review_rounds"], said["ratio"], said["isolate"]) == (6, 0.75, "none")
    assert ledger(flow)[0] == "begin 9 go"


async def test_flags_of_every_run_take_precedence(flow: User) -> None:
    done = await flow.atomic("run", "flow", "--model", "other", "--max-cost", "2", "--json", "go")
    assert (done.exit_code, objects(done)[-1]["reason"]) == (ASKED, "question")
    assert (config(flow)["model"], config(flow)["max_cost"], config(flow)["json"]) == ("mine", 1, False)
    assert (session(flow)["options"]["models"], session(flow)["options"]["caps"]["max_cost"]) == ({"": "other"}, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--review-rounds", "x", "go"), '--review-rounds cannot be "x": give a whole number'),
        (("--review-rounds", "2.5", "go"), '--review-rounds cannot be "2.5": give a whole number'),
        (("--review-rounds", "9" * 30, "go"), f'--review-rounds cannot be "{"9" * 30}": give a whole number'),
        (("--ratio", "nan", "go"), '--ratio cannot be "nan": give a number'),
        (("--isolate", "a", "--isolate", "b"), "--isolate was given 2 times: it takes one value"),
    ],
)
async def test_an_invalid_value_is_refused(flow: User, words: tuple[str, ...], message: str) -> None:
    done = await flow.atomic("run", "flow", *words)
    assert (done.exit_code, complaint(done), sessions(flow)) == (2, message, [])
    (said,) = objects(await flow.atomic("run", "flow", "--json", *words))
    assert (said["type"], said["exit_code"], said["message"]) == ("error", 2, message)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("flow", "--reviw-rounds", "2"), 'Unknown flag: "--reviw-rounds" (did you mean "--review-rounds"?)'),
        (("--reviw-rounds", "2", "flow"), 'Unknown flag: "--reviw-rounds" (did you mean "--review-rounds"?)'),
        (("flow", "--max-cots", "2"), 'Unknown flag: "--max-cots" (did you mean "--max-cost"?)'),
        (("flow", "--table", "2"), 'Unknown flag: "--table"'),
        (("flow", "--gates"), 'Unknown flag: "--gates" (did you mean "--no-gates"?)'),
        (("flow", "--yolo=1"), "--yolo takes no value"),
        (("flow", "--review-rounds"), "--review-rounds needs a value: --review-rounds N"),
    ],
)
async def test_an_unknown_flag_is_refused_with_the_nearest_one(
    flow: User, words: tuple[str, ...], message: str
) -> None:
    done = await flow.atomic("run", *words)
    assert (done.exit_code, complaint(done), sessions(flow)) == (2, message, [])


async def test_help_and_show_list_flags_with_their_defaults(flow: User) -> None:
    for words in (("run", "flow", "--help"), ("run", "--help", "fl"), ("workflows", "show", "flow")):
        done = await flow.atomic(*words)
        assert done.exit_code == 0
        rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
        for row in (
            "--review-rounds N a whole number; default 3", "--ratio NUMBER a number; default 0.5",
            "--verify TEXT a text; repeatable", '--isolate TEXT a text; default "none"',
            "--tasks TEXT a text",
            "--yolo switch it on", "--no-gates switch it off",
        ):  # fmt: skip
            assert row in rows
        assert sum("--model" in row for row in rows) == (0 if words[0] == "workflows" else 1)
    assert "--max-cost" in (await flow.atomic("run", "flow", "--help")).stdout
    assert ledger(flow) == []


async def test_an_author_can_name_the_value_of_a_flag(flow: User) -> None:
    described = {
        "list": "FILE: read this file",
        "note": "TWO WORDS: a note",
        "quick": "NOT: a value",
        "rest": "AS IT IS",
    }
    defaults = {"list": "", "note": "", "quick": False, "rest": ""}
    workflow(flow, "named", f"default_config = {defaults}\nconfig_descriptions = {described}\n")
    rows = [" ".join(line.split()) for line in (await flow.atomic("run", "named", "--help")).stdout.splitlines()]
    for row in (
        "--list FILE read this file", "--note TEXT TWO WORDS: a note", "--quick NOT: a value", "--rest TEXT AS IT IS"
    ):  # fmt: skip
        assert row in rows
    missing = await flow.atomic("run", "named", "--list")
    assert (missing.exit_code, complaint(missing)) == (2, "--list needs a value: --list FILE")


@pytest.mark.parametrize("words", [("run", "flwo", "--help"), ("help", "run", "flwo")])
async def test_the_help_of_an_unknown_workflow_is_an_error(flow: User, words: tuple[str, ...]) -> None:
    done = await flow.atomic(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert 'Workflow not found: "flwo" (did you mean "flow"?)' in done.stderr


async def test_an_author_can_describe_a_flag(flow: User) -> None:
    workflow(
        flow, "told", "default_config = {'depth': 2}\nconfig_descriptions = {'depth': 'how deep\\x1b[31m to go'}\n"
    )
    done = await flow.atomic("run", "told", "--help")
    assert "to go; default 2" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.ci
async def test_flags_of_an_untrusted_project_are_listed_without_running_its_code(flow: User) -> None:
    file = flow.project / ".atomic" / "workflows" / "theirs.py"
    file.parent.mkdir(parents=True)
    file.write_text('default_config = {"depth\\x1b[31m": 1, "deep": "\\x1b[31m\\u202e"}\nopen("canary", "w")\n')
    done = await flow.atomic("run", "theirs", "--help")
    assert "--deep TEXT" in done.stdout
    assert not {"\x1b", "\u202e"} & {*done.stdout}
    assert (await flow.atomic("run", "theirs", "--deep", "x", "go")).exit_code == 4
    assert not (flow.project / "canary").exists()


@pytest.mark.parametrize(
    "verb",
    [
        ("resume",),
        pytest.param(("run", "flow", "--resume"), marks=pytest.mark.ci),
        pytest.param(("run", "fl", "--resume"), marks=pytest.mark.ci),
    ],
)
async def test_a_resume_can_change_a_value_that_nodes_read(flow: User, verb: tuple[str, ...]) -> None:
    await run(flow, "flow", "--review-rounds", "2", "--verify", "make", "go")
    id = session(flow)["id"]
    await flow.atomic("answer", id, "--no-resume", "yes")
    done = await flow.atomic(*verb, id, "--review-rounds", "4", "--json", cwd=flow.home)
    assert (done.exit_code, objects(done)[0]["resumed"]) == (0, True)
    assert (config(flow)["review_rounds"], config(flow)["verify"]) == (4, ["make"])
    seen = [eval(line)["review_rounds"] for line in (flow.project / "ledger.txt").read_text().splitlines()[1:]]
    assert seen == [2, 4]


@pytest.mark.ci
async def test_an_answer_takes_the_same_flags_for_later_nodes(flow: User) -> None:
    await run(flow, "flow", "--review-rounds", "2", "go")
    id = session(flow)["id"]
    refused = await flow.atomic("answer", id, "--reviw-rounds", "4", "yes")
    assert (refused.exit_code, complaint(refused)) == (
        2,
        'Unknown flag: "--reviw-rounds" (did you mean "--review-rounds"?)',
    )
    assert "--review-rounds N" in (await flow.atomic("answer", id, "--help")).stdout
    assert await offered(flow, "answer", id, "--rev") == ["--review-rounds"]
    done = await flow.atomic("answer", id, "--review-rounds", "4", "yes", cwd=flow.home)
    assert (done.exit_code, config(flow)["review_rounds"]) == (0, 4)
    assert [eval(line)["review_rounds"] for line in ledger(flow)[1:]] == [2, 4]


@pytest.mark.ci
async def test_flags_without_effect_on_a_saved_answer_are_reported(flow: User) -> None:
    await run(flow, "flow", "go")
    id = session(flow)["id"]
    done = await flow.atomic("answer", id, "--no-resume", "--review-rounds", "4", "--max-cost", "1", "yes")
    left_out = "(without effect: --max-cost, --review-rounds; pass them to atomic resume)"
    assert (done.exit_code, complaint(done)) == (0, f"the answer is saved: atomic resume {id} {left_out}")
    assert config(flow)["review_rounds"] == 3


@pytest.mark.ci
async def test_a_resume_in_a_project_finds_the_flags_of_its_workflow_from_any_folder(flow: User) -> None:
    file = flow.project / ".atomic" / "workflows" / "theirs.py"
    file.parent.mkdir(parents=True)
    file.write_text((flow.home / ".atomic" / "workflows" / "flow.py").read_text().replace('"yolo"', '"deep"'))
    hash = msgspec.json.decode((await flow.atomic("trust", "--show", "--json")).stdout)["hash"]
    await run(flow, "theirs", "--trust", hash, "go")
    done = await flow.atomic("run", "theirs", "--resume", session(flow)["id"], "--deep", cwd=flow.home)
    assert (done.exit_code, config(flow)["deep"]) == (ASKED, True)


@pytest.mark.ci
async def test_a_run_that_cannot_be_resumed_is_refused(flow: User) -> None:
    workflow(flow, "other", "")
    await run(flow, "flow", "go")
    id = session(flow)["id"]
    before = session(flow)
    done = await flow.atomic("run", "other", "--resume", id)
    assert (done.exit_code, complaint(done)) == (2, f'This is a run of "flow", not of "other": atomic resume {id}')
    done = await flow.atomic("run", "flow", "--resume", id, "more")
    assert (done.exit_code, "already has its prompt" in complaint(done)) == (2, True)
    done = await flow.atomic("resume", id, "--reviw-rounds", "1")
    assert (done.exit_code, '(did you mean "--review-rounds"?)' in complaint(done)) == (2, True)
    done = await flow.atomic("resume", id, "--review-rounds", "many")
    assert (done.exit_code, complaint(done)) == (2, '--review-rounds cannot be "many": give a whole number')
    assert session(flow) == before


@pytest.mark.ci
async def test_a_slash_command_takes_the_same_flags(flow: User) -> None:
    text = """/flow --max-cost 2 --verify "make test" --verify 'a "b"' --yolo don't  "stop" --now"""
    done = await flow.atomic("-p", text, "-m", "tiny")
    assert done.exit_code == ASKED, done.stderr
    assert (config(flow)["verify"], config(flow)["yolo"]) == (["make test", 'a "b"'], True)
    assert session(flow)["prompt"] == """don't  "stop" --now"""
    assert (session(flow)["options"]["caps"]["max_cost"], session(flow)["options"]["models"]) == (2, {"": "tiny"})


@pytest.mark.ci
async def test_a_slash_command_checks_flags_shows_help_and_resumes(flow: User) -> None:
    done = await flow.atomic("-p", "/flow --reviw-rounds 2 go")
    assert (done.exit_code, complaint(done)) == (
        2,
        'Unknown flag: "--reviw-rounds" (did you mean "--review-rounds"?)',
    )
    assert "--review-rounds N" in (await flow.atomic("-p", "/flow --help")).stdout
    await run(flow, "flow", "go")
    done = await flow.atomic("-p", f"/flow --resume {session(flow)['id']} --review-rounds 8 --json")
    assert (done.exit_code, objects(done)[0]["resumed"], config(flow)["review_rounds"]) == (ASKED, True, 8)


@pytest.mark.ci
async def test_piped_text_has_no_flags(flow: User) -> None:
    done = await flow.atomic("-p", "/flow", input="--yolo go\n")
    assert (done.exit_code, session(flow)["prompt"], config(flow)["yolo"]) == (ASKED, "--yolo go", False)
    done = await flow.atomic("-p", "/flow --tasks", input="a.json\n")
    assert (done.exit_code, complaint(done)) == (2, "--tasks needs a value: --tasks TEXT")


@pytest.mark.ci
async def test_a_flag_in_a_slash_command_overrides_the_command_line(flow: User) -> None:
    workflow(flow, "talk", "")
    agent = recording(flow, call(end("Hi.")))
    done = await flow.atomic("-p", f"/talk --agent {agent} hey", "-a", "claude")
    assert (done.exit_code, done.stdout) == (0, "Hi.\n")


async def offered(user: User, *words: str) -> list[str]:
    done = await user.atomic("complete", *words)
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.ci
async def test_tab_completes_flags(flow: User) -> None:
    assert await offered(flow, "run", "flow", "--re") == ["--record", "--resume", "--review-rounds"]
    assert await offered(flow, "run", "fl", "--no") == ["--no-gates"]
    assert "--review-rounds" not in await offered(flow, "run", "nobody", "--")
    await run(flow, "flow", "go")
    assert await offered(flow, "resume", session(flow)["id"], "--rev") == ["--review-rounds"]


async def test_tab_completes_aliases(flow: User) -> None:
    workflow(flow, "long", "aliases: list[str] = [\n    \"one\",  # the first\n    'two',\n]\n")
    assert await offered(flow, "run", "") == ["flow", "fl", "long", "one", "two", *names_of_ours()]


def names_of_ours() -> list[str]:
    return [word for one in builtin_workflows() for word in (one.name, *one.aliases)]


@pytest.mark.ci
async def test_tab_describes_flags_of_built_in_workflows(user: User) -> None:
    assert await offered(user, "run", "") == names_of_ours()
    for one in builtin_workflows():
        for word in (one.name, *one.aliases):
            done = await user.atomic("complete", "run", word, "--")
            rows = dict(line.split("\t") for line in done.stdout.splitlines())
            assert {flag: flag in rows for flag in flags_of(one)} == dict.fromkeys(flags_of(one), True)
            for key, description in one.config_descriptions.items():
                assert rows[f"--{key.replace('_', '-')}"].startswith(description.removeprefix("FILE: ")[:70])


@pytest.mark.ci
async def test_tab_describes_flags_of_a_file(flow: User) -> None:
    workflow(flow, "told", "default_config = {'depth': 2}\nconfig_descriptions = {'depth': 'how deep to go'}\n")
    done = await flow.atomic("complete", "run", "told", "--de")
    assert done.stdout == "--depth\thow deep to go; default 2\n"


def flags_of(one: WorkflowDefinition) -> list[str]:
    return [f"--{key.replace('_', '-')}" for key in one.default_config]


@pytest.mark.ci
@pytest.mark.parametrize("name", ["ralph", "loop"])
async def test_help_of_ralph_has_its_flags_and_its_alias(user: User, name: str) -> None:
    (ralph,) = builtin_workflows()
    done = await user.atomic("-p", f"/help {name}")
    assert (done.exit_code, done.stderr) == (0, "")
    hint, *lines = done.stdout.splitlines()
    assert hint.startswith(
        "/ralph [flags] [prompt or path of a spec] (flags: --tasks FILE, --feature-list FILE, --yolo,"
    )
    assert "aliases: /loop" in lines
    for flag in flags_of(ralph):
        assert flag in re.findall(r"--[a-z-]+", hint)
        assert [line for line in lines if line.startswith(f"  {flag} ")]
    assert "/ralph --help" in lines[-1]
    of_run = (await user.atomic("run", name, "--help")).stdout
    assert {flag: f"  {flag} " in of_run for flag in flags_of(ralph)} == dict.fromkeys(flags_of(ralph), True)


@pytest.mark.ci
async def test_a_hint_names_a_flag_once(flow: User) -> None:
    workflow(flow, "hinted", "argument_hint = 'PROMPT [--deep]'\ndefault_config = {'deep': False, 'rounds': 2}\n")
    done = await flow.atomic("-p", "/help hinted")
    assert done.stdout.splitlines()[0] == "/hinted [flags] PROMPT [--deep] (flags: --rounds N)"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "loop", "--dry-run"),
        pytest.param(("run", "--dry-run", "/LOOP"), marks=pytest.mark.ci),
        pytest.param(("-p", "/loop --dry-run"), marks=pytest.mark.ci),
    ],
)
async def test_loop_is_ralph(user: User, words: tuple[str, ...]) -> None:
    (user.project / "research").mkdir()
    (user.project / "research" / "tasks.json").write_text('[{"id": 1, "title": "Write it"}]')
    user.sets("[workflows.ralph]\nreview_rounds = 2\n")
    done = await user.atomic(*words, "--agent", recording(user, call(end("Hi."))))
    assert done.exit_code == 0, done.stderr
    assert (session(user)["workflow"], config(user)["review_rounds"]) == ("ralph", 2)
    assert "ralph" in (await user.atomic("workflows", "show", "loop")).stdout
    again = await user.atomic("run", "loop", "--resume", session(user)["id"])
    assert "This is a run of" not in again.stderr


@pytest.mark.ci
async def test_a_workflow_name_takes_precedence_over_an_alias(user: User) -> None:
    workflow(user, "loop", "")
    assert (await user.atomic("workflows", "show", "loop")).stdout.startswith("loop (workflow)")
    assert "aliases: /loop" not in (await user.atomic("-p", "/help ralph")).stdout


LIMITED = """
class L(S):
    limit: int = 0

def check_start(params):
    note("start", params.max_iterations)

def create_state(params):
    note("state", params.max_iterations)
    return L(prompt=params.prompt, limit=params.max_iterations)

async def say(ctx):
    note("node", ctx.state.limit)

"""
CHAIN = LIMITED + "workflow = graph(L).node('say', say).compile()\n"
AS_DATA = (
    LIMITED
    + "graph_config = GraphConfig(start_node='say', state=L, nodes=[node('say', say)], edges=[], max_iterations=50)\n"
)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("code", "flags", "limit"),
    [
        (CHAIN, [], 100),
        (CHAIN, ["--max-iterations", "7"], 7),
        (AS_DATA, [], 50),
        (AS_DATA, ["--max-iterations", "7"], 7),
        ("default_config = {'max_iterations': 30}\n" + AS_DATA, [], 30),
        ("default_config = {'max_iterations': None}\n" + AS_DATA, [], 50),
        ("default_config = {'max_iterations': None}\n" + AS_DATA, ["--max-iterations", "0"], 0),
    ],
)
async def test_the_iteration_limit_is_the_flag_or_that_of_the_graph_or_100(
    user: User, code: str, flags: list[str], limit: int
) -> None:
    workflow(user, "limited", code)
    done = await user.atomic("run", "limited", *flags)
    assert done.exit_code == 0, done.stderr
    assert ledger(user) == [f"start {limit}", f"state {limit}", f"node {limit}"]


@pytest.mark.ci
async def test_an_invalid_iteration_limit_is_refused(user: User) -> None:
    workflow(user, "limited", CHAIN)
    done = await user.atomic("run", "limited", "--max-iterations", "many")
    assert (done.exit_code, complaint(done)) == (2, '--max-iterations cannot be "many": give a whole number')
    done = await user.atomic("run", "limited", "--max-iterations=-1")
    assert (done.exit_code, complaint(done)) == (2, '--max-iterations cannot be "-1": give a whole number, 0 or more')


@pytest.mark.ci
async def test_the_iteration_limit_is_a_flag_only_if_the_workflow_reads_it(user: User) -> None:
    workflow(user, "limited", CHAIN)
    workflow(user, "free", "workflow = graph(S).tool('a', run=lambda: 1).compile()\n")
    assert "--max-iterations N" in (await user.atomic("run", "limited", "--help")).stdout
    done = await user.atomic("complete", "run", "limited", "--max-it")
    assert done.stdout.split()[:1] == ["--max-iterations"]
    done = await user.atomic("run", "free", "--max-iterations", "7")
    assert (done.exit_code, "Unknown flag" in complaint(done)) == (2, True)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("run", "flow", "add x", "--max-cost", "2"), "--max-cost"),
        (("run", "flow", "add", "--review-rounds=2", "rounds"), "--review-rounds"),
        (("-p", '/flow "add x" --yolo'), "--yolo"),
        (("run", "flow", "--max-cost", "2", "add x", "--help"), "--help"),
    ],
)
async def test_nothing_starts_with_a_flag_after_the_prompt(flow: User, words: tuple[str, ...], flag: str) -> None:
    """The user wanted a cap or a dry run, and a script cannot be asked."""
    done = await flow.atomic(*words)
    assert done.exit_code == 2
    assert complaint(done) == (
        f"{flag} comes after the start of the prompt, where it is only text:"
        " put it before the prompt, or put -- before a prompt with this text in it"
    )
    assert sessions(flow) == []


@pytest.mark.ci
async def test_a_flag_after_two_dashes_is_text_of_the_prompt(flow: User) -> None:
    done = await flow.atomic("run", "flow", "--", "add x", "--max-cost", "2")
    assert done.exit_code == ASKED, done.stderr
    assert session(flow)["prompt"] == "add x --max-cost 2"


@pytest.mark.ci
async def test_a_word_that_is_similar_to_a_flag_causes_a_warning(flow: User) -> None:
    done = await flow.atomic("run", "flow", "add x", "--max-costs", "2")
    assert done.exit_code == ASKED, done.stderr
    assert "--max-costs is part of the prompt here (is it --max-cost?): flags go before the prompt" in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("words", [("add --max-cost to the help",), ("--", "add", "--yolo"), ("add", "--verbose")])
async def test_words_that_only_look_like_flags_cause_no_warning(flow: User, words: tuple[str, ...]) -> None:
    done = await flow.atomic("run", "flow", *words)
    assert done.exit_code == ASKED, done.stderr
    assert "part of the prompt" not in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(("typed", "code"), [("n\n", 2), ("y\n", ASKED)])
async def test_a_user_at_a_terminal_confirms_a_flag_in_the_prompt(flow: User, typed: str, code: int) -> None:
    command = [flow.program, "run", "flow", "add x", "--max-costs", "2"]
    async with in_terminal(command, env=flow.env, cwd=flow.project) as terminal:
        await terminal.shows("(is it --max-cost?): flags go before the prompt")
        await terminal.shows("Start the run with this prompt? [y/N]")
        terminal.type(typed)
        if code == ASKED:
            await terminal.shows("Well?")
            terminal.type("\x04")
        assert await terminal.exit_code() == code
    assert len(sessions(flow)) == (code == ASKED)
