"""One session on one server: opening it, what is asked of it, what is heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from atomic.processes import end_group
from atomic.providers.base import ContextUsage
from atomic.providers.copilot import messages as said
from atomic.providers.copilot.denials import Rule, denied_urls, forbid, goes_where_it_may_not
from atomic.providers.copilot.login import LOGIN
from atomic.providers.copilot.server import AnswerT, Server
from atomic.providers.copilot.setup import Setup
from atomic.providers.errors import NotLoggedInError, ProviderError
from atomic.providers.events import PlanItem

CLOSING = 2.0  # seconds
STUBBORN = 0.5  # seconds that a command has to end by itself

_STATUSES = {"done": "completed", "blocked": "pending"}


class _Sent(msgspec.Struct, frozen=True, rename="camel"):
    message_id: str


class _Copy(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    status: str
    started_at: datetime | None = None
    pid: float | None = None  # of a command, which leads a group of its own; Copilot may say 4711.0


class _Tasks(msgspec.Struct, frozen=True):
    tasks: list[_Task]


class _Todo(msgspec.Struct, frozen=True):
    id: str
    title: str = ""
    status: str = "pending"


class _Todos(msgspec.Struct, frozen=True):
    rows: list[_Todo]


class _Compacted(msgspec.Struct, frozen=True, rename="camel"):
    context_window: said.ContextMeasured | None = None


class UnknownSessionError(ProviderError):
    """Copilot has no session of that id."""


class Link:
    """A session that a server has open for us."""

    def __init__(self, server: Server, id: str) -> None:
        self.server, self.id = server, id
        self.context = ContextUsage()
        self.events: asyncio.Queue[said.Event] = asyncio.Queue()
        self._denied: Sequence[Rule] = ()
        self._watching = asyncio.create_task(self._watch(), name="copilot-watch")

    # opening and closing --------------------------------------------------------------------------------------

    @classmethod
    async def open(cls, server: Server, setup: Setup, id: str, *, model: str | None, resume: bool) -> Link:
        """Raises ProviderError."""
        link = cls(server, id)
        server.listen(id, link._hear)
        try:
            if not setup.has_login:
                await _require_login(server)
            await link._call(*setup.opening(model, resume=resume))
            link._denied = [*setup.denied, *await denied_urls(server)]
            await forbid(server, id, link._denied)
        except ProviderError as problem:
            link.forget()
            raise _named(problem, id) from problem
        except BaseException:  # a cancellation too: nobody would hear its events any more
            link.forget()
            raise
        return link

    async def close(self) -> None:
        """Let go of the session; it stays on the disk. What it started ends."""
        try:
            async with asyncio.timeout(CLOSING):
                await self.end_tasks()
                await self._call("session.detach")
        finally:
            self.forget()

    def forget(self) -> None:
        """Hear no more of it."""
        self.server.forget(self.id)
        self._watching.cancel()

    # what is asked of it --------------------------------------------------------------------------------------

    async def send(self, prompt: str, schema: Mapping[str, Any] | None) -> str:
        """Begin a turn; the id of the prompt. Raises ProviderError."""
        while not self.events.empty():  # what came between the turns belongs to none
            self.events.get_nowait()
        params: dict[str, Any] = {"prompt": prompt}
        if schema is not None:
            format = {"name": "response", "strict": True, "schema": schema}
            params["responseFormat"] = {"type": "json_schema", "jsonSchema": format}
        return (await self._fetch("session.send", params, _Sent)).message_id

    async def stop(self, since: datetime) -> None:
        """Stop the turn that began then. Commands in the background would hold the session: they end too."""
        tasks = await self._running(since)
        await self._call("session.abort")
        await self.end_tasks(since)
        # A command that ignores a SIGTERM would live for five seconds more.
        await asyncio.gather(*(end_group(int(task.pid), grace=STUBBORN) for task in tasks if task.pid is not None))

    async def end_tasks(self, since: datetime | None = None) -> None:
        """End commands and sub-agents that still run: all, or those that began since then."""
        for task in await self._running(since):
            await self._call("session.tasks.cancel", {"id": task.id})

    async def _running(self, since: datetime | None) -> list[_Task]:
        tasks = (await self._fetch("session.tasks.list", {}, _Tasks)).tasks
        return [task for task in tasks if task.status == "running" and _is_recent(task, since)]

    async def decide(self, wanted: said.PermissionRequested) -> None:
        """Allow what a tool wants to do, unless the user forbids it."""
        subject = wanted.permission_request
        denied = goes_where_it_may_not(f"{subject.full_command_text} {subject.url}", self._denied)
        refused = {"kind": "reject", "feedback": f"The user's settings deny access to {denied}"}
        result = {"kind": "approve-once"} if denied is None else refused
        params = {"requestId": wanted.request_id, "result": result}
        await self._call("session.permissions.handlePendingPermissionRequest", params)

    async def hand_in(self, request: str, *, result: str | None = None, error: str | None = None) -> None:
        """What one of our own tools gave."""
        failed = {"textResultForLlm": error, "resultType": "failure", "error": error}
        outcome = result if error is None else failed
        await self._call("session.tools.handlePendingToolCall", {"requestId": request, "result": outcome})

    async def fill_in(self, request: str, content: Mapping[str, Any] | None) -> None:
        """What a person put into a form; None: nobody did."""
        result = {"action": "cancel"} if content is None else {"action": "accept", "content": dict(content)}
        await self._call("session.ui.handlePendingElicitation", {"requestId": request, "result": result})

    async def todos(self) -> tuple[PlanItem, ...]:
        answer = await self._fetch("session.plan.readSqlTodosWithDependencies", {}, _Todos)
        return tuple(PlanItem(row.title or row.id, _STATUSES.get(row.status, row.status)) for row in answer.rows)

    async def set_model(self, id: str) -> None:
        await self._call("session.model.switchTo", {"modelId": id})

    async def compact(self, focus: str) -> None:
        params = {"customInstructions": focus} if focus else {}
        window = (await self._fetch("session.history.compact", params, _Compacted)).context_window
        if window is not None:
            self._measure(window.current_tokens, window.token_limit)

    async def _call(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.server.call(method, {**(params or {}), "sessionId": self.id})

    async def _fetch(self, method: str, params: Mapping[str, Any], answer: type[AnswerT]) -> AnswerT:
        return await self.server.fetch(method, {**params, "sessionId": self.id}, answer)

    # what is heard of it --------------------------------------------------------------------------------------

    def _hear(self, raw: Mapping[str, Any]) -> None:
        event = said.read(raw)
        if event is None:
            return
        if isinstance(event.data, said.ContextMeasured):
            if event.agent is None:
                self._measure(event.data.current_tokens, event.data.token_limit)
        else:
            if isinstance(event.data, said.Used) and event.agent is None and event.data.model:
                self.context = msgspec.structs.replace(self.context, model=event.data.model)
            self.events.put_nowait(event)

    def _measure(self, used: float, limit: float) -> None:
        self.context = ContextUsage(int(used), int(limit), self.context.model)

    async def _watch(self) -> None:
        await self.server.ended.wait()
        self.events.put_nowait(said.Event("lost", said.Lost(await self.server.last_words())))


class _Login(msgspec.Struct, frozen=True, rename="camel"):
    is_authenticated: bool = False


async def _require_login(server: Server) -> None:
    """There is no trace of a login; the program itself may know better. Raises NotLoggedInError."""
    if not (await server.fetch("auth.getStatus", {}, _Login)).is_authenticated:
        raise NotLoggedInError("Copilot has no login", provider="copilot", remedy=LOGIN)


def _is_recent(task: _Task, since: datetime | None) -> bool:
    return since is None or task.started_at is None or task.started_at >= since


async def copy_of(server: Server, id: str) -> str:
    """The id of a copy of that session. Raises ProviderError."""
    try:
        return (await server.fetch("sessions.fork", {"sessionId": id}, _Copy)).session_id
    except ProviderError as problem:
        raise _named(problem, id) from problem


def _named(problem: ProviderError, id: str) -> ProviderError:
    """The problem as what it is, where that can be told from the words."""
    if "Session not found" in str(problem):
        return UnknownSessionError(f'Copilot has no session "{id}"', provider="copilot")
    return problem
