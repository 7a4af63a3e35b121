"""CPU time per unit of work, in microseconds, inside one process.

The machine may be shared, so wall time says little and a mean says little: this takes the minimum over several
batches of the process's CPU time. The first call warms up caches and lazy imports and is not counted, except where
it alone takes a second: then it is the measurement.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from time import process_time

Metrics = dict[str, dict[str, float]]  # metric -> variant (which way the engine was used) -> number

BATCH_SECONDS = 0.05
TOTAL_SECONDS = 1.0
MAX_BATCHES = 7


def _calls_and_batches(seconds: float) -> tuple[int, int]:
    calls = max(1, int(BATCH_SECONDS / max(seconds, 1e-6)))
    return calls, max(1, min(MAX_BATCHES, int(TOTAL_SECONDS / (calls * seconds + 1e-9))))


def cpu_us(run: Callable[[], object], *, units: int) -> float:
    """CPU µs per unit of the quickest batch of calls."""
    start = process_time()
    run()
    first = process_time() - start
    if first >= TOTAL_SECONDS:
        return first / units * 1e6
    calls, batches = _calls_and_batches(first)
    best = float("inf")
    for _ in range(batches):
        start = process_time()
        for _ in range(calls):
            run()
        best = min(best, (process_time() - start) / calls)
    return best / units * 1e6


async def _cpu_us_async(run: Callable[[], Awaitable[object]], units: int) -> float:
    start = process_time()
    await run()
    first = process_time() - start
    if first >= TOTAL_SECONDS:
        return first / units * 1e6
    calls, batches = _calls_and_batches(first)
    best = float("inf")
    for _ in range(batches):
        start = process_time()
        for _ in range(calls):
            await run()
        best = min(best, (process_time() - start) / calls)
    return best / units * 1e6


def cpu_us_async(run: Callable[[], Awaitable[object]], *, units: int) -> float:
    """The same for a coroutine function; the event loop is started before the clock."""
    return asyncio.run(_cpu_us_async(run, units))


def once_us(run: Callable[[], object], *, units: int) -> float:
    """CPU µs per unit of a single call, for work that cannot be repeated in place."""
    start = process_time()
    run()
    return (process_time() - start) / units * 1e6


def once_us_async(run: Callable[[], Coroutine[object, object, object]], *, units: int) -> float:
    """The same for a coroutine function."""

    async def timed() -> float:
        start = process_time()
        await run()
        return (process_time() - start) / units * 1e6

    return asyncio.run(timed())


def bytes_on_disk(path: Path) -> float:
    """The database with whatever SQLite left beside it."""
    return float(sum(file.stat().st_size for file in path.parent.glob(path.name + "*")))
