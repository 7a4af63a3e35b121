"""One model server, one home folder and one environment for all cases of an agent: starting them is slow."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from atomic.providers import AgentProvider, SessionOptions, require_provider
from atomic.testing.conformance.agents import Agent
from atomic.testing.conformance.case import Case
from atomic.testing.conformance.case_setup import Stage, World
from atomic.testing.model_server import ModelServer, Script

_KEPT = (
    "PATH",
    "ATOMIC_CLAUDE_PATH",
    "ATOMIC_OPENCODE_PATH",
    "ATOMIC_COPILOT_PATH",
    "ATOMIC_TEST_PATIENCE",
    "ATOMIC_START_SECONDS",
)


class House:
    """Where the cases of one agent are played."""

    def __init__(self, agent: Agent, folder: Path, cache: Path, cases: Sequence[Case]) -> None:
        self.agent, self._folder, self._cache = agent, folder, cache
        self._stages = {case.name: Stage(case.name, folder / case.name, agent.words) for case in cases}
        scripts: dict[str, Script] = {}
        for case in cases:
            own = case.scripts(self._stages[case.name])
            scripts |= {f"{case.name}.{name}": script for name, script in own.items()}
        self.server = ModelServer(scripts, toolless=tuple(scripts))

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[House]:
        """The model answers, the environment is the agent's alone, and a server that sessions share stays up."""
        home = self._folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            stack.enter_context(environment(self.agent.environment(self.server, home, self._cache), home))
            provider = require_provider(self.agent.name)
            await stack.enter_async_context(provider.open(SessionOptions(cwd=home)))
            yield self

    async def play(self, case: Case, *, provider: AgentProvider | None = None, **usual: Any) -> None:
        """Play one case in an empty folder. Raises AssertionError where the agent does not do what users rely on.

        Another provider may play in the agent's place; `usual` are options of every session.
        """
        stage = self._stages[case.name]
        shutil.rmtree(stage.folder, ignore_errors=True)
        stage.folder.mkdir(parents=True)
        await case.play(World(self.agent, stage, self.server, provider=provider, **usual))


@contextmanager
def environment(variables: Mapping[str, str], home: Path) -> Generator[None]:
    """This process's environment is that one, and nothing of the user's but where programs are."""
    before = dict(os.environ)
    kept = {name: before[name] for name in _KEPT if name in before}
    os.environ.clear()
    os.environ.update({**variables, **kept, "ATOMIC_HOME": str(home / ".atomic")})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
