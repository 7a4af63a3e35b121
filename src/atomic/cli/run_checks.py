"""`atomic workflows check --runs`: find the stopped runs that the present code cannot
continue.

Nothing is recorded and no step runs. The code of a function between its steps does, with
the recorded results: in a process of its own for each run, whose output is not shown.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from atomic.base.errors import AtomicError, ExitCode
from atomic.cli.errors import CliError
from atomic.cli.last_run import records_here
from atomic.cli.resume import definition_of, require_session
from atomic.cli.streams import claimed_stdout
from atomic.graph import FunctionWorkflow
from atomic.loading.catalog import WorkflowCatalog
from atomic.processes import ExecResult, ExecTimeoutError, execute
from atomic.runs.ended_run import is_over
from atomic.runs.executor import graph_of
from atomic.sessions.model import SessionStatus
from atomic.sessions.report import RESUMABLE
from atomic.sessions.started import believe_journal
from atomic.sessions.store import Session
from atomic.workflows.definition import WorkflowDefinition, WorkflowSource

_SECONDS = 60.0  # for one run


class CheckedRun(NamedTuple):
    """A stopped run, and why the code cannot continue it. An empty text: it can."""

    session: Session
    problem: str


class _Order(msgspec.Struct):
    """What the process of one run is given."""

    run: str
    trusted: str | None
    named: Sequence[str]


def check_runs(trusted: str | None, named: Sequence[str]) -> Iterator[CheckedRun]:
    """Check all runs of this project that a resume would continue, oldest first.

    `named` are files that the user has named, so that they may have changed.
    """
    files = [os.path.realpath(path) for path in named]
    records = records_here(lambda record: record.status in RESUMABLE)
    for record in sorted(records, key=lambda record: record.created_at):
        session = require_session(record.id)
        try:
            believe_journal(session)
            if session.record.status is SessionStatus.CANCELLED or is_over(session):
                continue
            problem = asyncio.run(_checked_elsewhere(_Order(session.id, trusted, files)))
        except AtomicError as error:
            problem = str(error)
        yield CheckedRun(session, problem)


async def _checked_elsewhere(order: _Order) -> str:
    """Check a run in another process, which its code may end or keep busy."""
    argv = (sys.executable, "-P", "-m", "atomic.cli.run_checks", msgspec.json.encode(order).decode())
    try:
        done = await execute(*argv, timeout=_SECONDS)
    except ExecTimeoutError:
        return f"its code has reached no new step within {_SECONDS:g} s"
    try:
        return msgspec.json.decode(done.stdout, type=str)
    except msgspec.DecodeError:
        return _end_of(done)


def _end_of(done: ExecResult) -> str:
    """Describe a process that has ended before it had a result."""
    lines = done.stderr.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    said = f": {last}" if last else ""
    return f"its code has ended the process of the check with exit code {done.exit_code}{said}"


async def _check(session: Session, order: _Order) -> None:
    """Raise AtomicError if the code cannot continue the run."""
    if not session.journal_path.is_file():  # it ended before its first step, so it begins again
        return
    definition = definition_of(session, WorkflowCatalog(trusted=order.trusted))
    _check_file(session, definition, order.named)
    graph = graph_of(definition.name, definition.load())
    journal = session.journal()
    try:
        if isinstance(graph, FunctionWorkflow):
            await graph.check(journal, session.id)
        else:
            graph.check(journal, session.id)
    finally:
        journal.close()


def _check_file(session: Session, definition: WorkflowDefinition, named: Sequence[str]) -> None:
    """Raise CliError for a changed file that no folder of workflows has, unless it is named.

    An agent may have changed it, and the check runs it.
    """
    record = session.record
    is_changed = definition.source is WorkflowSource.FILE and definition.sha256 != record.workflow_sha256
    if is_changed and os.path.realpath(record.workflow_path) not in named:
        raise CliError(
            f"{record.workflow_path}, or a file that it imports, has changed since this run was started: look at it,"
            f" and name it to try it: atomic workflows check --runs {record.workflow_path}",
            ExitCode.UNTRUSTED,
        )


def main() -> None:
    """Check one run, and print why the code cannot continue it as JSON."""
    order = msgspec.json.decode(sys.argv[1], type=_Order)
    problem = ""
    with claimed_stdout() as stdout:
        try:
            asyncio.run(_check(require_session(order.run), order))
        except AtomicError as error:
            problem = str(error)
        os.write(stdout, msgspec.json.encode(problem))


if __name__ == "__main__":
    main()
