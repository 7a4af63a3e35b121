"""A conversation with OpenCode; it continues if the server ends and starts again."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from atomic.base.errors import suggest
from atomic.providers.base import Capabilities, ContextUsage, SessionOptions
from atomic.providers.errors import ProgramFailedError, ProviderError, SessionBusyError
from atomic.providers.events import EndReason
from atomic.providers.opencode import messages
from atomic.providers.opencode.api import Api, RefusedError
from atomic.providers.opencode.configuration import split_model
from atomic.providers.opencode.server import Server
from atomic.providers.opencode.tool_permissions import session_map
from atomic.providers.opencode.translate import describe
from atomic.providers.opencode.turn_runner import TurnRunner, abort
from atomic.providers.session import LiveSession
from atomic.providers.shared_server import Shared
from atomic.providers.turn import Turn

_SETTLE_SECONDS = 20.0  # for an interrupted turn to end
_ABORT_SECONDS = 2.0
_UNTITLED = "Atomic"
_ID = re.compile(r"ses_[A-Za-z0-9_-]+")


class OpencodeSession(LiveSession):
    """A session in a server that other sessions use too."""

    def __init__(
        self, shared: Shared[Server], capabilities: Capabilities, options: SessionOptions, folder: str
    ) -> None:
        super().__init__("opencode", capabilities, options)
        self._shared = shared
        self._folder = folder
        self._id = ""
        self._model = options.model
        self._is_untitled = options.resume is None
        self._tools: dict[str, bool] = {}
        self._server: Server | None = None
        self._stack = AsyncExitStack()  # the use of the server
        self._is_sent = False  # the prompt of this turn
        self._is_unsettled = False  # an interrupted turn may still run
        self._context = messages.Tokens()
        self._last_model: tuple[str, str] | None = None

    @property
    def id(self) -> str:
        return self._id

    # Life

    async def open(self) -> None:
        """Create, resume or fork the session. Raise ProviderError."""
        resume = self.options.resume
        if resume is not None and not _ID.fullmatch(resume):  # it becomes part of a URL
            raise _unknown(resume)
        server = await self._live_server()
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
            await self._require_model(api, self._model)
        # This request waits until all MCP servers are connected or have failed.
        is_bounded = self.options.tools is not None
        servers = await api.mcp(self._folder) if is_bounded or self.options.mcp_servers else {}
        self._require_servers(servers)
        known = await api.tools(self._folder) if is_bounded else []
        self._tools = session_map(self.options, known=known, servers=servers)

    async def close(self) -> None:
        """End the turn and the use of the server."""
        await self.interrupt()
        try:
            if self._is_unsettled and self._server is not None:
                await self._abort(self._server)
        finally:
            await self._stack.aclose()

    async def _live_server(self) -> Server:
        """Return the server, or a new one if it was lost."""
        while self._server is None or self._server.lost is not None:
            if self._server is not None:
                self._shared.drop(self._server)
            stack = AsyncExitStack()
            # Enter the new one first: the last user to leave ends all servers.
            server = await stack.enter_async_context(self._shared.use())
            previous = self._stack
            self._stack = stack
            self._server = server
            await previous.aclose()
        return self._server

    def _require_servers(self, servers: Mapping[str, messages.McpStatus]) -> None:
        for server in self.options.mcp_servers:
            status = servers.get(server.name)
            if status is not None and status.status == "connected":
                continue
            reason = "OpenCode did not load it" if status is None else status.error or status.status
            problem = f'The MCP server "{server.name}" cannot be used: {reason}'
            if not server.optional:
                raise ProviderError(problem, provider="opencode")
            self.notices.append(problem)

    # Turns

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Send the prompt and read events until the end of the turn."""
        server = await self._live_server()
        if self._is_unsettled:
            server = await self._settle(server)
        if self._is_untitled:
            await server.api.rename(self._folder, self._id, _title(prompt))
            self._is_untitled = False
        if turn.over:
            return
        with server.router.listening(self._id) as inbox:
            runner = TurnRunner(server.api, server.router, inbox, self._folder, self.options, turn, _new_id())
            self._is_sent = self._is_unsettled = True  # until the end arrives
            try:
                await runner.run(self._body(prompt, schema), wants_value=schema is not None)
            except Exception:
                await self._abort(server)  # its events are not read from now on
                raise
            finally:
                self._is_sent = False
                self._is_unsettled = not runner.translator.has_ended
                if runner.translator.model is not None and runner.translator.context.read:
                    self._context = runner.translator.context
                    self._last_model = runner.translator.model

    async def stop_turn(self, turn: Turn) -> None:
        """Abort repeatedly: an abort before the prompt is started has no effect."""
        server = self._server
        if server is None or not self._is_sent:
            turn.end(EndReason.INTERRUPTED)
            return
        await abort(server.api, self._folder, self._id, turn)

    async def break_off(self) -> None:
        """Check the server's health instead of killing it, because other sessions use
        it.

        If it does not answer, it is lost for all and replaced.
        """
        if self._server is not None:
            self._server.suspect()

    async def _settle(self, server: Server) -> Server:
        """Wait until an interrupted turn has ended, or the next prompt would be lost in
        it.
        """
        try:
            await server.api.abort(self._folder, self._id, limit=_SETTLE_SECONDS)
        except ProgramFailedError:
            server.suspect()
            self._shared.drop(server)
            self._server = None
            server = await self._live_server()
        self._is_unsettled = False
        return server

    async def _abort(self, server: Server) -> None:
        """Abort the session's work and ignore failures."""
        if server.lost is None:
            with suppress(ProviderError):
                await server.api.abort(self._folder, self._id, limit=_ABORT_SECONDS)

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

    # Other requests

    async def context(self) -> ContextUsage:
        """Return how full the context was at the last model call."""
        api = (await self._live_server()).api
        if self._last_model is None:
            await self._look_back(api)
        if self._last_model is None:
            return ContextUsage()
        provider, model = self._last_model
        name = f"{provider}/{model}"
        limits = {one.id: one.context for one in await api.models(self._folder)}
        return ContextUsage(self._context.read + self._context.written, limits.get(name, 0), name)

    async def compact(self, focus: str = "") -> None:
        """Summarise the context; an empty one stays as it is. Raise ProviderError."""
        if self._turn is not None:
            raise SessionBusyError("opencode")
        server = await self._live_server()
        if self._is_unsettled:
            server = await self._settle(server)
        if self._last_model is None:
            await self._look_back(server.api)
        if self._last_model is None:
            return
        if focus:
            # The request has no field for it. The summary covers all messages, so add
            # one.
            note = {"parts": [{"type": "text", "text": f"In the summary that follows, keep above all: {focus}"}]}
            await server.api.note(self._folder, self._id, {**note, "tools": self._tools})
        provider, model = split_model(self._model) if self._model is not None else self._last_model
        await server.api.summarize(self._folder, self._id, provider, model)
        await self._look_back(server.api)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on.

        Raise ProviderError if it is unknown.
        """
        await self._require_model((await self._live_server()).api, id)
        self._model = id

    async def _require_model(self, api: Api, id: str) -> None:
        """Raise ProviderError with the nearest name if the model does not exist."""
        split_model(id)
        known = [model.id for model in await api.models(self._folder)]
        if id not in known:
            remedy = suggest(id, known, otherwise="see: atomic models")
            raise ProviderError(f'OpenCode has no model "{id}"', provider="opencode", remedy=remedy)

    async def _look_back(self, api: Api) -> None:
        """Read the model and context size from earlier messages."""
        for message in reversed(await api.messages(self._folder, self._id)):
            info = message.info
            if info.is_summary and info.error is not None:
                raise ProviderError(f"The context could not be summarised: {describe(info.error)}", provider="opencode")
            if info.role == "assistant" and info.tokens.read:
                self._context = messages.Tokens(input=info.tokens.written) if info.is_summary else info.tokens
                self._last_model = info.provider, info.model
                return


def _title(prompt: str) -> str:
    """Return a title by which a user of OpenCode finds the session."""
    line = next((line for line in prompt.splitlines() if line.strip()), "")
    return " ".join(line.split())[:80] or _UNTITLED


def _new_id() -> str:
    """Return a message id like OpenCode's own: they sort by time."""
    moment = (time.time_ns() // 1_000_000) * 0x1000
    return f"msg_{moment & 0xFFFFFFFFFFFF:012x}{secrets.token_hex(7)}"


def _unknown(session: str) -> ProviderError:
    return ProviderError(f'OpenCode has no session "{session}"', provider="opencode")
