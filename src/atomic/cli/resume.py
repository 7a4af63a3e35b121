"""`atomic resume ID`: go on with a run, from any folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError
from atomic.base.flags import config_flags
from atomic.cli.run_host import Place, RunFlags, gone, host, read_flags, warn_of_settings
from atomic.cli.streams import tell
from atomic.config import atomic_home
from atomic.loading.catalog import WorkflowCatalog
from atomic.runs.endings import SAVED_END
from atomic.runs.executor import WorkflowRun, run_workflow
from atomic.runs.host import Person
from atomic.runs.spending import read_calls
from atomic.sessions.errors import SessionError
from atomic.sessions.facts import read_facts
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import believe_journal
from atomic.sessions.store import Session, SessionStore
from atomic.workflows.definition import ResumeParams, WorkflowDefinition, WorkflowSource

Answers = Mapping[str, "str | list[str]"]


def resume_command(arguments: Arguments) -> int:
    """Go on with a run to its end; its exit code."""

    async def start(person: Person | None) -> WorkflowRun:
        flags = read_flags(arguments)
        return await go_on(find_session(arguments.words[0]), flags, person)

    return host(start, as_json=arguments.has("--json"))


def find_session(id: str) -> Session:
    """The session with that id. Raises SessionError."""
    return SessionStore(atomic_home()).find(id)


def catalog_of(session: Session) -> WorkflowCatalog:
    """The workflows of the project that a run was started in; they are only looked at."""
    return WorkflowCatalog(Path(session.record.project))


def workflow_of(id: str) -> WorkflowDefinition | None:
    """The workflow of the session with that id; None if nobody knows."""
    try:
        session = find_session(id)
    except SessionError:
        return None
    return catalog_of(session).find(session.record.workflow)


async def go_on(
    session: Session,
    flags: RunFlags,
    person: Person | None,
    answers: Answers | None = None,
    *,
    workflow: str | None = None,
) -> WorkflowRun:
    """Take a run up where it is; `workflow` is that of the run. Raises AtomicError before anything is changed."""
    believe_journal(session)
    record = session.record
    if record.is_conversation:
        raise UsageError(f"{session.id} is a conversation: atomic chat --resume {session.id}")
    if record.status is SessionStatus.CANCELLED:
        raise UsageError(
            f"Run {session.id} was cancelled for good (atomic stop --cancel), so it does not continue; "
            f"start a new run: atomic run {record.workflow} …"
        )
    flags = flags.over(record.options)
    place = _place_of(session, flags)
    os.chdir(place.cwd)  # what the workflow's nodes start finds the folder that it was started in
    warn_of_settings(place)
    definition = _definition_of(session, place.catalog)
    named = None if workflow is None else place.catalog.find(workflow.removeprefix("/"))
    if workflow is not None and (named is None or named.name != definition.name):
        raise UsageError(f'This is a run of "{record.workflow}", not of "{workflow}": atomic resume {session.id}')
    loaded = definition.load()
    _check_flags(flags, definition)
    is_over = record.status in SAVED_END  # it only says so again, unless it is given flags
    if loaded.check_resume is not None and (flags.config or not is_over):
        loaded.check_resume(_resume_params(session, flags, place))
    runtime = await place.runtime(flags, loaded, person)
    model = flags.models.get("") or record.options.get("model")
    return run_workflow(
        definition, record.prompt, runtime,
        session=session, config=flags.config, resume=True, answers=answers, model=model,
    )  # fmt: skip


def _check_flags(flags: RunFlags, definition: WorkflowDefinition) -> None:
    """Raise UsageError for a flag that would have no effect."""
    if not flags.config:
        return
    known = config_flags(definition.default_config, definition.config_descriptions, definition.resume_config)
    for flag in known:
        if flag.key in flags.config and not flag.is_for_resume:
            takes = ", ".join(one.name for one in known if one.is_for_resume)
            raise UsageError(
                f"{flag.name} is set when a run starts, and a resume cannot change it: start a new run with"
                f" atomic run {definition.name} {flag.usage}, or leave it out (atomic resume takes {takes})"
            )


def _resume_params(session: Session, flags: RunFlags, place: Place) -> ResumeParams:
    facts = read_facts(session.journal_path, session.id) if session.journal_path.exists() else {}
    return ResumeParams(
        run=session.id,
        cwd=str(place.cwd),
        given=flags.config,
        config=session.record.config,
        has_worked=any(True for _ in read_calls(facts)),
    )


def _definition_of(session: Session, catalog: WorkflowCatalog) -> WorkflowDefinition:
    """The workflow that the run was started with, never another one that has taken its name since."""
    record = session.record
    if not record.workflow_source:  # of an older version, which did not keep it
        return catalog.definition(record.workflow)
    definition = catalog.started(record.workflow, record.workflow_source, record.workflow_path)
    if definition.sha256 != record.workflow_sha256 and definition.source is WorkflowSource.PROJECT:
        tell(f"{record.workflow_path} has changed since this run was started")  # it loads only if it is approved
    return definition


def _place_of(session: Session, flags: RunFlags) -> Place:
    record = session.record
    project, cwd = Path(record.project), Path(record.cwd or record.project)
    for folder in (project, cwd):
        if not folder.is_dir():
            raise gone(str(folder))
    return Place(project, cwd, flags.trust or _trusted_at_start(session, project))


def _trusted_at_start(session: Session, project: Path) -> str | None:
    """The hash of the project as it is, if it is what the run was started with and what the run made of it."""
    from atomic.loading import trust

    started = session.record.trust
    if not started:
        return None
    import msgspec

    snapshot = trust.look(project)
    known = msgspec.convert(started, trust.RunTrust)
    return snapshot.hash if not snapshot.trusted and not known.strange(snapshot) else None
