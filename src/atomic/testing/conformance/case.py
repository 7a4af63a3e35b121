"""Cases and their surroundings.

A `Case` plays in a `World`: one agent, a folder and the scripts of the case (`Stage`).
A `House` holds the parts that all cases of an agent share, because they start slowly.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from atomic.providers import (
    AgentEvent,
    AgentProvider,
    AgentSession,
    Capabilities,
    EndReason,
    SessionOptions,
    TextDelta,
    TurnEnded,
    require_provider,
)
from atomic.testing.conformance.agents import Agent, Words
from atomic.testing.model_server import ModelCall, ModelServer, Script

EventT = TypeVar("EventT")
# Seconds for a turn; machines are shared and noisy.
PATIENCE = float(os.environ.get("ATOMIC_TEST_PATIENCE", "90"))
_KEPT = (
    "PATH",
    "ATOMIC_CLAUDE_PATH",
    "ATOMIC_OPENCODE_PATH",
    "ATOMIC_COPILOT_PATH",
    "ATOMIC_CODEX_PATH",
    "ATOMIC_GEMINI_PATH",
    "ATOMIC_TEST_PATIENCE",
    "ATOMIC_START_SECONDS",
)


class Stage:
    """The folder of a case and the names of its scripts.

    Cases share one model server.
    """

    def __init__(self, case: str, folder: Path, words: Words) -> None:
        self.case = case
        self.folder = folder
        self.words = words

    def mark(self, script: str) -> str:
        """Return the marker that selects the script in a prompt."""
        return f"@@{self.case}.{script}@@"


class Heard:
    """The events of one turn."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.seconds = 0.0

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def end(self) -> TurnEnded:
        """Return the only end, and assert that it is the last event."""
        ends = self.of(TurnEnded)
        assert len(ends) == 1, f"{len(ends)} ends in {self}"
        assert self.events[-1] is ends[0], f"an event follows the end: {self}"
        return ends[0]

    @property
    def streamed(self) -> str:
        """Return the streamed text of the main agent."""
        return "".join(event.text for event in self.of(TextDelta) if event.agent is None)

    def ended(self, reason: EndReason = EndReason.DONE) -> Heard:
        assert self.end.reason is reason, f"ended with {self.end.reason} ({self.end.error}), not {reason}: {self}"
        return self

    def __repr__(self) -> str:
        return "\n  ".join(["heard:", *(repr(event)[:300] for event in self.events)])


class World:
    """One agent on one stage."""

    def __init__(
        self, agent: Agent, stage: Stage, server: ModelServer, *, provider: AgentProvider | None = None, **usual: Any
    ) -> None:
        """Take another provider instead of the agent's, and options of every session."""
        self.agent = agent
        self.stage = stage
        self.server = server
        self.provider: AgentProvider = provider or require_provider(agent.name)
        self.folder = stage.folder
        self._usual: dict[str, Any] = {"cwd": self.folder, **usual}

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncGenerator[AgentSession]:
        async with self.provider.open(SessionOptions(**{**self._usual, **options})) as session:
            yield session

    def prompt(self, script: str, text: str = "Go on.") -> str:
        return f"{self.stage.mark(script)} {text}"

    async def turn(self, session: AgentSession, script: str, text: str = "Go on.") -> Heard:
        """Run one turn to the end."""
        return await self.until(session, script, None, text=text)

    async def until(
        self,
        session: AgentSession,
        script: str,
        act: Callable[[AgentEvent], Any] | None,
        *,
        text: str = "Go on.",
    ) -> Heard:
        """Run one turn to the end.

        Call `act` for each event and await a coroutine from it.
        """
        heard = Heard()
        began = monotonic()
        async with asyncio.timeout(PATIENCE):
            async with aclosing(cast("AsyncGenerator[AgentEvent]", session.send(self.prompt(script, text)))) as events:
                async for event in events:
                    heard.events.append(event)
                    answer = act(event) if act is not None else None
                    if asyncio.iscoroutine(answer):
                        await answer
        heard.seconds = monotonic() - began
        return heard

    async def interrupted(self, session: AgentSession, script: str, when: Callable[[AgentEvent], bool]) -> Heard:
        """Interrupt a turn at the first such event, and assert that it ends within 2 s."""
        stopping: list[asyncio.Task[None]] = []
        began = 0.0

        def act(event: AgentEvent) -> None:
            nonlocal began
            if not stopping and when(event):
                began = monotonic()
                stopping.append(asyncio.create_task(session.interrupt()))

        heard = await self.until(session, script, act)
        assert stopping, f"no event to interrupt at: {heard}"
        assert monotonic() - began < 2.5, f"took {monotonic() - began:.2f} s to end"
        await stopping[0]
        return heard.ended(EndReason.INTERRUPTED)

    def calls(self, script: str) -> list[ModelCall]:
        """Return the model calls of a script."""
        return [call for call in self.server.calls if call.script == f"{self.stage.case}.{script}"]

    async def called(self, script: str) -> ModelCall:
        """Wait for a model call of a script."""
        name = f"{self.stage.case}.{script}"
        return await self.server.wait_for(lambda call: call.script == name, timeout=PATIENCE)

    def programs(self) -> list[int]:
        """Return the agent's processes among our children."""
        return [pid for pid in descendants(os.getpid()) if self.agent.program in _command(pid)]


def descendants(pid: int) -> list[int]:
    """Return all live processes below one, nearest first."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (status := _status(entry)) is not None and status[1] != "Z":
            parents.setdefault(status[0], []).append(int(entry))
    found: list[int] = []
    left = [pid]
    while left:
        children = parents.get(left.pop(0), [])
        found += children
        left += children
    return found


def processes_of(words: str) -> list[int]:
    """Return the live processes whose command line contains these words."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if words in _command(pid) and _is_alive(pid)]


def _status(pid: str) -> tuple[int, str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it has ended
        return None
    state, parent = text[text.rindex(")") + 2 :].split(" ")[:2]
    return int(parent), state


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


async def seen(words: str) -> None:
    """Wait for a process whose command line contains these words."""
    while not processes_of(words):  # noqa: ASYNC110  # another program starts it, without notice
        await asyncio.sleep(0.02)


async def gone(pids: Sequence[int], *, within: float) -> bool:
    """Return whether all these processes end in that time."""
    deadline = monotonic() + within
    while any(_is_alive(pid) for pid in pids):
        if monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _is_alive(pid: int) -> bool:
    status = _status(str(pid))
    return status is not None and status[1] not in "ZX"


Scripts: TypeAlias = Callable[[Stage], Mapping[str, Script]]
Play: TypeAlias = Callable[[World], Awaitable[None]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One behaviour that users rely on."""

    name: str
    title: str
    play: Play
    scripts: Scripts
    needs: Callable[[Capabilities], bool]
    long: bool = False  # left to `make test-full`


class Cases:
    """A group of cases under one heading."""

    def __init__(self, heading: str) -> None:
        self.heading = heading
        self.cases: list[Case] = []

    def case(
        self,
        scripts: Scripts = lambda stage: {},
        *,
        needs: Callable[[Capabilities], bool] = lambda can: True,
        long: bool = False,
    ) -> Callable[[Play], Play]:
        """Make a case from a function; the first line of its docstring is the title."""

        def add(play: Play) -> Play:
            name = getattr(play, "__name__", "")
            title = (play.__doc__ or name).partition("\n")[0].rstrip(".")
            self.cases.append(Case(name=name, title=title, play=play, scripts=scripts, needs=needs, long=long))
            return play

        return add


class House:
    """One model server, home folder and environment for all cases of an agent."""

    def __init__(self, agent: Agent, folder: Path, cache: Path, cases: Sequence[Case]) -> None:
        self.agent = agent
        self._folder = folder
        self._cache = cache
        self._stages = {case.name: Stage(case.name, folder / case.name, agent.words) for case in cases}
        scripts: dict[str, Script] = {}
        for case in cases:
            own = case.scripts(self._stages[case.name])
            scripts |= {f"{case.name}.{name}": script for name, script in own.items()}
        self.server = ModelServer(scripts, toolless=tuple(scripts))

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[House]:
        """Start the model server, set the environment, and keep a shared server
        running.
        """
        home = self._folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            stack.enter_context(environment(self.agent.environment(self.server, home, self._cache), home))
            provider = require_provider(self.agent.name)
            await stack.enter_async_context(provider.open(SessionOptions(cwd=home)))
            yield self

    async def play(self, case: Case, *, provider: AgentProvider | None = None, **usual: Any) -> None:
        """Play one case in an empty folder. Raise AssertionError if the agent fails it.

        Another provider may replace the agent's; `usual` are options of every session.
        """
        stage = self._stages[case.name]
        shutil.rmtree(stage.folder, ignore_errors=True)
        stage.folder.mkdir(parents=True)
        await case.play(World(self.agent, stage, self.server, provider=provider, **usual))


@contextmanager
def environment(variables: Mapping[str, str], home: Path) -> Generator[None]:
    """Set the environment of this process; keep only where the user's programs are."""
    before = dict(os.environ)
    kept = {name: before[name] for name in _KEPT if name in before}
    os.environ.clear()
    os.environ.update({**variables, **kept, "ATOMIC_HOME": str(home / ".atomic")})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
