"""The interface between a host and a run: folders, agents, settings, flags, the user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from atomic.config import Settings
from atomic.graph import Suspend
from atomic.providers.base import SessionOptions
from atomic.questions import Question
from atomic.runs.budget import Budget
from atomic.runs.limits import Caller, Caps, OnLimit
from atomic.sessions.store import SessionStore
from atomic.workflows.definition import Untrusted
from atomic.workflows.runtime import Entities, Tools, Workflows

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider
    from atomic.runs.run_events import RunEvents

Answer = str | list[str]


class Person(Protocol):
    """The user in front of a host."""

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer; None if the user does not want to answer now."""
        ...


class Choices(msgspec.Struct, frozen=True):
    """The values of `--agent` and `--model` by role; the key "" means all roles."""

    agents: Mapping[str, str] = {}
    models: Mapping[str, str] = {}


class Library(Protocol):
    """What nodes find by name; each part is read when it is first used."""

    @property
    def entities(self) -> Entities: ...

    @property
    def workflows(self) -> Workflows: ...

    @property
    def tools(self) -> Tools: ...


ChooseProvider = Callable[[str | None], Awaitable["AgentProvider"]]
"""Finds a provider by name; None: the default one."""

Prepare = Callable[["AgentProvider", SessionOptions, Callable[[str], object]], Awaitable[SessionOptions]]
"""Completes the options of a session for a provider; the last argument shows a message to the user."""


class Runtime(msgspec.Struct, frozen=True):
    """The parts of a run that its host provides."""

    store: SessionStore
    project: Path
    choose: ChooseProvider
    library: Library
    cwd: Path | None = None  # None: the project
    settings: Settings = Settings()
    choices: Choices = Choices()
    caps: Caps = Caps()
    on_limit: OnLimit = "wait"
    others: Sequence[str] = ()  # providers that `--on-limit switch` may switch to
    record: str | None = None
    park: bool = False  # a run that only waits ends its process
    untrusted: Untrusted | None = None  # commands of the project that the user has not approved
    trusted: bool = False  # the project's own hooks, plugins and MCP servers may run
    prepare: Prepare | None = None  # adds the user's configuration to each session
    person: Person | None = None
    clock: Callable[[], float] = time.time
    approved: bool = False  # the project was approved at the start, so the run records its own changes to it
    setup: bytes | None = None  # the project's approved script that sets a workspace up
    home: Path | None = None  # of workspaces; None: that of the sessions
    caller: Caller = "command"
    around_call: Callable[[], AbstractAsyncContextManager[None]] | None = None  # entered for each call of an agent

    @property
    def folder(self) -> Path:
        return self.cwd or self.project

    def options(self, model: str | None) -> dict[str, Any]:
        """Return the flags that the session keeps.

        A resume uses them unless it gets others.
        """
        return {
            "agents": dict(self.choices.agents),
            "models": dict(self.choices.models),
            "caps": msgspec.to_builtins(self.caps),
            "on_limit": self.on_limit,
            "record": self.record,
            "park": self.park,
            "model": model,
        }


class HostBroker:
    """Asks the user at the host. An answer from another process is accepted too."""

    def __init__(self, person: Person, budget: Budget, events: RunEvents) -> None:
        self._person = person
        self._budget = budget
        self._events = events
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    async def ask(self, question: Question) -> Answer:
        """Return the answer. Raises Suspend if the user does not want to answer now."""
        elsewhere: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = elsewhere
        here = asyncio.create_task(self._person.ask(question))
        try:
            with self._budget.resting():
                await asyncio.wait({here, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            answer = elsewhere.result() if elsewhere.done() else here.result()
        finally:
            del self._waiting[question.id]
            here.cancel()
            await asyncio.wait({here})
        if answer is None:
            raise Suspend(f"waits for an answer to '{question.id}'", question=question)
        self._events.close_question(question.id)
        return answer

    def deliver(self, answers: Mapping[str, Answer]) -> set[str]:
        """Deliver answers from another process, and return the ids of the questions
        that waited for them.
        """
        taken: set[str] = set()
        for id, answer in answers.items():
            waiting = self._waiting.get(id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
                taken.add(id)
        return taken
