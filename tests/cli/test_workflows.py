"""`atomic workflows`: listed and shown without running them, checked, drawn, begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.loading.catalog import builtin_workflows
from tests.support.entity_files import write
from tests.support.user import User, complaint, told
from tests.support.user_workflows import call, end, recording, session

HEAD = "from atomic.workflows import *\n"
SAY = HEAD + "workflow = graph(State).tool('say', run=lambda: 'hi').compile()\n"
FIELDS = ["name", "aliases", "description", "version", "argument_hint", "source", "path", "trusted", "problem"]


def flow(user: User, name: str, text: str, *, home: bool = False) -> str:
    return str(write((user.home if home else user.project) / ".atomic" / "workflows" / f"{name}.py", text))


async def hash_of(user: User) -> str:
    done = await user.atomic("trust", "--show", "--json")
    return msgspec.json.decode(done.stdout)["hash"]


async def trust(user: User) -> None:
    done = await user.atomic("trust", await hash_of(user))
    assert (done.exit_code, done.stdout) == (0, "")


async def listed(user: User) -> list[dict[str, Any]]:
    """Return all workflows except built-in ones."""
    done = await user.atomic("workflows", "list", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found: list[dict[str, Any]] = msgspec.json.decode(done.stdout)
    assert [one["name"] for one in found if one["source"] == "builtin"] == ["ralph"]
    return [one for one in found if one["source"] != "builtin"]


async def test_json_has_all_fields_of_a_workflow(user: User) -> None:
    path = flow(
        user, "plan",
        "name = 'plan-it'\naliases = ['pi']\ndescription = 'Plan.'\nversion = '1.2.0'\nargument_hint = 'PROMPT'\n",
    )  # fmt: skip
    mine = flow(user, "mine", "raise SystemExit\n", home=True)
    found = await listed(user)
    assert [list(one) for one in found] == [FIELDS] * 2
    assert found == [
        {
            "name": "mine", "aliases": [], "description": "Custom workflow: mine", "version": "", "argument_hint": "",
            "source": "user", "path": mine, "trusted": True, "problem": None,
        },
        {
            "name": "plan-it", "aliases": ["pi"], "description": "Plan.", "version": "1.2.0", "argument_hint": "PROMPT",
            "source": "project", "path": path, "trusted": False, "problem": None,
        },
    ]  # fmt: skip
    await trust(user)
    assert [one["trusted"] for one in await listed(user)] == [True, True]


async def test_people_get_a_table_and_the_problems(user: User) -> None:
    broken = flow(user, "broken", "x = 1\ndef (\n")
    flow(user, "good", "description = 'Good \x1b]0;title\x07.'\nversion = str(1)\n")
    done = await user.atomic("workflows")
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout + done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    assert rows == [["broken", "project,"], ["good", "project,"], ["ralph", "[prompt"]]
    assert "project, broken" in done.stdout
    assert "project, not trusted" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"atomic: {broken}:2: this is not Python")
    assert "good.py:2: version is not a literal" in lines[1]


async def test_all_problems_of_all_files_are_shown_in_one_go(user: User) -> None:
    paths = {
        name: flow(user, name, text)
        for name, text in {
            "import_": "x = 1\nimport nothing_like_this\n",
            "newer": "min_sdk_version = '77.0'\n",
            "syntax": "x = 1\n\ndef (\n",
            "literal": "x = 1\nversion = 'a' + 'b'\n" + SAY,
            "graph": HEAD + "nodes = [tool_node('a', run=print),\n  tool_node('b', run=print)]\n"
            "graph_config = GraphConfig(start_node='a', state=State, nodes=nodes, edges=[Edge('a', 'x')])\n",
            "a": HEAD + "workflow = graph(State).subgraph('s', 'b').compile()\n",
            "b": HEAD + "\nworkflow = graph(State).subgraph('t', 'a').compile()\n",
            "lost": HEAD + "workflow = graph(State).subgraph('s', 'chatt').compile()\n",
            "tool": HEAD + "workflow = graph(State).custom_tool('c', tool='tt').compile()\n",
            "said": "node_descriptions = {'sya': 'Saying'}\n" + SAY,
            "chat": "",
            "good": SAY,
        }.items()
    }
    home = flow(user, "mine", "raise ValueError('mine')\n", home=True)
    shadowed = flow(user, "good", "1 / 0\n", home=True)
    tool = write(user.project / ".atomic" / "tools" / "t.py", 'def t():\n    """T."""\nraise OSError("tool")\n')
    await trust(user)
    done = await user.atomic("workflows", "check")
    assert (done.exit_code, done.stderr) == (1, "")
    found = done.stdout.splitlines()
    expected = [
        (f"{paths['import_']}:2: ", "nothing_like_this"),
        (f"{paths['newer']}:1: ", "77.0"),
        (f"{paths['syntax']}:3: ", "not Python"),
        (f"{paths['literal']}:2: ", "not a literal"),
        (f"{paths['graph']}:3: ", "b: "),
        (f"{paths['a']}:2: ", "a -> b -> a"),
        (f"{paths['b']}:3: ", "b -> a -> b"),
        (f"{paths['lost']}:2: ", 'no workflow "chatt" (did you mean "chat"?)'),
        (f"{paths['tool']}:2: ", 'c: Tool not found: "tt" (did you mean "t"?)'),
        (f"{paths['said']}:1: ", 'node_descriptions: there is no node "sya" (did you mean "say"?)'),
        (f"{home}:1: ", "ValueError: mine"),
        (f"{shadowed}:1: ", "ZeroDivisionError"),
        (f"{tool}:3: ", "OSError: tool"),
    ]
    for start, word in expected:
        assert any(line.startswith(start) and word in line for line in found), (start, word, found)
    assert not any(path in line for line in found for path in (paths["good"], paths["chat"]))


GRAPH = "graph(State).tool('say', run=lambda: 'hi')"
AS_DATA = "GraphConfig(start_node='a', state=State, nodes=[tool_node('a', run=print)], edges=[])"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (f"graphConfig = {AS_DATA}", 'no graph found: rename "graphConfig" to "graph_config"'),
        ("graphConfig = {'nodes': []}", 'no graph found: "graphConfig" must be "graph_config = GraphConfig(…)"'),
        (f"wrokflow = {GRAPH}", 'no graph found: rename "wrokflow" to "workflow"'),
        pytest.param(
            f"Workflow = {GRAPH}.compile()",
            'no graph found: rename "Workflow" to "workflow"',
            marks=pytest.mark.ci,
        ),
        pytest.param(
            f"app: object = {GRAPH}.compile()",
            'no graph found: rename "app" to "workflow"',
            marks=pytest.mark.ci,
        ),
        (
            f"def create_workflow():\n    return {GRAPH}.compile()",
            'no graph found: Atomic does not call "create_workflow": add "workflow = create_workflow()"',
        ),
        pytest.param(
            f"async def build_graph(): return {GRAPH}",
            'no graph found: "build_graph" is async: make it a plain function and add "workflow = build_graph()"',
            marks=pytest.mark.ci,
        ),
        pytest.param(
            "class Workflow:\n    nodes = []",
            'no graph found: "Workflow" must be "workflow = graph(…).compile()"',
            marks=pytest.mark.ci,
        ),
    ],
)
async def test_a_graph_under_another_name_is_reported_by_check_and_run(user: User, code: str, problem: str) -> None:
    path = flow(user, "near", f"{HEAD}x = 1\n{code}\n", home=True)
    done = await user.atomic("workflows", "check")
    assert (done.exit_code, done.stdout) == (1, f"{path}:3: {problem}\n")
    done = await user.atomic("run", "near", "hi")
    assert (done.exit_code, complaint(done)) == (2, f'Workflow "near" cannot be loaded: {path}:3: {problem}')


async def test_a_file_with_a_graph_may_use_any_other_name(user: User) -> None:
    made = f"def create_workflow(): return {GRAPH}\nWorkflow = create_workflow()\nworkflow = Workflow.compile()\n"
    flow(user, "parts", HEAD + made, home=True)
    flow(user, "talk", f"{HEAD}description = 'A chat.'\nwork = 1\ndef flow_of_words(): return graph\n", home=True)
    done = await user.atomic("workflows", "check")
    assert (done.exit_code, done.stdout) == (0, "")


async def test_a_check_without_problems_is_exit_code_0(user: User) -> None:
    flow(user, "good", SAY, home=True)
    done = await user.atomic("workflows", "check")
    assert (done.exit_code, done.stdout) == (0, "")
    assert told(done) == "2 workflows, no problems"


@pytest.mark.parametrize("words", [("workflows", "check"), ("workflows", "graph", "say")])
async def test_what_runs_code_needs_trust_or_the_hash(user: User, words: tuple[str, ...]) -> None:
    flow(user, "say", SAY)
    done = await user.atomic(*words)
    right = await hash_of(user)
    assert done.exit_code == 4
    assert "workflow .atomic/workflows/say.py" in complaint(done)
    assert f"its whole hash, {right[:12]}…" in done.stderr
    done = await user.atomic(*words, "--trust", "0" * 64)
    assert done.exit_code == 4
    assert right[:12] in complaint(done)
    assert (await user.atomic(*words, "--trust", right)).exit_code == 0
    assert (await user.atomic(*words)).exit_code == 4  # it was for that command only


async def test_a_graph_is_drawn_as_text_mermaid_and_svg(user: User) -> None:
    flow(user, "say", SAY, home=True)
    flow(user, "chat", "", home=True)
    text = await user.atomic("workflows", "graph", "say")
    assert "│ say" in text.stdout
    assert "flowchart" in (await user.atomic("workflows", "graph", "say", "--mermaid")).stdout
    assert (await user.atomic("workflows", "graph", "--svg", "SAY")).stdout.lstrip().startswith("<svg")
    done = await user.atomic("workflows", "graph", "chat")
    assert (done.exit_code, complaint(done)) == (1, '"chat" has no graph: its prompt goes to the chat')
    done = await user.atomic("workflows", "graph", "say", "--svg", "--mermaid")
    assert (done.exit_code, complaint(done)) == (2, "--mermaid and --svg exclude each other: choose one")


@pytest.mark.ci
async def test_show_prints_abilities_only_of_a_trusted_workflow(user: User) -> None:
    text = (
        HEAD + "default_config = {'depth': 2}\nworkflow = graph(State).ask_user('q', 'ok?').agent('a', 'x').compile()\n"
    )
    flow(user, "ask", text)
    hidden = flow(user, "ASK", "", home=True)
    done = await user.atomic("workflows", "show", "/Ask")
    assert done.exit_code == 0
    assert "trusted:   no" in done.stdout
    assert hidden in done.stdout
    assert '{"depth":2}' in done.stdout
    assert "questions" not in done.stdout
    await trust(user)
    done = await user.atomic("workflows", "show", "ask")
    assert "can:       sub-agents, questions" in done.stdout
    assert msgspec.json.decode((await user.atomic("workflows", "show", "ask", "--json")).stdout)["name"] == "ask"


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show revew", 'Workflow not found: "revew" (did you mean "review"?)'),
        ("graph zzz", 'Workflow not found: "zzz" (atomic workflows list shows them)'),
        ("graph", "atomic workflows graph needs a NAME: atomic workflows graph NAME"),
        ("chek", 'Unknown command: "workflows chek" (did you mean "check"?)'),
        ("new ../x", '"../x" cannot name a workflow: use one word such as "my-flow"'),
    ],
)
async def test_a_wrong_name_is_one_line_and_exit_code_2(user: User, words: str, message: str) -> None:
    flow(user, "review", "", home=True)
    done = await user.atomic("workflows", *words.split())
    assert (done.exit_code, complaint(done)) == (2, message)


async def test_a_workflow_that_does_not_load_is_exit_code_2(user: User) -> None:
    path = flow(user, "bad", "1 / 0\n", home=True)
    done = await user.atomic("workflows", "graph", "bad")
    assert done.exit_code == 2
    assert complaint(done) == f'Workflow "bad" cannot be loaded: {path}:1: ZeroDivisionError: division by zero'


@pytest.mark.ci
async def test_a_new_workflow_is_there_at_once(user: User) -> None:
    done = await user.atomic("workflows", "new", "my-tale")
    path = user.project / ".atomic" / "workflows" / "my-tale.py"
    assert (done.exit_code, done.stdout) == (0, f"{path}\n")
    assert told(done) == 'written; run it: atomic run my-tale "…"; check it at each save: atomic workflows dev my-tale'
    (row,) = await listed(user)
    assert (row["name"], row["trusted"], row["problem"]) == ("my-tale", True, None)
    assert (await user.atomic("workflows", "check")).exit_code == 0
    assert "improve" in (await user.atomic("workflows", "graph", "my-tale")).stdout
    assert "my-flow" not in path.read_text()
    done = await user.atomic("workflows", "new", "my-tale")
    assert (done.exit_code, complaint(done)) == (2, f'There is a workflow "my-tale" already: {path}')
    done = await user.atomic("workflows", "new", "My-Tale")  # names have no case: it would take the name over
    assert (done.exit_code, complaint(done)) == (2, f'There is a workflow "my-tale" already: {path}')
    path.write_text(path.read_text() + "# changed\n")
    assert (await user.atomic("workflows", "check")).exit_code == 4


@pytest.mark.ci
async def test_a_new_workflow_runs_at_once_and_again_after_a_change_that_is_approved(user: User) -> None:
    agent = recording(
        user,
        call(end("A draft."), match="Write this"),
        call(end('{"verdict": "improve", "weakness": "Too short."}'), match="Name the worst"),
        call(end("A better draft."), match="Improve this"),
        call(end('{"verdict": "good"}'), match="Name the worst"),
        call(end("Another."), match="Write this"),
    )
    await user.atomic("workflows", "new", "my-tale")
    done = await user.atomic("run", "my-tale", "--agent", agent, "a limerick")
    assert done.exit_code == 0
    for words in ("Writing a draft", "Reviewing it", "Improving it"):
        assert words in done.stderr
    assert done.stdout == "A better draft.\n"  # the result
    path = user.project / ".atomic" / "workflows" / "my-tale.py"
    path.write_text(path.read_text().replace('"rounds": 2', '"rounds": 0'))
    assert (await user.atomic("run", "my-tale", "--agent", agent, "more")).exit_code == 4
    await trust(user)
    assert "config" in (await user.atomic("workflows", "show", "my-tale")).stdout


ASKS = """from atomic.workflows import *
def make(state):
    with open(".mcp.json", "w") as file:
        file.write('{"mcpServers": {"made": {"command": "true"}}}')
workflow = graph(State).tool("make", run=make).ask_user("q", "Go on?").tool("end", run=lambda: 1).compile()
"""


@pytest.mark.ci
@pytest.mark.parametrize("changed_by", ["the run alone", "somebody else", "the user, who took it back"])
async def test_a_run_resumes_after_its_own_changes_only(user: User, changed_by: str) -> None:
    path = flow(user, "ask", ASKS)
    await trust(user)
    done = await user.atomic("run", "ask", "x")
    assert done.exit_code == 5
    assert not next(row["trusted"] for row in await listed(user) if row["name"] == "ask")
    if changed_by == "somebody else":
        flow(user, "ask", f"{ASKS}evil = 1\n")
    elif changed_by != "the run alone":
        await user.atomic("trust", "--revoke")
    done = await user.atomic("answer", session(user)["id"], "yes")
    assert done.exit_code == (0 if changed_by == "the run alone" else 4), (path, done.stderr)


async def test_a_run_that_was_started_with_trust_does_not_resume_after_a_revoke(user: User) -> None:
    flow(user, "ask", "from atomic.workflows import *\nworkflow = graph(State).ask_user('q', 'Go on?').compile()\n")
    hash = await hash_of(user)
    assert (await user.atomic("run", "ask", "--trust", hash, "x")).exit_code == 5
    id = session(user)["id"]
    await user.atomic("trust", "--revoke")
    refused = await user.atomic("answer", id, "yes")
    assert refused.exit_code == 4
    assert "this project is not trusted in its current state" in refused.stderr
    assert f"its whole hash, {hash[:12]}…: atomic trust --show" in refused.stderr
    assert (await user.atomic("answer", id, "yes", "--trust", hash)).exit_code == 0


async def test_a_completed_run_says_so_although_its_project_is_no_longer_trusted(user: User) -> None:
    flow(user, "end", "from atomic.workflows import *\nworkflow = graph(State).tool('end', run=lambda: 1).compile()\n")
    hash = await hash_of(user)
    assert (await user.atomic("run", "end", "--trust", hash, "x")).exit_code == 0
    await user.atomic("trust", "--revoke")
    done = await user.atomic("resume", session(user)["id"])
    assert (done.exit_code, "it is completed already: nothing is left to do" in done.stderr) == (0, True), done.stderr
    events = await user.atomic("resume", session(user)["id"], "--json")
    first, last = (msgspec.json.decode(line) for line in events.stdout.splitlines())
    assert (first["type"], first["seq"], first["resumed"]) == ("run_started", 1, True)
    assert (last["type"], last["seq"], last["status"], last["exit_code"]) == ("run_ended", 2, "completed", 0)


@pytest.mark.ci
async def test_only_unapproved_changes_are_named(user: User) -> None:
    for name in ("one", "two"):
        await user.atomic("workflows", "new", name)
    path = user.project / ".atomic" / "workflows" / "two.py"
    path.write_text(path.read_text() + "# changed\n")
    flow(user, "zoo", "x = 1\n")
    said = complaint(await user.atomic("run", "one", "x"))
    assert "workflow .atomic/workflows/two.py (changed: you, or a program of yours, saved it " in said
    assert "), workflow .atomic/workflows/zoo.py (new) (see it" in said
    assert "one.py" not in said


@pytest.mark.ci
async def test_a_new_workflow_reports_the_one_that_it_hides(user: User) -> None:
    (name, *_) = (one.name for one in builtin_workflows())
    done = await user.atomic("workflows", "new", name)
    assert done.exit_code == 0
    hides = f'atomic: in this project it hides the workflow "{name}" (comes with Atomic)'
    assert done.stderr.splitlines()[1:] == [hides]


@pytest.mark.ci
async def test_a_new_workflow_does_not_approve_other_files(user: User) -> None:
    flow(user, "evil", "raise SystemExit\n")
    done = await user.atomic("workflows", "new", "mine")
    assert done.exit_code == 0
    assert told(done) == (
        'written; run it: atomic trust, then atomic run mine "…"; check it at each save: atomic workflows dev mine'
    )
    assert [one["trusted"] for one in await listed(user)] == [False, False]
    await trust(user)
    await user.atomic("workflows", "new", "more")
    assert [one["trusted"] for one in await listed(user)] == [True] * 3


@pytest.mark.ci
async def test_a_new_workflow_is_not_written_where_no_project_can_be(user: User) -> None:
    for folder in (user.home, Path("/")):
        done = await user.atomic("workflows", "new", "mine", cwd=folder)
        assert (done.exit_code, "this folder holds many projects" in complaint(done)) == (2, True)
        assert not (folder / ".atomic" / "workflows").exists()


@pytest.mark.ci
async def test_a_new_workflow_is_not_written_through_a_link(user: User) -> None:
    outside = user.home / "outside"
    outside.mkdir()
    (user.project / ".atomic").symlink_to(outside)
    done = await user.atomic("workflows", "new", "mine")
    assert done.exit_code == 2
    assert "a link leads out of the project" in complaint(done)
    assert not list(outside.rglob("*.py"))


@pytest.mark.ci
async def test_workflows_are_commands_of_the_prompt(user: User) -> None:
    flow(user, "tell", "description = 'Tell it.'\naliases = ['tt']\nargument_hint = 'WHAT'\nraise SystemExit\n")
    done = await user.atomic("-p", "/help tell")
    assert done.exit_code == 0
    assert "Tell it." in done.stdout
    assert "/tell WHAT" in done.stdout
    assert "/tell" in (await user.atomic("-p", "/help")).stdout
