"""JSON-RPC with a program of ours, on its standard streams: no thread, nothing unbounded, no loss that nobody notices.

How a message lies in the stream is each protocol's own affair. What cannot be read ends the connection with a reason,
so that no turn waits for an end that was lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from atomic.processes import Program

NO_SUCH_METHOD = -32601
_WRONG_PARAMS = -32602
_OUR_FAULT = -32603
_LAST_WORDS = 1.0  # seconds to hear out a program that has ended: somebody else may hold its pipe
_LEAVING = 2.0  # seconds for our own answers that are cut off
_log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]


class UnreadableMessageError(Exception):
    """What came is no message of the protocol."""


class JsonRpcError(Exception):
    """A request cannot be served: the program says so, or we do. `message` has the words, `data` what else was told."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(f"JSON-RPC Error {code}: {message}")


class ProcessExitedError(Exception):
    """There is nobody any more who could answer."""


class Framing(Protocol):
    """How messages lie in the stream."""

    def messages(self, stdout: asyncio.StreamReader, /) -> AsyncGenerator[Any]:
        """Each message, decoded, up to the end of the stream. Raises UnreadableMessageError."""
        ...

    def framed(self, content: bytes, /) -> bytes:
        """A message of ours as it is sent."""
        ...


class _Message(msgspec.Struct, frozen=True):
    """A request, a notification or an answer."""

    method: str | None = None
    id: int | str | None = None
    params: Any = None
    result: Any = None
    error: Json | None = None


Hear: TypeAlias = Callable[[str, Json], None]
Answer: TypeAlias = Callable[[str, Json], Awaitable[Any]]


async def no_method(method: str, params: Json) -> Any:
    """Refuse whatever the program asks for: it was never offered to it. Raises JsonRpcError."""
    raise JsonRpcError(NO_SUCH_METHOD, f"Method not found: {method}")


class JsonRpc:
    """Speaks with a program. `hear` gets what it tells, `answer` serves what it asks; `closed` is called at the end."""

    def __init__(
        self,
        program: Program,
        framing: Framing,
        *,
        hear: Hear,
        answer: Answer = no_method,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self.fault = ""  # why it ended, if not because the program did
        self.is_open = True
        self._program, self._framing = program, framing
        self._hear, self._answer, self._closed = hear, answer, closed
        self._numbers = count(1)
        self._waiting: dict[int | str | None, asyncio.Future[_Message | None]] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._answering: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen from now on."""
        reading = asyncio.create_task(self._read_all(), name="jsonrpc-read")
        self._listening = [reading, asyncio.create_task(self._watch(reading), name="jsonrpc-exit")]

    async def stop(self) -> None:
        """Listen no more, and end our own answers; one that does not end in time is left to itself."""
        tasks = [*self._listening, *self._answering]
        for task in tasks:
            task.cancel()
        if tasks and (await asyncio.wait(tasks, timeout=_LEAVING))[1]:
            _log.warning("an answer to a program does not end when it is cancelled")

    # what we say ----------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None = None) -> Any:
        """The program's answer. Raises JsonRpcError, ProcessExitedError, TimeoutError."""
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._send({"id": number, "method": method, "params": params})
                answer = await answered
        finally:
            del self._waiting[number]
        if answer is None:
            raise self._gone()
        if answer.error is not None:
            raise _refusal(answer.error)
        return answer.result

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Say something that has no answer. Raises ProcessExitedError."""
        await self._send({"method": method, "params": params})

    async def _send(self, message: Json) -> None:
        stdin = self._program.stdin
        if not self.is_open or stdin is None or stdin.is_closing():
            raise self._gone()
        content = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        try:
            stdin.write(self._framing.framed(content))
            await stdin.drain()
        except (ConnectionError, RuntimeError) as error:  # it has gone, or is just being ended
            raise self._gone() from error

    def _gone(self) -> ProcessExitedError:
        return ProcessExitedError(self.fault or "it has ended")

    # what comes -----------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        try:
            async with aclosing(self._framing.messages(self._program.stdout)) as messages:
                async for message in messages:
                    self._take(message)
                    await asyncio.sleep(0)  # what was heard is told before more is read: a flood fills the pipe, not us
        except UnreadableMessageError as error:
            self.fault = str(error)
        except Exception as error:  # JSON, but not of the protocol: that ends the turn, never Atomic
            self.fault = f"it sent a message that makes no sense ({error!r})"
        finally:
            self.is_open = False
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_result(None)
            self._closed()

    async def _watch(self, reading: asyncio.Task[None]) -> None:
        """Notice the program's end, also if its pipe stays open."""
        await self._program.wait()
        await asyncio.wait({reading}, timeout=_LAST_WORDS)
        reading.cancel()

    def _take(self, raw: Any) -> None:
        message = msgspec.convert(raw, _Message)
        if message.method is None:
            self._take_answer(message)
        elif message.id is None:
            self._hear(message.method, _object(message.params))
        else:
            task = asyncio.create_task(self._serve(message.id, message.method, _object(message.params)))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _take_answer(self, answer: _Message) -> None:
        if answer.id is None and answer.error is None:
            raise UnreadableMessageError("it sent JSON that is no message of the protocol")
        answered = self._waiting.get(answer.id)
        if answered is not None and not answered.done():  # else nobody waits for it any more
            answered.set_result(answer)

    async def _serve(self, id: int | str, method: str, params: Json) -> None:
        try:
            reply: Json = {"result": await self._answer(method, params)}
        except JsonRpcError as refusal:
            reply = _error(refusal.code, refusal.message)
        except msgspec.ValidationError as error:
            reply = _error(_WRONG_PARAMS, f"Invalid params: {error}")
        except Exception as error:  # the program is told, whatever it was: it waits for an answer
            _log.exception('"%s" of a program could not be served', method)
            reply = _error(_OUR_FAULT, f"Internal error: {error}")
        with suppress(ProcessExitedError):  # nobody waits any more
            await self._send({"id": id, **reply})


def _object(params: Any) -> Json:
    return cast("Json", params) if isinstance(params, dict) else {}


def _error(code: int, message: str) -> Json:
    return {"error": {"code": code, "message": message}}


def _refusal(error: Json) -> JsonRpcError:
    """The error as far as it is one of the protocol."""
    code, message = error.get("code"), error.get("message")
    return JsonRpcError(
        code if isinstance(code, int) else -1,
        message if isinstance(message, str) else "it does not say why",
        error.get("data"),
    )
