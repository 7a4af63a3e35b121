"""The first line of a run: where the work goes, who does it, and which checks prove it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atomic.ralph.merge_run import find_request
from atomic.ralph.run_folder import Ralph, RunFolder
from atomic.workspaces import RunBranch

_FACT = "opening"


def open_run(ctx: Ralph, run: RunFolder, branch: RunBranch | None) -> None:
    """Keep the first line for hosts and resumes. With a branch it is a message too."""
    request = find_request(ctx.deps.config)
    is_alone = request is not None or run.options.mode == "yolo"
    if branch is None:
        workers = run.workers
        facts = [
            f"in your checkout itself (--isolate {run.options.isolate})",
            "one worker" if workers == 1 else f"{workers} workers",
        ]
    elif request is not None:
        facts = [
            f"merging {request.branch.name} and {request.target} in a copy of the project ({branch.kind})",
            "your checkout changes only when the checks are green",
        ]
    else:
        workers = 1 if is_alone else run.options.workers
        who = "one worker, in its own copy" if workers == 1 else f"{workers} workers, each in its own copy"
        source = branch.upstream or "a detached HEAD"
        facts = [
            f"branch {branch.name} from {source} ({branch.start[:7]})",
            f"{who} of the project ({branch.kind})",
        ]
    if branch is not None and branch.setup:
        facts.append(f"set up by {branch.setup}")
    facts += [f"check: {check.command} ({_state(run, check.command)})" for check in run.checks.chosen]
    line = " · ".join(facts)
    run.facts.set(_FACT, line)
    if branch is not None:
        run.inform(line)


def read_opening(facts: Mapping[str, Any]) -> str:
    """Return the first line of a run; empty if it has none yet."""
    return facts.get(_FACT, "")


def _state(run: RunFolder, command: str) -> str:
    """Return how a check ended before the run."""
    tests = run.checks.tests_before.get(command)
    count = ""
    if tests is not None and tests.total:
        count = f", {tests.total} test{'' if tests.total == 1 else 's'}"
    if run.checks.baseline.get(command) == 0:
        return f"green{count}"
    if tests is not None and command in run.checks.tolerant:
        return f"red{count}, {len(tests.failed)} of them fail and may stay so"
    return f"red{count}"
