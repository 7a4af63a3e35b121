"""DBOS: workflows and steps of plain functions, with its SQLite system database.

It has no steps in memory: outside of a workflow a step is a plain call, and inside it is always recorded. The database
is as DBOS opens it (a rollback journal with SQLite's own `synchronous=FULL`), and logging is off. Steps are plain
functions; async ones are not measured. A resume cancels the workflow after its last step and lets DBOS run it again,
until the next step starts; the CPU time has the threads with which DBOS looks for work.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from bodies import DURABLE, RECORD, RESUMED, expect, more
from dbos import DBOS, DBOSConfig, SetWorkflowID
from dbos._error import DBOSAwaitedWorkflowCancelledError
from measure import Metrics, once_us

WAIT_SECONDS = 600  # ends a hang

reached = threading.Event()  # the workflow has made its last recorded step
cancelled = threading.Event()
resumed_at: list[float] = []  # CPU time


@DBOS.step()
def grow(n: int) -> str:
    return RECORD


@DBOS.step()
def count(n: int) -> int:
    return more(n)


@DBOS.step()
def wait(n: int) -> None:
    """Wait for the cancellation; when it runs again, all steps before it were recorded."""
    if cancelled.is_set():
        resumed_at.append(process_time())
        return
    reached.set()
    cancelled.wait(WAIT_SECONDS)


@DBOS.workflow()
def growing(steps: int) -> int:
    return len([grow(n) for n in range(steps)])


@DBOS.workflow()
def counting(steps: int) -> int:
    n = 0
    while n < steps:
        n = count(n)
    wait(n)
    return n


def launch(folder: Path) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
        "log_level": "CRITICAL",
        "run_admin_server": False,
    }
    DBOS(config=config)
    DBOS.launch()


def resumed() -> float:
    """Return the CPU ms from asking for a resume until the step after all recorded ones starts."""
    with SetWorkflowID("resumed"):
        handle = DBOS.start_workflow(counting, RESUMED)
    expect(reached.wait(WAIT_SECONDS), True)
    DBOS.cancel_workflow("resumed")
    cancelled.set()
    try:
        handle.get_result()
    except DBOSAwaitedWorkflowCancelledError:
        start = process_time()
        expect(DBOS.resume_workflow("resumed").get_result(), RESUMED)
        return (resumed_at[-1] - start) * 1e3
    raise AssertionError("the workflow was not cancelled")


def function(folder: Path, _: dict[str, Any]) -> Metrics:
    launch(folder)
    try:
        expect(growing(DURABLE // 10), DURABLE // 10)
        step = once_us(lambda: expect(growing(DURABLE), DURABLE), units=DURABLE)
        return {"function_durable": {"@DBOS.step": step}, "function_resume": {"@DBOS.step": resumed()}}
    finally:
        DBOS.destroy()


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {"function": function}
