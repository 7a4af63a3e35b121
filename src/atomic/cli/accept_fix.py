"""`atomic accept ID --fix`: check the merge of a run's branch in a workspace, and let a
fixer resolve what fails.

The merge is a run of Ralph of its own, with the agent and the checks of the first run,
and with what is left of its caps.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from atomic.base.errors import ExitCode
from atomic.cli.errors import CliError
from atomic.cli.resume import project_of, resume_run
from atomic.cli.run_branches import RunWork, refuse_checked_out
from atomic.cli.run_host import HostedRun, host_run
from atomic.cli.streams import tell
from atomic.config import atomic_home
from atomic.config.ralph_flags import NAME
from atomic.loading.trust import RunTrust
from atomic.ralph.merge_run import MergeRequest, find_request, merge_config
from atomic.runs.executor import run_workflow
from atomic.runs.host import Person
from atomic.runs.spending import Spent, read_past
from atomic.sessions.facts import read_facts
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import Session, SessionStore
from atomic.wiring import RunFlags
from atomic.workflows.definition import WorkflowSource
from atomic.workspaces.acceptance import Outlook
from atomic.workspaces.run_branch import branch_name

_ROLES = ("", "fixer")  # the roles that a merge needs
_ENDED = (SessionStatus.COMPLETED, SessionStatus.CANCELLED)


def fix_merge(work: RunWork, outlook: Outlook) -> int:
    """Merge in a workspace, and show the run that does it. Return its exit code.

    After success the run's branch is ahead of the user's branch.
    """
    asyncio.run(refuse_checked_out(work, "accept"))
    request = MergeRequest(
        run=work.id,
        branch=work.branch,
        tip=outlook.tip,
        head=outlook.head,
        target=outlook.target,
        goal=work.session.record.prompt,
    )
    unfinished = _find_unfinished(request)
    if unfinished is not None and unfinished.is_owned:
        raise CliError(f"{unfinished.id} works on this merge: atomic attach {unfinished.id} shows it", ExitCode.OWNED)

    async def start(person: Person | None) -> HostedRun:
        if unfinished is not None:
            return await resume_run(unfinished, RunFlags(), person)
        return await _start(work, request, person)

    return host_run(start, as_json=False)


async def remove_fixed_branches(work: RunWork, merged: str) -> None:
    """Remove the branches of runs that have worked on a merge of this run, where it has
    been merged: nothing is left to do with them.
    """
    repository = work.repository
    for record in SessionStore(atomic_home()).list():
        request = find_request(record.config) if record.workflow == NAME else None
        if request is None or request.run != work.id or record.status is SessionStatus.RUNNING:
            continue
        ref = f"refs/heads/{branch_name(record.id)}"
        form = "--format=%(objectname) %(worktreepath)"
        tip, _, checkout = (await repository.git("for-each-ref", form, ref)).strip().partition(" ")
        if tip and not checkout and await repository.is_ancestor(tip, merged):
            await repository.git("update-ref", "-d", ref, tip)


def _find_unfinished(request: MergeRequest) -> Session | None:
    """Return the run that has begun this merge and can continue."""
    store = SessionStore(atomic_home())
    for record in store.list():
        known = find_request(record.config) if record.workflow == NAME else None
        is_same = known is not None and (known.run, known.tip, known.head) == (request.run, request.tip, request.head)
        if is_same and record.status not in _ENDED:
            return store.find(record.id)
    return None


async def _start(work: RunWork, request: MergeRequest, person: Person | None) -> HostedRun:
    session = work.session
    facts = read_facts(session.journal_path, session.id)
    config = merge_config(request, facts, session.record.config if session.record.workflow == NAME else {})
    flags = _flags(session, read_past(facts).spent)
    project = project_of(session, flags)
    os.chdir(project.cwd)  # commands of the workflow's nodes start in the folder of the first start
    for warning in project.settings.warnings:
        tell(f"warning: {warning}")
    definition = project.workflows.started(NAME, WorkflowSource.BUILTIN, "")
    runtime = await project.runtime(flags, definition.load(), person)
    prompt = f"Merge {work.name} into {request.target}"
    definition = msgspec.structs.replace(
        definition, node_descriptions={**definition.node_descriptions, "plan": "merge both branches in a workspace"}
    )
    run = run_workflow(definition, prompt, runtime, config=config, model=flags.models.get(""))
    if project.snapshot.approved:
        run.session.save(trust=RunTrust.of(project.snapshot))
    return run


def _flags(session: Session, spent: Spent) -> RunFlags:
    """Return the flags of the first run, with what is left of its caps."""
    old = RunFlags().over(session.record.options)
    used = {"max_cost": spent.usd, "max_tokens": spent.tokens, "max_time": spent.seconds}
    caps = dict(old.caps)
    for name, amount in used.items():
        if name in caps:
            caps[name] = max(0, caps[name] - amount)
            if not caps[name]:
                tell(f"run {session.id[:8]} has used up its --{name.replace('_', '-')}, so no fixer can start")
    return RunFlags(
        agents={role: agent for role, agent in old.agents.items() if role in _ROLES},
        models={role: model for role, model in old.models.items() if role in _ROLES},
        caps=caps,
        on_limit=old.on_limit,
    )
