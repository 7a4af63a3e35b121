"""The evidence of a task's work, as Atomic observed it: one fact of the run for each
task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from atomic.git import FileChange
from atomic.ralph.test_results import RunnerResults
from atomic.sessions.facts import Facts

_FOLDER = "evidence/"  # the prefix of these facts: their copies are in one folder
_MAX_NAME = 180  # characters of a file's name; the name of its temporary file is longer


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one check ended."""

    command: str
    exit_code: int
    seconds: float
    timed_out: bool
    output_sha256: str
    output_tail: str
    baseline_exit_code: int | None
    blocking: bool
    flaky: bool = False  # it failed first and passed on the same files
    tests: RunnerResults | None = None  # where the runner of the tests is known
    unreadable: bool = False  # git could not read the files on which it had run
    tolerated: bool = False  # it ended as before the run, and only tests failed that had failed then
    steered: Sequence[str] = ()  # files above the project that have changed: the result does not count


class Diffstat(msgspec.Struct, frozen=True):
    """The size of a change."""

    files: int = 0
    insertions: int = 0
    deletions: int = 0


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes of the last attempt at a task, and the results of its checks."""

    task: str
    attempt: int
    status: Literal["passed", "failed"]
    checks: Sequence[CheckResult] = msgspec.field(name="gates")
    commit: str | None
    tree: str
    changed_files: Sequence[str]
    diffstat: Diffstat
    protected_files: Sequence[str]
    reason: str = ""
    steering_files: Sequence[str] = ()  # changed files that decide what the checks do
    uncommitted: Sequence[str] = ()  # changed files that are not in the new commit, if there is one
    base: str | None = None  # the commit at which the task's workspace began
    base_tree: str = ""
    tree_after: str = ""  # the tracked files of the checks' workspace after the checks
    rewritten: Sequence[str] = ()  # of these, the files that the checks changed there
    merged: str | None = None  # the commit of the run's branch that has this work
    merged_checks: Sequence[CheckResult] = ()  # on that commit, if it is not the task's own
    former_checks: Sequence[CheckResult] = ()  # with the steering files as they were before
    dropped: Mapping[str, Sequence[str]] = {}  # lines of other tasks that the merge took away, by path


def diffstat(changes: Iterable[FileChange]) -> Diffstat:
    """Return the size of all changes together."""
    counted = list(changes)
    return Diffstat(
        len(counted), sum(change.insertions for change in counted), sum(change.deletions for change in counted)
    )


def weakened_checks(evidence: Mapping[str, Evidence], before: Mapping[str, RunnerResults]) -> list[str]:
    """Return a sentence for each task after which checks prove less than before.

    Fewer tests ran than before the run, or nothing shows that they ran, or a check fails
    with the files that decide what it does as they were. `before` are the tests before
    the run, by command.
    """
    found: list[str] = []
    for task, proof in evidence.items():
        for check in proof.merged_checks or proof.checks:
            first = before.get(check.command)
            if first is not None and check.tests is None and check.exit_code == 0:
                found.append(
                    f"{check.command} passed after task {task}, but its output does not show which tests ran;"
                    f" {first.total} ran before the run"
                )
            if first is not None and check.tests is not None and check.tests.total < first.total:
                found.append(
                    f"{check.command} ran {check.tests.total} tests after task {task}, and {first.total} before the run"
                )
        for check in proof.former_checks:
            now = [one.exit_code for one in proof.checks if one.command == check.command]
            if check.exit_code != 0 and now == [0]:
                found.append(
                    f"{check.command} passes after task {task}, but fails (exit code {check.exit_code}) with the files"
                    " that decide what it does as they were before the task"
                )
    return found


def evidence_name(facts: Mapping[str, Any], task_id: str) -> str:
    """Return the name of a task's fact, with a hash if another task has the same name."""
    *names, last = (f"{_FOLDER}{name}.json" for name in _names(task_id))
    for name in names:
        if name not in facts or facts[name]["task"] == task_id:
            return name
    return last


def write_evidence(facts: Facts, evidence: Evidence) -> None:
    """Replace the evidence of a task."""
    facts.set(evidence_name(facts, evidence.task), evidence)


def read_evidence(facts: Mapping[str, Any]) -> dict[str, Evidence]:
    """Return the evidence by task."""
    found = [msgspec.convert(facts[name], Evidence) for name in facts if name.startswith(_FOLDER)]
    return {evidence.task: evidence for evidence in found}


def _names(task_id: str) -> Iterator[str]:
    """Yield names for the file of a task, the plain one first."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", task_id)
    digest = sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
    if len(name) <= _MAX_NAME:
        yield name
    yield f"{name[:_MAX_NAME]}-{digest[:8]}"
    yield digest
