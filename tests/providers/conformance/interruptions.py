"""Turns with random interruptions: each ends once, with the right reason, soon, and leaves nothing behind.

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
from tests.programs import use_programs
from tests.providers.conformance.playing import CACHE

PATIENCE = 90.0


@dataclass
class Report:
    """What came of it."""

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
            f"p99 from interrupt to end {self.p99:.2f} s, left behind: {left}"
        )


def scripts_of(agent: Agent) -> dict[str, Script]:
    return {
        "quick": "Quick.",
        "slow": Drip("word", times=2000, every=0.05),
        "mute": Stall(),
        "tool": [[agent.words.bash("exec -a sleeper sleep 300")], "Slept."],
    }


async def interruptions(agent: Agent, *, turns: int, seed: int, folder: Path) -> Report:
    """Play that many turns in one session after another, a few turns each."""
    report, luck = Report(agent.name), random.Random(seed)
    home = folder / "home"
    home.mkdir(parents=True)
    async with ModelServer(scripts_of(agent)) as server:
        with environment(agent.environment(server, home, CACHE), home):
            provider = require_provider(agent.name)
            async with provider.open(SessionOptions(cwd=folder)) as session:  # what is loaded once does not count
                await _turn(session, "quick", None, report)
            report = Report(agent.name)
            before = _open_things()
            while report.turns < turns:
                async with provider.open(SessionOptions(cwd=folder)) as session:
                    for _ in range(min(10, turns - report.turns)):
                        script = luck.choice(("quick", "slow", "slow", "mute", "tool"))
                        after = None if script == "quick" and luck.random() < 0.5 else luck.uniform(0, 1.5)
                        await _turn(session, script, after, report)
            report.left = await _settled(before)
    return report


async def _turn(session: AgentSession, script: str, after: float | None, report: Report) -> None:
    stopped_at: list[float] = []

    async def stop(seconds: float) -> None:
        await asyncio.sleep(seconds)
        stopped_at.append(monotonic())
        await session.interrupt()

    stopping = None if after is None else asyncio.create_task(stop(after))
    ends: list[TurnEnded] = []
    behind = 0
    async with asyncio.timeout(PATIENCE):
        async for event in session.send(f"@@{script}@@ Go on."):
            behind += bool(ends)
            if isinstance(event, TurnEnded):
                ends.append(event)
    ended_at = monotonic()
    if stopping is not None and not stopped_at:
        stopping.cancel()
    if stopping is not None:
        await asyncio.gather(stopping, return_exceptions=True)
    _judge(report, script, ends, behind, bool(stopped_at))
    if stopped_at and ends and ends[0].reason is EndReason.INTERRUPTED:
        report.delays.append(ended_at - stopped_at[0])


def _judge(report: Report, script: str, ends: list[TurnEnded], behind: int, stopped: bool) -> None:
    report.turns += 1
    report.interrupted += stopped
    report.reasons.update(str(end.reason) for end in ends)
    allowed = {EndReason.INTERRUPTED} if stopped else {EndReason.DONE}
    if script == "quick":
        allowed.add(EndReason.DONE)
    if len(ends) != 1 or behind or ends[0].reason not in allowed:
        told = [f"{end.reason}: {end.error}" for end in ends]
        report.wrong.append(f"turn {report.turns} ({script}, {'stopped' if stopped else 'not stopped'}): {told}")


def _open_things() -> dict[str, int]:
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
    except OSError:  # closed meanwhile: the listing's own
        return False


async def _settled(before: dict[str, int]) -> dict[str, int]:
    """What is more than before; connections and threads that are ending get a few seconds."""
    deadline = monotonic() + 5
    while True:
        more = {what: count - before[what] for what, count in _open_things().items()}
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
            interruptions(AGENTS[options.agent], turns=options.turns, seed=options.seed, folder=Path(folder))
        )
    print(report, f"(seed {options.seed})")
    for wrong in report.wrong:
        print(f"  {wrong}")
    raise SystemExit(bool(report.wrong) or report.p99 > 2 or any(count > 0 for count in report.left.values()))


if __name__ == "__main__":
    main()
