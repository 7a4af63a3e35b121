"""A conversation with OpenCode. The server may end and begin again under it: the conversation goes on."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from atomic.providers.base import Capabilities, ContextUsage, SessionOptions
from atomic.providers.errors import ProgramFailedError, ProviderError, SessionBusyError
from atomic.providers.events import EndReason
from atomic.providers.live import LiveSession
from atomic.providers.opencode import wire
from atomic.providers.opencode.api import Api, RefusedError
from atomic.providers.opencode.configuration import split_model
from atomic.providers.opencode.hearing import Hearing, abort
from atomic.providers.opencode.models import require_model
from atomic.providers.opencode.outcome import describe
from atomic.providers.opencode.server import Server
from atomic.providers.opencode.toolmap import session_map
from atomic.providers.opencode.translate import Translator
from atomic.providers.shared import Shared
from atomic.providers.turns import Turn

_SETTLING = 20.0  # seconds for a turn that was broken off to end after all
_FAREWELL = 2.0
_UNTITLED = "Atomic"
_ID = re.compile(r"ses_[A-Za-z0-9_-]+")


class OpencodeSession(LiveSession):
    """A session in a server that others use too."""

    def __init__(
        self, shared: Shared[Server], capabilities: Capabilities, options: SessionOptions, folder: str
    ) -> None:
        super().__init__("opencode", capabilities, options)
        self._shared, self._folder = shared, folder
        self._id = ""
        self._model = options.model
        self._is_untitled = options.resume is None
        self._tools: dict[str, bool] = {}
        self._server: Server | None = None
        self._stack = AsyncExitStack()  # our use of the server
        self._is_asked = False  # the prompt of this turn is on its way
        self._is_unsettled = False  # a turn was broken off: it may still be at work
        self._context = wire.Tokens()
        self._last_model: tuple[str, str] | None = None

    @property
    def id(self) -> str:
        return self._id

    # its life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin it, take it up or copy it. Raises ProviderError."""
        resume = self.options.resume
        if resume is not None and not _ID.fullmatch(resume):  # it becomes a part of an address
            raise _unknown(resume)
        server = await self._living()
        api = server.api
        try:
            if resume is None:
                self._id = await api.create(self._folder, _UNTITLED)
            elif self.options.fork:
                self._id = await api.fork(self._folder, resume)
            else:
                self._id = await api.find(self._folder, resume)
        except RefusedError as error:
            if resume is None:
                raise
            raise _unknown(resume) from error
        await api.warm_up(self._folder)
        if self._model is not None:
            await require_model(api, self._folder, self._model)
        # Asking for the MCP servers waits until all are there, or are given up.
        is_bounded = self.options.tools is not None
        servers = await api.mcp(self._folder) if is_bounded or self.options.mcp_servers else {}
        self._require_servers(servers)
        known = await api.tools(self._folder) if is_bounded else []
        self._tools = session_map(self.options, known=known, servers=servers)

    async def close(self) -> None:
        """End the turn, and our use of the server."""
        await self.interrupt()
        try:
            if self._is_unsettled and self._server is not None:
                await self._abort(self._server)
        finally:
            await self._stack.aclose()

    async def _living(self) -> Server:
        """The server, or a new one where it was lost."""
        while self._server is None or self._server.lost is not None:
            if self._server is not None:
                self._shared.drop(self._server)
            stack = AsyncExitStack()
            # The new one first: the last user who leaves ends them all.
            server = await stack.enter_async_context(self._shared.use())
            before, self._stack, self._server = self._stack, stack, server
            await before.aclose()
        return self._server

    def _require_servers(self, servers: Mapping[str, wire.McpStatus]) -> None:
        for server in self.options.mcp_servers:
            status = servers.get(server.name)
            if status is None or status.status != "connected":
                why = (status.error or status.status) if status is not None else "it is not there"
                said = f'The MCP server "{server.name}" cannot be used: {why}'
                if not server.optional:
                    raise ProviderError(said, provider="opencode")
                self.notices.append(said)

    # a turn ---------------------------------------------------------------------------------------------------

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Send the prompt and listen to the end, which the translator knows."""
        server = await self._living()
        if self._is_unsettled:
            server = await self._settle(server)
        if self._is_untitled:
            await server.api.rename(self._folder, self._id, _title(prompt))
            self._is_untitled = False
        if turn.over:
            return
        with server.router.listening(self._id) as inbox:
            hearing = Hearing(server.api, server.router, inbox, self._folder, self.options, turn, _new_id())
            self._is_asked = self._is_unsettled = True  # until the end was heard
            try:
                await hearing.run(self._body(prompt, schema), wants_value=schema is not None)
            except Exception:
                await self._abort(server)  # nobody listens to it any more
                raise
            finally:
                self._is_asked = False
                self._is_unsettled = not hearing.translator.has_heard_end
                self._learn(hearing.translator)

    async def stop_turn(self, turn: Turn) -> None:
        """Have it aborted, again and again: what comes before the prompt was taken up finds nothing to stop."""
        server = self._server
        if server is None or not self._is_asked:
            turn.end(EndReason.INTERRUPTED)
            return
        await abort(server.api, self._folder, self._id, turn)

    async def break_off(self) -> None:
        """Leave it alone: others use the server too. If it listens to nobody, it is lost for all, and replaced."""
        if self._server is not None:
            self._server.suspect()

    async def _settle(self, server: Server) -> Server:
        """What was broken off must have ended before the next prompt, or that would get lost in it."""
        try:
            await server.api.abort(self._folder, self._id, limit=_SETTLING)
        except ProgramFailedError:
            server.suspect()
            self._shared.drop(server)
            self._server = None
            server = await self._living()
        self._is_unsettled = False
        return server

    async def _abort(self, server: Server) -> None:
        """As well as it can be done."""
        if server.lost is None:
            with suppress(ProviderError):
                await server.api.abort(self._folder, self._id, limit=_FAREWELL)

    def _body(self, prompt: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        body: dict[str, Any] = {
            "parts": [{"type": "text", "text": prompt}],
            "tools": self._tools,
        }
        if self._model is not None:
            provider, model = split_model(self._model)
            body["model"] = {"providerID": provider, "modelID": model}
        if self.options.system_prompt is not None:
            body["system"] = self.options.system_prompt
        if schema is not None:
            body["format"] = {"type": "json_schema", "schema": dict(schema)}
        return body

    # what else can be asked -----------------------------------------------------------------------------------

    async def context(self) -> ContextUsage:
        """How full the context is, as of the last call of the model."""
        api = (await self._living()).api
        if self._last_model is None:
            await self._look_back(api)
        if self._last_model is None:
            return ContextUsage()
        provider, model = self._last_model
        limits = {
            (one.id, id): int(found.limit.context)
            for one in await api.providers(self._folder)
            for id, found in one.models.items()
        }
        used = self._context.read + self._context.written
        return ContextUsage(used, limits.get((provider, model), 0), f"{provider}/{model}")

    async def compact(self, focus: str = "") -> None:
        """Summarise the context; one that is empty stays as it is. Raises ProviderError."""
        if self._turn is not None:
            raise SessionBusyError("opencode")
        server = await self._living()
        if self._is_unsettled:
            server = await self._settle(server)
        if self._last_model is None:
            await self._look_back(server.api)
        if self._last_model is None:
            return
        if focus:
            # The call has no place for it; the summary is made of all that was said, and so of this.
            note = {"parts": [{"type": "text", "text": f"In the summary that follows, keep above all: {focus}"}]}
            await server.api.note(self._folder, self._id, {**note, "tools": self._tools})
        provider, model = split_model(self._model) if self._model is not None else self._last_model
        await server.api.summarize(self._folder, self._id, provider, model)
        await self._look_back(server.api)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raises ProviderError if there is none of that name."""
        await require_model((await self._living()).api, self._folder, id)
        self._model = id

    async def _look_back(self, api: Api) -> None:
        """Learn from the messages what no turn of ours has told."""
        for message in reversed(await api.messages(self._folder, self._id)):
            info = message.info
            if info.is_summary and info.error is not None:
                raise ProviderError(f"The context could not be summarised: {describe(info.error)}", provider="opencode")
            if info.role == "assistant" and info.tokens.read:
                self._context = wire.Tokens(input=info.tokens.written) if info.is_summary else info.tokens
                self._last_model = info.provider, info.model
                return

    def _learn(self, translator: Translator) -> None:
        if translator.model is not None and translator.context.read:
            self._context, self._last_model = translator.context, translator.model


def _title(prompt: str) -> str:
    """By which a user of OpenCode itself finds the session again."""
    line = next((line for line in prompt.splitlines() if line.strip()), "")
    return " ".join(line.split())[:80] or _UNTITLED


def _new_id() -> str:
    """An id for a message as OpenCode makes them: they sort by time."""
    moment = (time.time_ns() // 1_000_000) * 0x1000
    return f"msg_{moment & 0xFFFFFFFFFFFF:012x}{secrets.token_hex(7)}"


def _unknown(session: str) -> ProviderError:
    return ProviderError(f'OpenCode has no session "{session}"', provider="opencode")
