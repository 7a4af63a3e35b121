"""The calls of OpenCode's server that Atomic uses, each with a time limit and an answer of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from atomic.http1 import HttpError, LoopbackClient, Response
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.opencode import wire

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024  # a page of messages may hold the outputs of many tools
QUICK, SLOW = 30.0, 120.0  # seconds; the first call for a folder loads all that belongs to it
_PAGE = 50


class RefusedError(ProviderError):
    """The server answered that it will not; `status` is its HTTP status."""

    def __init__(self, what: str, status: int) -> None:
        self.status = status
        super().__init__(what, provider="opencode")


class Api:
    """What can be asked of the server, for one folder each time."""

    def __init__(self, client: LoopbackClient) -> None:
        self._client = client

    @property
    def url(self) -> str:
        return self._client.url

    # sessions -------------------------------------------------------------------------------------------------

    async def create(self, folder: str, title: str) -> str:
        """A new session. With a title OpenCode need not ask a model for one."""
        return (await self._ask("POST", "/session", folder, wire.Session, {"title": title}, limit=SLOW)).id

    async def rename(self, folder: str, id: str, title: str) -> None:
        await self._ask("PATCH", f"/session/{id}", folder, None, {"title": title})

    async def find(self, folder: str, id: str) -> str:
        return (await self._ask("GET", f"/session/{id}", folder, wire.Session, limit=SLOW)).id

    async def fork(self, folder: str, id: str) -> str:
        return (await self._ask("POST", f"/session/{id}/fork", folder, wire.Session, {}, limit=SLOW)).id

    async def children(self, folder: str, id: str) -> list[wire.Session]:
        return await self._ask("GET", f"/session/{id}/children", folder, list[wire.Session])

    async def busy(self, folder: str) -> dict[str, wire.Status]:
        """The sessions that are at work; those that are not there are idle."""
        return await self._ask("GET", "/session/status", folder, dict[str, wire.Status])

    async def prompt(self, folder: str, id: str, body: Mapping[str, Any]) -> None:
        await self._ask("POST", f"/session/{id}/prompt_async", folder, None, body, limit=SLOW)

    async def note(self, folder: str, id: str, body: Mapping[str, Any]) -> None:
        """Add a message that nobody answers."""
        await self._ask("POST", f"/session/{id}/message", folder, None, {**body, "noReply": True}, limit=SLOW)

    async def abort(self, folder: str, id: str, *, limit: float = QUICK) -> None:
        """End what the session does. It answers when that has ended; before it began, there is nothing to end."""
        await self._ask("POST", f"/session/{id}/abort", folder, None, {}, limit=limit)

    async def summarize(self, folder: str, id: str, provider: str, model: str) -> None:
        body = {"providerID": provider, "modelID": model, "auto": False}
        await self._ask("POST", f"/session/{id}/summarize", folder, None, body, limit=None)

    async def messages(self, folder: str, id: str, *, back_to: str | None = None) -> list[wire.MessageWithParts]:
        """The newest messages, oldest first: a page of them, or all back to that one if it is there."""
        found: list[wire.MessageWithParts] = []
        before: str | None = None
        while True:
            query = {"limit": str(_PAGE), **({"before": before} if before else {})}
            data, headers = await self._call("GET", f"/session/{id}/message", folder, None, query=query)
            page = _read(data, list[wire.MessageWithParts])
            found = [*page, *found]
            before = headers.get("x-next-cursor")
            if not before or back_to is None or any(message.info.id == back_to for message in page):
                return found

    async def todos(self, folder: str, id: str) -> list[wire.Todo]:
        return await self._ask("GET", f"/session/{id}/todo", folder, list[wire.Todo])

    # questions ------------------------------------------------------------------------------------------------

    async def questions(self, folder: str) -> list[wire.QuestionRequest]:
        return await self._ask("GET", "/question", folder, list[wire.QuestionRequest])

    async def answer(self, folder: str, id: str, answers: Sequence[Sequence[str]]) -> None:
        body = {"answers": [list(labels) for labels in answers]}
        await self._ask("POST", f"/question/{id}/reply", folder, None, body)

    async def reject(self, folder: str, id: str) -> None:
        await self._ask("POST", f"/question/{id}/reject", folder, None, {})

    async def permissions(self, folder: str) -> list[wire.PermissionRequest]:
        return await self._ask("GET", "/permission", folder, list[wire.PermissionRequest])

    async def permit(self, folder: str, id: str) -> None:
        await self._ask("POST", f"/permission/{id}/reply", folder, None, {"reply": "once"})

    # what there is --------------------------------------------------------------------------------------------

    async def providers(self, folder: str) -> list[wire.Provider]:
        return (await self._ask("GET", "/config/providers", folder, wire.Providers, limit=SLOW)).providers

    async def tools(self, folder: str) -> list[str]:
        """The names of all tools but those of MCP servers."""
        return await self._ask("GET", "/experimental/tool/ids", folder, list[str], limit=SLOW)

    async def mcp(self, folder: str) -> dict[str, wire.McpStatus]:
        return await self._ask("GET", "/mcp", folder, dict[str, wire.McpStatus], limit=SLOW)

    async def warm_up(self, folder: str) -> None:
        """Have it load what the first prompt in a folder would load: to be stopped in the middle of that breaks it."""
        for path in ("/config/providers", "/agent", "/experimental/tool/ids", "/mcp", "/skill", "/command"):
            await self._ask("GET", path, folder, None, limit=SLOW)

    async def healthy(self, *, limit: float) -> None:
        """Whether the server answers at all. Raises ProgramFailedError."""
        await self._ask("GET", "/global/health", None, None, limit=limit)

    # how ------------------------------------------------------------------------------------------------------

    async def _ask(
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
        params = {**({"directory": folder} if folder is not None else {}), **(query or {})}
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
            raise RefusedError(f"OpenCode refuses: {_reason(data, response.status)}", response.status)
        return data, response.fields


async def _bounded(response: Response, path: str, silence: asyncio.Timeout, limit: float | None) -> bytes:
    """Read the whole body; the time limit begins anew with each piece of it."""
    clock = asyncio.get_running_loop().time
    data = bytearray()
    while piece := await response.body.read():
        data += piece
        if len(data) > MAX_ANSWER:
            raise wire.UnreadableError(f"the answer to {path} is longer than {MAX_ANSWER} bytes")
        if limit is not None:
            silence.reschedule(clock() + limit)
    return bytes(data)


def _read(data: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise wire.UnreadableError(str(error)) from error
    except RecursionError as error:
        raise wire.UnreadableError("it is nested too deep") from error


def _reason(data: bytes, status: int) -> str:
    try:
        problem = msgspec.json.decode(data, type=wire.Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"HTTP {status}"
    return problem.data.message or problem.name
