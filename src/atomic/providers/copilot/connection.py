"""The SDK's client on a wire of ours: it starts no program, and what it hears goes to who listens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from copilot import CopilotClient, RuntimeConnection
from copilot.generated.rpc import ServerRpc

from atomic.processes import Program
from atomic.providers.copilot.wire import Wire

Listener = Callable[[Mapping[str, Any]], None]

# The SDK logs each failed request with a trace; who sets no logging up would read it on the terminal.
logging.getLogger("copilot").addHandler(logging.NullHandler())


class Connection(CopilotClient):
    """A client of a program that somebody else started."""

    def __init__(self, program: Program, closed: Callable[[], None]) -> None:
        super().__init__(connection=RuntimeConnection.for_uri("localhost:1"))  # an address that is never used
        self.wire = Wire(program)
        self._closed = closed
        self._listeners: dict[str, Listener] = {}

    def listen(self, session: str, listener: Listener) -> None:
        """Tell the events of that session from now on."""
        self._listeners[session] = listener

    def forget(self, session: str) -> None:
        """The session is no longer ours; the SDK would keep it for ever."""
        self._listeners.pop(session, None)
        self._sessions.pop(session, None)

    async def _connect_to_server(self) -> None:
        self._client, self._rpc = self.wire, ServerRpc(self.wire)
        self.wire.set_notification_handler(self._hear)  # pyright: ignore[reportUnknownMemberType]  # its dict is bare
        self.wire.on_close = self._closed
        self.wire.start()

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        """Pass an event on as it came: the SDK would decode it, and lose it where that fails."""
        if method == "session.event" and (listener := self._listeners.get(params["sessionId"])) is not None:
            listener(params["event"])
