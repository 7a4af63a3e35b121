"""`atomic run WORKFLOW`: run a workflow without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError, is_flag
from atomic.base.flags import RUN, config_flags, flag_in_prompt
from atomic.base.untrusted_files import open_regular, reason_of
from atomic.cli.resume import require_session, resume_run
from atomic.cli.run_host import HostedRun, host_run, read_flags
from atomic.cli.streams import confirmed, has_terminal, tell
from atomic.cli.turn import read_words
from atomic.cli.workflow_flags import Find, Found
from atomic.config import current_folder
from atomic.loading.catalog import WorkflowCatalog
from atomic.loading.trust import RunTrust
from atomic.runs.executor import run_workflow
from atomic.runs.host import Person
from atomic.sessions.errors import SessionError
from atomic.wiring import Project, RunFlags
from atomic.workflows.capabilities import tools_of
from atomic.workflows.errors import WorkflowLoadError


def run_command(arguments: Arguments) -> int:
    """Run a workflow and return its exit code."""
    name, *words = arguments.words
    if not arguments.is_marked:
        _check_prompt(name, words, asks=not arguments.has("--json"))

    async def start(person: Person | None) -> HostedRun:
        return await start_run(name, read_words(words), arguments.value("--resume"), read_flags(arguments), person)

    return host_run(start, as_json=arguments.has("--json"))


def _check_prompt(name: str, words: Sequence[str], *, asks: bool) -> None:
    """Print a warning if a flag of the run or of its workflow is in the prompt, where
    it is not set.

    A run without the intended cap or dry run costs money, so a user at a terminal must
    confirm it. Raises UsageError if the user does not.
    """
    if not any(is_flag(word) for word in words):
        return
    found = workflow_finder(words)(name)
    own = config_flags(found.definition.default_config) if found is not None else []
    warning = flag_in_prompt(words, [*RUN, *own])
    if not warning:
        return
    tell(f"warning: {warning}")
    if asks and has_terminal() and not confirmed("Start the run with this prompt? [y/N] "):
        raise UsageError("nothing was started")


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
    definition = project.workflows.definition(name.removeprefix("/"))
    loaded = definition.load()
    project.workflows.check_calls(definition)
    if loaded.graph is not None and tools_of(loaded.graph):
        unknown = project.tools.unknown(definition)
        if unknown:
            raise WorkflowLoadError(definition.name, unknown)
    runtime = await project.runtime(flags, loaded, person)
    run = run_workflow(definition, prompt, runtime, config=flags.config, model=flags.models.get(""))
    if project.snapshot.approved:
        run.session.save(trust=RunTrust.of(project.snapshot))
    return run


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
        definition = catalog.find(word.removeprefix("/"))
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
