"""Where a case plays: a folder of its own, the agent, the scripted model, and what was heard."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar, cast

from atomic.providers import (
    AgentEvent,
    AgentProvider,
    AgentSession,
    EndReason,
    SessionOptions,
    TextDelta,
    TurnEnded,
    require_provider,
)
from atomic.testing.conformance.agents import Agent, Words
from atomic.testing.model_server import ModelCall, ModelServer

EventT = TypeVar("EventT")
PATIENCE = float(os.environ.get("ATOMIC_TEST_PATIENCE", "90"))  # seconds for a turn; machines are shared and noisy


class Stage:
    """A case's own folder and its own names for scripts: many cases share one model server."""

    def __init__(self, case: str, folder: Path, words: Words) -> None:
        self.case, self.folder, self.words = case, folder, words

    def mark(self, script: str) -> str:
        """What a prompt must hold to get that script."""
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
        """The one end. Asserts that there is one, and that it is the last."""
        ends = self.of(TurnEnded)
        assert len(ends) == 1, f"{len(ends)} ends in {self}"
        assert self.events[-1] is ends[0], f"something came after the end: {self}"
        return ends[0]

    @property
    def streamed(self) -> str:
        """The text of the agent itself, as it came."""
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
        """`provider` plays in the agent's place, `usual` are options of every session."""
        self.agent, self.stage, self.server = agent, stage, server
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
        """One turn to its end."""
        return await self.until(session, script, None, text=text)

    async def until(
        self,
        session: AgentSession,
        script: str,
        act: Callable[[AgentEvent], Any] | None,
        *,
        text: str = "Go on.",
    ) -> Heard:
        """One turn to its end; `act` hears each event and may do something about it (an awaitable is awaited)."""
        heard, began = Heard(), monotonic()
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
        """One turn that is interrupted at the first event of that kind; asserts that it then ends within 2 s."""
        stopping: list[asyncio.Task[None]] = []
        began = 0.0

        def act(event: AgentEvent) -> None:
            nonlocal began
            if not stopping and when(event):
                began = monotonic()
                stopping.append(asyncio.create_task(session.interrupt()))

        heard = await self.until(session, script, act)
        assert stopping, f"nothing to interrupt at: {heard}"
        assert monotonic() - began < 2.5, f"took {monotonic() - began:.2f} s to end"
        await stopping[0]
        return heard.ended(EndReason.INTERRUPTED)

    def calls(self, script: str) -> list[ModelCall]:
        """What the model was asked under that script."""
        return [call for call in self.server.calls if call.script == f"{self.stage.case}.{script}"]

    async def called(self, script: str) -> ModelCall:
        """Wait until the model is asked under that script."""
        name = f"{self.stage.case}.{script}"
        return await self.server.wait_for(lambda call: call.script == name, timeout=PATIENCE)

    def programs(self) -> list[int]:
        """The agent's processes among our children."""
        return [pid for pid in descendants(os.getpid()) if self.agent.program in _command(pid)]


def descendants(pid: int) -> list[int]:
    """All living processes below one, nearest first."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (status := _status(entry)) is not None and status[1] != "Z":
            parents.setdefault(status[0], []).append(int(entry))
    found, left = list[int](), [pid]
    while left:
        children = parents.get(left.pop(0), [])
        found += children
        left += children
    return found


def processes_of(words: str) -> list[int]:
    """The living processes whose command line has these words in it."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if words in _command(pid) and _is_alive(pid)]


def _status(pid: str) -> tuple[int, str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it ended meanwhile
        return None
    state, parent = text[text.rindex(")") + 2 :].split(" ")[:2]
    return int(parent), state


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


async def seen(words: str) -> None:
    """Wait until there is a process whose command line has these words in it."""
    while not processes_of(words):  # noqa: ASYNC110  # another program starts it: there is nobody who could tell
        await asyncio.sleep(0.02)


async def gone(pids: Sequence[int], *, within: float) -> bool:
    """Whether all these processes end in that time."""
    deadline = monotonic() + within
    while any(_is_alive(pid) for pid in pids):
        if monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _is_alive(pid: int) -> bool:
    status = _status(str(pid))
    return status is not None and status[1] not in "ZX"
