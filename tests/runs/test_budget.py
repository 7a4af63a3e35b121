"""Caps hold in every case, and a provider's limit is waited for by the wall clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from atomic.base.redaction import Redactor
from atomic.graph.engine.journal import Journal, MemoryJournal
from atomic.providers import Usage
from atomic.runs.budget import Budget
from atomic.runs.limits import CapReached, Caps
from atomic.runs.rate_limits import Parked
from atomic.runs.spending import Amount, Spent, read_past
from atomic.sessions.facts import Facts
from atomic.sessions.journal import SqliteJournal
from tests.support.waits import HANG as LIMIT


class Clock:
    """A wall clock that only moves when a task sleeps; a sleeper still gives way to others."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Lives:
    """One run in several processes, one after the other; each ends with a kill."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()

    def next(self, caps: Caps | None = None, **options: Any) -> Budget:
        """Return the budget of the next process; late reports to an earlier one are lost."""
        self.journal.close()
        self.facts = Facts(Path("nowhere"), Redactor([]))
        return governed(self.facts, self.journal, caps, **options)


def governed(facts: Facts, journal: Journal, caps: Caps | None, **options: Any) -> Budget:
    facts.open(journal, "run")
    budget = Budget(caps, **options)
    budget.open(facts)
    return budget


async def spend(budget: Budget, usage: Usage, *, role: str = "worker", priced: bool = True) -> None:
    async with budget.turn(role, priced=priced) as account:
        account.end("done", 1.0)
        account.report(usage)


# Caps


async def test_a_reached_cap_names_flag_spent_limit_and_remedy() -> None:
    budget = Budget(Caps(max_cost=1.0), run="0f9b")
    await spend(budget, Usage(10, 5, cost=1.25))
    with pytest.raises(CapReached) as caught:
        await spend(budget, Usage())
    reached = caught.value
    assert (reached.kind, reached.flag, reached.limit, reached.spent) == ("max_cost", "--max-cost", 1.0, 1.25)
    assert str(reached) == (
        "--max-cost is reached: $1.25 of $1.00 spent (to continue: atomic resume 0f9b --max-cost 2.5)"
    )


@pytest.mark.parametrize(
    ("caps", "kind", "words"),
    [
        (Caps(max_tokens=15), "max_tokens", "--max-tokens is reached: 15 tokens of 15 tokens spent"),
        (Caps(max_time=60), "max_time", "--max-time is reached: 90s of 60s spent"),
    ],
)
async def test_tokens_and_time_have_caps_too(caps: Caps, kind: str, words: str) -> None:
    clock = Clock()
    budget = Budget(caps, clock=clock)
    async with budget.turn("worker") as account:
        account.report(Usage(10, 5, cost=0.0))
        clock.now += 90
    with pytest.raises(CapReached) as caught:
        await spend(budget, Usage())
    assert caught.value.kind == kind
    assert str(caught.value).startswith(words)
    assert "atomic resume ID --max-" in str(caught.value)


async def test_without_caps_nothing_is_refused() -> None:
    budget = Budget()
    for _ in range(3):
        await spend(budget, Usage(10**9, 10**9, cost=1e6))
    assert budget.spent.usd == 3e6


async def test_the_most_expensive_turn_of_the_role_is_reserved() -> None:
    budget = Budget(Caps(max_cost=10.0))
    await spend(budget, Usage(cost=4.0), role="worker")
    await spend(budget, Usage(cost=0.5), role="reviewer")
    async with budget.turn("worker"):  # 4.5 spent, 4.0 reserved
        async with asyncio.timeout(LIMIT), budget.turn("reviewer"):
            pass  # 0.5 more fits
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), budget.turn("worker"):
                pytest.fail("it does not fit next to the other")
        with pytest.raises(TimeoutError):  # an unknown role is expected to be as expensive as any
            async with asyncio.timeout(0.05), budget.turn("fixer"):
                pytest.fail("it does not fit next to the other")


async def test_a_turn_waits_for_the_others_and_begins_when_they_took_less() -> None:
    budget = Budget(Caps(max_cost=10.0))
    await spend(budget, Usage(cost=5.0))
    began = asyncio.Event()

    async def second() -> None:
        async with budget.turn("worker") as account:
            began.set()
            account.report(Usage(cost=1.0))

    async with asyncio.timeout(LIMIT):
        async with budget.turn("worker") as account:
            waiting = asyncio.create_task(second())
            await asyncio.sleep(0.02)
            assert not began.is_set()
            account.report(Usage(cost=1.0))
        await waiting
    assert budget.spent.usd == 7.0


async def test_a_waiting_turn_is_refused_when_the_others_spent_everything() -> None:
    budget = Budget(Caps(max_cost=10.0))
    await spend(budget, Usage(cost=5.0))
    async with asyncio.timeout(LIMIT):
        async with budget.turn("worker") as account:
            waiting = asyncio.create_task(spend(budget, Usage()))
            await asyncio.sleep(0.02)
            account.report(Usage(cost=6.0))
        with pytest.raises(CapReached):
            await waiting


async def test_a_late_figure_counts() -> None:
    budget = Budget(Caps(max_cost=1.0))
    async with budget.turn("worker") as account:
        account.report(Usage(cost=0.1))
    account.report(Usage(cost=1.5))
    assert budget.spent.usd == 1.5
    with pytest.raises(CapReached):
        await spend(budget, Usage())


async def test_a_failed_turn_counts_with_its_last_report() -> None:
    budget = Budget(Caps(max_cost=1.0))

    async def fail() -> None:
        async with budget.turn("worker") as account:
            account.report(Usage(cost=2.0))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await fail()
    assert budget.spent.usd == 2.0


async def test_a_pause_takes_no_time_but_concurrent_work_does() -> None:
    clock = Clock()
    budget = Budget(clock=clock)
    clock.now += 10
    with budget.resting():
        clock.now += 1000
        async with budget.turn("worker"):
            clock.now += 5
        clock.now += 1000
    clock.now += 1
    assert budget.spent.seconds == 16


async def test_setting_the_clock_back_returns_no_time() -> None:
    clock = Clock()
    lives = Lives()
    first = lives.next(clock=clock)
    clock.now += 30
    first.stop()
    budget = lives.next(clock=clock)
    clock.now -= 3600
    assert budget.spent.seconds == 30


# Unknown prices


async def test_without_a_price_the_token_cap_counts_with_one_warning() -> None:
    said: list[str] = []
    budget = Budget(Caps(max_cost=0.01, max_tokens=1000), warn=said.append)
    for _ in range(2):
        await spend(budget, Usage(400, 50), priced=False)
    assert said == ["the agent does not report prices: --max-tokens 1,000 counts, not --max-cost"]
    await spend(budget, Usage(400, 50), priced=False)
    with pytest.raises(CapReached) as caught:
        await spend(budget, Usage(), priced=False)
    assert caught.value.kind == "max_tokens"


async def test_a_money_cap_without_prices_becomes_a_token_cap_with_a_warning() -> None:
    said: list[str] = []
    budget = Budget(Caps(max_cost=2.0), warn=said.append)
    await spend(budget, Usage(150_000, 49_999))  # only the end shows that the price is unknown
    await spend(budget, Usage(1, 0))
    (words,) = said
    assert words.startswith("the agent does not report prices: --max-cost 2 counts as 200,000 tokens")
    assert "--max-tokens N" in words
    with pytest.raises(CapReached, match="200,000 tokens without a price count as"):
        await spend(budget, Usage())
    assert budget.spent.cost.usd is None


async def test_without_a_money_cap_there_is_no_warning_about_prices() -> None:
    said: list[str] = []
    await spend(Budget(Caps(max_tokens=10), warn=said.append), Usage(1, 1), priced=False)
    assert said == []


# Spending after a kill


async def test_spending_is_read_again_after_a_kill(tmp_path: Path) -> None:
    clock = Clock()
    with SqliteJournal(tmp_path / "journal.db") as journal:
        first = governed(Facts(tmp_path, Redactor([])), journal, Caps(max_cost=10.0), clock=clock)
        async with first.turn("worker") as account:
            clock.now += 40
            account.end("done", 40.0)
            account.report(Usage(100, 10, cost=2.0))
        account = await first.turn("worker").__aenter__()  # a kill: it is never settled
        account.report(Usage(50, 5, cost=1.0))
        account.report(Usage(90, 9, cost=1.5))
    with SqliteJournal(tmp_path / "journal.db") as journal:
        again = governed(Facts(tmp_path, Redactor([])), journal, Caps(max_cost=10.0), clock=clock)
        assert again.spent == Spent(3.5, 190, 19, 40.0)
        await spend(again, Usage(cost=6.0))
        async with again.turn("worker"):  # 9.5 of 10: only one may begin
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), again.turn("worker"):
                    pytest.fail("the most expensive turn of the first process is remembered")


async def test_the_second_turn_of_one_call_counts_if_it_is_cut() -> None:
    lives = Lives()
    account = await lives.next().turn("planner").__aenter__()
    account.report(Usage(10, 1, cost=0.5))
    account.report(Usage(30, 3, cost=0.75))  # asked once more, and then killed
    assert lives.next().spent.amount == Amount(0.75, 30, 3)


async def test_a_late_figure_survives_too() -> None:
    lives = Lives()
    async with lives.next().turn("worker") as account:
        account.report(Usage(10, 1, cost=0.1))
    account.report(Usage(30, 3, cost=0.4))
    spent = lives.next().spent
    assert (spent.usd, spent.tokens) == (pytest.approx(0.4), 33)


def test_spending_of_an_older_version_counts_once() -> None:
    lives = Lives()
    lives.next()
    for _ in range(2):
        budget = Budget()
        budget.open(lives.facts, before=Amount(1.5, 10, 2))
        assert budget.spent.amount == Amount(1.5, 10, 2)


# Turns that take too much


async def test_a_first_turn_may_take_twice_the_rest_of_a_cap() -> None:
    budget = Budget(Caps(max_cost=1.0, max_tokens=1000))
    async with budget.turn("worker") as account:
        account.report(Usage(100, 10, cost=2.0), is_final=False)
        assert budget.cut_for(account) is None
        account.report(Usage(100, 10, cost=2.1), is_final=False)
        reached = budget.cut_for(account)
    assert reached is not None
    assert (reached.kind, reached.limit, reached.spent) == ("max_cost", 1.0, 2.1)


async def test_a_later_turn_may_take_the_rest_and_twice_the_most_expensive_of_its_role() -> None:
    budget = Budget(Caps(max_cost=10.0))
    await spend(budget, Usage(cost=1.0))
    await spend(budget, Usage(cost=5.0), role="planner")
    async with budget.turn("worker") as account:  # 4 are left
        for cost, is_cut in ((6.0, False), (6.1, True)):
            account.report(Usage(cost=cost), is_final=False)
            assert (budget.cut_for(account) is not None) is is_cut


async def test_an_interrupted_turn_does_not_raise_the_limit_of_the_next() -> None:
    budget = Budget(Caps(max_cost=100.0))
    await spend(budget, Usage(cost=1.0))
    async with budget.turn("worker") as account:
        account.report(Usage(cost=98.0), is_final=False)
        account.is_cut = True
    async with budget.turn("worker") as account:  # 1 is left
        account.report(Usage(cost=3.1), is_final=False)
        assert budget.cut_for(account) is not None


async def test_tokens_of_an_agent_that_reports_its_price_at_the_end_count_by_its_earlier_price() -> None:
    said: list[str] = []
    budget = Budget(Caps(max_cost=100.0), warn=said.append)
    async with budget.turn("worker", provider="claude") as account:
        account.report(Usage(1_000_000, 0, 1_000_000), is_final=False)
        assert budget.spent.usd == pytest.approx(0.5)  # cached tokens, at $5 for a million that are not
        account.report(Usage(1_000_000, 0, 1_000_000, cost=0.2))
        assert budget.spent.usd == pytest.approx(0.2)
    async with budget.turn("worker", provider="claude") as account:
        account.report(Usage(2_000_000, 0, 2_000_000), is_final=False)
        assert budget.spent.usd == pytest.approx(0.6)
    assert said == []


async def test_a_reported_price_counts_for_every_agent() -> None:
    budget = Budget(Caps(max_cost=5.0))
    await spend(budget, Usage(600_000, 0, cost=0.15), priced=False)
    assert budget.spent.amount == Amount(0.15, 600_000)
    await spend(budget, Usage(1000, 0, cost=0.0), priced=False)  # many agents report zero for an unknown price
    assert budget.spent.unpriced == 1000


async def test_a_check_is_interrupted_when_the_time_and_its_grace_are_over() -> None:
    clock = Clock()
    budget = Budget(Caps(max_time=10, grace=5), clock=clock, run="0f9b")
    clock.now += 16
    with pytest.raises(CapReached, match="the running check was interrupted") as caught:
        async with asyncio.timeout(LIMIT), budget.timed("check"):
            await asyncio.Event().wait()
    assert (caught.value.kind, caught.value.spent) == ("max_time", 16.0)


async def test_a_time_limit_of_the_work_itself_is_not_a_cap() -> None:
    for caps in (Caps(), Caps(max_time=3600)):
        with pytest.raises(TimeoutError):
            async with Budget(caps).timed("check"):
                raise TimeoutError


async def test_an_estimate_is_announced_once_and_only_to_a_run_with_caps() -> None:
    estimated = Usage(300, 100)
    for caps, messages in ((Caps(), 0), (Caps(max_time=60), 0), (Caps(max_tokens=9000), 1), (Caps(max_cost=5.0), 2)):
        said = list[str]()
        budget = Budget(caps, warn=said.append)
        for _ in range(2):
            async with budget.turn("worker", provider="acp:gemini") as account:
                account.end("done", 1.0)
                account.report(estimated, estimated=True)
        assert len(said) == messages
        assert not said or said[0].startswith(
            "acp:gemini reports neither tokens nor prices: the caps count an estimate"
        )
        assert budget.spent.tokens == 800


def test_the_time_limit_of_a_turn_depends_on_its_role_unless_it_is_set() -> None:
    assert (Caps().turn_limit_of("planner"), Caps().turn_limit_of("worker")) == (1800.0, 7200.0)
    assert (Caps(turn_limit=60).turn_limit_of("planner"), Caps(turn_limit=0).turn_limit_of("worker")) == (60, None)


def test_a_stopped_budget_counts_no_more_time() -> None:
    clock = Clock()
    budget = Budget(clock=clock)
    clock.now += 7
    budget.stop()
    clock.now += 100
    assert budget.spent.seconds == 7.0


# Providers that do not serve


async def test_a_limited_provider_is_waited_for_by_the_wall_clock() -> None:
    clock = Clock()
    said = list[str]()
    budget = Budget(clock=clock, sleep=clock.sleep, warn=said.append)
    reset = clock.now + 120
    assert budget.rate_limits.park(datetime.fromtimestamp(reset, UTC), "claude") == reset
    assert budget.rate_limits.parked_until == reset
    async with asyncio.timeout(LIMIT), budget.turn("worker", provider="claude"):
        assert reset <= clock.now <= reset + 60
    assert budget.rate_limits.parked_until is None
    assert budget.spent.seconds < 1
    assert len(said) == 1
    assert "claude has reached its usage limit: waiting until" in said[0]


async def test_a_machine_that_slept_wakes_the_run_at_once() -> None:
    clock = Clock()
    budget = Budget(clock=clock, sleep=_sleeping_through(clock, 7 * 3600))
    budget.rate_limits.park(clock.now + 4 * 3600, "claude")
    async with asyncio.timeout(LIMIT), budget.turn("worker", provider="claude"):
        pass
    assert len(clock.slept) == 1


def _sleeping_through(clock: Clock, seconds: float) -> Callable[[float], Awaitable[None]]:
    """Sleep through this time in the first sleep, like a laptop with a closed lid."""

    async def sleep(asked: float) -> None:
        assert asked <= 60
        await clock.sleep(asked)
        clock.now += seconds

    return sleep


async def test_a_restart_waits_for_the_same_reset() -> None:
    lives = Lives()
    clock = Clock()
    lives.next(clock=clock).rate_limits.park(clock.now + 120, "claude")
    clock.now += 30
    again = lives.next(clock=clock, sleep=clock.sleep)
    assert again.rate_limits.parked_until == 1_800_000_120.0
    async with asyncio.timeout(LIMIT), again.turn("worker", provider="claude"):
        assert 1_800_000_120 <= clock.now <= 1_800_000_180


async def test_the_limit_of_an_older_version_holds_for_the_agent_of_its_run() -> None:
    lives = Lives()
    clock = Clock()
    lives.next(clock=clock).rate_limits.adopt(clock.now + 50, "claude")
    budget = lives.next(clock=clock, sleep=clock.sleep)  # the journal has it now
    budget.rate_limits.adopt(clock.now + 50, "opencode")
    assert await budget.rate_limits.provider_for("opencode") == "opencode"
    assert clock.slept == []
    async with asyncio.timeout(LIMIT), budget.turn("worker", provider="claude"):
        assert sum(clock.slept) >= 50


async def test_the_journal_decides_about_a_limit_if_it_has_one() -> None:
    lives = Lives()
    clock = Clock()
    lives.next(clock=clock).rate_limits.park(clock.now + 120, "claude")
    again = lives.next(clock=clock, sleep=clock.sleep)
    again.rate_limits.adopt(clock.now + 9000, "opencode")
    assert again.rate_limits.parked_until == clock.now + 120
    assert await again.rate_limits.provider_for("opencode") == "opencode"


@pytest.mark.parametrize("seconds", [-5.0, 9 * 86400.0, float("inf"), float("nan")])
async def test_an_absurd_limit_in_the_record_is_ignored(seconds: float) -> None:
    clock = Clock()
    budget = Lives().next(clock=clock, sleep=clock.sleep)
    budget.rate_limits.adopt(clock.now + seconds, "claude")
    async with asyncio.timeout(LIMIT), budget.turn("worker", provider="claude"):
        assert clock.slept == []


async def test_a_limit_without_an_agent_in_an_older_journal_is_ignored() -> None:
    lives = Lives()
    clock = Clock()
    lives.next(clock=clock)
    lives.facts.set("parked", {"": clock.now + 900, "claude": clock.now + 120})
    again = lives.next(clock=clock, sleep=clock.sleep)
    assert await again.rate_limits.provider_for("opencode") == "opencode"
    assert clock.slept == []


async def test_stop_reports_the_reset_and_how_to_continue() -> None:
    clock = Clock()
    budget = Budget(clock=clock, sleep=clock.sleep, on_limit="stop", run="0f9b")
    budget.rate_limits.park(clock.now + 120, "claude")
    with pytest.raises(Parked, match=r"atomic resume 0f9b --on-limit wait") as caught:
        await budget.rate_limits.provider_for("claude", ["opencode"])
    assert (caught.value.provider, caught.value.reset_at) == ("claude", clock.now + 120)
    assert clock.slept == []


async def test_switch_takes_the_next_that_is_not_limited() -> None:
    clock = Clock()
    budget = Budget(clock=clock, sleep=clock.sleep, on_limit="switch")
    others = ["claude", "opencode", "acp:gemini"]
    assert await budget.rate_limits.provider_for("claude", others) == "claude"
    budget.rate_limits.park(clock.now + 100, "claude")
    assert await budget.rate_limits.provider_for("claude", others) == "opencode"
    budget.rate_limits.park(clock.now + 50, "opencode")
    assert await budget.rate_limits.provider_for("claude", others) == "acp:gemini"
    budget.rate_limits.park(clock.now + 200, "acp:gemini")
    assert clock.slept == []
    async with asyncio.timeout(LIMIT):  # all are limited: the first that serves again
        assert await budget.rate_limits.provider_for("claude", others) == "opencode"
    assert 50 <= sum(clock.slept) <= 60
    clock.now += 100
    assert await budget.rate_limits.provider_for("claude", others) == "claude"


async def test_one_limited_provider_does_not_stop_the_others() -> None:
    clock = Clock()
    budget = Budget(clock=clock, sleep=clock.sleep)
    budget.rate_limits.park(clock.now + 1000, "claude")
    async with asyncio.timeout(LIMIT), budget.turn("reviewer", provider="opencode"):
        assert clock.slept == []


@pytest.mark.parametrize("reset", [None, -3600.0, 10 * 365 * 86400.0])
async def test_an_unknown_or_absurd_reset_is_retried_with_growing_delays(reset: float | None) -> None:
    clock = Clock()
    budget = Budget(clock=clock, sleep=clock.sleep)
    told = None if reset is None else clock.now + reset
    waits = [budget.rate_limits.park(told, "claude") - clock.now for _ in range(6)]
    assert waits == [60, 120, 240, 480, 900, 900]


# A hundred random runs


class Simulation:
    """Workers that spend at random: late, unpriced, killed, with caps that are raised."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lives = Lives()
        self.truth = 0.0  # the real spending
        self.dearest = 0.0
        self.workers = self.random.randint(1, 8)
        self.cap = self.random.uniform(1.0, 20.0)

    async def process(self, *, kill: bool) -> None:
        """Run one process: workers take turns until the cap or a kill stops them."""
        budget = self.lives.next(Caps(max_cost=self.cap))
        tasks = [asyncio.create_task(self.worker(budget, number)) for number in range(self.workers)]
        if kill:
            await asyncio.sleep(self.random.uniform(0.0, 0.004))
            for task in tasks:
                task.cancel()  # nothing after the kill reaches the disk: see `turn`
        await asyncio.gather(*tasks, return_exceptions=True)
        if not kill:
            assert all(isinstance(task.exception(), CapReached) for task in tasks)
            assert budget.spent.usd == pytest.approx(self.truth)

    async def worker(self, budget: Budget, number: int) -> None:
        while True:
            await self.turn(budget, f"role-{number % 3}")

    async def turn(self, budget: Budget, role: str) -> None:
        costs = [self.random.uniform(0.0, 1.0) for _ in range(self.random.randint(1, 4))]
        usage = Usage(cost=0.0)
        context = budget.turn(role)
        account = await context.__aenter__()
        assert self.truth < self.cap, "a turn began above the cap"
        for cost in costs:
            await asyncio.sleep(self.random.uniform(0.0, 0.001))  # a kill here leaves the context open, as it would
            usage += Usage(1, 1, cost=cost)
            self.truth += cost
            account.report(usage)
        self.dearest = max(self.dearest, usage.cost or 0.0)
        late = self.random.uniform(0.0, 0.2) if self.random.random() < 0.3 else 0.0
        await context.__aexit__(None, None, None)
        if late:
            self.truth += late
            account.report(usage + Usage(cost=late))


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(20, 100))])
async def test_the_overshoot_is_one_turn_for_each_live_worker_at_most(seed: int) -> None:
    simulation = Simulation(seed)
    async with asyncio.timeout(LIMIT):
        for life in range(4):
            await simulation.process(kill=life == 0)
            spent = read_past(simulation.lives.facts).spent.usd
            assert spent == pytest.approx(simulation.truth)
            dearest = max(simulation.dearest, 4.0) + 0.2
            assert simulation.truth <= simulation.cap + simulation.workers * dearest
            simulation.cap += simulation.random.uniform(0.0, 10.0)  # raised, and resumed


async def test_a_known_price_keeps_the_overshoot_to_one_turn_in_all() -> None:
    """With reservations and a known price, eight workers overshoot no more than one."""
    budget = Budget(Caps(max_cost=10.0))
    await spend(budget, Usage(cost=1.0))

    async def work() -> None:
        while True:
            async with budget.turn("worker") as account:
                await asyncio.sleep(0)
                account.report(Usage(cost=1.0))

    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(work() for _ in range(8)), return_exceptions=True)
    assert budget.spent.usd == 10.0
