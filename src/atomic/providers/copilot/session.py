"""A conversation with Copilot.

If its server ends, the next turn resumes it on a new one.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from atomic.providers.answers import map_inner_schemas
from atomic.providers.base import Capabilities, ContextUsage, SessionOptions
from atomic.providers.copilot import messages
from atomic.providers.copilot.connection import Connection, UnknownSessionError, copy_of
from atomic.providers.copilot.launch import Setup
from atomic.providers.copilot.server import Server, shared_server
from atomic.providers.copilot.subagents import Subagents, as_input
from atomic.providers.copilot.translate import Translator
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import EndReason, Notice, PlanChanged, QuestionAsked
from atomic.providers.forms import Form
from atomic.providers.session import LiveSession
from atomic.providers.turn import Turn, TurnTasks

PING_SECONDS = 0.2  # for an answer of a healthy server

_log = logging.getLogger(__name__)
_NOT_STRICT = frozenset({"default", "title", "prefixItems", "discriminator"})


class CopilotSession(LiveSession):
    """A session of the Copilot CLI."""

    def __init__(self, capabilities: Capabilities, options: SessionOptions, setup: Setup) -> None:
        super().__init__("copilot", capabilities, options)
        self._setup = setup
        self._model = setup.model
        self._id = options.resume or str(uuid.uuid4())
        self._is_on_disk = options.resume is not None
        self._has_prompted = False
        self._shared = shared_server(setup.line)
        self._stack = AsyncExitStack()  # the use of the server
        self._connection: Connection | None = None
        self._began: datetime | None = None  # when the prompt of this turn was sent
        self._subagents = Subagents()
        self._tasks = TurnTasks(_log_error)

    @property
    def id(self) -> str:
        return self._id

    # Open and close

    async def open(self) -> None:
        """Create or resume the session. Raise ProviderError."""
        await self._connected()

    async def close(self) -> None:
        """Close the session; it stays on disk."""
        connection = self._connection
        self._connection = None
        try:
            if connection is not None:
                await connection.close()
        except (TimeoutError, ProviderError) as error:
            _log.debug("copilot: the session could not be closed: %s", error)
        finally:
            await self._stack.aclose()

    async def _connected(self) -> Connection:
        """Return a connection to a live server, resumed if needed.

        Raise ProviderError.
        """
        if self._connection is not None and not self._connection.server.ended.is_set():
            return self._connection
        if self._connection is not None:
            self._shared.drop(self._connection.server)
            self._connection.forget()
            self._connection = None
        server = await self._live_server()
        try:
            self._connection = await self._open_on(server)
        except ProgramFailedError:
            if not server.ended.is_set():
                raise
            self._connection = await self._open_on(await self._live_server())  # it died while opening
        return self._connection

    async def _live_server(self) -> Server:
        await self._stack.aclose()
        server = await self._stack.enter_async_context(self._shared.use())
        if server.ended.is_set():  # it ended without notice
            self._shared.drop(server)
            await self._stack.aclose()
            server = await self._stack.enter_async_context(self._shared.use())
        return server

    async def _open_on(self, server: Server) -> Connection:
        if self.options.fork and self._id == self.options.resume:
            self._id = await copy_of(server, self._id)
        try:
            return await Connection.open(server, self._setup, self._id, model=self._model, resume=self._is_on_disk)
        except UnknownSessionError:
            if self.options.resume is not None:
                raise
            self._is_on_disk = False  # the server died before it stored the session
            return await Connection.open(server, self._setup, self._id, model=self._model, resume=False)

    # Turns

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Send the prompt and handle events until the end of the turn."""
        connection = await self._connected()
        if self._has_prompted and not self._is_on_disk:
            turn.emit(Notice("Copilot ended before it stored the conversation; earlier messages are lost"))
        if turn.ending:
            turn.end(EndReason.INTERRUPTED)
            return
        try:
            self._began = datetime.now(UTC)
            try:
                id = await connection.send(*_with_schema(prompt, schema))
            except ProgramFailedError:  # it died between the turns
                connection = await self._connected()
                id = await connection.send(*_with_schema(prompt, schema))
            self._is_on_disk = True
            self._has_prompted = True
            translator = Translator(turn, id, self._subagents, self.options.max_turns)
            while not turn.over:
                await self._handle(await connection.events.get(), connection, translator)
        finally:
            self._began = None
            await self._tasks.cancel()

    async def stop_turn(self, turn: Turn) -> None:
        """Abort the turn; before the prompt is sent, just end it."""
        if self._connection is None or self._began is None:
            turn.end(EndReason.INTERRUPTED)
            return
        await self._connection.stop(self._began)

    async def break_off(self) -> None:
        """Close the session on the server; give up a server that does not answer."""
        connection = self._connection
        self._connection = None
        if connection is None:
            return
        connection.forget()
        try:
            await connection.server.call("ping", {}, timeout=PING_SECONDS)
            await connection.server.call("sessions.close", {"sessionId": self._id}, timeout=PING_SECONDS)
        except (TimeoutError, ProviderError):
            connection.server.give_up()
            self._shared.drop(connection.server)

    async def _handle(self, event: messages.Event, connection: Connection, translator: Translator) -> None:
        match event.data:
            case messages.PermissionRequested():
                if not event.data.resolved_by_hook:
                    self._tasks.start(connection.decide(event.data))
            case messages.CustomToolRequested(request, name, arguments):
                self._tasks.start(self._run_tool(connection, request, name, arguments))
            case messages.FormRequested():
                self._tasks.start(self._ask_user(connection, event.data, event.agent, translator.turn))
            case messages.TodosChanged():
                try:
                    translator.turn.emit(PlanChanged(await connection.todos(), event.agent))
                except ProviderError:  # a missing list must not end the turn
                    translator.turn.note_unknown(event.kind)
            case _:
                was_stopping = translator.stopping
                translator.receive(event)
                if translator.stopping is not None and was_stopping is None and self._began is not None:
                    self._tasks.start(connection.stop(self._began))

    async def _run_tool(self, connection: Connection, request: str, name: str, arguments: Any) -> None:
        tool = self._setup.tools.get(name)
        if tool is None:
            await connection.return_result(request, error=f"Unknown tool '{name}'")
            return
        try:
            result = await tool.run(as_input(arguments))
        except Exception as error:  # the agent receives every error and may react
            await connection.return_result(request, error=str(error) or type(error).__name__)
        else:
            await connection.return_result(request, result=result)

    async def _ask_user(
        self, connection: Connection, wanted: messages.FormRequested, agent: str | None, turn: Turn
    ) -> None:
        """Ask the user to fill in a form; cancel it if no answer arrives."""
        if self.options.ask is None or wanted.mode == "url":
            await connection.answer_form(wanted.request_id, None)
            return
        try:
            form = Form(wanted.message, wanted.requested_schema)
            turn.emit(QuestionAsked(form.questions, agent))
            answers = await self.options.ask(form.questions)
        except Exception:
            await connection.answer_form(wanted.request_id, None)
            raise
        await connection.answer_form(wanted.request_id, form.values(answers))

    # Other requests

    async def context(self) -> ContextUsage:
        """Return how full the context was at the last model call."""
        return self._connection.context if self._connection is not None else ContextUsage()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context; an empty one stays as it is. Raise ProviderError."""
        try:
            await (await self._connected()).compact(focus)
        except ProviderError as error:
            if "Nothing to compact" not in str(error):
                raise

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raise ProviderError."""
        await (await self._connected()).set_model(id)
        self._model = id


def _log_error(error: BaseException) -> None:
    _log.warning("copilot: %s", error, exc_info=None if isinstance(error, ProviderError) else error)


def _with_schema(prompt: str, schema: Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any] | None]:
    """Return the prompt and the strict schema; put a schema that is not strict into the
    prompt.
    """
    if schema is None:
        return prompt, None
    try:
        return prompt, strict(schema)
    except LooseSchemaError:
        return f"{prompt}\n\nAnswer with JSON alone that fits this JSON Schema:\n{json.dumps(schema)}", None


class LooseSchemaError(Exception):
    """A schema with an object of unknown fields cannot be strict."""


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with all objects closed. Raise LooseSchemaError."""
    kept = {key: value for key, value in schema.items() if key not in _NOT_STRICT}
    result = map_inner_schemas(kept, strict)
    if result.get("type") == "object":
        if "properties" not in result or isinstance(schema.get("additionalProperties"), Mapping):
            raise LooseSchemaError
        result |= {"additionalProperties": False, "required": list(result["properties"])}
    return result
