"""`atomic run WORKFLOW`: a workflow without a screen."""

from __future__ import annotations

from atomic.cli.arguments import Arguments
from atomic.cli.progress import Asking
from atomic.cli.prompt import read_words
from atomic.cli.running import RunFlags, host, place_here, read_flags, warn_of_settings
from atomic.workflows.executor import WorkflowRun, run_workflow


def run_command(arguments: Arguments) -> int:
    """Run a workflow to its end; its exit code."""
    name, *words = arguments.words

    async def start(person: Asking | None) -> WorkflowRun:
        flags = read_flags(arguments)
        return await begin(name, read_words(words), flags, person)

    return host(start, as_json=arguments.has("--json"))


async def begin(name: str, prompt: str, flags: RunFlags, person: Asking | None) -> WorkflowRun:
    """Find the workflow and start it. Raises AtomicError before there is a session."""
    from atomic.workflows.trust import RunTrust

    place = place_here(flags)
    warn_of_settings(place)
    definition = place.catalog.definition(name.removeprefix("/"))
    loaded = definition.load()
    runtime = await place.runtime(flags, loaded, person)
    run = run_workflow(definition, prompt, runtime, model=flags.models.get(""))
    if place.catalog.snapshot.approved:
        run.session.save(trust=RunTrust.of(place.catalog.snapshot))
    return run
