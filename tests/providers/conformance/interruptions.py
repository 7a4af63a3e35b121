"""Interrupt turns at random: each must end once, soon, with the right reason, and leave no resources.

python -m tests.providers.conformance.interruptions --agent claude --turns 200 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from atomic.providers import AgentSession, EndReason, SessionOptions, TurnEnded, require_provider
from atomic.testing.conformance import AGENTS, Agent
from atomic.testing.conformance.case import descendants, environment
from atomic.testing.model_server import Drip, ModelServer, Script, Stall
from tests.support.programs import CACHE, use_programs

PATIENCE = 90.0


@dataclass
class Report:
    """The result of a series of turns."""

    agent: str
    turns: int = 0
    interrupted: int = 0
    wrong: list[str] = field(default_factory=list[str])
    delays: list[float] = field(default_factory=list[float])
    reasons: Counter[str] = field(default_factory=Counter[str])
    left: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def p99(self) -> float:
        return sorted(self.delays)[max(0, -(-len(self.delays) * 99 // 100) - 1)] if self.delays else 0.0

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.reasons.items()))
        left = ", ".join(f"{count:+d} {what}" for what, count in self.left.items())
        return (
            f"{self.agent}: {self.turns} turns, {self.interrupted} interrupted ({reasons}), {len(self.wrong)} wrong, "
            f"p99 from interrupt to end {self.p99:.2f} s, not released: {left}"
        )


def scripts_for(agent: Agent) -> dict[str, Script]:
    return {
        "quick": "Quick.",
        "slow": Drip("word", times=2000, every=0.05),
        "mute": Stall(),
        "tool": [[agent.words.bash("exec -a sleeper sleep 300")], "Slept."],
    }


async def interrupt_turns(agent: Agent, *, turns: int, seed: int, folder: Path) -> Report:
    """Play the turns in one session after another, ten turns in each."""
    report = Report(agent.name)
    luck = random.Random(seed)
    home = folder / "home"
    home.mkdir(parents=True)
    async with ModelServer(scripts_for(agent)) as server:
        with environment(agent.environment(server, home, CACHE), home):
            provider = require_provider(agent.name)
            # The first session loads everything that stays loaded.
            async with provider.open(SessionOptions(cwd=folder)) as session:
                await _turn(session, "quick", None, report)
            report = Report(agent.name)
            before = _open_resources()
            while report.turns < turns:
                async with provider.open(SessionOptions(cwd=folder)) as session:
                    for _ in range(min(10, turns - report.turns)):
                        script = luck.choice(("quick", "slow", "slow", "mute", "tool"))
                        after = None if script == "quick" and luck.random() < 0.5 else luck.uniform(0, 1.5)
                        await _turn(session, script, after, report)
            report.left = await _settle(before)
    return report


async def _turn(session: AgentSession, script: str, after: float | None, report: Report) -> None:
    stopped_at: list[float] = []

    async def stop(seconds: float) -> None:
        await asyncio.sleep(seconds)
        stopped_at.append(monotonic())
        await session.interrupt()

    stopping = None if after is None else asyncio.create_task(stop(after))
    ends: list[TurnEnded] = []
    late_events = 0
    async with asyncio.timeout(PATIENCE):
        async for event in session.send(f"@@{script}@@ Continue."):
            late_events += bool(ends)
            if isinstance(event, TurnEnded):
                ends.append(event)
    ended_at = monotonic()
    if stopping is not None and not stopped_at:
        stopping.cancel()
    if stopping is not None:
        await asyncio.gather(stopping, return_exceptions=True)
    _judge(report, script, ends, late_events, bool(stopped_at))
    if stopped_at and ends and ends[0].reason is EndReason.INTERRUPTED:
        report.delays.append(ended_at - stopped_at[0])


def _judge(report: Report, script: str, ends: list[TurnEnded], late_events: int, stopped: bool) -> None:
    report.turns += 1
    report.interrupted += stopped
    report.reasons.update(str(end.reason) for end in ends)
    allowed = {EndReason.INTERRUPTED} if stopped else {EndReason.DONE}
    if script == "quick":
        allowed.add(EndReason.DONE)
    if len(ends) != 1 or late_events or ends[0].reason not in allowed:
        outcomes = [f"{end.reason}: {end.error}" for end in ends]
        report.wrong.append(f"turn {report.turns} ({script}, {'stopped' if stopped else 'not stopped'}): {outcomes}")


def _open_resources() -> dict[str, int]:
    return {
        "processes": len(descendants(os.getpid())),
        "threads": threading.active_count(),
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "sockets": sum(1 for name in os.listdir("/proc/self/fd") if _is_socket(name)),
        "tasks": len(asyncio.all_tasks()),
    }


def _is_socket(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    except OSError:  # already closed: it was the listing's own
        return False


async def _settle(before: dict[str, int]) -> dict[str, int]:
    """Return the new resources; give connections and threads a few seconds to end."""
    deadline = monotonic() + 5
    while True:
        more = {what: count - before[what] for what, count in _open_resources().items()}
        if monotonic() > deadline or not any(count > 0 for count in more.values()):
            return more
        await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", choices=sorted(AGENTS), required=True)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    use_programs()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(
            interrupt_turns(AGENTS[options.agent], turns=options.turns, seed=options.seed, folder=Path(folder))
        )
    print(report, f"(seed {options.seed})")
    for wrong in report.wrong:
        print(f"  {wrong}")
    raise SystemExit(bool(report.wrong) or report.p99 > 2 or any(count > 0 for count in report.left.values()))


if __name__ == "__main__":
    main()
