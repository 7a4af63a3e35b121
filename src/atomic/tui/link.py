"""The screen's end of the wire to the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from atomic.tui.protocol import Intent, News


class EngineLink(Protocol):
    """Carries intents to an engine and brings its news."""

    def send(self, intent: Intent) -> None:
        """Hand over an intent. It never waits; an engine that has died is started again by what is sent next."""
        ...

    def news(self) -> AsyncIterator[News]:
        """All news in their order until `close`; if the engine dies, the end of each active run is among them."""
        ...

    async def close(self) -> None:
        """End the engine: asked, then by its process group. Returns when it has gone."""
        ...
