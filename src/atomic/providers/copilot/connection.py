"""One session on one server: open it, send requests and receive events. List models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.processes import end_group
from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.copilot import messages
from atomic.providers.copilot.denials import Rule, denied_urls, find_denied_url, forbid, without_denials
from atomic.providers.copilot.environment import (
    LOGIN,
    environment,
    has_login,
    is_about_login,
    own_endpoint,
    own_model,
)
from atomic.providers.copilot.launch import Setup
from atomic.providers.copilot.server import AnswerT, CommandLine, Server, shared_server
from atomic.providers.errors import NotLoggedInError, ProviderError
from atomic.providers.events import PlanItem

CLOSE_SECONDS = 2.0
COMMAND_SECONDS = 0.5  # for a command to end by itself

_STATUSES = {"done": "completed", "blocked": "pending"}


class _Sent(msgspec.Struct, frozen=True, rename="camel"):
    message_id: str


class _Copy(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    status: str
    started_at: datetime | None = None
    pid: float | None = None  # of a command, a process group leader; may be 4711.0


class _Tasks(msgspec.Struct, frozen=True):
    tasks: list[_Task]


class _Todo(msgspec.Struct, frozen=True):
    id: str
    title: str = ""
    status: str = "pending"


class _Todos(msgspec.Struct, frozen=True):
    rows: list[_Todo]


class _Compacted(msgspec.Struct, frozen=True, rename="camel"):
    context_window: messages.ContextMeasured | None = None


class _Limits(msgspec.Struct, frozen=True):
    max_context_window_tokens: float | None = None
    max_prompt_tokens: float | None = None


class _Can(msgspec.Struct, frozen=True):
    limits: _Limits = _Limits()


class _Model(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    capabilities: _Can = _Can()

    @property
    def context(self) -> int:
        limits = self.capabilities.limits
        return int(limits.max_context_window_tokens or limits.max_prompt_tokens or 0)


class _Models(msgspec.Struct, frozen=True):
    models: list[_Model]


class _Login(msgspec.Struct, frozen=True, rename="camel"):
    is_authenticated: bool = False


class UnknownSessionError(ProviderError):
    """Copilot has no session with that id."""


class Connection:
    """A session that is open on a server."""

    def __init__(self, server: Server, id: str) -> None:
        self.server = server
        self.id = id
        self.context = ContextUsage()
        self.events: asyncio.Queue[messages.Event] = asyncio.Queue()
        self._denied: Sequence[Rule] = ()
        self._watching = asyncio.create_task(self._watch(), name="copilot-watch")

    # Open and close

    @classmethod
    async def open(cls, server: Server, setup: Setup, id: str, *, model: str | None, resume: bool) -> Connection:
        """Open the session on a server. Raise ProviderError."""
        connection = cls(server, id)
        server.listen(id, connection._receive)
        try:
            if not setup.has_login and not (await server.fetch("auth.getStatus", {}, _Login)).is_authenticated:
                raise NotLoggedInError("Copilot has no login", provider="copilot", remedy=LOGIN)
            await connection._call(*setup.opening(model, resume=resume))
            connection._denied = [*setup.denied, *await denied_urls(server)]
            await forbid(server, id, connection._denied)
        except ProviderError as problem:
            connection.forget()
            raise _named(problem, id) from problem
        except BaseException:  # a cancellation too: stop receiving events
            connection.forget()
            raise
        return connection

    async def close(self) -> None:
        """Close the session and end its tasks; it stays on disk."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.end_tasks()
                await self._call("session.detach")
        finally:
            self.forget()

    def forget(self) -> None:
        """Stop receiving its events."""
        self.server.forget(self.id)
        self._watching.cancel()

    # Requests

    async def send(self, prompt: str, schema: Mapping[str, Any] | None) -> str:
        """Start a turn and return the id of the prompt. Raise ProviderError."""
        while not self.events.empty():  # events between turns belong to none
            self.events.get_nowait()
        params: dict[str, Any] = {"prompt": prompt}
        if schema is not None:
            format = {"name": "response", "strict": True, "schema": schema}
            params["responseFormat"] = {"type": "json_schema", "jsonSchema": format}
        return (await self._fetch("session.send", params, _Sent)).message_id

    async def stop(self, since: datetime) -> None:
        """Stop the turn that started at `since`, and its background commands.

        A running command would keep the session busy.
        """
        tasks = await self._running(since)
        await self._call("session.abort")
        await self.end_tasks(since)
        # Copilot itself waits five seconds for a command that ignores SIGTERM.
        await asyncio.gather(
            *(end_group(int(task.pid), grace=COMMAND_SECONDS) for task in tasks if task.pid is not None)
        )

    async def end_tasks(self, since: datetime | None = None) -> None:
        """End running commands and sub-agents: all, or only newer ones than `since`."""
        for task in await self._running(since):
            await self._call("session.tasks.cancel", {"id": task.id})

    async def _running(self, since: datetime | None) -> list[_Task]:
        tasks = (await self._fetch("session.tasks.list", {}, _Tasks)).tasks
        return [
            task
            for task in tasks
            if task.status == "running" and (since is None or task.started_at is None or task.started_at >= since)
        ]

    async def decide(self, wanted: messages.PermissionRequested) -> None:
        """Allow a tool's request unless the user denies it."""
        subject = wanted.permission_request
        denied = find_denied_url(f"{subject.full_command_text} {subject.url}", self._denied)
        result = {"kind": "approve-once"}
        if denied is not None:
            result = {"kind": "reject", "feedback": f"The user's settings deny access to {denied}"}
        params = {"requestId": wanted.request_id, "result": result}
        await self._call("session.permissions.handlePendingPermissionRequest", params)

    async def return_result(self, request: str, *, result: str | None = None, error: str | None = None) -> None:
        """Return the result of a custom tool."""
        failed = {"textResultForLlm": error, "resultType": "failure", "error": error}
        outcome = result if error is None else failed
        await self._call("session.tools.handlePendingToolCall", {"requestId": request, "result": outcome})

    async def answer_form(self, request: str, content: Mapping[str, Any] | None) -> None:
        """Send the content of a form; None cancels it."""
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

    # Events

    def _receive(self, raw: Mapping[str, Any]) -> None:
        event = messages.read(raw)
        if event is None:
            return
        if isinstance(event.data, messages.ContextMeasured):
            if event.agent is None:
                self._measure(event.data.current_tokens, event.data.token_limit)
        else:
            if isinstance(event.data, messages.Used) and event.agent is None and event.data.model:
                self.context = msgspec.structs.replace(self.context, model=event.data.model)
            self.events.put_nowait(event)

    def _measure(self, used: float, limit: float) -> None:
        self.context = ContextUsage(int(used), int(limit), self.context.model)

    async def _watch(self) -> None:
        await self.server.ended.wait()
        self.events.put_nowait(messages.Event("lost", messages.Lost(await self.server.last_words())))


async def copy_of(server: Server, id: str) -> str:
    """Fork a session and return the id of the copy. Raise ProviderError."""
    try:
        return (await server.fetch("sessions.fork", {"sessionId": id}, _Copy)).session_id
    except ProviderError as problem:
        raise _named(problem, id) from problem


def _named(problem: ProviderError, id: str) -> ProviderError:
    """Return an UnknownSessionError if the message describes one, else the error
    itself.
    """
    if "Session not found" in str(problem):
        return UnknownSessionError(f'Copilot has no session "{id}"', provider="copilot")
    return problem


async def list_models(program: Path, settings: Settings) -> list[ModelInfo]:
    """Return GitHub's models with a login, else, or with an own endpoint, the
    configured ones.

    Raise ProviderError.
    """
    env = environment(settings)
    endpoint = own_endpoint(env)
    names = dict.fromkeys((own_model(env), settings.model))
    own = [ModelInfo(name, name, (endpoint or {}).get("maxPromptTokens", 0)) for name in names if name]
    if endpoint is not None or not has_login(env):
        return own
    args, _ = without_denials(settings.provider("copilot").args)
    line = CommandLine(str(program), tuple(args), tuple(sorted(env.items())))
    async with shared_server(line).use() as server:
        try:
            answer = await server.fetch("models.list", {}, _Models)
        except ProviderError as error:
            if not is_about_login(str(error)):
                raise
            return own
    return [ModelInfo(model.id, model.name or model.id, model.context) for model in answer.models]
