"""The servers of this process. Sessions with the same needs share one, whichever provider object opened them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from atomic.providers.opencode.plan import ServerPlan
from atomic.providers.opencode.server import Server, serving
from atomic.providers.shared import Shared


@dataclass
class _Entry:
    plan: ServerPlan  # keeps the tools alive by whose identity it is found
    shared: Shared[Server]
    users: int = 0


# An event loop's own: what was started in one cannot be awaited in another.
_ENTRIES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Entry]] = WeakKeyDictionary()


@asynccontextmanager
async def leased(plan: ServerPlan) -> AsyncGenerator[Shared[Server]]:
    """The server of that plan; it is started when it is first used, and ends with the last session."""
    entries = _ENTRIES.setdefault(asyncio.get_running_loop(), {})
    entry = entries.setdefault(plan.key, _Entry(plan, Shared(lambda: serving(plan))))
    entry.users += 1
    try:
        yield entry.shared
    finally:
        entry.users -= 1
        if entry.users == 0:
            del entries[plan.key]
