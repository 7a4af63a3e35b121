"""Send signals at random moments to runs with three agents.

Each run must report the signal, leave no process and resume.

    python -m tests.torture.signals --rounds 100 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.support.user import User, processes
from tests.support.user_workflows import Running, call, end, ledger, recording, session, started, text, workflow

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
WAYS = ("once", "twice", "term", "hup", "pipe")
FLOW = """
async def before(ctx):
    note("before")

async def work(ctx):
    await ctx.exec("sleep", "0.2")
    answer = await ctx.deps.turn("work on " + ctx.node_id)
    await ctx.exec("sleep", "0.2")
    return {"said": [answer]}

async def after(ctx):
    note("after", len(ctx.state.said))

branches = {name: graph(S).node(f"{name}-a", work).node(f"{name}-b", work) for name in ("one", "two", "three")}
workflow = graph(S).node("before", before).parallel(branches).node("after", after).compile()
"""
CALL = call(*[text("word ")] * 10, end("done."), pause=0.05)


async def interrupt_once(user: User, seed: int) -> str | None:
    """Interrupt and resume one run; return the problem, or None if all is well."""
    chance = random.Random(seed)
    way = WAYS[seed % len(WAYS)]
    moment = chance.uniform(0, 1.8)
    workflow(user, "three", FLOW)
    async with started(user, "run", "three", "-a", recording(user, *[CALL] * 6), "--json", "x") as run:
        await run.until("run_started")
        began = time.monotonic()
        reading = asyncio.create_task(run.over())
        await asyncio.sleep(moment)
        await _send(run, way, chance)
        code = await reading
        took = time.monotonic() - began - moment
    return _problem(user, run, way, code, took) or await _resumed(user, run)


async def _send(run: Running, way: str, chance: random.Random) -> None:
    if run.process.returncode is not None:
        return
    number = {"term": signal.SIGTERM, "hup": signal.SIGHUP, "pipe": signal.SIGPIPE}.get(way, signal.SIGINT)
    run.signal(number)
    if way == "twice":
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        if run.process.returncode is None:
            run.signal(signal.SIGINT)


def _problem(user: User, run: Running, way: str, code: int, took: float) -> str | None:
    record = session(user)
    last = run.events[-1]
    if code == 0:
        return None if record["status"] == "completed" else f"exit code 0, but {record['status']}"
    if way == "pipe":
        return f"SIGPIPE ended it with {code}"
    expected = {"term": 143, "hup": 129}.get(way, 130)
    if code != expected:
        return f"{way}: exit code {code}, not {expected}"
    if took > 5:
        return f"{way}: it took {took:.1f} s"
    if last["type"] == "run_ended":
        wanted = ("paused", expected, f"atomic resume {record['id']}")
        found = (last["status"], last["exit_code"], last["resume"])
        return None if found == wanted and record["status"] == "paused" else f"{way}: {found}, {record['status']}"
    return None if way == "twice" else f"{way}: it ended without run_ended"


async def _resumed(user: User, run: Running) -> str | None:
    deadline = time.monotonic() + 10
    while left := processes(user.home):
        if time.monotonic() > deadline:
            return f"processes are left: {left}"
        await asyncio.sleep(0.1)
    recording(user, *[CALL] * 6)
    done = await user.atomic("resume", run.events[0]["run"])
    if done.exit_code != 0:
        return f"it does not resume: {done.exit_code}, {done.stderr}"
    if ledger(user) != ["before", "after 6"]:
        return f"something ran twice or not at all: {ledger(user)}"
    return None


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    problems = 0
    for seed in range(options.seed, options.seed + options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            problem = await interrupt_once(User(Path(folder)), seed)
        problems += problem is not None
        print(f"{seed}: {WAYS[seed % len(WAYS)]:<6} {problem or 'ok'}", flush=True)
    print(f"{options.rounds} rounds, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
