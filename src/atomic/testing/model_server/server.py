"""The scripted model: a server on loopback that real agents use instead of a model."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from atomic.base.http_server import HOST, BadRequestError, Request, listen, read_request_body, read_request_head
from atomic.base.lazy_types import deferred
from atomic.processes.temporary_folders import temporary_prefix
from atomic.testing.model_server.anthropic import AnthropicEncoder, read_anthropic
from atomic.testing.model_server.calls import CallState, Conversation, Ledger, ModelCall, Named, OtherRequest, Protocol
from atomic.testing.model_server.encoder import Encoder
from atomic.testing.model_server.gemini import COUNT, STREAM, WHOLE, GeminiEncoder, read_gemini
from atomic.testing.model_server.http import CutError, Response, decode_body
from atomic.testing.model_server.openai import ChatEncoder, ResponsesEncoder, read_chat, read_responses
from atomic.testing.model_server.playbook import Choice, Playbook
from atomic.testing.model_server.player import Player, StallError
from atomic.testing.model_server.script import (
    DEFAULT,
    MODELS,
    SIDE_TEXT,
    NotRunningError,
    Script,
    ScriptFile,
    Stop,
    Tokens,
    Turn,
    Word,
)

if TYPE_CHECKING:
    from atomic.providers import AgentProvider
else:
    AgentProvider = deferred("atomic.providers", "AgentProvider")

_MAX_BODY = 1024 * 1024 * 1024
_READERS: Mapping[str, Callable[[bytes], Conversation]] = {
    "/messages": read_anthropic,
    "/chat/completions": read_chat,
    "/responses": read_responses,
}
_ENCODERS: Mapping[Protocol, type[Encoder]] = {
    Protocol.ANTHROPIC: AnthropicEncoder,
    Protocol.GEMINI: GeminiEncoder,
    Protocol.OPENAI_CHAT: ChatEncoder,
    Protocol.OPENAI_RESPONSES: ResponsesEncoder,
}


class ModelServer:
    """Answers model calls by scripts and records all requests.

    A prompt that contains `@@name@@` gets the first turn of that script, later requests
    get the next turns. A prompt without a marker gets `default`, or the script that
    `named` returns for it. A request without tools (agents generate titles that way)
    gets `side_text`, unless its script is in `toolless`.

        async with ModelServer({"hello": "Hello."}) as server:
            ...  # a turn of `agents(server.connect("claude"))` with the prompt "@@hello@@"
        assert [call.script for call in server.calls] == ["hello"] and not server.other
    """

    def __init__(
        self,
        scripts: Mapping[str, Script] | None = None,
        *,
        default: Turn = DEFAULT,
        side_text: str = SIDE_TEXT,
        toolless: Sequence[str] = (),
        models: Sequence[str] = MODELS,
        port: int = 0,
        named: Named | None = None,
    ) -> None:
        file = ScriptFile(dict(scripts or {}), default, side_text, tuple(toolless), tuple(models))
        self.models = file.models
        self._playbook = Playbook(file, named)
        self._ledger = Ledger()
        self._port: int = port
        self._life: AbstractAsyncContextManager[int]
        self._bugs: list[BaseException] = []
        self._is_open = False
        self._homes = ExitStack()  # of connected agents

    # For tests

    @property
    def url(self) -> str:
        """Return the address, without `/v1`. Raise NotRunningError."""
        if not self._is_open:
            raise NotRunningError
        return f"http://{HOST}:{self._port}"

    @property
    def calls(self) -> Sequence[ModelCall]:
        """Return all model calls, in order of arrival."""
        return self._ledger.calls

    @property
    def other(self) -> Sequence[OtherRequest]:
        """Return all requests except model calls, lists of models and counts of tokens."""
        return self._ledger.other

    def connect(self, agent: str) -> AgentProvider:
        """Return a provider of "claude", "opencode", "copilot", "codex" or "gemini".

        Its agent has this server as its model, an empty home folder that ends with the
        server, and nothing of the user. Raise NotRunningError, ModelServerError for
        another agent, and ProgramMissingError, with how to install it.
        """
        from atomic.testing.model_server.connections import connected_provider

        if not self._is_open:
            raise NotRunningError
        home = tempfile.TemporaryDirectory(prefix=temporary_prefix("home"), ignore_cleanup_errors=True)
        self._homes.callback(home.cleanup)
        return connected_provider(self, agent, Path(home.name))

    async def wait_for(self, condition: Callable[[ModelCall], bool], *, timeout: float = 30) -> ModelCall:
        """Wait for a call that meets the condition and return it.

        Raise NoSuchCallError, with the calls that arrived.
        """
        return await self._ledger.wait_for(condition, timeout=timeout)

    # Life

    async def __aenter__(self) -> Self:
        self._life = listen(self._serve, self._bugs.append, port=self._port)
        self._port = await self._life.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections. Raise the errors of the server itself."""
        self._is_open = False
        self._homes.close()
        await self._life.__aexit__(None, None, None)
        if self._bugs and error is None:
            raise BaseExceptionGroup("the model server failed", self._bugs)

    # One connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                head = await read_request_head(reader)
                while head is not None:
                    head = await self._exchange(head, reader, writer)
            except BadRequestError as error:
                self._ledger.other.append(OtherRequest("", str(error), {}, b""))
                await Response(writer).whole(400, {"error": {"message": str(error)}})
            writer.close()
            await writer.wait_closed()

    async def _exchange(
        self, head: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Request | None:
        """Answer one request.

        Return the head of the next, or None to end the connection.

        The next head is awaited while the answer is sent, which shows at once that the
        client has closed the connection. Raise BadRequestError.
        """
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await read_request_body(reader, head, limit=_MAX_BODY)
        encoding = head.headers.get("content-encoding", "identity").lower()
        request = msgspec.structs.replace(head, body=decode_body(body, encoding))
        answer = asyncio.create_task(self._answer(request, Response(writer)))
        next_head = asyncio.create_task(read_request_head(reader))
        try:
            await asyncio.wait({answer, next_head}, return_when=asyncio.FIRST_COMPLETED)
            has_gone = not answer.done() and (next_head.exception() is not None or next_head.result() is None)
            if has_gone or not await answer or head.headers.get("connection", "").lower() == "close":
                return None
            return await next_head
        finally:
            await _end(answer, next_head)

    async def _answer(self, request: Request, response: Response) -> bool:
        """Answer a request and return whether the connection may be used again."""
        reader = _reader_for(request)
        if reader is not None:
            try:
                conversation = reader(request.body)
            except msgspec.MsgspecError as error:
                self._note_other(request)
                await response.whole(400, {"error": {"type": "invalid_request_error", "message": str(error)}})
                return True
            return await self._answer_call(request, conversation, response)
        if request.method == "GET" and request.path.endswith("/models"):
            await response.whole(200, _model_list(self.models))
        elif request.method == "POST" and request.path.endswith("/messages/count_tokens"):
            await response.whole(200, {"input_tokens": len(request.body) // 4})
        elif request.method == "POST" and request.path.endswith(COUNT):
            await response.whole(200, {"totalTokens": len(request.body) // 4})
        else:
            self._note_other(request)
            missing = {"error": {"type": "not_found_error", "message": f"not scripted: {request.path}"}}
            await response.whole(404, None if request.method == "HEAD" else missing)
        return True

    async def _answer_call(self, request: Request, conversation: Conversation, response: Response) -> bool:
        choice = self._playbook.choose(conversation)
        call = _call(request, conversation, choice)
        self._ledger.begin(call)
        player = Player(_encoder_for(conversation, choice), response, stream=conversation.stream)
        try:
            may_continue = await self._play(call, player, choice.words)
        except (ConnectionError, asyncio.CancelledError):
            if self._is_open:
                self._ledger.mark(call, CallState.CLIENT_CLOSED)
            raise
        self._ledger.mark(call, CallState.ANSWERED)
        return may_continue

    async def _play(self, call: ModelCall, player: Player, words: Sequence[Word]) -> bool:
        try:
            await player.play(words)
        except CutError:
            return False
        except StallError:
            self._ledger.mark(call, CallState.STALLED)
            await asyncio.get_running_loop().create_future()  # until the connection ends
        return True

    def _note_other(self, request: Request) -> None:
        self._ledger.other.append(OtherRequest(request.method, request.path, request.headers, request.body))


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _reader_for(request: Request) -> Callable[[bytes], Conversation] | None:
    if request.method != "POST":
        return None
    if request.path.endswith((WHOLE, STREAM)):
        return partial(read_gemini, request.path)
    return next((reader for path, reader in _READERS.items() if request.path.endswith(path)), None)


def _encoder_for(conversation: Conversation, choice: Choice) -> Encoder:
    tokens = next((word for word in choice.words if isinstance(word, Tokens)), Tokens())
    stop = next((word for word in choice.words if isinstance(word, Stop)), None)
    return _ENCODERS[conversation.protocol](conversation, tokens, stop)


def _call(request: Request, conversation: Conversation, choice: Choice) -> ModelCall:
    return ModelCall(
        protocol=conversation.protocol,
        path=request.path,
        model=conversation.model,
        stream=conversation.stream,
        tools=conversation.tools,
        system=conversation.system,
        user_text=conversation.user_text(),
        tool_result=conversation.tool_result(),
        script=choice.script,
        turn=choice.turn,
        headers=request.headers,
        body=msgspec.json.decode(request.body),
    )


def _model_list(names: Sequence[str]) -> dict[str, Any]:
    """List the models as all families of protocols do."""
    models = [
        {"id": name, "object": "model", "created": 0, "owned_by": "atomic"}
        | {"type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
        for name in names
    ]
    gemini = [{"name": f"models/{name}", "displayName": name} for name in names]
    page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
    return {"object": "list", "data": models, "models": gemini, **page}


@contextmanager
def in_thread(server: ModelServer) -> Generator[ModelServer]:
    """Run a server in a thread, for tests without an event loop.

    Use it as `with in_thread(ModelServer({...})) as server`.
    """
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()
    threading.Thread(target=_run, args=(server, started, ended), name="model-server", daemon=True).start()
    loop, stop = started.result()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        ended.result()


def _run(
    server: ModelServer, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]], ended: Future[None]
) -> None:
    async def serve() -> None:
        stop = asyncio.Event()
        async with server:
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    try:
        asyncio.run(serve())
    except BaseException as error:
        # The thread that waits for the server raises it.
        (ended if started.done() else started).set_exception(error)
    else:
        ended.set_result(None)
