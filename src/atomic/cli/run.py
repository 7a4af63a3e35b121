"""`atomic run WORKFLOW`: run a workflow without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError, is_flag
from atomic.base.flags import EVERY, HELP, RUN
from atomic.base.untrusted_files import open_regular, reason_of
from atomic.cli.prompt_flags import check_prompt
from atomic.cli.resume import require_session, resume_run
from atomic.cli.run_host import HostedRun, host_run, is_quiet, read_flags
from atomic.cli.streams import put_table, tell
from atomic.cli.turn import read_words
from atomic.cli.workflow_flags import Find, Found
from atomic.config import current_folder
from atomic.loading.catalog import WorkflowCatalog
from atomic.loading.trust import RunTrust
from atomic.providers.selection import NoAgentError
from atomic.runs.executor import run_workflow
from atomic.runs.host import Person
from atomic.sessions.errors import SessionError
from atomic.wiring import Project, RunFlags
from atomic.workflows.capabilities import tools_of
from atomic.workflows.definition import LoadedWorkflow, WorkflowDefinition, WorkflowStateParams
from atomic.workflows.errors import WorkflowLoadError

_START = "Start the run with this prompt? [y/N] "


def run_command(arguments: Arguments) -> int:
    """Run a workflow and return its exit code."""
    if arguments.has(EVERY.name):
        from atomic.cli.schedule import print_schedule

        return print_schedule(arguments)
    if not arguments.words:
        return _run_without_name(arguments)
    name, *words = arguments.words
    if not arguments.is_marked:
        _check_prompt(name, words, asks=not arguments.has("--json"))

    async def start(person: Person | None) -> HostedRun:
        return await start_run(name, read_words(words), arguments.value("--resume"), read_flags(arguments), person)

    return host_run(start, as_json=arguments.has("--json"), quiet=is_quiet(arguments))


def _run_without_name(arguments: Arguments) -> int:
    """Continue the run of `--resume`, or list what can be run."""
    id = arguments.value("--resume")
    if id is not None:

        async def resume(person: Person | None) -> HostedRun:
            return await resume_run(require_session(id), read_flags(arguments), person)

        return host_run(resume, as_json=arguments.has("--json"), quiet=is_quiet(arguments))
    if not arguments.has("--json"):
        catalog = WorkflowCatalog()
        rows = [(one.name, _description(catalog, one)) for one in catalog.all()]
        put_table(rows)
    raise UsageError("atomic run needs a WORKFLOW: atomic run WORKFLOW [flags] [PROMPT...]")


def _description(catalog: WorkflowCatalog, one: WorkflowDefinition) -> str:
    if one.refused:
        return f"broken: {one.problem}"
    return one.description if catalog.is_trusted(one) else f"{one.description} (not trusted: atomic trust)".lstrip()


def _check_prompt(name: str, words: Sequence[str], *, asks: bool) -> None:
    """Refuse a prompt with a flag of the run or of its workflow. Raises UsageError."""
    if not any(is_flag(word) for word in words):
        return
    found = workflow_finder(words)(name)
    own = found.definition.flags if found is not None else []
    check_prompt(words, [*RUN, EVERY, HELP, *own], question=_START if asks else "")


async def start_run(name: str, prompt: str, resume: str | None, flags: RunFlags, person: Person | None) -> HostedRun:
    """Start a workflow, or resume a run of it.

    Raises AtomicError before there is a session.
    """
    if resume is not None:
        if prompt:
            raise UsageError(f"a resumed run already has its prompt: atomic run {name} --resume {resume}")
        return await resume_run(require_session(resume), flags, person, workflow=name)
    project = Project(cwd=current_folder(), trust=flags.trust)
    for warning in project.settings.warnings:
        tell(f"warning: {warning}")
    for agent in flags.agents.values():
        _check_recording(agent)
    definition = project.workflows.typed(name)
    loaded = definition.load()
    project.workflows.check_calls(definition)
    if loaded.graph is not None and tools_of(loaded.graph):
        unknown = project.tools.unknown(definition)
        if unknown:
            raise WorkflowLoadError(definition.name, unknown)
    try:
        runtime = await project.runtime(flags, loaded, person)
    except NoAgentError:
        _check_start(project, definition, loaded, prompt, flags)  # a wrong value is reported first
        raise
    run = run_workflow(definition, prompt, runtime, config=flags.config, model=flags.models.get(""))
    if project.snapshot.approved:
        run.session.save(trust=RunTrust.of(project.snapshot))
    return run


def _check_start(
    project: Project, definition: WorkflowDefinition, loaded: LoadedWorkflow, prompt: str, flags: RunFlags
) -> None:
    """Raise what the workflow has against the values of its flags."""
    if loaded.check_start is None:
        return
    config = {**definition.config(project.settings.workflows), **flags.config}
    params: WorkflowStateParams = WorkflowStateParams(
        prompt=prompt, cwd=str(project.cwd), project=str(project.folder), config=config,
        max_iterations=loaded.iteration_limit(None, config), given=flags.config,
    )  # fmt: skip
    loaded.check_start(params)


def _check_recording(agent: str) -> None:
    """Raise UsageError if an agent is a recording that cannot be read."""
    kind, _, file = agent.partition(":")
    if kind != "replay":
        return
    try:
        open_regular(Path(file).expanduser()).close()
    except OSError as error:
        raise UsageError(f"replay: {file}: {reason_of(error)}") from error


def workflow_finder(words: Sequence[str]) -> Find:
    """Return a function that finds a workflow by name: in the project of a resumed run,
    else here.
    """
    catalog = _catalog_of_resumed(words) or WorkflowCatalog()

    def find(word: str) -> Found | None:
        definition = catalog.find_typed(word)
        return None if definition is None else Found(definition)

    return find


def _catalog_of_resumed(words: Sequence[str]) -> WorkflowCatalog | None:
    joined = " ".join(words).replace("--resume=", "--resume ").split()
    if "--resume" not in joined[:-1]:
        return None
    try:
        session = require_session(joined[joined.index("--resume") + 1])
    except SessionError:  # it is reported when the run starts, or the word belongs to the prompt
        return None
    return WorkflowCatalog(Path(session.record.project))
