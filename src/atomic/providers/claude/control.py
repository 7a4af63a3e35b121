"""The control protocol: what Atomic and Claude Code ask each other beside the conversation, each request by its id."""

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
SECONDS = 60.0  # for an answer of the program
_LEAVING = 2.0  # for our own answers that are cut off
_log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]


class ToolUse(msgspec.Struct, frozen=True, tag_field="subtype", tag="can_use_tool"):
    """May the agent use this tool? `agent_id` is the task of a sub-agent."""

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
    error: str = "it does not say why"


class _Answered(msgspec.Struct, frozen=True):
    response: _Answer


class Control:
    """Both directions of it. `say` sends a message, `answer` makes the answer to a request of the program."""

    def __init__(self, say: Callable[[Json], Awaitable[None]], answer: Callable[[Request], Awaitable[Json]]) -> None:
        self._say, self._answer = say, answer
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[_Answer | ProgramFailedError]] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    # what we ask ----------------------------------------------------------------------------------------------

    async def ask(self, request: Json, *, seconds: float = SECONDS) -> Json:
        """The program's answer. Raises ProgramFailedError: it refuses, says nothing in time, or has ended."""
        id, answered = f"atomic-{next(self._numbers)}", asyncio.get_running_loop().create_future()
        self._waiting[id] = answered
        try:
            await self._say(_request(id, request))
            async with asyncio.timeout(seconds):
                return _content(await answered)
        except TimeoutError as error:
            words = f'Claude Code did not answer "{request["subtype"]}" within {seconds:.0f} s'
            raise ProgramFailedError(words, provider="claude") from error
        finally:
            del self._waiting[id]

    async def tell(self, request: Json) -> None:
        """Ask, and do not wait for the answer. Raises ProgramFailedError."""
        await self._say(_request(f"atomic-{next(self._numbers)}", request))

    def fail(self, failure: ProgramFailedError) -> None:
        """The program has ended: nobody will be answered any more."""
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_result(failure)

    # what the program asks ------------------------------------------------------------------------------------

    def hear(self, kind: str, line: bytes) -> None:
        """Take one of its messages. Raises msgspec.ValidationError for one of another shape."""
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
        """End our own answers; one that does not end in time is left to itself."""
        self._is_closing = True
        tasks = [*self._answering.values()]
        for task in tasks:
            task.cancel()
        if tasks and (await asyncio.wait(tasks, timeout=_LEAVING))[1]:
            _log.warning("claude: a tool does not end when it is cancelled")

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
        except Exception as error:  # the program is told, whatever it was: it waits for an answer
            answer = {"subtype": "error", "request_id": id, "error": str(error) or type(error).__name__}
        with suppress(ProgramFailedError):  # it has gone: nobody waits any more
            await self._say({"type": "control_response", "response": answer})


def _request(id: str, request: Json) -> Json:
    return {"type": "control_request", "request_id": id, "request": request}


def _content(answer: _Answer | ProgramFailedError) -> Json:
    if isinstance(answer, ProgramFailedError):
        raise answer
    if answer.subtype == "error":
        raise ProgramFailedError(f"Claude Code refuses: {answer.error}", provider="claude")
    response: object = answer.response
    return cast("Json", response) if isinstance(response, dict) else {}  # a mere "yes" has none
