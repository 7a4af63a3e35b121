"""`atomic workflows check --runs`: find the stopped runs that the present code cannot
continue.

Nothing is recorded and no step runs. The code of a function between its steps does, with
the recorded results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from atomic.base.errors import AtomicError
from atomic.cli.last_run import records_here
from atomic.cli.resume import check_unchanged_file, definition_of, require_session
from atomic.graph import FunctionWorkflow
from atomic.loading.catalog import WorkflowCatalog
from atomic.runs.executor import graph_of
from atomic.sessions.report import RESUMABLE
from atomic.sessions.store import Session


class CheckedRun(NamedTuple):
    """A stopped run, and why the code cannot continue it. An empty text: it can."""

    session: Session
    problem: str


def check_runs(catalog: WorkflowCatalog) -> Iterator[CheckedRun]:
    """Check all runs of this project that a resume would continue, oldest first."""
    records = records_here(lambda record: record.status in RESUMABLE)
    for record in sorted(records, key=lambda record: record.created_at):
        session = require_session(record.id)
        try:
            asyncio.run(_check(session, catalog))
        except AtomicError as error:
            yield CheckedRun(session, str(error))
        else:
            yield CheckedRun(session, "")


async def _check(session: Session, catalog: WorkflowCatalog) -> None:
    """Raise AtomicError if the code cannot continue the run."""
    if not session.journal_path.is_file():  # it ended before its first step, so it begins again
        return
    definition = definition_of(session, catalog)
    check_unchanged_file(session, definition)
    graph = graph_of(definition.name, definition.load())
    journal = session.journal()
    try:
        if isinstance(graph, FunctionWorkflow):
            await graph.check(journal, session.id)
        else:
            graph.check(journal, session.id)
    finally:
        journal.close()
