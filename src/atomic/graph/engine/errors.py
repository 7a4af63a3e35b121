"""Errors of graphs and runs, each with its facts as attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.questions import Question


class Problem(msgspec.Struct, frozen=True):
    """One problem of a graph, and the node that it concerns."""

    node_id: str
    message: str

    def __str__(self) -> str:
        return f"{self.node_id}: {self.message}" if self.node_id else self.message


class GraphError(AtomicError):
    """A graph cannot be compiled. `problems` lists everything that is wrong with it."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f'Graph "{name or "unnamed"}" has {count}:{lines}')


class StateError(AtomicError):
    """A value does not fit the state: an unknown field, a wrong type, data that cannot
    be recorded.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


def conflict_text(field: str, first: str, second: str) -> str:
    """Return why branches cannot join in which two nodes write the same field."""
    return f"'{first}' and '{second}' both write '{field}', which has no reducer; give it one, or a merge function"


class NodeError(AtomicError):
    """A node failed. The text starts with its id.

    `kind` is the name of the exception that the node raised. A run loaded from a
    journal has only this text; a live run has the exception as `__cause__`.
    """

    def __init__(self, node_id: str, reason: str, *, kind: str = "", path: str = "") -> None:
        self.node_id = node_id
        self.reason = reason
        self.kind = kind
        self.path = path
        where = f"{node_id}, {path}" if path else node_id
        super().__init__(f"{where}: {reason}")


class StepError(AtomicError):
    """A step of a function workflow failed with an exception that its record cannot
    make again.

    `kind` is the name of the exception. While the process lives, `__cause__` is the
    exception itself.
    """

    def __init__(self, step: str, kind: str, reason: str) -> None:
        self.step = step
        self.kind = kind
        self.reason = reason
        super().__init__(f"{step}: {reason}")


class WorkflowChangedError(AtomicError):
    """A resume finds other steps than the run has recorded: the code has changed.

    Nothing was recorded.
    """


class WorkflowEndedError(AtomicError):
    """A workflow called by another one ended with `Failed` or `Blocked`."""

    def __init__(self, workflow: str, status: str, reason: str, value: object = None) -> None:
        self.workflow = workflow
        self.status = status
        self.reason = reason
        self.value = value
        super().__init__(f"{workflow}: {status}: {reason}")


class StoppedError(AtomicError):
    """Nodes stopped a run without a failure: it is blocked, or a limit paused it.

    The text names each node with its reason. `reason` holds only the reasons, for
    readers who do not know the nodes.
    """

    def __init__(self, reasons: Sequence[tuple[str, str]]) -> None:
        self.reasons = tuple(reasons)
        self.reason = "; ".join(reason for _, reason in self.reasons)
        super().__init__("; ".join(f"{node_id}: {reason}" for node_id, reason in self.reasons))


class QuestionError(AtomicError):
    """An answer belongs to no open question.

    `answered` lists questions with another answer.
    """

    def __init__(
        self, unknown: Iterable[str], open_ids: Iterable[str], answered: Mapping[str, str | Sequence[str]] | None = None
    ) -> None:
        self.unknown = tuple(unknown)
        self.open_ids = tuple(open_ids)
        self.answered = dict(answered or {})
        known = ", ".join(f'"{name}"' for name in self.open_ids) or "none"
        parts = [
            f'Question "{name}" is already answered: {answer!r:.60}; '
            "to answer it differently, fork the run at an earlier step"
            for name, answer in self.answered.items()
        ]
        if self.unknown:
            names = ", ".join(f'"{name}"' for name in self.unknown)
            parts.append(f"No open question {names}")
        super().__init__(f"{'. '.join(parts)}; open: {known}")


class DuplicateQuestionError(AtomicError):
    """A question has the same id as another open question."""

    def __init__(self, question: Question, node_id: str, other: Question, other_node_id: str) -> None:
        self.question = question
        self.other = other
        super().__init__(
            f'question "{question.id}" ({question.text!r:.60}) is asked while another one with this id is open '
            f"({other.text!r:.60}, of '{other_node_id}'); give each open question its own id"
        )


class SignalError(AtomicError):
    """A signal cannot be sent: its name or its data is wrong, or the run is over."""


class RunNotFoundError(AtomicError):
    """The journal has no run with that id."""

    def __init__(self, execution_id: str, known: Iterable[str] = ()) -> None:
        self.execution_id = execution_id
        super().__init__(f'Run not found: "{execution_id}"{did_you_mean(execution_id, known)}')


class RunOwnedError(AtomicError):
    """Another live process owns the run, or took it over from this one."""

    def __init__(self, execution_id: str, pid: int | None, *, taken_over: bool = False) -> None:
        self.execution_id = execution_id
        self.pid = pid
        who = f"process {pid}" if pid else "another process"
        text = f"was taken over by {who}; this process may write nothing more" if taken_over else f"is owned by {who}"
        super().__init__(f'Run "{execution_id}" {text}')


class JournalError(AtomicError):
    """A journal cannot be read or written.

    `kept_as` is where the damaged file was saved.
    """

    def __init__(self, message: str, *, kept_as: str | None = None) -> None:
        self.kept_as = kept_as
        super().__init__(message if kept_as is None else f"{message} (the damaged file is kept as {kept_as})")
