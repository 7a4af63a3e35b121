"""Caps and usage limits in `atomic run` and `atomic resume`, also after a kill."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.graph.engine.errors import RunNotFoundError
from atomic.graph.engine.journal import PartBody, decode_body
from atomic.processes import ExecResult, Program, running
from atomic.runs.spending import CallRecord, read_calls
from atomic.sessions.journal import SqliteJournal
from atomic.testing import ModelServer, claude_env
from tests.support.entity_files import write
from tests.support.user import ATOMIC, User, complaint, objects
from tests.support.waits import eventually

FLOW = """
from atomic.workflows import State, graph

class Flow(State):
    prompt: str = ""

def ask(number):
    return f"[atomic role=worker task={number} attempt=1]\\nDo number {number}. @@hello@@"

workflow = graph(Flow).agent("one", ask(1)).agent("two", ask(2)).agent("three", ask(3)).compile()
"""
WIDE = """
from atomic.workflows import State, agent_node, graph

class Flow(State):
    prompt: str = ""

def worker(number):
    return agent_node(f"n{number}", f"[atomic role=worker task={number} attempt=1]\\nDo number {number}.")

chain = graph(Flow)
for start in range(0, 12, 3):
    chain = chain.parallel([worker(start + at) for at in range(3)], id=f"p{start}")
workflow = chain.compile()
"""

SWALLOWING = """
import asyncio
from typing import Annotated
from atomic.workflows import State, graph, reducers

class Flow(State):
    prompt: str = ""
    log: Annotated[list[str], reducers.concat] = []

def ask(number):
    return f"[atomic role=worker task={number} attempt=1]\\nDo number {number}."

async def work(ctx):
    log = []
    for number in (1, 2, 3):
        try:
            log.append(await ctx.deps.turn(ask(number)))
        except BaseException as error:
            log.append(type(error).__name__)
    return {"log": log}

async def spread(ctx):
    first = await ctx.deps.turn(ask(1))  # what a turn costs is known only then
    answers = await asyncio.gather(*(ctx.deps.turn(ask(number)) for number in (2, 3)), return_exceptions=True)
    return {"log": [first, *(str(answer) for answer in answers)]}

workflow = graph(Flow).node("work", WORK).compile()
"""

FUNCTIONS = """
import asyncio
from atomic.workflows import State, graph

class Flow(State):
    prompt: str = ""

def step(number, seconds):
    async def work(ctx):
        await asyncio.sleep(seconds)
        with open("ledger.txt", "a") as file:
            file.write(f"{number}\\n")
        return {}
    return work

workflow = graph(Flow).node("one", step(1, 1.5)).node("two", step(2, 0)).node("three", step(3, 0)).compile()
"""


def usage(cost: float | None) -> dict[str, Any]:
    return {"input": 100, "output": 10, "cached": 0, "cost": cost}


def call(task: int, *events: tuple[float, Mapping[str, Any]], cost: float | None = 0.6, reason: str = "done") -> Any:
    last = max((seconds for seconds, _ in events), default=0.0) + 0.05
    ended = {"type": "turn_ended", "reason": reason, "text": f"did {task}", "usage": usage(cost)}
    return {"role": "worker", "task": str(task), "prompt": f"Do number {task}.", "events": [*events, (last, ended)]}


def limited(task: int, reset: float | None) -> Any:
    """Return a call that fails with a usage limit until `reset`."""
    at = None if reset is None else datetime.fromtimestamp(reset, UTC).isoformat()
    return call(task, (0.0, {"type": "limit_reached", "reset_at": at, "message": "later"}), cost=0.0, reason="limit")


def write_recording(file: Path, *calls: Any) -> None:
    lines: list[Any] = [{"atomic_recording": 1, "command": []}, *calls]
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


class Player:
    """A user with a trusted workflow and a recording of agents."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.file = user.home / "agents.jsonl"
        self.id = ""

    def records(self, *calls: Any) -> None:
        """Write the recorded calls of the agents; each process plays them from the start."""
        write_recording(self.file, *calls)

    def other(self, *calls: Any) -> str:
        """Return the name of another agent, which plays these calls."""
        file = self.user.home / "others.jsonl"
        write_recording(file, *calls)
        return f"replay:{file}"

    async def plays(self, *calls: Any, flow: str = FLOW) -> None:
        self.records(*calls)
        write(self.user.project / ".atomic" / "workflows" / "flow.py", flow)
        hash = msgspec.json.decode((await self.user.atomic("trust", "--show", "--json")).stdout)["hash"]
        assert (await self.user.atomic("trust", hash)).exit_code == 0

    def words(self, *flags: str) -> list[str]:
        return ["run", "flow", "--agent", f"replay:{self.file}", "--json", *flags, "go"]

    async def run(self, *flags: str) -> tuple[int, Mapping[str, Any]]:
        """Run it; the exit code, and how it ended."""
        return self._ended(await self.user.atomic(*self.words(*flags)))

    async def resume(self, *flags: str, timeout: float = 120) -> tuple[int, Mapping[str, Any]]:
        return self._ended(await self.user.atomic("resume", "--json", *flags, self.id, timeout=timeout))

    def _ended(self, done: ExecResult) -> tuple[int, Mapping[str, Any]]:
        self.said = objects(done)
        self.id = str(self.said[0]["run"])
        assert self.said[-1]["type"] == "run_ended"
        return done.exit_code, self.said[-1]

    @property
    def folder(self) -> Path:
        return self.user.home / ".atomic" / "sessions" / self.id

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        """The calls of agents in the session's log."""
        return [
            msgspec.json.decode(line) for line in (self.folder / "logs" / "agent-calls.jsonl").read_bytes().splitlines()
        ]

    @asynccontextmanager
    async def running(self, *flags: str) -> AsyncGenerator[Program]:
        """Start the run, and kill it at the end if it is still running."""
        words = [str(ATOMIC), *self.words(*flags)]
        async with running(*words, cwd=self.user.project, env=self.user.env) as program:
            yield program
            os.kill(program.pid, signal.SIGKILL)

    async def writes(self, word: str, *, file: str) -> None:
        """Wait until a file of the only session has a word in it."""
        async with asyncio.timeout(30):
            while True:
                files = list((self.user.home / ".atomic" / "sessions").glob(f"*/{file}"))
                if files and word in files[0].read_text():
                    self.id = files[0].relative_to(self.user.home / ".atomic" / "sessions").parts[0]
                    return
                await asyncio.sleep(0.02)

    async def counts(self, is_there: Callable[[CallRecord], bool]) -> None:
        """Wait until the journal of the only session has such a call."""
        await eventually(lambda: any(is_there(call) for call in self._counted()))

    def _counted(self) -> list[CallRecord]:
        for folder in (self.user.home / ".atomic" / "sessions").glob("*"):
            self.id = folder.name
            try:
                with SqliteJournal(folder / "journal.db") as journal:
                    rows = journal.history(f"{self.id}/facts").rows
            except RunNotFoundError:
                return []
            bodies = [decode_body(row, PartBody) for row in rows]
            return list(read_calls({body.key: msgspec.msgpack.decode(body.value) for body in bodies}))
        return []


@pytest.fixture
def player(user: User) -> Player:
    return Player(user)


async def test_a_cap_pauses_the_run_and_a_higher_cap_continues_it(player: Player) -> None:
    await player.plays(call(1), call(2), call(3))
    code, ended = await player.run("--max-cost", "1")
    assert (code, ended["status"], ended["reason"], ended["exit_code"]) == (6, "paused", "max_cost", 6)
    assert "--max-cost is reached: $1.20 of $1.00 spent" in str(ended["message"])
    assert f"atomic resume {player.id} --max-cost 2.4" in str(ended["message"])
    (limit,) = [one for one in player.said if one["type"] == "limit_reached"]
    assert (limit["kind"], limit["limit"], limit["spent"]) == ("max_cost", 1.0, 1.2)

    code, ended = await player.resume()  # the old cap holds: nothing more is spent
    assert (code, ended["reason"], len(player.calls)) == (6, "max_cost", 2)
    code, ended = await player.resume("--max-cost", "2.4")
    assert (code, ended["status"]) == (0, "completed")
    assert [one["task"] for one in player.calls] == ["1", "2", "3"]


@pytest.mark.ci
@pytest.mark.parametrize("work", ["work", "spread"])
async def test_a_node_cannot_swallow_a_cap(player: Player, work: str) -> None:
    await player.plays(call(1), call(2), call(3), flow=SWALLOWING.replace("WORK", work))
    code, ended = await player.run("--max-cost", "0.5")
    assert (code, ended["status"], ended["reason"]) == (6, "paused", "max_cost")
    assert str(ended["message"]).count("--max-cost is reached") == 1
    code, ended = await player.resume("--max-cost", "9")
    assert (code, ended["status"]) == (0, "completed")


async def test_a_node_cannot_swallow_a_usage_limit(player: Player) -> None:
    flow = SWALLOWING.replace("WORK", "work")
    await player.plays(limited(1, time.time() + 3600), limited(2, None), limited(3, None), flow=flow)
    code, ended = await player.run("--on-limit", "stop")
    assert (code, ended["status"], ended["reason"]) == (7, "paused", "provider_limit")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("flags", "reason", "turns"),
    [(("--max-tokens", "200"), "max_tokens", (2,)), (("--max-time", "1s"), "max_time", (1, 2))],
)
async def test_caps_of_tokens_and_time_pause_the_run(
    player: Player, flags: tuple[str, ...], reason: str, turns: tuple[int, ...]
) -> None:
    await player.plays(call(1, (0.7, {"type": "notice", "text": "x"})), call(2, (0.7, {"type": "notice", "text": "x"})))
    code, ended = await player.run(*flags)
    assert (code, ended["reason"]) == (6, reason)
    assert len(player.calls) in turns  # on a slow machine the first turn takes all the time


async def test_no_function_begins_after_the_time_cap(player: Player) -> None:
    await player.plays(flow=FUNCTIONS)
    ledger = player.user.project / "ledger.txt"
    code, ended = await player.run("--max-time", "1s")
    assert (code, ended["status"], ended["reason"]) == (6, "paused", "max_time")
    assert f"atomic resume {player.id} --max-time" in str(ended["message"])
    assert ledger.read_text().split() == ["1"]
    (limit,) = [one for one in player.said if one["type"] == "limit_reached"]
    assert (limit["kind"], limit["limit"]) == ("max_time", 1.0)

    assert (await player.resume())[0] == 6  # the old cap holds
    code, ended = await player.resume("--max-time", "10m")
    assert (code, ended["status"]) == (0, "completed")
    assert ledger.read_text().split() == ["1", "2", "3"]


@pytest.mark.ci
async def test_the_time_of_a_killed_process_counts(player: Player) -> None:
    notes = ((7.0, {"type": "notice", "text": "seven"}), (9.0, {"type": "notice", "text": "nine"}))
    await player.plays(call(1, *notes), call(2, *notes), call(3, *notes))
    async with player.running("--max-time", "10m"):
        await player.writes("seven", file="logs/events.jsonl")
    code, ended = await player.resume("--max-time", "3s")
    assert (code, ended["status"], ended["reason"]) == (6, "paused", "max_time")
    assert [one for one in player.said if one["type"] == "node_started"] == []  # at once
    (limit,) = [one for one in player.said if one["type"] == "limit_reached"]
    assert float(str(limit["spent"])) >= 5


@pytest.mark.ci
async def test_the_price_of_a_killed_run_is_that_of_its_journal(player: Player) -> None:
    figure = {"type": "usage_reported", "usage": usage(0.1)}
    await player.plays(call(1, (0.0, figure), (600.0, {"type": "notice", "text": "x"})))
    user = player.user
    async with player.running():
        await player.counts(lambda call: call.amount.usd == 0.1)
    (listed,) = msgspec.json.decode((await user.atomic("sessions", "list", "--json")).stdout)
    assert (listed["status"], listed["cost"]["usd"]) == ("interrupted", 0.1)
    agent = player.other(*(call(number, cost=0.2) for number in (1, 2, 3)))
    done = await user.atomic("resume", player.id, "--agent", agent)
    assert done.exit_code == 0
    assert re.search(r"^completed after \S+, \$0\.70$", done.stderr, re.MULTILINE)


async def test_the_last_line_of_a_resume_has_the_time_of_the_whole_run(player: Player) -> None:
    await player.plays(flow=FUNCTIONS)
    assert (await player.run("--max-time", "1s"))[0] == 6
    done = await player.user.atomic("resume", player.id, "--max-time", "10m")
    assert re.search(r"^completed after [1-9]", done.stderr, re.MULTILINE)


async def test_a_flag_overrides_the_caps_of_the_configuration(player: Player) -> None:
    await player.plays(call(1), call(2), call(3))
    player.user.sets("[caps]\nmax_cost = 0.5\n")
    assert (await player.run())[0] == 6
    assert len(player.calls) == 1
    assert (await player.run("--max-cost", "9"))[0] == 0


@pytest.mark.ci
async def test_flags_of_a_resume_are_kept_for_the_next_one(player: Player) -> None:
    await player.plays(call(1), call(2), call(3))
    assert (await player.run("--max-cost", "0.5"))[0] == 6
    assert (await player.resume("--max-cost", "1"))[0] == 6
    code, ended = await player.resume()
    assert (code, "$1.20 of $1.00 spent" in str(ended["message"]), len(player.calls)) == (6, True, 2)


@pytest.mark.ci
async def test_a_missing_price_is_reported_once_and_tokens_still_count(player: Player) -> None:
    await player.plays(call(1, cost=None), call(2, cost=None), call(3, cost=None))
    code, ended = await player.run("--max-cost", "0.002")  # 200 tokens
    assert (code, ended["reason"], len(player.calls)) == (6, "max_cost", 2)
    warnings = [str(one["text"]) for one in player.said if one["type"] == "warning"]
    assert [text for text in warnings if "does not report prices" in text] == [warnings[0]]
    assert "--max-tokens N" in warnings[0]


@pytest.mark.ci
async def test_a_killed_turn_counts_with_its_last_reported_cost(player: Player) -> None:
    figure = {"type": "usage_reported", "usage": usage(0.9)}
    await player.plays(call(1, (0.0, figure), (600.0, {"type": "notice", "text": "x"})), call(1), call(2), call(3))
    async with player.running("--max-cost", "0.8"):
        await player.counts(lambda call: call.amount.usd == 0.9)
    code, ended = await player.resume()
    assert (code, ended["reason"]) == (6, "max_cost")
    assert "$0.90 of $0.80 spent" in str(ended["message"])


@pytest.mark.ci
async def test_parallel_workers_exceed_a_cap_by_at_most_one_turn_each(player: Player) -> None:
    await player.plays(*(call(number, (0.1, {"type": "notice", "text": "x"})) for number in range(12)), flow=WIDE)
    code, ended = await player.run("--max-cost", "2")
    assert (code, ended["reason"]) == (6, "max_cost")
    assert 2.0 <= sum(one["usage"]["cost"] for one in player.calls) <= 2.0 + 3 * 0.6
    code, ended = await player.resume("--max-cost", "100")
    assert (code, sorted(int(one["task"]) for one in player.calls)) == (0, list(range(12)))


@pytest.mark.ci
async def test_a_running_session_can_be_shown_and_is_never_pruned(player: Player) -> None:
    await player.plays(call(1), call(2, (600.0, {"type": "notice", "text": "x"})), call(3))
    user = player.user
    async with player.running():
        await player.writes('"node_started","run"', file="logs/events.jsonl")
        await player.counts(lambda call: call.reason == "done")
        shown = msgspec.json.decode((await user.atomic("sessions", "show", player.id, "--json")).stdout)
        assert (shown["status"], shown["steps"][0]["status"], shown["steps"][0]["cost"]) == (
            "running",
            "completed",
            0.6,
        )
        assert (shown["steps"][-1]["status"], shown["steps"][-1]["seconds"] > 0) == ("running", True)
        resumed = await user.atomic("resume", player.id)
        assert (resumed.exit_code, f"atomic stop {player.id}" in complaint(resumed)) == (3, True)
        assert (await user.atomic("sessions", "export", player.id, "run.tar.gz")).exit_code == 0
        pruned = await user.atomic("sessions", "prune", "--older-than", "1s", "--yes")
        assert pruned.stdout == "No runs to delete.\n"
    assert (await player.user.atomic("sessions", "show", player.id)).stdout.count("interrupted") == 1
    player.records(call(2), call(3))
    assert (await player.resume())[0] == 0  # nothing of it was disturbed


@pytest.mark.ci
async def test_a_recorded_run_can_be_replayed(player: Player) -> None:
    await player.plays(call(1), call(2), call(3))
    file = str(player.user.home / "again.jsonl")
    assert (await player.run("--record", file))[0] == 0
    done = await player.user.atomic("replay", file, "--speed", "max")
    assert done.exit_code == 0
    assert "3 calls, made by: atomic run flow" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("[")] == [
        f"[{number}] worker task {number} (replay): Do number {number}. @@hello@@" for number in (1, 2, 3)
    ]


@pytest.mark.ci
async def test_waiting_for_a_usage_limit_is_not_an_attempt(player: Player) -> None:
    reset = time.time() + 16
    await player.plays(limited(1, reset), call(1), call(2), call(3))
    code, ended = await player.run("--max-time", "15s")  # a pause does not count as work
    assert (code, ended["status"]) == (0, "completed")
    first, second, *_ = player.calls
    assert (first["reason"], second["reason"]) == ("limit", "done")
    assert reset <= second["time"] <= reset + 60
    assert {one["attempt"] for one in player.said if one["type"] == "node_ended"} == {1}
    (limit,) = [one for one in player.said if one["type"] == "limit_reached"]
    assert limit["reset_at"] == pytest.approx(reset, abs=1)


@pytest.mark.parametrize("seconds", [8, pytest.param(120, marks=pytest.mark.full)])
async def test_a_restart_waits_for_the_same_reset(player: Player, seconds: float) -> None:
    reset = time.time() + seconds
    await player.plays(limited(1, reset), call(1), call(2), call(3))
    async with player.running():
        await player.writes('"parked_until": 1', file="session.json")
    shown = await player.user.atomic("sessions", "show", player.id)
    assert "waits until" in shown.stdout
    player.records(call(1), call(2), call(3))
    code, ended = await player.resume(timeout=seconds + 90)
    assert (code, ended["status"]) == (0, "completed")
    assert reset <= player.calls[1]["time"] - player.calls[1]["seconds"] <= reset + 60


@pytest.mark.ci
async def test_on_limit_stop_ends_with_exit_code_7_and_can_be_resumed(player: Player) -> None:
    reset = time.time() + 5
    await player.plays(limited(1, reset), call(1), call(2), call(3))
    code, ended = await player.run("--on-limit", "stop")
    assert (code, ended["status"], ended["reason"]) == (7, "paused", "provider_limit")
    assert f"atomic resume {player.id}" in str(ended["resume"])
    player.records(call(1), call(2), call(3))
    code, ended = await player.resume("--on-limit", "wait")
    assert (code, ended["status"]) == (0, "completed")


@pytest.mark.ci
async def test_on_limit_switch_continues_with_another_agent(player: Player) -> None:
    """The first is limited for an hour; the second is real Claude Code."""
    async with ModelServer({"hello": "Hello there."}) as server:
        player.user.env |= claude_env(server, player.user.home) | {"PATH": player.user.env["PATH"]}
        await player.plays(limited(1, time.time() + 3600))
        code, ended = await player.run("--on-limit", "switch")
    assert (code, ended["status"]) == (0, "completed")
    assert [(one["provider"].partition(":")[0], one["reason"]) for one in player.calls] == [
        ("replay", "limit"),
        ("claude", "done"),
        ("claude", "done"),
        ("claude", "done"),
    ]


@pytest.mark.parametrize("on_limit", ["stop", "wait"])
async def test_a_run_at_a_limit_continues_at_once_with_another_agent(player: Player, on_limit: str) -> None:
    reset = time.time() + 3600
    await player.plays(limited(1, reset))
    assert (await player.run("--on-limit", "stop"))[0] == 7
    code, ended = await player.resume("--agent", player.other(call(1), call(2), call(3)), "--on-limit", on_limit)
    assert (code, ended["status"]) == (0, "completed")
    assert [one["task"] for one in player.calls] == ["1", "1", "2", "3"]
    assert time.time() < reset


@pytest.mark.ci
async def test_the_limit_of_a_run_of_an_older_version_is_that_of_its_own_agent(player: Player) -> None:
    """Such a session has the time of the reset in session.json, and no limit in its journal."""
    await player.plays(call(1), call(2), call(3))
    assert (await player.run("--max-cost", "0.5"))[0] == 6
    record = player.folder / "session.json"
    fields = msgspec.json.decode(record.read_bytes())
    record.write_bytes(msgspec.json.encode({**fields, "parked_until": time.time() + 3600}))
    flags = ("--max-cost", "9", "--on-limit", "stop")
    code, ended = await player.resume(*flags)
    assert (code, ended["reason"]) == (7, "provider_limit")
    code, ended = await player.resume(*flags, "--agent", player.other(call(2), call(3)))
    assert (code, ended["status"]) == (0, "completed")
