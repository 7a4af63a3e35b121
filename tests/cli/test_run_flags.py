"""Read the flags of a run from a command line."""

from __future__ import annotations

import pytest

from atomic.base.arguments import UsageError, parse
from atomic.base.flags import RUN
from atomic.cli.run_host import read_flags
from atomic.wiring import RunFlags
from tests.support.user import User, complaint


def flags(*words: str) -> RunFlags:
    return read_flags(parse(words, RUN))


def test_an_agent_is_for_all_roles_or_for_one() -> None:
    assert flags("--agent", "claude", "--agent", "worker=opencode").agents == {"": "claude", "worker": "opencode"}


@pytest.mark.parametrize("name", ["replay:/tmp/a=b.jsonl", "openrouter/model=free"])
def test_a_name_may_contain_an_equals_sign_after_a_slash_or_a_colon(name: str) -> None:
    assert flags("--model", name).models == {"": name}


@pytest.mark.parametrize("value", ["worker=", "=claude", " ", ""])
def test_an_incomplete_agent_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="give NAME, or ROLE=NAME"):
        flags(f"--agent={value}")


def test_flags_of_a_resume_override_those_of_the_start() -> None:
    old = {"agents": {"": "claude"}, "caps": {"max_cost": 1.0, "max_time": None}, "on_limit": "stop"}
    resumed = flags("--agent", "worker=copilot", "--max-cost", "$2.50").over(old)
    assert resumed == RunFlags(agents={"": "claude", "worker": "copilot"}, caps={"max_cost": 2.5}, on_limit="stop")


async def test_a_wrong_value_is_reported_before_a_missing_agent(user: User) -> None:
    without = await user.atomic("run", "ralph", "go")
    assert "No agent can be used here" in complaint(without)
    done = await user.atomic("run", "ralph", "--isolate", "overlya", "go")
    assert complaint(done) == '--isolate cannot be "overlya": give auto, overlay, clone, worktree or none'
