"""`atomic entities`: list and show, as text and as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.entity_files import agent, skill, write
from tests.support.repositories import git
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint

FIELDS = [
    "kind", "name", "description", "aliases", "tools", "denied_tools", "model", "original_model", "argument_hint",
    "hidden", "provider", "location", "path", "hides",
]  # fmt: skip


async def listed(user: User, *flags: str) -> dict[str, Any]:
    done = await user.atomic("entities", "list", "--json", *flags)
    assert (done.exit_code, done.stderr) == (0, "")
    return msgspec.json.decode(done.stdout)


async def one(user: User, name: str, *flags: str) -> dict[str, Any]:
    (found,) = [entity for entity in (await listed(user, *flags))["entities"] if entity["name"] == name]
    return found


async def test_json_has_all_fields_of_an_entity(user: User) -> None:
    file = skill(
        user.project / ".claude", "tidy", "Tidy: $ARGUMENTS", description="Tidy up.",
        head="aliases: [ti]\nallowed-tools: Bash(git:*), Edit\nmodel: claude-opus-4-5\nargument-hint: '[file]'\n"
        "hidden: true\n",
    )  # fmt: skip
    hidden = skill(user.home / ".claude", "tidy", "Mine.")
    found = await one(user, "tidy")
    assert list(found) == FIELDS
    assert found == {
        "kind": "skill", "name": "tidy", "description": "Tidy up.", "aliases": ["ti"], "tools": ["bash", "edit"],
        "denied_tools": [], "model": "opus", "original_model": "claude-opus-4-5", "argument_hint": "[file]",
        "hidden": True, "provider": "claude", "location": "project", "path": str(file), "hides": [str(hidden)],
    }  # fmt: skip


async def test_a_broken_file_is_a_diagnostic_and_the_others_are_listed(user: User) -> None:
    broken = write(user.project / ".claude" / "agents" / "broken.md", "no front matter")
    agent(user.project / ".claude", "whole", "You are whole.")
    data = await listed(user)
    assert "whole" in [entity["name"] for entity in data["entities"]]
    (diagnostic,) = data["diagnostics"]
    assert sorted(diagnostic) == ["line", "path", "reason"]
    assert (diagnostic["path"], diagnostic["line"]) == (str(broken), 1)
    assert diagnostic["reason"]
    done = await user.atomic("entities", "list")
    assert "whole" in done.stdout
    assert done.stderr == f"atomic: {broken}:1: {diagnostic['reason']}\n"


@pytest.mark.parametrize("kind", ["command", "skill", "agent"])
async def test_only_one_kind_is_listed(user: User, kind: str) -> None:
    write(user.project / ".claude" / "commands" / "a" / "b.md", "Do it.")
    data = await listed(user, "--kind", kind)
    assert {entity["kind"] for entity in data["entities"]} == {kind}


async def test_people_get_a_table_by_kind(user: User) -> None:
    write(user.project / ".claude" / "commands" / "a" / "b.md", "Do it.")
    skill(user.home / ".claude", "commit", "Mine.", head="argument-hint: '[a very long hint of many words]'\n")
    done = await user.atomic("entities")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "Skills (8)",
        "Commands (1)",
        "Agents (11)",
    ]
    (row,) = [line for line in lines if line.startswith("  commit ")]
    assert "  [a very long hint of...  " in row
    assert "claude, user, hides 1" in row
    assert row.endswith("About commit.")
    assert any(line.startswith("  a:b ") for line in lines)


async def test_the_table_fits_the_terminal(user: User) -> None:
    skill(user.project / ".claude", "long", "Body.", description="word " * 100)
    async with in_terminal([ATOMIC, "entities"], env=user.env, cwd=user.project) as terminal:
        assert await terminal.exit_code() == 0
        await terminal.shows("Agents (11)")
        await terminal.shows("  worker")
    assert max(map(len, terminal.screen.splitlines())) == 80
    (row,) = [line for line in terminal.screen.splitlines() if line.startswith("  long ")]
    assert row.endswith("…")
    assert row.count("word") >= 4


async def test_a_strangers_words_cannot_write_to_the_terminal(user: User) -> None:
    skill(user.project / ".claude", "evil", "Body \x1b[2J.", description='"a\\e]0;title\\ab\\nc\u202e"')
    for words in (["entities"], ["entities", "show", "evil"], ["-p", "/help"], ["-p", "/help evil"]):
        done = await user.atomic(*words)
        assert done.exit_code == 0
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
        assert "\u202e" not in done.stdout
        assert "]0;title" in done.stdout


async def test_show_prints_the_file_the_hidden_files_and_the_text(user: User) -> None:
    file = skill(user.project / ".claude", "tidy", "Tidy: $ARGUMENTS", head="model: opus\ndisallowed-tools: Write\n")
    hidden = skill(user.home / ".claude", "tidy", "Mine.")
    done = await user.atomic("entities", "show", "/TIDY", "the", "tests")
    assert (done.exit_code, done.stderr) == (0, "")
    head, body = done.stdout.split("expands to:\n\n")
    assert head.splitlines()[:2] == ["tidy (skill)", "About tidy."]
    assert f"{file} (claude, project)" in head
    assert f"{hidden} (claude, user)" in head
    assert "  model:    opus\n" in head
    assert body.strip() == "Tidy: the tests"


async def test_a_name_of_two_kinds_is_shown_in_both(user: User) -> None:
    skill(user.project / ".claude", "plan", "Plan: $ARGUMENTS")
    agent(user.project / ".claude", "plan", "You plan. $ARGUMENTS")
    done = await user.atomic("entities", "show", "plan", "--json")
    entities = msgspec.json.decode(done.stdout)["entities"]
    assert [(entity["kind"], entity["prompt"].strip()) for entity in entities] == [
        ("skill", "Plan: [no arguments provided]"),
        ("agent", "You plan. $ARGUMENTS"),
    ]
    done = await user.atomic("entities", "show", "--kind", "agent", "plan")
    assert "(skill)" not in done.stdout
    assert "system prompt:\n\nYou plan. $ARGUMENTS" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show comit", 'Entity not found: "comit" (did you mean "commit"?)'),
        ("show zzzz", 'Entity not found: "zzzz" (atomic entities list shows them)'),
        ("show commit --kind agent", 'Agent not found: "commit" (atomic entities list shows them)'),
        ("show", "atomic entities show needs a NAME: atomic entities show NAME [ARGUMENTS...]"),
        ("lst", 'Unknown command: "entities lst" (did you mean "list"?)'),
        ("edit x", 'Unknown command: "entities edit" (there are: list, show)'),
        ("list x", 'atomic entities list takes no "x" (atomic entities list --help)'),
        ("--kind skills", '--kind cannot be "skills" (did you mean "skill"?): it is one of command, skill, agent'),
    ],
)
async def test_a_mistake_is_one_line_and_exit_code_2(user: User, words: str, message: str) -> None:
    done = await user.atomic("entities", *words.split())
    assert (done.exit_code, complaint(done)) == (2, message)


async def test_each_verb_has_help(user: User) -> None:
    group = await user.atomic("entities", "--help")
    assert "atomic entities show NAME [ARGUMENTS...]" in group.stdout
    assert "atomic entities list" in group.stdout
    for words, flag in (
        (["entities", "list"], "--kind KIND"),
        (["entities", "show", "x"], "--json"),
        (["mcp", "list"], "--json"),
    ):
        done = await user.atomic(*words, "--help")
        assert (done.exit_code, done.stderr) == (0, "")
        assert flag in done.stdout


async def test_the_entities_of_the_project_above_are_found_from_below(user: User) -> None:
    skill(user.project / ".claude", "tidy", "x")
    git(user.project, "init", "-q")
    below = user.project / "a" / "b"
    below.mkdir(parents=True)
    done = await user.atomic("entities", "--kind", "skill", cwd=below)
    assert "tidy" in done.stdout
