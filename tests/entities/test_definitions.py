"""Test name, aliases, description, hint and prompt of a file in each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.entities import BodyError, Entity
from atomic.providers.base import AgentLike
from atomic.workflows.runtime import Entities, EntityLike
from tests.entities.files import load, one, own, reasons

AGENTS = [".claude/agents/x.md", ".opencode/agent/x.md", ".github/agents/x.agent.md", ".atomic/agents/x.md"]
COMMANDS = [".claude/commands/x.md", ".opencode/command/x.md", ".github/prompts/x.prompt.md", ".atomic/commands/x.md"]
SKILLS = [
    ".claude/skills/x/SKILL.md",
    ".opencode/skill/x/SKILL.md",
    ".github/skills/x/SKILL.md",
    ".atomic/skills/x/SKILL.md",
    ".agents/skills/x/SKILL.md",
]


@pytest.mark.parametrize("file", [*AGENTS, *COMMANDS, *SKILLS])
def test_the_front_matter_has_name_and_description(tmp_path: Path, file: str) -> None:
    entity = one(tmp_path, file, "---\nname: other\ndescription: Does it\n---\n\nThe text.\n\n")
    assert (entity.name, entity.description, entity.aliases) == ("other", "Does it", [])
    assert entity.prompt == "The text."


@pytest.mark.parametrize("file", [*AGENTS, *SKILLS])
def test_agents_and_skills_need_front_matter(tmp_path: Path, file: str) -> None:
    registry = load(tmp_path, {file: "Just text.\n"})
    assert own(registry) == []
    [(name, line, reason)] = reasons(registry)
    assert (name, line) == (Path(file).name, 1)
    assert "no front matter" in reason


@pytest.mark.parametrize("file", COMMANDS)
def test_commands_need_no_front_matter(tmp_path: Path, file: str) -> None:
    entity = one(tmp_path, file, "Fix $ARGUMENTS\n---\nnow")
    assert (entity.name, entity.description) == ("x", "Command: x")
    assert entity.prompt == "Fix $ARGUMENTS\n---\nnow"


@pytest.mark.parametrize(("file", "label"), [(AGENTS[0], "Agent"), (COMMANDS[0], "Command"), (SKILLS[0], "Skill")])
def test_the_default_description_is_kind_and_name(tmp_path: Path, file: str, label: str) -> None:
    assert one(tmp_path, file, "---\nmodel: opus\n---\n").description == f"{label}: x"


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("Code Reviewer", "Code Reviewer"),
        ("../../etc/passwd", "../../etc/passwd"),
        ('"a\\nb"', "a b"),
        ('"a\\eb"', "a b"),
        ("y" * 65, "y" * 65),
        ("y" * 300, "y" * 300),
        ("/review", "/review"),
        ('".."', ".."),
    ],
)
def test_a_name_that_cannot_be_typed_becomes_an_alias(tmp_path: Path, name: str, alias: str) -> None:
    entity = one(tmp_path, AGENTS[0], f"---\nname: {name}\n---\nHi")
    assert (entity.name, entity.aliases) == ("x", [alias])
    assert load(tmp_path).find("agent", alias.upper()) == entity


@pytest.mark.parametrize("name", ["y" * 64, "🚀", "été", "a:b", "A.b_c-1", "123"])
def test_a_name_that_can_be_typed_is_kept(tmp_path: Path, name: str) -> None:
    entity = one(tmp_path, COMMANDS[0], f"---\nname: {name}\n---\nHi")
    assert (entity.name, entity.aliases) == (name, [])


@pytest.mark.parametrize("file", ["my file.md", "y" * 70 + ".md", "new\nline.md", "tab\t.md", "esc\x1b.md"])
def test_a_file_with_an_invalid_name_needs_a_name_field(tmp_path: Path, file: str) -> None:
    registry = load(tmp_path, {f".claude/commands/{file}": "Hi"})
    assert own(registry) == []
    [(_, line, reason)] = reasons(registry)
    assert line == 1
    assert "cannot be a name" in reason
    named = load(tmp_path, {f".claude/commands/{file}": "---\nname: good\n---\nHi"})
    assert (named.require("command", "good").prompt, named.diagnostics) == ("Hi", [])


@pytest.mark.parametrize(
    ("lines", "aliases"),
    [
        ("aliases: [ci, co]", ["ci", "co"]),
        ("aliases: ci, co", ["ci", "co"]),
        ("aliases:\n  - ci\n  - CI\n  - X", ["ci"]),
        ("name: My Title\naliases: ci", ["My Title", "ci"]),
        ("aliases:", []),
    ],
)
def test_aliases_are_a_list_or_separated_by_commas(tmp_path: Path, lines: str, aliases: list[str]) -> None:
    assert one(tmp_path, SKILLS[0], f"---\n{lines}\n---\nHi").aliases == aliases


@pytest.mark.parametrize(
    ("lines", "hidden"),
    [
        ("user-invocable: false", True),
        ("user-invokable: no", True),
        ("hidden: true", True),
        ("hidden: false", False),
        ("user-invocable: true", False),
        ("disable-model-invocation: true", False),
        ("mode: primary", False),
    ],
)
@pytest.mark.parametrize("file", [AGENTS[1], AGENTS[2], SKILLS[0]])
def test_an_entity_can_be_hidden_from_the_user(tmp_path: Path, file: str, lines: str, hidden: bool) -> None:
    assert one(tmp_path, file, f"---\n{lines}\n---\nHi").hidden is hidden


@pytest.mark.parametrize("file", [AGENTS[1], COMMANDS[1]])
def test_entities_that_opencode_disables_are_skipped(tmp_path: Path, file: str) -> None:
    registry = load(tmp_path, {file: "---\ndisable: true\n---\nHi"})
    assert own(registry) == []
    assert registry.diagnostics == []


@pytest.mark.parametrize("file", [*COMMANDS, SKILLS[0], AGENTS[2]])
def test_an_argument_hint_is_read(tmp_path: Path, file: str) -> None:
    assert one(tmp_path, file, "---\nargument-hint: [file] [--all]\n---\nHi").argument_hint == "[file] [--all]"


@pytest.mark.parametrize("file", [*COMMANDS, *SKILLS])
def test_an_entity_can_name_the_agent_that_runs_it(tmp_path: Path, file: str) -> None:
    entity = one(tmp_path, file, "---\ndescription: x\nagent: writer\nsubtask: true\n---\nGo.")
    assert (entity.agent, entity.subtask) == ("writer", True)


def test_the_context_fork_of_claude_is_a_subtask(tmp_path: Path) -> None:
    entity = one(tmp_path, ".claude/skills/x/SKILL.md", "---\ndescription: x\ncontext: fork\n---\nGo.")
    assert (entity.agent, entity.subtask) == (None, True)


def test_opencodes_json_names_the_agent_of_a_command(tmp_path: Path) -> None:
    text = '{"command": {"x": {"template": "Go.", "agent": "plan", "subtask": true}, "y": {"template": "Go."}}}'
    x, y = own(load(tmp_path, {"opencode.json": text}))
    assert (x.agent, x.subtask, y.agent, y.subtask) == ("plan", True, None, False)


@pytest.mark.parametrize("text", ['"a\\e[2Jb"', "a\x1b[2Jb", '"a\x1b[2Jb"'])
def test_control_characters_are_removed_from_descriptions_and_hints(tmp_path: Path, text: str) -> None:
    entity = one(tmp_path, COMMANDS[0], f"---\ndescription: {text}\nargument-hint: x\x9b[1my\n---\nHi")
    assert "\x1b" not in entity.description
    assert entity.argument_hint == "x [1my"


def test_a_complete_agent_file_of_each_tool_is_read(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        {
            ".claude/agents/review.md": "---\nname: review\ndescription: |\n  Reviews.\n  Well.\ntools: Read, Grep\n"
            "disallowedTools: Write\nmodel: sonnet\npermissionMode: plan\nskills: [a]\nmemory: project\nhooks:\n"
            "  Stop:\n    - hooks:\n        - type: command\n          command: ./x.sh\ncolor: blue\n---\nYou review.",
            ".opencode/agent/plan.md": "---\ndescription: Plans\nmode: primary\ntemperature: 0.1\nsteps: 5\n"
            "model: openai/gpt-5\npermission:\n  edit: deny\n  bash:\n    '*': ask\n    'git *': allow\n---\nYou plan.",
            ".github/agents/doc.agent.md": "---\nname: Doc Writer\ndescription: 'Writes docs'\n"
            "tools: ['read', 'edit/editFiles', 'ms-docs/*']\nmodel: ['Claude Sonnet 4.5', 'GPT-5']\n"
            "handoffs:\n  - label: Next\n    agent: review\n    prompt: Continue\n    send: false\n---\nYou write.",
            ".github/prompts/fix.prompt.md": "---\nagent: 'agent'\ndescription: Fixes\ntools: [execute]\n---\n"
            "Fix ${input:what} in ${selection}",
        },
    )
    assert registry.diagnostics == []
    review = registry.require("agent", "review")
    plan = registry.require("agent", "plan")
    doc = registry.require("agent", "doc writer")
    fix = registry.require("command", "fix")
    assert (review.description, review.tools, review.denied_tools) == ("Reviews.\nWell.", ["read", "grep"], ["write"])
    assert (plan.tools, plan.denied_tools, plan.model) == (None, ["edit", "write"], "inherit")
    assert (doc.name, doc.tools, doc.model) == ("doc", ["read", "edit", "ms-docs/*"], "sonnet")
    assert (fix.tools, fix.prompt) == (["bash"], "Fix ${input:what} in ${selection}")


def test_a_prompt_is_read_on_first_use(tmp_path: Path) -> None:
    entity = one(tmp_path, COMMANDS[0], "---\ndescription: d\n---\nOld")
    file = tmp_path / "project" / COMMANDS[0]
    file.write_text("---\ndescription: d\n---\nNew")
    assert entity.prompt == "New"
    file.unlink()
    assert entity.prompt == "New"


def test_a_missing_prompt_file_is_an_error(tmp_path: Path) -> None:
    entity = one(tmp_path, COMMANDS[0], "Hi")
    file = tmp_path / "project" / COMMANDS[0]
    file.unlink()
    with pytest.raises(BodyError, match=r"commands/x\.md.*No such file"):
        entity.expand("")
    (tmp_path / "secret").write_text("secret")
    file.symlink_to(tmp_path / "secret")
    with pytest.raises(BodyError, match="leads out"):
        entity.expand("")


def test_an_entity_fits_the_protocols_of_nodes_and_providers(tmp_path: Path) -> None:
    entity = Entity("agent", "x", prompt="p", tools=("bash",))
    for_nodes: EntityLike = entity
    for_providers: AgentLike = entity
    registry: Entities = load(tmp_path)
    assert (for_nodes.expand("a"), for_providers.tools) == ("p\n\nARGUMENTS: a", ["bash"])
    assert registry.require("skill", "COMMIT").name == "commit"


CONFIG = """{
  // opencode's own
  "agent": {
    "a": {"prompt": "{file:./prompts/a.txt}", "description": "d"},
    "b": {"prompt": "Before {file:prompts/a.txt} after {env:SECRET}"},
    "out": {"prompt": "{file:../secret.txt}"},
    "abs": {"prompt": "{file:/etc/passwd}"},
    "gone": {"prompt": "{file:gone.txt}"},
    "link": {"prompt": "{file:link.txt}"},
    "bad name": {"prompt": "x"},
    "text": "no object"
  },
  "command": {"git/sync": {"template": "Sync $1"}},
  "mode": {"m": {"prompt": "mode"}, "a": {"prompt": "loses"}}
}"""


def test_files_named_in_json_are_read_only_inside_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/link.txt").symlink_to("../secret.txt")
    registry = load(tmp_path, {"opencode.jsonc": CONFIG, "prompts/a.txt": "From the file {file:x} {env:HOME}\n"})
    assert registry.require("agent", "a").prompt == "From the file {file:x} {env:HOME}"
    assert registry.require("agent", "b").prompt == "Before From the file {file:x} {env:HOME}\n after {env:SECRET}"
    assert registry.require("agent", "m").prompt == "mode"
    assert registry.require("command", "git:sync").expand("now") == "Sync now"
    assert {line: reason.split(":")[0] for _, line, reason in reasons(registry)} == {
        6: "{file",
        7: "{file",
        8: "{file",
        9: "{file",
        10: '"bad name" cannot be a name',
        11: '"text" is not an object',
    }
    assert [entity.name for entity in own(registry) if entity.kind == "agent"] == ["a", "b", "m"]


def test_the_users_json_reads_files_only_from_its_own_folder(tmp_path: Path) -> None:
    config = '{"agent": {"in": {"prompt": "{file:./p.txt}"}, "out": {"prompt": "{file:~/p.txt}"}}}'
    registry = load(
        tmp_path,
        home={".config/opencode/opencode.json": config, ".config/opencode/p.txt": "mine", "p.txt": "elsewhere"},
    )
    assert registry.require("agent", "in").prompt == "mine"
    assert registry.find("agent", "out") is None
    assert len(registry.diagnostics) == 1
