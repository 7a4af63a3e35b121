"""The calls of OpenCode's server that Atomic uses, with limits for time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from atomic.base.http import HttpError, LoopbackClient, Response
from atomic.providers.base import ModelInfo
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.opencode import messages

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024  # a page may contain the output of many tools
QUICK = 30.0  # seconds
SLOW = 120.0  # for the first call in a folder, which loads its configuration
_PAGE = 50


class RefusedError(ProviderError):
    """The server refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message, provider="opencode")


class Api:
    """The requests to the server, each for one folder."""

    def __init__(self, client: LoopbackClient) -> None:
        self._client = client

    @property
    def url(self) -> str:
        return self._client.url

    # Sessions

    async def create(self, folder: str, title: str) -> str:
        """Create a session. With a title, OpenCode does not ask a model for one."""
        return (await self._request("POST", "/session", folder, messages.Session, {"title": title}, limit=SLOW)).id

    async def rename(self, folder: str, id: str, title: str) -> None:
        await self._request("PATCH", f"/session/{id}", folder, None, {"title": title})

    async def find(self, folder: str, id: str) -> str:
        return (await self._request("GET", f"/session/{id}", folder, messages.Session, limit=SLOW)).id

    async def fork(self, folder: str, id: str) -> str:
        return (await self._request("POST", f"/session/{id}/fork", folder, messages.Session, {}, limit=SLOW)).id

    async def children(self, folder: str, id: str) -> list[messages.Session]:
        return await self._request("GET", f"/session/{id}/children", folder, list[messages.Session])

    async def busy(self, folder: str) -> dict[str, messages.Status]:
        """Return the state of all busy sessions; the others are idle."""
        return await self._request("GET", "/session/status", folder, dict[str, messages.Status])

    async def prompt(self, folder: str, id: str, body: Mapping[str, Any]) -> None:
        await self._request("POST", f"/session/{id}/prompt_async", folder, None, body, limit=SLOW)

    async def note(self, folder: str, id: str, body: Mapping[str, Any]) -> None:
        """Add a message that gets no answer."""
        await self._request("POST", f"/session/{id}/message", folder, None, {**body, "noReply": True}, limit=SLOW)

    async def abort(self, folder: str, id: str, *, limit: float = QUICK) -> None:
        """Abort the session's work and return when it has ended.

        Before the work starts, this has no effect.
        """
        await self._request("POST", f"/session/{id}/abort", folder, None, {}, limit=limit)

    async def summarize(self, folder: str, id: str, provider: str, model: str) -> None:
        body = {"providerID": provider, "modelID": model, "auto": False}
        await self._request("POST", f"/session/{id}/summarize", folder, None, body, limit=None)

    async def messages(self, folder: str, id: str, *, back_to: str | None = None) -> list[messages.MessageWithParts]:
        """Return the newest page of messages, oldest first.

        With `back_to`, return all messages back to that one, if it exists.
        """
        found: list[messages.MessageWithParts] = []
        before: str | None = None
        while True:
            query = {"limit": str(_PAGE)}
            if before:
                query["before"] = before
            data, headers = await self._call("GET", f"/session/{id}/message", folder, None, query=query)
            page = _read(data, list[messages.MessageWithParts])
            found = [*page, *found]
            before = headers.get("x-next-cursor")
            if not before or back_to is None or any(message.info.id == back_to for message in page):
                return found

    async def todos(self, folder: str, id: str) -> list[messages.Todo]:
        return await self._request("GET", f"/session/{id}/todo", folder, list[messages.Todo])

    # Questions

    async def questions(self, folder: str) -> list[messages.QuestionRequest]:
        return await self._request("GET", "/question", folder, list[messages.QuestionRequest])

    async def answer(self, folder: str, id: str, answers: Sequence[Sequence[str]]) -> None:
        body = {"answers": [list(labels) for labels in answers]}
        await self._request("POST", f"/question/{id}/reply", folder, None, body)

    async def reject(self, folder: str, id: str) -> None:
        await self._request("POST", f"/question/{id}/reject", folder, None, {})

    async def permissions(self, folder: str) -> list[messages.PermissionRequest]:
        return await self._request("GET", "/permission", folder, list[messages.PermissionRequest])

    async def permit(self, folder: str, id: str) -> None:
        await self._request("POST", f"/permission/{id}/reply", folder, None, {"reply": "once"})

    # Models, tools, servers

    async def providers(self, folder: str) -> list[messages.Provider]:
        return (await self._request("GET", "/config/providers", folder, messages.Providers, limit=SLOW)).providers

    async def models(self, folder: str) -> list[ModelInfo]:
        """Return the models of all providers, as `provider/model`."""
        return [
            ModelInfo(f"{provider.id}/{id}", model.name, int(model.limit.context))
            for provider in await self.providers(folder)
            for id, model in provider.models.items()
        ]

    async def tools(self, folder: str) -> list[str]:
        """Return the names of all tools except tools of MCP servers."""
        return await self._request("GET", "/experimental/tool/ids", folder, list[str], limit=SLOW)

    async def mcp(self, folder: str) -> dict[str, messages.McpStatus]:
        return await self._request("GET", "/mcp", folder, dict[str, messages.McpStatus], limit=SLOW)

    async def warm_up(self, folder: str) -> None:
        """Load everything that the first prompt in a folder loads.

        An interrupt in the middle of that loading breaks the server.
        """
        for path in ("/config/providers", "/agent", "/experimental/tool/ids", "/mcp", "/skill", "/command"):
            await self._request("GET", path, folder, None, limit=SLOW)

    async def healthy(self, *, limit: float) -> None:
        """Check that the server answers. Raise ProgramFailedError."""
        await self._request("GET", "/global/health", None, None, limit=limit)

    # Requests

    async def _request(
        self,
        method: str,
        path: str,
        folder: str | None,
        type: type[T] | None,
        body: Mapping[str, Any] | None = None,
        *,
        limit: float | None = QUICK,
    ) -> T:
        data, _ = await self._call(method, path, folder, body, limit=limit)
        return _read(data, type) if type is not None else None  # pyright: ignore[reportReturnType]  # T is None then

    async def _call(
        self,
        method: str,
        path: str,
        folder: str | None,
        body: Mapping[str, Any] | None,
        *,
        query: Mapping[str, str] | None = None,
        limit: float | None = QUICK,
    ) -> tuple[bytes, Mapping[str, str]]:
        params = dict(query or {})
        if folder is not None:
            params["directory"] = folder
        content = None if body is None else msgspec.json.encode(body)
        try:
            async with (
                asyncio.timeout(limit) as silence,
                self._client.request(method, path, query=params, content=content) as response,
            ):
                data = await _bounded(response, path, silence, limit)
        except TimeoutError as error:
            raise ProgramFailedError(
                f"OpenCode did not answer within {limit:g} s ({path})", provider="opencode"
            ) from error
        except HttpError as error:
            raise ProgramFailedError(f"OpenCode cannot be reached: {error}", provider="opencode") from error
        if response.status >= 400:
            try:
                problem = msgspec.json.decode(data, type=messages.Problem)
                reason = problem.data.message or problem.name
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                reason = f"HTTP {response.status}"
            raise RefusedError(f"OpenCode refused a request: {reason}", response.status)
        return data, response.fields


async def _bounded(response: Response, path: str, silence: asyncio.Timeout, limit: float | None) -> bytes:
    """Read the whole body; the time limit restarts with each piece of it."""
    clock = asyncio.get_running_loop().time
    data = bytearray()
    while piece := await response.body.read():
        data += piece
        if len(data) > MAX_ANSWER:
            raise messages.UnreadableError(f"the answer to {path} is longer than {MAX_ANSWER} bytes")
        if limit is not None:
            silence.reschedule(clock() + limit)
    return bytes(data)


def _read(data: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise messages.UnreadableError(str(error)) from error
    except RecursionError as error:
        raise messages.UnreadableError("it is nested too deeply") from error
