"""The servers of this process. Sessions with equal plans share one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from atomic.providers.opencode.launch import ServerPlan
from atomic.providers.opencode.server import Server, serving
from atomic.providers.shared_server import Shared


@dataclass
class _Entry:
    plan: ServerPlan  # keeps the tools alive: their identity is part of the key
    shared: Shared[Server]
    users: int = 0


# Per event loop: a server that one loop started cannot be awaited in another.
_ENTRIES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Entry]] = WeakKeyDictionary()


@asynccontextmanager
async def leased(plan: ServerPlan) -> AsyncGenerator[Shared[Server]]:
    """Yield the server of that plan; the first use starts it, the last session ends it."""
    entries = _ENTRIES.setdefault(asyncio.get_running_loop(), {})
    entry = entries.setdefault(plan.key, _Entry(plan, Shared(lambda: serving(plan))))
    entry.users += 1
    try:
        yield entry.shared
    finally:
        entry.users -= 1
        if entry.users == 0:
            del entries[plan.key]
