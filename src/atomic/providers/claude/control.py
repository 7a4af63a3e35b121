"""The control protocol: requests between Atomic and Claude Code, outside the
conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeAlias, cast

import msgspec

from atomic.providers.errors import ProgramFailedError

KINDS = frozenset({"control_request", "control_response", "control_cancel_request"})
SECONDS = 60.0  # for an answer
_CANCEL_SECONDS = 2.0  # for answers that are cancelled
_log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]


class ToolUse(msgspec.Struct, frozen=True, tag_field="subtype", tag="can_use_tool"):
    """The program asks whether the agent may use a tool.

    `agent_id` is a sub-agent's task.
    """

    tool_name: str
    input: Json
    agent_id: str | None = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="subtype", tag="mcp_message"):
    """A message to an MCP server that runs in this process."""

    server_name: str
    message: Json


Request: TypeAlias = ToolUse | ToolMessage


class _Asked(msgspec.Struct, frozen=True):
    request_id: str
    request: msgspec.Raw


class _Cancelled(msgspec.Struct, frozen=True):
    request_id: str


class _Answer(msgspec.Struct, frozen=True):
    request_id: str
    subtype: str = "success"
    response: Any = None
    error: str = "no reason given"


class _Answered(msgspec.Struct, frozen=True):
    response: _Answer


class Control:
    """Both directions of it. `send` sends a message, `answer` answers a request of the
    program.
    """

    def __init__(self, send: Callable[[Json], Awaitable[None]], answer: Callable[[Request], Awaitable[Json]]) -> None:
        self._send = send
        self._answer = answer
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[_Answer | ProgramFailedError]] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    # Requests to the program

    async def request(self, request: Json, *, seconds: float = SECONDS) -> Json:
        """Return the program's answer.

        Raise ProgramFailedError if it refuses, does not answer in time or has ended.
        """
        id = f"atomic-{next(self._numbers)}"
        answered = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            await self._send(_request(id, request))
            async with asyncio.timeout(seconds):
                return _content(await answered)
        except TimeoutError as error:
            message = f'Claude Code did not answer "{request["subtype"]}" within {seconds:.0f} s'
            raise ProgramFailedError(message, provider="claude") from error
        finally:
            del self._waiting[id]

    async def notify(self, request: Json) -> None:
        """Send a request without waiting for its answer. Raise ProgramFailedError."""
        await self._send(_request(f"atomic-{next(self._numbers)}", request))

    def fail(self, failure: ProgramFailedError) -> None:
        """Fail all waiting requests: the program has ended."""
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_result(failure)

    # Requests of the program

    def receive(self, kind: str, line: bytes) -> None:
        """Handle one control message.

        Raise msgspec.ValidationError for an unknown shape.
        """
        match kind:
            case "control_response":
                answer = msgspec.json.decode(line, type=_Answered).response
                waiting = self._waiting.get(answer.request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
            case "control_request":
                self._begin(msgspec.json.decode(line, type=_Asked))
            case _:
                task = self._answering.get(msgspec.json.decode(line, type=_Cancelled).request_id)
                if task is not None:
                    task.cancel()

    async def close(self) -> None:
        """Cancel running answers; do not wait for one that ignores it."""
        self._is_closing = True
        tasks = [*self._answering.values()]
        for task in tasks:
            task.cancel()
        if tasks and (await asyncio.wait(tasks, timeout=_CANCEL_SECONDS))[1]:
            _log.warning("claude: a tool did not end when it was cancelled")

    def _begin(self, asked: _Asked) -> None:
        if self._is_closing:
            return
        task = asyncio.get_running_loop().create_task(self._serve(asked))
        self._answering[asked.request_id] = task
        task.add_done_callback(lambda _: self._answering.pop(asked.request_id, None))

    async def _serve(self, asked: _Asked) -> None:
        id = asked.request_id
        try:
            given = await self._answer(msgspec.json.decode(asked.request, type=Request))
            answer = {"subtype": "success", "request_id": id, "response": given}
        except Exception as error:  # the program waits for an answer
            answer = {"subtype": "error", "request_id": id, "error": str(error) or type(error).__name__}
        with suppress(ProgramFailedError):  # the program has ended
            await self._send({"type": "control_response", "response": answer})


def _request(id: str, request: Json) -> Json:
    return {"type": "control_request", "request_id": id, "request": request}


def _content(answer: _Answer | ProgramFailedError) -> Json:
    if isinstance(answer, ProgramFailedError):
        raise answer
    if answer.subtype == "error":
        raise ProgramFailedError(f"Claude Code refused a request: {answer.error}", provider="claude")
    response: object = answer.response
    return cast("Json", response) if isinstance(response, dict) else {}  # an acknowledgement has no content
