"""Limits that interrupt a running turn, through `atomic run` and `atomic resume`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.cli.test_limits import Player, call, usage
from tests.support.user import User, complaint

NEVER = 600.0  # seconds: a turn of this length would fail the test by its own limit


@pytest.fixture
def player(user: User) -> Player:
    return Player(user)


def figures(*costs: float | None, every: float = 0.05, tokens: int = 100) -> list[tuple[float, Mapping[str, Any]]]:
    """Return a turn that reports its usage and never ends by itself."""
    told = [
        (at * every, {"type": "usage_reported", "usage": {**usage(cost), "input": tokens}})
        for at, cost in enumerate(costs)
    ]
    return [*told, (NEVER, {"type": "notice", "text": "too late"})]


async def test_one_turn_cannot_spend_six_hundred_dollars_under_a_cap_of_one(player: Player) -> None:
    await player.plays(call(1, *figures(*[0.5] * 1200)))
    code, ended = await player.run("--max-cost", "1")
    assert (code, ended["status"], ended["reason"]) == (6, "paused", "max_cost")
    assert "the running turn was interrupted, and its work is kept" in str(ended["message"])
    (cut,) = player.calls
    assert cut["reason"] == "interrupted"
    assert 2.0 < cut["usage"]["cost"] < 600  # the first turn of a role may take twice the cap
    spent = msgspec.json.decode((player.folder / "session.json").read_bytes())["cost"]["usd"]
    assert spent == pytest.approx(cut["usage"]["cost"])


async def test_a_turn_may_exceed_a_cap_by_twice_the_most_expensive_turn_of_its_role(player: Player) -> None:
    await player.plays(
        call(1, cost=0.6),
        call(2, *figures(*[0.1] * 20)[:-1], (2.0, {"type": "notice", "text": "x"}), cost=2.0),  # 1.6 more than the cap
        call(3),
    )
    code, ended = await player.run("--max-cost", "1.5")
    assert (code, [one["reason"] for one in player.calls]) == (6, ["done", "done"])
    assert "interrupted" not in str(ended["message"])


async def test_a_cap_of_tokens_interrupts_a_turn(player: Player) -> None:
    await player.plays(call(1, *figures(*[None] * 1200, tokens=1000)))
    code, ended = await player.run("--max-tokens", "5000")
    assert (code, ended["reason"]) == (6, "max_tokens")
    assert [one["reason"] for one in player.calls] == ["interrupted"]


async def test_a_turn_that_never_ends_is_interrupted_after_max_time_and_the_grace(player: Player) -> None:
    await player.plays(call(1, (NEVER, {"type": "notice", "text": "x"})), call(1), call(2), call(3))
    player.user.sets('[caps]\ngrace = "1s"\n')
    code, ended = await player.run("--max-time", "1s")
    assert (code, ended["reason"]) == (6, "max_time")
    assert "--max-time is reached: 2s of 1s spent; the running turn was interrupted" in str(ended["message"])
    (limit,) = [one for one in player.said if one["type"] == "limit_reached"]
    assert limit["kind"] == "max_time"
    player.records(call(1), call(2), call(3))
    code, ended = await player.resume("--max-time", "1h")
    assert (code, ended["status"]) == (0, "completed")


async def test_a_turn_that_ends_within_the_grace_is_not_interrupted(player: Player) -> None:
    await player.plays(call(1, (1.5, {"type": "notice", "text": "x"})), call(2), call(3))
    code, ended = await player.run("--max-time", "1s")  # the grace is two minutes
    assert (code, ended["reason"], [one["reason"] for one in player.calls]) == (6, "max_time", ["done"])


@pytest.mark.ci
@pytest.mark.parametrize(
    ("flag", "words"),
    [("--turn-limit", "the turn took longer than 1s"), ("--idle-limit", "the agent was silent for 1s")],
)
async def test_a_turn_that_exceeds_its_time_limit_fails_its_node(player: Player, flag: str, words: str) -> None:
    await player.plays(call(1, (NEVER, {"type": "notice", "text": "x"})))
    code, ended = await player.run(flag, "1s")
    assert (code, ended["status"]) == (1, "failed")
    assert words in str(ended["message"])
    assert flag in str(ended["message"])
    assert [(one["reason"], words in one["error"]) for one in player.calls] == [("interrupted", True)]


@pytest.mark.ci
async def test_an_active_agent_is_not_idle(player: Player) -> None:
    busy = [(at * 0.25, {"type": "notice", "text": "x"}) for at in range(20)]
    await player.plays(call(1, *busy), call(2), call(3))
    code, _ = await player.run("--idle-limit", "4s")
    assert code == 0


@pytest.mark.ci
async def test_a_flag_overrides_the_turn_limits_of_the_configuration(player: Player) -> None:
    await player.plays(call(1, (2.5, {"type": "notice", "text": "x"})), call(2), call(3))
    player.user.sets('[caps]\nturn_limit = "1s"\n')
    assert (await player.run())[0] == 1
    assert (await player.run("--turn-limit", "0"))[0] == 0


@pytest.mark.ci
async def test_a_project_cannot_raise_the_turn_limits(player: Player) -> None:
    user = player.user
    for line in ("turn_limit = 0", 'turn_limit = "3h"', 'grace = "1h"'):
        user.project_sets(f"[caps]\n{line}\n")
        shown = await user.atomic("config", "--json")
        assert "a project may not set it higher" in shown.stdout + shown.stderr
    user.sets('[caps]\nidle_limit = "5m"\n')
    user.project_sets("[caps]\nidle_limit = 0\n")
    shown = await user.atomic("config", "--json")
    assert "a project may not set it higher" in shown.stdout + shown.stderr


@pytest.mark.ci
@pytest.mark.parametrize("flag", ["--turn-limit", "--idle-limit"])
@pytest.mark.parametrize("value", ["soon", "5"])
async def test_a_wrong_limit_is_refused(player: Player, flag: str, value: str) -> None:
    done = await player.user.atomic("run", "flow", flag, value, "go")
    assert done.exit_code == 2
    assert f'{flag} cannot be "{value}": give a time' in complaint(done)
    assert "or 0 for no limit" in complaint(done)
