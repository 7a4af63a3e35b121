"""Test the tools of a session, which are sent as denials."""

from __future__ import annotations

from typing import Any

import pytest

from atomic.providers import AgentSpec, McpServer, SessionOptions
from atomic.providers.opencode.tool_permissions import BUILT_IN, agent_permission, session_map

KNOWN = ["invalid", *BUILT_IN, "from_a_plugin"]


async def no_answers(questions: Any) -> list[list[str]]:
    return []


def denied(servers: tuple[str, ...] = (), **options: Any) -> set[str]:
    found = session_map(SessionOptions(**options), known=KNOWN, servers=servers)
    return {name for name, allowed in found.items() if not allowed}


def test_without_a_user_only_the_question_tool_is_denied() -> None:
    assert denied() == {"question"}
    assert denied(ask=no_answers) == set()
    # OpenCode would keep the last map instead of an empty one.
    assert session_map(SessionOptions(ask=no_answers), known=[], servers=[])


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Bash", "bash"),
        ("shell", "bash"),
        ("TodoWrite", "todowrite"),
        ("mcp__box__add", "box_add"),
        ("mcp__box", "box_*"),
    ],
)
def test_tools_are_denied_under_any_of_their_names(given: str, name: str) -> None:
    assert denied(denied_tools=[given]) == {"question", name}


def test_a_list_of_tools_denies_all_others() -> None:
    found = denied(("mine",), tools=["Read", "Edit"])
    assert found == {*BUILT_IN, "from_a_plugin", "mine_*"} - {"read", "edit", "apply_patch"}


def test_agents_servers_and_questions_of_the_caller_are_never_denied() -> None:
    worker = AgentSpec(name="worker", description="", prompt="")
    box = McpServer(name="box", command=["box"])
    found = denied(("box", "mine"), tools=[], agents=[worker], mcp_servers=[box], ask=no_answers)
    assert not found & {"task", "question", "box_*", "invalid"}
    assert "mine_*" in found


def test_a_list_may_name_one_tool_of_a_server() -> None:
    found = session_map(SessionOptions(tools=["mcp__my box__add"]), known=KNOWN, servers=["my box", "other"])
    assert [name for name in found if name.startswith(("my_box", "other"))] == ["my_box_*", "other_*", "my_box_add"]
    assert (found["my_box_*"], found["my_box_add"], found["other_*"]) == (False, True, False)


def test_a_denied_tool_stays_denied_if_the_list_names_it() -> None:
    assert {"bash", "box_add"} <= denied(("box",), tools=["bash", "box_add"], denied_tools=["bash", "box_add"])


def test_a_sub_agent_has_only_the_tools_that_it_names() -> None:
    found = agent_permission(["read", "Grep", "box_add"], ["box", "atomic"])
    assert list(found.items())[-1] == ("box_add", "allow")
    assert {"bash", "edit", "task", "webfetch", "box_*", "atomic_*"} <= {
        name for name, action in found.items() if action == "deny"
    }
    assert not {"read", "grep"} & set(found)


@pytest.mark.parametrize("tool", ["write", "edit", "apply_patch"])
def test_write_edit_and_apply_patch_are_one_permission(tool: str) -> None:
    assert "edit" not in agent_permission([tool], [])
    assert not {"write", "apply_patch"} & set(agent_permission([], []))
