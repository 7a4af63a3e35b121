"""The agents of a Python program, from `async with agents(…)` to its end."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from atomic.base.errors import AtomicError
from atomic.graph import Journal, Suspend
from atomic.graph.engine.run_deps import is_in_step
from atomic.processes.temporary_folders import remove_leftovers, temporary_prefix
from atomic.providers.session import undisturbed
from atomic.runs.agent_calls import MeteredSession
from atomic.runs.calling_step import Answer
from atomic.runs.program_run import ProgramRun
from atomic.runs.spending import Amount
from atomic.runs.step_runtime import StepRuntime
from atomic.runs.subagents import StepBridge, SubagentResults
from atomic.workflows.errors import AgentsPausedError
from atomic.workflows.runtime import SubagentRequest, SubagentResult, TurnOptions, WorkspaceOptions
from atomic.workspaces import Conflict, Landed, OpenWorkspace, Work

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider, AgentSession, Capabilities, ModelInfo, SessionOptions
    from atomic.questions import Question
    from atomic.runs.host import Runtime

OpenHost = Callable[[Path, "Programs"], Awaitable["Runtime"]]
"""Builds what a host provides for runs; gets a temporary folder, and the owner of all agents' programs."""

ResultT = TypeVar("ResultT")
ProblemT = TypeVar("ProblemT")
_OUTSIDE = "agents"  # the node that turns outside of a run are counted for
_IN_A_STEP = "agents(…) cannot be opened in a step of a run: give the run agent= or deps=, and use ctx.deps there"
_ENDED = "these agents have ended: use them inside of their `async with agents(…)`"
_log = logging.getLogger("atomic")


class Agents:
    """What `agents(…)` returns: `async with` opens the agents, and ends them."""

    def __init__(self, open_host: OpenHost, max_concurrency: int | None = None) -> None:
        self._open_host = open_host
        self._max_concurrency = max_concurrency
        self._opened: OpenAgents | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def __aenter__(self) -> OpenAgents:
        """Find the agents, and return the runtime for runs.

        Raises AtomicError if one is unknown or cannot be used.
        """
        if self._opened is not None or self._folder is not None:
            raise AtomicError("these agents(…) were opened already: call agents(…) again for each `async with`")
        if is_in_step():
            raise AtomicError(_IN_A_STEP)
        remove_leftovers()
        self._folder = tempfile.TemporaryDirectory(prefix=temporary_prefix("agents"), ignore_cleanup_errors=True)
        programs = Programs(self._max_concurrency)
        try:
            host = await self._open_host(Path(self._folder.name), programs)
            self._opened = OpenAgents(host, programs)
        except BaseException:
            self._folder.cleanup()
            self._folder = None
            raise
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all programs, also if the task is cancelled meanwhile."""
        assert self._opened is not None
        assert self._folder is not None
        try:
            await undisturbed(self._opened.end())
        finally:
            self._folder.cleanup()

    def require_usable(self) -> None:
        """Refuse to be the deps of a run. Raises AtomicError."""
        raise AtomicError("agents(…) is not open: write `async with agents(…) as runtime:` and give deps=runtime")

    def begin_run(self, *_: Any) -> Any:
        """Refuse, see `require_usable`: the engine looks for this method."""
        self.require_usable()


class OpenAgents(StepRuntime):
    """The runtime of agents that are open: the `deps` of runs.

    Its own `turn`, `bridge` and so on work too, outside of a run. They count for caps of
    their own, and keep nothing. Each run has its own caps, counted with its resumes.
    """

    def __init__(self, host: Runtime, programs: Programs) -> None:
        self._loop = asyncio.get_running_loop()
        self._programs = programs
        self._has_ended = False
        self._runs: list[ProgramRun] = []
        self._past = Amount()  # of runs that have ended
        self._outside = ProgramRun(host, _OUTSIDE, None, _log.warning)
        self._idle = ExitStack()
        self._idle.enter_context(self._outside.budget.resting())  # only turns count for its max_time
        step = _NoStep()
        super().__init__(self._outside, step)
        self.bridge = _OutsideBridge(self, SubagentResults(step))

    # For the engine

    def require_usable(self) -> None:
        """Raise AtomicError if the agents have ended, or belong to another event loop."""
        if self._has_ended:
            raise AtomicError(_ENDED)
        if _running_loop() is not self._loop:
            raise AtomicError(
                "these agents belong to another event loop: open agents(…) in the loop that runs the workflow"
            )

    def begin_run(
        self, execution_id: str, journal: Journal | None, closing: ExitStack | None, warn: Callable[[str, str], object]
    ) -> ProgramRun:
        """Return the runtime of a run, which keeps its facts in the journal of the run."""
        run = ProgramRun(self._host, execution_id, journal, lambda text: warn(_OUTSIDE, text), ended=self._forget)
        if closing is not None:
            run.release_in(closing)
        self._runs.append(run)
        return run

    def _forget(self, run: ProgramRun) -> None:
        self._runs.remove(run)
        self._past += run.spent_here

    async def end(self) -> None:
        """End all turns, then all sessions and programs, also if one of these fails."""
        self._has_ended = True
        runs = [self._outside, *self._runs]
        async with AsyncExitStack() as ending:  # the last one that is pushed is the first to run
            ending.callback(self._idle.close)
            for run in reversed(runs):
                ending.push_async_callback(run.end_run, None)
            ending.push_async_callback(self._programs.end)
            for run in reversed(runs):
                ending.push_async_callback(run.sessions.close)
            ending.push_async_callback(self._programs.end_turns)

    # For the program

    @property
    def spent(self) -> Amount:
        """Return what these agents took since they were opened."""
        return sum((run.spent_here for run in (self._outside, *self._runs)), self._past)

    async def turn(self, prompt: str, **options: Unpack[TurnOptions]) -> str:
        """Run one turn outside of a run. See `WorkflowRuntime.turn`.

        Raises AgentsPausedError where a run would pause.
        """
        with self.without_pauses():
            return await super().turn(prompt, **options)

    @asynccontextmanager
    async def workspace(self, name: str = "", **options: Unpack[WorkspaceOptions]) -> AsyncGenerator[OpenWorkspace]:
        """Open a workspace outside of a run. See `WorkflowRuntime.workspace`."""
        with self.without_pauses():
            async with super().workspace(name, **options) as place:
                yield place

    async def merge(
        self, work: Work, *, order: int = 0, check: Callable[[str], Awaitable[ProblemT | None]] | None = None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the branch. See `WorkflowRuntime.merge`."""
        with self.without_pauses():
            return await super().merge(work, order=order, check=check)

    @asynccontextmanager
    async def timed(self, what: str) -> AsyncGenerator[None]:
        """Interrupt the body after `max_time` and its grace."""
        with self.without_pauses():
            async with super().timed(what):
                yield

    async def with_named(self, name: str, work: Callable[[MeteredSession], Awaitable[ResultT]]) -> ResultT | None:
        """Do something with a named session. None if there is no such session."""
        with self.without_pauses():
            return await super().with_named(name, work)

    @contextmanager
    def without_pauses(self) -> Generator[None]:
        """Raise AgentsPausedError for a pause: there is no run that could pause."""
        self.require_usable()
        try:
            yield
        except Suspend as pause:
            raise AgentsPausedError(pause.reason, pause.code) from pause


class _OutsideBridge(StepBridge):
    """Spawns sub-agents outside of a run."""

    def __init__(self, agents: OpenAgents, finished: SubagentResults) -> None:
        super().__init__(agents, finished)
        self._agents = agents

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        with self._agents.without_pauses():
            return await super().spawn(request)

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> list[SubagentResult]:
        with self._agents.without_pauses():
            return await super().spawn_parallel(requests, max_concurrency)


class _NoStep:
    """Stands for a step where there is no run. It keeps nothing and asks nobody."""

    attempt = 1
    n = 1
    node_id = _OUTSIDE
    step_id = _OUTSIDE
    item = None
    model = None

    def hold(self, pause: Suspend) -> None:
        pass

    def resting(self) -> nullcontext[None]:
        return nullcontext()

    def answers_for_agent(self) -> Mapping[str, Answer]:
        return {}

    async def ask_for_agent(self, question: Question) -> Answer:
        raise Suspend(f"the agent asks, and there is nobody to answer: {question.text}", question=question)

    async def remember(self, key: str, value: Any) -> None:
        pass

    def remembered(self, key: str, default: Any = None) -> Any:
        return default


class Programs:
    """Owns the turns and the programs of all sessions, and ends those that are left at
    the end.
    """

    def __init__(self, max_concurrency: int | None = None) -> None:
        """At most `max_concurrency` turns run at once; None: no limit."""
        self._free = None if max_concurrency is None else asyncio.Semaphore(max_concurrency)
        self._turns = _Tasks()
        self._sessions = _Tasks()

    def owned(self, provider: AgentProvider) -> AgentProvider:
        """Return a provider whose sessions end with these programs."""
        return _OwnedProvider(provider, self)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait until a turn may run. It is cancelled if it has not ended at the end."""
        with self._turns.inside():
            async with self._free or nullcontext():
                yield

    @asynccontextmanager
    async def open(self, provider: AgentProvider, options: SessionOptions) -> AsyncGenerator[AgentSession]:
        """Open a session of a provider."""
        with self._sessions.inside():
            async with provider.open(options) as session:
                yield session

    async def end_turns(self) -> None:
        """Cancel the tasks that wait for a turn, and wait until their turns have ended."""
        await self._turns.end()

    async def end(self) -> None:
        """Cancel the tasks that hold a session, and wait until it is closed."""
        await self._sessions.end()


class _Tasks:
    """The tasks that are inside of a block of code, until the agents end."""

    def __init__(self) -> None:
        self._is_over = False
        self._inside: dict[object, asyncio.Task[Any] | None] = {}
        self._left = asyncio.Event()

    @contextmanager
    def inside(self) -> Generator[None]:
        """Count the current task as inside while the body runs. Raises AtomicError after
        the end.
        """
        if self._is_over:
            raise AtomicError(_ENDED)
        key = object()
        self._inside[key] = asyncio.current_task()
        try:
            yield
        finally:
            del self._inside[key]
            self._left.set()

    async def end(self) -> None:
        """Cancel the tasks, and wait until all have left."""
        self._is_over = True
        for task in set(self._inside.values()):
            if task is not None:
                task.cancel("agents(…) has ended")
        while self._inside:
            self._left.clear()
            await self._left.wait()


class _OwnedProvider:
    """A provider whose sessions belong to `Programs`."""

    def __init__(self, provider: AgentProvider, programs: Programs) -> None:
        self._provider = provider
        self._programs = programs

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def capabilities(self) -> Capabilities:
        return self._provider.capabilities

    def open(self, options: SessionOptions) -> Any:
        return self._programs.open(self._provider, options)

    async def models(self) -> Sequence[ModelInfo]:
        return await self._provider.models()

    async def check(self) -> Any:
        return await self._provider.check()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # called from a thread without one
        return None
