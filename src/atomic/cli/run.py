"""`atomic run WORKFLOW`: a workflow without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atomic.base.arguments import Arguments, UsageError, is_flag
from atomic.base.flags import RUN, config_flags, flag_in_prompt
from atomic.cli.prompt import read_words
from atomic.cli.resume import catalog_of, find_session, go_on
from atomic.cli.run_host import RunFlags, host, place_here, read_flags, warn_of_settings
from atomic.cli.streams import confirmed, has_terminal, tell
from atomic.loading.catalog import WorkflowCatalog
from atomic.runs.executor import WorkflowRun, run_workflow
from atomic.runs.host import Person
from atomic.sessions.errors import SessionError
from atomic.workflows.capabilities import tools_of
from atomic.workflows.errors import WorkflowLoadError

if TYPE_CHECKING:
    from atomic.cli.workflow_flags import Find


def run_command(arguments: Arguments) -> int:
    """Run a workflow to its end; its exit code."""
    name, *words = arguments.words
    if not arguments.is_marked:
        _check_prompt(name, words, asks=not arguments.has("--json"))

    async def start(person: Person | None) -> WorkflowRun:
        return await begin(name, read_words(words), arguments.value("--resume"), read_flags(arguments), person)

    return host(start, as_json=arguments.has("--json"))


def _check_prompt(name: str, words: Sequence[str], *, asks: bool) -> None:
    """Print a warning if a flag of the run or of its workflow is in the prompt, where it is not set.

    A run without the cap or the dry run that was meant costs money, so the user at a terminal is asked.
    Raises UsageError where the answer is no.
    """
    if not any(is_flag(word) for word in words):
        return
    definition = workflow_finder(words)(name)
    own = config_flags(definition.default_config) if definition is not None else []
    warning = flag_in_prompt(words, [*RUN, *own])
    if not warning:
        return
    tell(f"warning: {warning}")
    if asks and has_terminal() and not confirmed("Start the run with this prompt? [y/N] "):
        raise UsageError("nothing was started")


async def begin(name: str, prompt: str, resume: str | None, flags: RunFlags, person: Person | None) -> WorkflowRun:
    """Start a workflow, or go on with a run of it. Raises AtomicError before there is a session."""
    if resume is None:
        return await _begin(name, prompt, flags, person)
    if prompt:
        raise UsageError(f"a resumed run already has its prompt: atomic run {name} --resume {resume}")
    return await go_on(find_session(resume), flags, person, workflow=name)


async def _begin(name: str, prompt: str, flags: RunFlags, person: Person | None) -> WorkflowRun:
    from atomic.loading.trust import RunTrust

    place = place_here(flags)
    warn_of_settings(place)
    definition = place.catalog.definition(name.removeprefix("/"))
    loaded = definition.load()
    place.catalog.check_calls(definition)
    if loaded.graph is not None and tools_of(loaded.graph) and (unknown := place.tools.unknown(definition)):
        raise WorkflowLoadError(definition.name, unknown)
    runtime = await place.runtime(flags, loaded, person)
    run = run_workflow(definition, prompt, runtime, config=flags.config, model=flags.models.get(""))
    if place.catalog.snapshot.approved:
        run.session.save(trust=RunTrust.of(place.catalog.snapshot))
    return run


def workflow_finder(words: Sequence[str]) -> Find:
    """Finds a workflow by its name: in the project of the run that is to go on, else here."""
    catalog = _catalog_of_resumed(words) or WorkflowCatalog()
    return lambda word: catalog.find(word.removeprefix("/"))


def _catalog_of_resumed(words: Sequence[str]) -> WorkflowCatalog | None:
    joined = " ".join(words).replace("--resume=", "--resume ").split()
    if "--resume" not in joined[:-1]:
        return None
    try:
        return catalog_of(find_session(joined[joined.index("--resume") + 1]))
    except SessionError:  # it is told where the run is looked for; or it is a part of the prompt
        return None
