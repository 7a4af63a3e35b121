"""A conversation with Copilot. It outlives its server: if that is gone, the next turn takes it up on a new one."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from atomic.providers.base import Capabilities, ContextUsage, SessionOptions
from atomic.providers.copilot import messages as said
from atomic.providers.copilot.errands import Errands
from atomic.providers.copilot.forms import Form
from atomic.providers.copilot.link import Link, UnknownSessionError, copy_of
from atomic.providers.copilot.schemas import LooseSchemaError, strict
from atomic.providers.copilot.server import Server, shared_server
from atomic.providers.copilot.setup import Setup
from atomic.providers.copilot.subagents import Subagents, as_input
from atomic.providers.copilot.translate import Translator
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import EndReason, Notice, PlanChanged, QuestionAsked
from atomic.providers.live import LiveSession
from atomic.providers.turns import Turn

PING = 0.2  # seconds in which a server that is well says something

_log = logging.getLogger(__name__)


class CopilotSession(LiveSession):
    """A session of the Copilot CLI."""

    def __init__(self, capabilities: Capabilities, options: SessionOptions, setup: Setup) -> None:
        super().__init__("copilot", capabilities, options)
        self._setup, self._model = setup, setup.model
        self._id = options.resume or str(uuid.uuid4())
        self._is_on_disk = options.resume is not None
        self._has_spoken = False
        self._shared = shared_server(setup.line)
        self._hold = AsyncExitStack()  # on the server
        self._link: Link | None = None
        self._began: datetime | None = None  # when the prompt of this turn was sent
        self._subagents = Subagents()
        self._errands = Errands()

    @property
    def id(self) -> str:
        return self._id

    # opening and closing --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises ProviderError."""
        await self._linked()

    async def close(self) -> None:
        """Leave nothing behind but what is on the disk."""
        link, self._link = self._link, None
        try:
            if link is not None:
                await link.close()
        except (TimeoutError, ProviderError) as error:
            _log.debug("copilot: the session could not be closed: %s", error)
        finally:
            await self._hold.aclose()

    async def _linked(self) -> Link:
        """The session on a server that lives; taken up again if need be. Raises ProviderError."""
        if self._link is not None and not self._link.server.ended.is_set():
            return self._link
        self._let_go()
        server = await self._living_server()
        try:
            self._link = await self._open_on(server)
        except ProgramFailedError:
            if not server.ended.is_set():
                raise
            self._link = await self._open_on(await self._living_server())  # that one died under our hands
        return self._link

    async def _living_server(self) -> Server:
        await self._hold.aclose()
        server = await self._hold.enter_async_context(self._shared.use())
        if server.ended.is_set():  # nobody had noticed yet
            self._shared.drop(server)
            await self._hold.aclose()
            server = await self._hold.enter_async_context(self._shared.use())
        return server

    async def _open_on(self, server: Server) -> Link:
        if self.options.fork and self._id == self.options.resume:
            self._id = await copy_of(server, self._id)
        try:
            return await Link.open(server, self._setup, self._id, model=self._model, resume=self._is_on_disk)
        except UnknownSessionError:
            if self.options.resume is not None:
                raise
            self._is_on_disk = False  # it died before it had written anything down
            return await Link.open(server, self._setup, self._id, model=self._model, resume=False)

    def _let_go(self) -> None:
        if self._link is not None:
            self._shared.drop(self._link.server)
            self._link.forget()
            self._link = None

    # a turn ---------------------------------------------------------------------------------------------------

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Send the prompt and tell what comes of it."""
        link = await self._linked()
        if self._has_spoken and not self._is_on_disk:
            turn.tell(Notice("Copilot died before it had written down what was said; it does not know it any more"))
        if turn.ending:
            turn.end(EndReason.INTERRUPTED)
            return
        try:
            self._began = datetime.now(UTC)
            try:
                id = await link.send(*_bound(prompt, schema))
            except ProgramFailedError:  # it died between the turns, and that was not known yet
                link = await self._linked()
                id = await link.send(*_bound(prompt, schema))
            self._is_on_disk = self._has_spoken = True
            translator = Translator(turn, id, self._subagents, self.options.max_turns)
            while not turn.over:
                await self._hear_event(await link.events.get(), link, translator)
        finally:
            self._began = None
            await self._errands.call_back()

    async def stop_turn(self, turn: Turn) -> None:
        """Have Copilot abort it; before the prompt was sent there is nothing to abort."""
        if self._link is None or self._began is None:
            turn.end(EndReason.INTERRUPTED)
            return
        await self._link.stop(self._began)

    async def break_off(self) -> None:
        """Close the session on the server; a server that does not even answer is given up, with all on it."""
        link, self._link = self._link, None
        if link is None:
            return
        link.forget()
        try:
            await link.server.call("ping", {}, timeout=PING)
            await link.server.call("sessions.close", {"sessionId": self._id}, timeout=PING)
        except (TimeoutError, ProviderError):
            link.server.give_up()
            self._shared.drop(link.server)

    async def _hear_event(self, event: said.Event, link: Link, translator: Translator) -> None:
        match event.data:
            case said.PermissionRequested():
                if not event.data.resolved_by_hook:
                    self._errands.send(link.decide(event.data))
            case said.CustomToolRequested(request, name, arguments):
                self._errands.send(self._run_tool(link, request, name, arguments))
            case said.FormRequested():
                self._errands.send(self._put_question(link, event.data, event.agent, translator.turn))
            case said.TodosChanged():
                await self._tell_plan(event, link, translator.turn)
            case _:
                was_stopping = translator.stopping
                translator.hear(event)
                if translator.stopping is not None and was_stopping is None and self._began is not None:
                    self._errands.send(link.stop(self._began))

    async def _tell_plan(self, event: said.Event, link: Link, turn: Turn) -> None:
        try:
            turn.tell(PlanChanged(await link.todos(), event.agent))
        except ProviderError:  # nobody needs the list so much that the turn should end for it
            turn.note_unknown(event.kind)

    async def _run_tool(self, link: Link, request: str, name: str, arguments: Any) -> None:
        tool = self._setup.tools.get(name)
        if tool is None:
            await link.hand_in(request, error=f"There is no tool '{name}'")
            return
        try:
            result = await tool.run(as_input(arguments))
        except Exception as error:  # whatever it is, the agent is told and may do something about it
            await link.hand_in(request, error=str(error) or type(error).__name__)
        else:
            await link.hand_in(request, result=result)

    async def _put_question(self, link: Link, wanted: said.FormRequested, agent: str | None, turn: Turn) -> None:
        """Put a form to a person. Where nobody answers, the agent is told so."""
        if self.options.ask is None or wanted.mode == "url":
            await link.fill_in(wanted.request_id, None)
            return
        form = Form(wanted.message, wanted.requested_schema)
        turn.tell(QuestionAsked(form.questions, agent))
        try:
            answers = await self.options.ask(form.questions)
        except Exception:
            await link.fill_in(wanted.request_id, None)
            raise
        await link.fill_in(wanted.request_id, form.filled_in(answers))

    # what the caller may ask besides --------------------------------------------------------------------------

    async def context(self) -> ContextUsage:
        """How full the context is, as of the last call of the model."""
        return self._link.context if self._link is not None else ContextUsage()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context; where there is nothing to summarise, nothing happens. Raises ProviderError."""
        try:
            await (await self._linked()).compact(focus)
        except ProviderError as error:
            if "Nothing to compact" not in str(error):
                raise

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raises ProviderError."""
        await (await self._linked()).set_model(id)
        self._model = id


def _bound(prompt: str, schema: Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any] | None]:
    """The prompt, and the schema that the model is bound to; one that no model can be bound to is said in words."""
    if schema is None:
        return prompt, None
    try:
        return prompt, strict(schema)
    except LooseSchemaError:
        return f"{prompt}\n\nAnswer with JSON alone that fits this JSON Schema:\n{json.dumps(schema)}", None
