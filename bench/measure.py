"""CPU time per unit of work, in microseconds, inside one process.

The machine may be shared, so neither wall time nor a mean is reliable: this takes the minimum of the process's CPU
time over several batches. The first call warms up caches and lazy imports and is not counted, unless it takes a
second or more: then it is the measurement.
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
    """Return the CPU µs per unit of the fastest batch of calls."""
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
    """Measure a coroutine function. The event loop starts before the clock."""
    return asyncio.run(_cpu_us_async(run, units))


def once_us(run: Callable[[], object], *, units: int) -> float:
    """Return the CPU µs per unit of one call, for work that cannot be repeated in place."""
    start = process_time()
    run()
    return (process_time() - start) / units * 1e6


def once_us_async(run: Callable[[], Coroutine[object, object, object]], *, units: int) -> float:
    """Measure one call of a coroutine function."""

    async def timed() -> float:
        start = process_time()
        await run()
        return (process_time() - start) / units * 1e6

    return asyncio.run(timed())


def bytes_on_disk(path: Path) -> float:
    """Return the size of the database and of SQLite's files next to it."""
    return float(sum(file.stat().st_size for file in path.parent.glob(path.name + "*")))
