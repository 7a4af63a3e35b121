"""Test that models and tools in the spelling of any agent become Atomic's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.entities.files import load, one

FILES = {
    "claude": ".claude/agents/x.md",
    "opencode": ".opencode/agent/x.md",
    "copilot": ".github/agents/x.agent.md",
    "atomic": ".atomic/agents/x.md",
}
providers = pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())


@providers
@pytest.mark.parametrize(
    ("line", "model", "original"),
    [
        ("model: opus", "opus", "opus"),
        ("model: SONNET", "sonnet", "SONNET"),
        ("model: anthropic/claude-opus-4-5", "opus", "anthropic/claude-opus-4-5"),
        ("model: claude-3-5-haiku", "haiku", "claude-3-5-haiku"),
        ("model: us.anthropic.claude-sonnet-4-20250514-v1:0", "sonnet", "us.anthropic.claude-sonnet-4-20250514-v1:0"),
        ("model: Claude Sonnet 4.5 (copilot)", "sonnet", "Claude Sonnet 4.5 (copilot)"),
        ("model: ['Claude Opus 4 (copilot)', 'GPT-5 (copilot)']", "opus", "Claude Opus 4 (copilot)"),
        ("model:\n  - GPT-5 (copilot)\n  - opus", "inherit", "GPT-5 (copilot)"),
        ("model: gpt-4o", "inherit", "gpt-4o"),
        ("model: gemini-1.5-pro", "inherit", "gemini-1.5-pro"),
        ("model: my-opus-clone", "inherit", "my-opus-clone"),
        ("model: inherit", "inherit", "inherit"),
        ("model: opus[1m]", "opus", "opus[1m]"),
        ("note: no: yaml\nmodel: ['Claude Opus 4', 'GPT-5']", "opus", "Claude Opus 4"),
        ("model:", None, None),
        ("color: red", None, None),
    ],
)
def test_a_model_becomes_its_family(
    tmp_path: Path, file: str, line: str, model: str | None, original: str | None
) -> None:
    entity = one(tmp_path, file, f"---\nname: x\n{line}\n---\nHi\n")
    assert (entity.model, entity.original_model) == (model, original)


@providers
@pytest.mark.parametrize(
    ("lines", "tools", "denied"),
    [
        ('tools: ["Bash", "edit"]', ["bash", "edit"], []),
        ("tools: {bash: true, edit: true, write: false}", ["bash", "edit"], []),
        ("tools:\n  bash: true\n  edit: true\n  write: false", ["bash", "edit"], []),
        ('tools: "Bash(git:*), Edit"', ["bash", "edit"], []),
        ("tools: Bash(git:*), Edit", ["bash", "edit"], []),
        ("tools: Bash(git add:*, git commit:*), Bash(ls), Edit", ["bash", "edit"], []),
        ("tools: Bash(git add:*) Edit", ["bash", "edit"], []),
        ("tools:\n  - Bash\n  - MultiEdit\n  - Edit", ["bash", "edit"], []),
        ("tools: {write: false, edit: false}", None, ["write", "edit"]),
        ("tools: ['!write', '-edit']", None, ["write", "edit"]),
        ("disallowedTools: Write, Edit", None, ["write", "edit"]),
        ("disallowedTools: [Write, Edit]", None, ["write", "edit"]),
        ("tools: [Read, Write]\ndisallowedTools: Write", ["read", "write"], ["write"]),
        ("permission: {write: deny, edit: deny}", None, ["write", "edit"]),
        ("tools: []", [], []),
        ("tools:", [], []),
        ("tools: none", [], []),
        ("tools: {}", [], []),
        ("tools: {'*': false}", [], []),
        ("tools: {'*': false, read: true}", ["read"], []),
        ("tools: {'*': true, bash: false}", None, ["bash"]),
        ("color: red", None, []),
        ('tools: ["*"]', None, []),
        ("tools: '*'", None, []),
        ("tools: *", None, []),
        ("tools: all", None, []),
        ("tools: mcp__Sentry__Find, github/*, LSP", ["mcp__Sentry__Find", "github/*", "LSP"], []),
        (
            "tools: WebFetch, WebSearch, Task, TodoWrite, NotebookEdit",
            ["webfetch", "websearch", "task", "todo", "edit"],
            [],
        ),
    ],
)
def test_tools_are_read_in_every_notation(
    tmp_path: Path, file: str, lines: str, tools: list[str] | None, denied: list[str]
) -> None:
    entity = one(tmp_path, file, f"---\nname: x\n{lines}\n---\nHi\n")
    assert (entity.tools, entity.denied_tools) == (tools, denied)


@pytest.mark.parametrize(
    ("lines", "denied"),
    [
        ("permission:\n  write: deny\n  edit: deny", ["write", "edit"]),
        ("permission: {edit: deny}", ["edit", "write"]),  # OpenCode's `edit` covers every change
        ("permission: {bash: deny, edit: ask, webfetch: allow}", ["bash"]),
        ("permission: {bash: {'*': deny}, webfetch: deny}", ["bash", "webfetch"]),
        ("permission: {bash: {'*': ask, 'rm *': deny}}", []),
        ("permission: {bash: {'*': deny, 'git *': allow}}", ["bash"]),
        ("permission: allow", []),
        ("tools: {write: false}\npermission: {bash: deny}", ["write", "bash"]),
    ],
)
def test_permissions_of_opencode_deny_tools(tmp_path: Path, lines: str, denied: list[str]) -> None:
    entity = one(tmp_path, ".opencode/agent/x.md", f"---\n{lines}\n---\nHi\n")
    assert (entity.tools, entity.denied_tools) == (None, denied)


@pytest.mark.parametrize(
    ("lines", "left"), [("permission: deny", set[str]()), ("permission: {'*': deny, read: allow}", {"read"})]
)
def test_a_permission_can_deny_every_tool(tmp_path: Path, lines: str, left: set[str]) -> None:
    entity = one(tmp_path, ".opencode/agent/x.md", f"---\n{lines}\n---\nHi\n")
    known = {"write", "edit", "bash", "read", "glob", "grep", "webfetch", "websearch", "task", "todo"}
    assert entity.tools is None
    assert known - set(entity.denied_tools) == left


def test_rules_for_some_files_or_commands_deny_no_tool(tmp_path: Path) -> None:
    rules = 'permission:\n  edit:\n    "**/.git/**": deny\n  bash:\n    "*": deny\n    "git *": allow\n  task: allow\n'
    entity = one(tmp_path, ".opencode/agent/x.md", f"---\ndescription: x\n{rules}---\nHi\n")
    assert (entity.tools, entity.denied_tools) == (None, ["bash"])


@pytest.mark.parametrize(
    ("names", "tools"),
    [
        ("['search/codebase', 'edit/editFiles', 'execute/runInTerminal']", ["grep", "glob", "read", "edit", "bash"]),
        ("['runCommands', 'fetch', 'editFiles', 'codebase']", ["bash", "webfetch", "edit", "grep", "glob", "read"]),
        (
            "['read', 'search', 'web', 'agent', 'todo', 'execute']",
            ["read", "grep", "glob", "webfetch", "websearch", "task", "todo", "bash"],
        ),
        ("['azure/deploy', 'githubRepo', 'web/fetch']", ["azure/deploy", "githubRepo", "webfetch"]),
    ],
)
def test_tools_of_copilot_are_translated(tmp_path: Path, names: str, tools: list[str]) -> None:
    assert one(tmp_path, FILES["copilot"], f"---\ntools: {names}\n---\nHi\n").tools == tools


@pytest.mark.parametrize("file", [".claude/commands/x.md", ".claude/skills/x/SKILL.md", ".atomic/skills/x/SKILL.md"])
def test_commands_and_skills_use_allowed_tools(tmp_path: Path, file: str) -> None:
    entity = one(tmp_path, file, "---\nallowed-tools: Bash(git add:*), Read\ndisallowed-tools: Write\n---\nHi\n")
    assert (entity.tools, entity.denied_tools) == (["bash", "read"], ["write"])


def test_models_and_tools_are_read_from_json(tmp_path: Path) -> None:
    config = """{"agent": {
      "a": {"tools": {"bash": true, "write": false}, "model": "anthropic/claude-sonnet-4-5"},
      "b": {"tools": {"write": false, "edit": false}, "permission": {"bash": {"*": "deny"}}, "hidden": true},
      "c": {"disable": true}
    }, "command": {"d": {"template": "x", "model": "openai/gpt-5", "subtask": true, "agent": "a"}}}"""
    registry = load(tmp_path, {"opencode.json": config})
    a = registry.require("agent", "a")
    b = registry.require("agent", "b")
    d = registry.require("command", "d")
    assert (a.tools, a.model, a.original_model) == (["bash"], "sonnet", "anthropic/claude-sonnet-4-5")
    assert (b.tools, b.denied_tools, b.hidden) == (None, ["write", "edit", "bash"], True)
    assert (d.model, d.original_model) == ("inherit", "openai/gpt-5")
    assert registry.find("agent", "c") is None
    assert registry.diagnostics == []
