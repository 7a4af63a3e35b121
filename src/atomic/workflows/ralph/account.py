"""What a run left in its session's folder, as its report tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from atomic.git.pictures import Picture
from atomic.sessions.facts import CHANGED_COPIES
from atomic.sessions.model import SessionRecord
from atomic.tasks import Task, TaskList, TasksError, TaskStatus
from atomic.workflows.kept_tasks import read_kept_tasks
from atomic.workflows.ledger import Spent, read_past
from atomic.workflows.ralph.calls import Call, calls_of
from atomic.workflows.ralph.checkout import commit_hooks
from atomic.workflows.ralph.definition import DEFAULTS
from atomic.workflows.ralph.desk import TASKS
from atomic.workflows.ralph.evidence import Evidence, read_evidence
from atomic.workflows.ralph.gates import GateBook
from atomic.workflows.ralph.options import Options
from atomic.workflows.ralph.prompts import role_of
from atomic.workflows.ralph.review import Finding, Review
from atomic.workflows.ralph.state import Span, Try
from atomic.workflows.ralph.users_files import (
    UsersFiles,
    Version,
    changed_late,
    other_versions,
    read_existing,
    read_users_files,
)
from atomic.workflows.ralph.users_refs import LostRef, lost_refs
from atomic.workflows.ralph.yolo import TASK as YOLO

_ROLES = ("planner", "worker", "reviewer", "fixer")


class Known(msgspec.Struct, frozen=True):
    """What of a run's state a report needs; the rest of it is passed over."""

    options: Options
    start: Picture | None = None
    spans: dict[str, list[Span]] = {}
    tries: dict[str, list[Try]] = {}
    said: dict[str, str] = {}
    reviews: list[Review] = []
    rounds: list[list[Finding]] = []
    over: bool = False
    iteration: int = 0


@dataclass(frozen=True)
class Account:
    """A run: its tasks with their evidence, its gates and its calls. Without `state` some things are not known."""

    session: Path
    record: SessionRecord
    state: Known | None
    options: Options
    task_list: TaskList
    evidence: Mapping[str, Evidence]
    book: GateBook
    calls: Sequence[Call]
    spent: Spent
    users: UsersFiles  # the user's uncommitted files
    existing: UsersFiles  # all files that were there, where the run began without a commit
    versions: Mapping[str, Sequence[Version]]  # of the user's files, that a turn has replaced
    late: Sequence[str]  # those that have changed since the last turn or check
    lost_refs: Sequence[LostRef]  # branches, tags and stashes of the user
    hooks: Sequence[str]  # hooks of the repository that may refuse a commit
    loose: Sequence[str]  # all files that were in no commit at the end, where there are such hooks
    changed_copies: Sequence[str]  # files of the session that another program has changed

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
    def left(self) -> list[Task]:
        return [task for task in self.tasks if not task.status.is_done]

    @property
    def is_yolo(self) -> bool:
        return self.options.mode == "yolo"

    @property
    def is_shared(self) -> bool:
        """Whether several worked in one checkout: then nobody can tell whose a change is."""
        return self.options.workers > 1

    @property
    def start(self) -> Picture | None:
        return None if self.state is None else self.state.start

    @property
    def proofs(self) -> list[Evidence]:
        """The evidence of what is done, in the order of the list."""
        ids = [YOLO] if self.is_yolo else [task.id for task in self.done]
        return [self.evidence[id] for id in ids if id in self.evidence and self.evidence[id].status == "passed"]

    @property
    def verifying(self) -> list[str]:
        """The checks that have proven work of this run, and would have stopped it."""
        passed = {gate.command for proof in self.proofs for gate in proof.gates if gate.exit_code == 0}
        commands = [gate.command for gate in self.book.gates]
        passed |= self.book.passed_once
        return [command for command in commands if command in passed and self.book.is_blocking(command)]

    @property
    def is_reviewed(self) -> bool | None:
        """Whether the last review has approved the work; None: that is not known."""
        if self.is_yolo or not self.options.review_rounds:
            return False
        if self.state is None:
            return None
        last = self.state.reviews[-self.options.reviewers :]
        return self.state.over and bool(last) and all(review.approved for review in last)

    def spans(self, proof: Evidence) -> Sequence[Span]:
        """The turns that the evidence is about; empty where they are not known."""
        return () if self.state is None else self.state.spans.get(proof.task, ())

    @property
    def uncommitted(self) -> list[str]:
        """Files of finished tasks that are in no commit, where a hook may be why."""
        found: set[str] = set()
        for proof in self.proofs:
            has_commit = any(span.after.head != span.before.head for span in self.spans(proof))
            if proof.commit is not None:
                found.update(proof.uncommitted if has_commit else proof.changed_files)
        return sorted(found.intersection(self.loose))

    def worked_on(self, task: Task) -> bool:
        """Whether this run has begun the task."""
        return task.id in self.evidence or (self.state is not None and task.id in self.state.spans)

    def count(self, *, repairs: bool) -> tuple[int, int]:
        """How many tasks, or repairs of findings, are done, and how many there are."""
        meant = [task for task in self.tasks if (role_of(task) == "fixer") is repairs]
        return sum(task.status.is_done for task in meant), len(meant)

    def by_role(self) -> Iterator[tuple[str, list[Call]]]:
        """The calls of each role, in an order that does not depend on who was first."""
        roles = {call.who for call in self.calls}
        known = [role for role in _ROLES if role in roles]
        for role in (*known, *sorted(roles.difference(_ROLES))):
            yield role, [call for call in self.calls if call.who == role]


def read_account(session: Path, state: object, facts: Mapping[str, Any]) -> Account:
    """Read what there is; `state` is the run's state, the data that it was written as, or None."""
    record, known = _record(session), _known(state)
    users = read_users_files(facts)
    hooks, loose = commit_hooks(facts)
    return Account(
        session=session,
        record=record,
        state=known,
        options=_options(record) if known is None else known.options,
        task_list=read_kept_tasks(facts) or _tasks(session / TASKS),
        evidence=read_evidence(facts),
        book=GateBook(facts),
        calls=calls_of(facts),
        spent=read_past(facts).spent,
        users=users,
        existing=read_existing(facts),
        versions=other_versions(users),
        late=changed_late(users),
        lost_refs=lost_refs(facts),
        hooks=hooks,
        loose=loose,
        changed_copies=facts.get(CHANGED_COPIES, ()),
    )


def _record(session: Path) -> SessionRecord:
    try:
        return msgspec.json.decode((session / "session.json").read_bytes(), type=SessionRecord)
    except (OSError, msgspec.DecodeError):  # the report says what can still be said
        return SessionRecord(id=session.name, workflow="")


def _known(state: object) -> Known | None:
    if state is None:
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(state), Known)
    except (msgspec.ValidationError, TypeError):
        return None


def _options(record: SessionRecord) -> Options:
    """What the run was started with, where its state is lost."""
    config = {**DEFAULTS, **record.config}
    mode = "yolo" if config["yolo"] else "plan"
    names = ("review_rounds", "reviewers", "workers", "pr", "dry_run")
    given = {name: config[name] for name in names if type(config[name]) is type(DEFAULTS[name])}
    return Options(mode=mode, goal=record.prompt, **given)


def _tasks(path: Path) -> TaskList:
    try:
        return TaskList.read(path)
    except TasksError:
        return TaskList()


def is_failed(task: Task) -> bool:
    return task.status is TaskStatus.FAILED
