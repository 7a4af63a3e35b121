"""Test the built-in skills and agents: they use the user's format, and Atomic reads their output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pytest
import yaml

import atomic.entities
from atomic.providers.tool_names import spelled
from atomic.tasks import TaskList

FOLDER = Path(atomic.entities.__file__).parent / "builtin"
SKILLS = {
    "research-codebase", "create-spec", "create-feature-list", "implement-feature", "commit", "create-gh-pr",
    "explain-code", "create-workflow",
}  # fmt: skip
RESEARCHERS = {
    "codebase-analyzer", "codebase-locator", "codebase-pattern-finder", "codebase-online-researcher",
    "codebase-research-analyzer", "codebase-research-locator",
}  # fmt: skip
RALPH = {"planner", "worker", "reviewer", "fixer"}
AGENTS = RESEARCHERS | RALPH | {"debugger"}
FILES = {
    **{f"skill {name}": FOLDER / "skills" / name / "SKILL.md" for name in sorted(SKILLS)},
    **{f"agent {name}": FOLDER / "agents" / f"{name}.md" for name in sorted(AGENTS)},
}
PARTS = ["## Read first", "## How to work", "## Output", "## Do not"]
CHANGING = {"write", "edit", "bash"}


class Finding(msgspec.Struct, forbid_unknown_fields=True):
    """A finding of a review, as Ralph reads it."""

    title: str
    body: str
    priority: Literal[0, 1, 2, 3] | None
    location: str | None
    confidence: float


class Review(msgspec.Struct, forbid_unknown_fields=True):
    """A review, as Ralph reads it."""

    verdict: Literal["approve", "request_changes"]
    findings: list[Finding]
    summary: str


class Document:
    """A built-in file, parsed without Atomic."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        _, head, self.body = self.text.split("---\n", 2)
        self.head = cast("dict[str, Any]", yaml.safe_load(head))

    @property
    def tools(self) -> list[str] | None:
        given = self.head.get("tools", self.head.get("allowed-tools"))
        return None if given is None else [name.strip() for name in given.split(",")]

    @property
    def hint(self) -> str:
        """Return the source text: `[file]` is not a list."""
        return re.findall(r"^argument-hint: (.*)$", self.text, re.MULTILINE)[0]

    def example(self) -> str:
        """Return the only JSON example."""
        [example] = re.findall(r"^```json\n(.*?)^```", self.body, re.DOTALL | re.MULTILINE)
        return example


def skill(name: str) -> Document:
    return Document(FILES[f"skill {name}"])


def agent(name: str) -> Document:
    return Document(FILES[f"agent {name}"])


@pytest.fixture(params=FILES, ids=str)
def document(request: pytest.FixtureRequest) -> Document:
    return Document(FILES[request.param])


def test_exactly_the_promised_files_exist() -> None:
    assert set(FOLDER.rglob("*.md")) == set(FILES.values())


@pytest.mark.parametrize("which", FILES)
def test_the_front_matter_has_the_fields_of_a_users_file(which: str) -> None:
    kind, name = which.split()
    head = Document(FILES[which]).head
    assert head["name"] == name
    assert 30 <= len(head["description"]) <= 120
    known = {
        "name",
        "description",
        "model",
        "aliases",
        *(("argument-hint", "allowed-tools") if kind == "skill" else ("tools",)),
    }
    assert head.keys() <= known
    assert ("argument-hint" in head) == (kind == "skill")
    assert head.get("aliases") == (["ci"] if name == "commit" else None)


def test_each_file_has_a_role_and_the_four_sections(document: Document) -> None:
    before, *_ = document.body.split(PARTS[0])
    assert re.search(r"^You are (a|an|the) ", before, re.MULTILINE)
    assert [line for line in document.body.splitlines() if line in PARTS] == PARTS
    assert "```" in document.body.split("## Output")[1].split("## Do not")[0]  # a template


def test_each_file_is_short_and_cleanly_formatted(document: Document) -> None:
    lines = document.text.splitlines()
    most = 240 if "\nname: create-workflow\n" in document.text else 120  # it has the API of graphs and functions
    assert 40 <= len(lines) <= most
    assert not [line for line in lines if line != line.rstrip() or "\t" in line or len(line) > 120]
    assert document.text.endswith("\n")
    assert not re.search(r"\b(IMPORTANT|NEVER|ALWAYS|MUST|CRITICAL|DO NOT)\b", document.text)


@pytest.mark.parametrize("name", sorted(SKILLS))
def test_a_skill_uses_its_arguments_once_and_has_no_other_placeholders(name: str) -> None:
    body = skill(name).body
    assert body.count("$ARGUMENTS") == 1
    assert not re.search(r"\$\d", body)  # would be an argument
    assert "!`" not in body  # would be a command
    mentions = set(re.findall(r"(?:^|\s)@(\w+)", body))  # would be files
    assert mentions <= {"step", "workflow"}  # decorators in the example of create-workflow


# Tools and models


def test_every_agent_knows_the_tools(document: Document) -> None:
    known = {"bash", "read", "write", "edit", "glob", "grep", "webfetch", "websearch", "task", "todo"}
    assert set(document.tools or ()) <= known
    assert "Bash" in spelled(["bash"], "claude")
    for provider in ("claude", "opencode", "copilot"):
        assert len(spelled(document.tools or (), provider)) >= len(document.tools or ())


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_agents_have_only_the_tools_that_they_need(name: str) -> None:
    tools = agent(name).tools
    if name in {"worker", "fixer", "debugger"}:
        assert tools is None
    elif name == "codebase-online-researcher":
        # It reads untrusted pages, which could make it send the repository elsewhere.
        assert tools == ["webfetch", "websearch"]
    elif name == "reviewer":
        assert tools == ["read", "grep", "glob", "bash"]
    else:
        assert tools == ["read", "grep", "glob"]


def test_the_tools_write_and_edit_come_together(document: Document) -> None:
    tools = document.tools or []
    assert ("write" in tools) == ("edit" in tools)  # OpenCode has one permission for both


def test_explain_code_is_read_only_and_commit_does_not_edit() -> None:
    assert not CHANGING & set(skill("explain-code").tools or CHANGING)
    assert not {"write", "edit"} & set(skill("commit").tools or CHANGING)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_each_agent_has_a_model_that_fits_its_work(name: str) -> None:
    model = {"planner": "opus", "reviewer": "opus", "debugger": "opus"}.get(
        name, "haiku" if name.endswith("-locator") else "sonnet"
    )
    assert agent(name).head["model"] == model


@pytest.mark.parametrize("name", sorted(SKILLS))
def test_a_skill_keeps_the_model_of_the_conversation(name: str) -> None:
    # Another model would have to read the whole conversation again, uncached.
    assert skill(name).head["model"] == "inherit"


# Outputs that Atomic or another skill reads


def test_atomic_reads_and_writes_the_task_list_of_the_prompt() -> None:
    example = skill("create-feature-list").example()
    tasks = TaskList.parse(example)
    assert not tasks.problems
    assert [task.id for task in tasks.ready()] == ["1"]
    assert tasks.waiting() == {"2": 'waits for "1"'}
    assert all(task.description and task.acceptance and task.metadata for task in tasks.tasks)
    assert json.loads(tasks.dump()) == json.loads(example)  # exactly as Atomic writes it


def test_ralph_reads_the_plan_of_the_prompt() -> None:
    plan = json.loads(agent("planner").example())
    assert plan.keys() == {"tasks"}
    for source in (plan, plan["tasks"]):  # a plain list is accepted too
        tasks = TaskList.parse(source)
        assert not tasks.problems
        assert [task.id for task in tasks.tasks] == ["1", "2"]
        assert not any(task.metadata for task in tasks.tasks)  # only keys of a task


def test_ralph_reads_the_review_of_the_prompt() -> None:
    review = msgspec.json.decode(agent("reviewer").example(), type=Review)
    assert review.verdict == "request_changes"
    [finding] = review.findings
    assert re.fullmatch(r"\S+:\d+", finding.location or "")
    assert 0 <= finding.confidence <= 1
    body = agent("reviewer").body
    for word in (*Review.__struct_fields__, *Finding.__struct_fields__, "`approve`", "`request_changes`"):
        assert word in body


def test_the_worker_knows_the_promise_and_no_role_contains_a_prompt_header() -> None:
    assert "`<promise>COMPLETE</promise>`" in agent("worker").body
    for name in RALPH:
        assert "The first line of the prompt, in square brackets, " in agent(name).body
        # A program that searches for the header must find only the header of the prompt.
        assert "[atomic role=" not in agent(name).body


def test_each_skill_of_the_chain_reads_the_output_of_the_previous_one() -> None:
    research = "research/docs/<date>-<topic>.md"
    spec = "specs/<date>-<topic>.md"
    tasks = "research/tasks.json"
    assert f"`{research}`" in output_of("research-codebase")
    assert research in first_reads_of("create-spec")
    assert f"`{spec}`" in output_of("create-spec")
    assert spec in first_reads_of("create-feature-list")
    assert f"`{tasks}`" in output_of("create-feature-list")
    assert tasks in first_reads_of("implement-feature")


def output_of(name: str) -> str:
    return skill(name).body.split("## Output")[1]


def first_reads_of(name: str) -> str:
    return skill(name).body.split("## Read first")[1].split("## How to work")[0]


def test_create_spec_finds_its_headings_in_the_research_template() -> None:
    for heading in re.findall(r'"([A-Z][a-z ]+)"', first_reads_of("create-spec")):
        assert f"## {heading}" in output_of("research-codebase") + output_of("create-spec")
    assert "- **R1**" in output_of("create-spec")
    assert "`R1`" in skill("create-feature-list").body


def test_research_names_sub_agents_that_exist_and_works_without_them() -> None:
    body = skill("research-codebase").body
    assert set(re.findall(r"`(codebase-[a-z-]+)`", body)) == RESEARCHERS
    assert "If you cannot start sub-agents" in body


@pytest.mark.parametrize("which", FILES)
def test_every_skill_and_agent_named_in_a_file_exists(which: str) -> None:
    words = set(re.findall(r"`((?:codebase|create|research|implement|explain)-[a-z-]+)`", Document(FILES[which]).body))
    assert words <= SKILLS | AGENTS


@pytest.mark.parametrize("which", ["agent worker", "agent fixer", "skill implement-feature", "agent debugger"])
def test_unattended_roles_are_warned_of_typical_mistakes(which: str) -> None:
    forbidden = Document(FILES[which]).body.split("## Do not")[1]
    assert re.search(r"(skip|loosen|weaken)", forbidden)  # no weaker tests
    assert "Checked" in Document(FILES[which]).body  # commands and their output
    if which != "agent debugger":
        assert "`git add -A`" in forbidden  # would add unrelated files


def test_the_documentation_lists_all_skills_and_agents() -> None:
    text = (Path(__file__).parents[2] / "docs" / "skills.md").read_text()
    for name in SKILLS:
        assert f"### `/{name} {skill(name).hint}`" in text
    for name in AGENTS:
        head = agent(name).head
        tools = agent(name).tools
        assert re.search(
            rf"^\| `{name}` \|.*\| {', '.join(tools or ['all'])} \| {head['model']} \|$", text, re.MULTILINE
        )
    examples = [json.loads(example) for example in re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]
    assert TaskList.parse(examples[0]).require("2").metadata["requirements"] == ["R2"]
    assert TaskList.parse(examples[1]).ready()
    msgspec.convert(examples[2], Review)
