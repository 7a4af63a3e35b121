"""`atomic resume [ID]`: continue a run from any folder, or the last one of this folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.cli.errors import CliError
from atomic.cli.last_run import require_last_run
from atomic.cli.run_host import HostedRun, host_run, is_quiet, read_flags
from atomic.cli.streams import tell
from atomic.cli.workflow_flags import Found
from atomic.config import atomic_home
from atomic.loading import trust
from atomic.loading.catalog import WorkflowCatalog
from atomic.runs.ended_run import EndedRun, is_over
from atomic.runs.executor import run_workflow
from atomic.runs.host import Person
from atomic.runs.spending import read_calls
from atomic.sessions.errors import SessionError
from atomic.sessions.facts import read_facts
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import believe_journal
from atomic.sessions.store import Session, SessionStore
from atomic.wiring import Project, RunFlags
from atomic.workflows.definition import ResumeParams, WorkflowDefinition, WorkflowSource

Answers = Mapping[str, "str | list[str]"]


def resume_command(arguments: Arguments) -> int:
    """Resume a run and return its exit code."""

    async def start(person: Person | None) -> HostedRun:
        flags = read_flags(arguments)
        return await resume_run(session_of(arguments), flags, person)

    return host_run(start, as_json=arguments.has("--json"), quiet=is_quiet(arguments))


def require_session(id: str) -> Session:
    """Return the session with that id. Raises SessionError."""
    return SessionStore(atomic_home()).find(id)


def session_of(arguments: Arguments) -> Session:
    """Return the session that a command names.

    Reading its workflow's flags may have found it already.
    """
    found = arguments.subject
    if isinstance(found, Session):
        return found
    return require_session(arguments.words[0]) if arguments.words else require_last_run()


def find_workflow(id: str) -> Found | None:
    """Return the workflow of the session with that id, if both exist."""
    try:
        session = require_session(id)
    except SessionError:
        return None
    record = session.record
    catalog = WorkflowCatalog(Path(record.project))
    is_file = record.workflow_source == WorkflowSource.FILE
    definition = catalog.find_typed(record.workflow_path if is_file else record.workflow)
    return None if definition is None else Found(definition, session)


async def resume_run(
    session: Session,
    flags: RunFlags,
    person: Person | None,
    answers: Answers | None = None,
    *,
    workflow: str | None = None,
    cancel: bool = False,
) -> HostedRun:
    """Resume a run. `workflow` is the name that the user gave. With `cancel` the run, of
    a function, is cancelled for good.

    A run that is over only reports its end again, unless the user gives it flags. Raises
    AtomicError before anything changes.
    """
    check_not_cancelled(session)
    record = session.record
    if record.is_conversation:
        raise UsageError(f"{session.id} is a conversation: atomic chat --resume {session.id}")
    flags = flags.over(record.options)
    project = project_of(session, flags)
    os.chdir(project.cwd)  # commands of the workflow's nodes start in the folder of the first start
    for warning in project.settings.warnings:
        tell(f"warning: {warning}")
    definition = definition_of(session, project.workflows)
    if workflow is None:
        check_unchanged_file(session, definition)
    else:
        named = project.workflows.find_typed(workflow)
        if named is None or (named.name, named.source) != (definition.name, definition.source):
            raise UsageError(f'This is a run of "{record.workflow}", not of "{workflow}": atomic resume {session.id}')
    if not flags.config and not answers and await asyncio.to_thread(is_over, session):
        session.use_redactor(project.redactor)
        return EndedRun(session)
    loaded = definition.load()
    _check_flags(flags, definition)
    if loaded.check_resume is not None:
        facts = read_facts(session.journal_path, session.id) if session.journal_path.exists() else {}
        params = ResumeParams(
            run=session.id,
            cwd=str(project.cwd),
            given=flags.config,
            config=record.config,
            has_worked=any(True for _ in read_calls(facts)),
        )
        loaded.check_resume(params)
    runtime = await project.runtime(flags, loaded, person)
    return run_workflow(
        definition,
        record.prompt,
        runtime,
        session=session,
        config=flags.config,
        resume=True,
        answers=answers,
        cancel=cancel,
        model=flags.models.get("") or record.options.get("model"),
    )


def check_not_cancelled(session: Session) -> None:
    """Raise UsageError if the run was cancelled; believe the journal, not the record."""
    believe_journal(session)
    if session.record.status is SessionStatus.CANCELLED:
        raise UsageError(
            f"Run {session.id} was cancelled for good (atomic stop --cancel), so it does not continue; "
            f"start a new run: atomic run {session.record.workflow} …"
        )


def _check_flags(flags: RunFlags, definition: WorkflowDefinition) -> None:
    """Raise UsageError for a flag that would have no effect."""
    if not flags.config:
        return
    known = definition.flags
    for flag in known:
        if flag.key in flags.config and not flag.is_for_resume:
            takes = ", ".join(one.name for one in known if one.is_for_resume)
            hint = f" (atomic resume takes {takes})" if takes else ""
            raise UsageError(
                f"{flag.name} is set when a run starts, and a resume cannot change it: start a new run with"
                f" atomic run {definition.name} {flag.usage}, or leave it out{hint}"
            )


def definition_of(session: Session, catalog: WorkflowCatalog) -> WorkflowDefinition:
    """Return the workflow that the run was started with, even if another one has its
    name now.
    """
    record = session.record
    if not record.workflow_source:  # an older version did not save it
        return catalog.definition(record.workflow)
    definition = catalog.started(record.workflow, record.workflow_source, record.workflow_path)
    if definition.sha256 != record.workflow_sha256 and definition.source is WorkflowSource.PROJECT:
        tell(f"{record.workflow_path} has changed since this run was started")  # it loads only if it is approved
    return definition


def check_unchanged_file(session: Session, definition: WorkflowDefinition) -> None:
    """Raise CliError if a file that was named by its path has other content now.

    The user typed its path for the content that it had; an agent may have changed it.
    """
    record = session.record
    if definition.source is WorkflowSource.FILE and definition.sha256 != record.workflow_sha256:
        raise CliError(
            f"{record.workflow_path}, or a file that it imports, has changed since this run was started: look at it,"
            f" and name it to continue with it: atomic run {record.workflow_path} --resume {session.id}",
            ExitCode.UNTRUSTED,
        )


def project_of(session: Session, flags: RunFlags) -> Project:
    """Return the project that a run was started in. Raises CliError if it is gone."""
    record = session.record
    folder = Path(record.project)
    cwd = Path(record.cwd or record.project)
    for one in (folder, cwd):
        if not one.is_dir():
            raise CliError(f"{one}, where this run was started, no longer exists", ExitCode.USAGE)
    return Project(folder, cwd=cwd, trust=flags.trust or _trusted_at_start(session))


def _trusted_at_start(session: Session) -> str | None:
    """Return the hash of the project's code if it differs from the trusted start only
    by the run's own changes.
    """
    started = session.record.trust
    if not started:
        return None
    snapshot = trust.look(Path(session.record.project))
    known = msgspec.convert(started, trust.RunTrust)
    return snapshot.hash if not snapshot.trusted and not known.strange(snapshot) else None
