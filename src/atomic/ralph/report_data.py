"""The data of a report, read from the session folder and the facts of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from atomic.git import FolderSnapshot, find_repository, may_have_ref
from atomic.ralph.checks import CheckHistory
from atomic.ralph.definition import DEFAULTS
from atomic.ralph.evidence import Evidence, read_evidence, weakened_checks
from atomic.ralph.hidden_files import REVIEW, deleted_ignored, hidden_changes_of
from atomic.ralph.options import Options
from atomic.ralph.position import commit_hooks
from atomic.ralph.prompts import role_of
from atomic.ralph.review import Finding, Review
from atomic.ralph.run_folder import TASKS, calls_of
from atomic.ralph.state import Span, Try
from atomic.ralph.undone_tasks import undone_tasks
from atomic.ralph.users_files import UsersFiles, Version, changed_late, other_versions, read_existing, read_users_files
from atomic.ralph.users_refs import LostRef, lost_refs
from atomic.ralph.yolo import TASK as YOLO
from atomic.runs.kept_tasks import read_kept_tasks
from atomic.runs.spending import CallRecord, Spent, read_past
from atomic.sessions.facts import CHANGED_COPIES
from atomic.sessions.model import SessionRecord
from atomic.tasks import Task, TaskList, TasksError
from atomic.workspaces import RunBranch, read_branch

_ROLES = ("planner", "worker", "reviewer", "fixer")


class ReportState(msgspec.Struct, frozen=True):
    """The fields of a run's state that a report needs."""

    options: Options
    start: FolderSnapshot | None = None
    spans: dict[str, list[Span]] = {}
    tries: dict[str, list[Try]] = {}
    returned: dict[str, Try | None] = {}
    came_back: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    reviews: list[Review] = []
    rounds: list[list[Finding]] = []
    over: bool = False
    iteration: int = 0


@dataclass(frozen=True)
class ReportData:
    """A run: its tasks with their evidence, its checks and its calls.

    `state` is None where it cannot be read.
    """

    session: Path
    record: SessionRecord
    state: ReportState | None
    options: Options
    task_list: TaskList
    evidence: Mapping[str, Evidence]
    checks: CheckHistory
    calls: Sequence[CallRecord]
    spent: Spent
    users: UsersFiles  # the user's uncommitted files
    existing: UsersFiles  # all files that existed, where the run began without a commit
    versions: Mapping[str, Sequence[Version]]  # versions of the user's files that a turn replaced
    by_reviewers: Sequence[str]  # files that git ignores, that decide about checks, and that reviewers changed
    late: Sequence[str]  # files of the user that changed after the last turn or check
    lost_refs: Sequence[LostRef]  # branches, tags and stashes of the user
    hooks: Sequence[str]  # hooks of the repository that may refuse a commit
    loose: Sequence[str]  # all files that were in no commit at the end, where there are such hooks
    deleted_ignored: Sequence[str]  # files that git ignores, and that were gone after a turn
    undone: Sequence[str]  # finished tasks whose changes were undone while no agent worked
    changed_copies: Sequence[str]  # files of the session that another program has changed
    branch: RunBranch | None = None  # of a run with workspaces
    is_branch_gone: bool = False  # another program has deleted it

    @property
    def id(self) -> str:
        return self.session.name

    @property
    def tasks(self) -> Sequence[Task]:
        return self.task_list.tasks

    @property
    def done(self) -> list[Task]:
        return [task for task in self.tasks if task.status.is_done]

    @property
    def open(self) -> list[Task]:
        return [task for task in self.tasks if not task.status.is_done]

    @property
    def is_yolo(self) -> bool:
        return self.options.mode == "yolo"

    @property
    def is_shared(self) -> bool:
        """Return whether several workers used one checkout: then changes cannot be told
        apart by task.
        """
        workers = self.options.shared_workers or self.options.workers
        return self.branch is None and workers > 1

    @property
    def all_evidence(self) -> list[Evidence]:
        """Return the evidence of all tasks that were worked on, in the order of the
        list.
        """
        ids = [YOLO] if self.is_yolo else [task.id for task in self.tasks]
        return [self.evidence[id] for id in ids if id in self.evidence]

    @property
    def proofs(self) -> list[Evidence]:
        """Return the evidence of the tasks that are done, in the order of the list."""
        done = {YOLO} if self.is_yolo else {task.id for task in self.done}
        return [proof for proof in self.all_evidence if proof.task in done and proof.status == "passed"]

    @property
    def verifying(self) -> list[str]:
        """Return the checks that passed on work of this run, and whose failure would
        have stopped it.
        """
        passed = {
            check.command
            for proof in self.proofs
            for check in (*proof.checks, *proof.merged_checks)
            if check.exit_code == 0
        }
        passed |= self.checks.passed_once
        commands = self.checks.commands
        return [command for command in commands if command in passed and self.checks.is_blocking(command)]

    @property
    def known_failures(self) -> Mapping[str, int]:
        """Return the checks that have never passed and of which only tests were compared,
        with the number of tests that failed before the run and still fail.
        """
        found: dict[str, int] = {}
        order = {} if self.branch is None else {one.task: place for place, one in enumerate(self.branch.landed)}
        for proof in sorted(self.proofs, key=lambda proof: order.get(proof.task, -1)):
            for check in (*proof.checks, *proof.merged_checks):
                if check.tolerated and check.tests is not None and check.command in self.checks.tolerant:
                    found[check.command] = len(check.tests.failed)
        return found

    @property
    def is_verified(self) -> bool:
        """Return whether checks verify the work, and none of them has only been compared."""
        return bool(self.verifying) and not self.known_failures

    @property
    def weakened(self) -> list[str]:
        """Return how the checks prove less than before the run, for finished work."""
        return weakened_checks({proof.task: proof for proof in self.proofs}, self.checks.tests_before)

    @property
    def is_reviewed(self) -> bool | None:
        """Return whether the last review approved the work, or None if that is not
        known.
        """
        if self.is_yolo or not self.options.review_rounds:
            return False
        if self.state is None:
            return None
        last = self.state.reviews[-self.options.reviewers :]
        return self.state.over and bool(last) and all(review.approved for review in last)

    def spans(self, proof: Evidence) -> Sequence[Span]:
        """Return the turns that the evidence is about.

        Empty where they are not known.
        """
        return () if self.state is None else self.state.spans.get(proof.task, ())

    @property
    def uncommitted(self) -> list[str]:
        """Return files of finished tasks that are in no commit, where a hook may be the
        reason.
        """
        found: set[str] = set()
        for proof in self.proofs:
            has_commit = any(span.after.head != span.before.head for span in self.spans(proof))
            if proof.commit is not None:
                found.update(proof.uncommitted if has_commit else proof.changed_files)
        return sorted(found.intersection(self.loose))

    def worked_on(self, task: Task) -> bool:
        """Return whether this run has begun the task."""
        return task.id in self.evidence or (self.state is not None and task.id in self.state.spans)

    def returned(self, task: Task) -> Try | None:
        """Return why the last merge of a task failed."""
        return None if self.state is None else self.state.returned.get(task.id)

    def count(self, *, repairs: bool) -> tuple[int, int]:
        """Return how many tasks, or repairs of findings, are done, and how many there
        are.
        """
        tasks = [task for task in self.tasks if (role_of(task) == "fixer") is repairs]
        return sum(task.status.is_done for task in tasks), len(tasks)

    def by_role(self) -> Iterator[tuple[str, list[CallRecord]]]:
        """Yield the calls of each role, in an order that does not depend on which came
        first.
        """
        roles = {call.who for call in self.calls}
        known = [role for role in _ROLES if role in roles]
        for role in (*known, *sorted(roles.difference(_ROLES))):
            yield role, [call for call in self.calls if call.who == role]


def read_report_data(session: Path, state: object, facts: Mapping[str, Any]) -> ReportData:
    """Read the data of a report.

    `state` is the run's state, the data that it was written as, or None. A report is
    made from whatever can be read.
    """
    try:
        record = msgspec.json.decode((session / "session.json").read_bytes(), type=SessionRecord)
    except (OSError, msgspec.DecodeError):
        record = SessionRecord(id=session.name, workflow="")
    try:
        known = None if state is None else msgspec.convert(msgspec.to_builtins(state), ReportState)
    except (msgspec.ValidationError, TypeError):
        known = None
    users = read_users_files(facts)
    hooks, loose = commit_hooks(facts)
    branch = read_branch(facts)
    return ReportData(
        session=session,
        record=record,
        state=known,
        options=_options(record) if known is None else known.options,
        task_list=read_kept_tasks(facts) or _tasks(session / TASKS),
        evidence=read_evidence(facts),
        checks=CheckHistory(facts),
        calls=calls_of(facts),
        spent=read_past(facts).spent,
        users=users,
        existing=read_existing(facts),
        versions=other_versions(users),
        by_reviewers=hidden_changes_of(facts, REVIEW),
        late=changed_late(users),
        lost_refs=lost_refs(facts),
        hooks=hooks,
        loose=loose,
        deleted_ignored=deleted_ignored(facts),
        undone=undone_tasks(facts),
        changed_copies=facts.get(CHANGED_COPIES, ()),
        branch=branch,
        is_branch_gone=branch is not None and _is_gone(branch),
    )


def _is_gone(branch: RunBranch) -> bool:
    repository = find_repository(branch.root)
    return repository is not None and not may_have_ref(repository, branch.ref)


def _options(record: SessionRecord) -> Options:
    """Return the options that the run was started with, for a run whose state is lost."""
    config = {**DEFAULTS, **record.config}
    mode = "yolo" if config["yolo"] else "plan"
    names = ("review_rounds", "reviewers", "workers", "pr", "dry_run")
    given = {name: config[name] for name in names if type(config[name]) is type(DEFAULTS[name])}
    shared = 1 if config["workers"] == DEFAULTS["workers"] else 0
    return Options(mode=mode, goal=record.prompt, shared_workers=shared, **given)


def _tasks(path: Path) -> TaskList:
    try:
        return TaskList.read(path)
    except TasksError:
        return TaskList()
