"""The events of a run: the only vocabulary of `atomic run --json` and `events.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from atomic.providers.events import AgentEvent
from atomic.questions import Question
from atomic.tasks import Task


class _RunEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename=None):
    """Fields of every event: run id, sequence number, Unix time."""

    run: str
    seq: int
    time: float


class RunStarted(_RunEvent, frozen=True, kw_only=True, tag="run_started"):
    """The run starts or is resumed."""

    workflow: str
    prompt: str
    session_dir: str
    resumed: bool = False


class NodeStarted(_RunEvent, frozen=True, kw_only=True, tag="node_started"):
    """A step starts. `description` is empty for nodes that are not announced."""

    node: str
    step_id: str
    attempt: int
    description: str = ""


class NodeEnded(_RunEvent, frozen=True, kw_only=True, tag="node_ended"):
    """A step has ended. `error` is set if it did not complete."""

    node: str
    step_id: str
    attempt: int
    description: str = ""
    status: str = "completed"
    seconds: float = 0.0
    error: str | None = None

    @property
    def why(self) -> str:
        """The error without the name of the node in front of it."""
        return (self.error or "").removeprefix(f"{self.node}: ")


class AgentActivity(_RunEvent, frozen=True, kw_only=True, tag="agent_activity"):
    """An event of an agent, with the node, task and role that the agent works for."""

    node: str
    task: str | None
    role: str | None
    event: AgentEvent


class TasksChanged(_RunEvent, frozen=True, kw_only=True, tag="tasks_changed"):
    """The task list after a change."""

    tasks: Sequence[Task]


class QuestionAsked(_RunEvent, frozen=True, kw_only=True, tag="question_asked"):
    """A question to the user.

    The host's broker or `atomic answer` delivers the answer.
    """

    question: Question
    node: str


class LimitReached(_RunEvent, frozen=True, kw_only=True, tag="limit_reached"):
    """A cap of the user (`max_cost`, `max_tokens`, `max_time`) or a usage limit
    (`provider`).
    """

    kind: str
    limit: float | None
    spent: float | None
    reset_at: float | None = None  # Unix time; None: unknown


class Warning(_RunEvent, frozen=True, kw_only=True, tag="warning"):
    """A message for the user; the run continues.

    `node` is empty if no node reported it. A `notice` is information, nothing to worry
    about.
    """

    text: str
    node: str = ""
    notice: bool = False


class RunEnded(_RunEvent, frozen=True, kw_only=True, tag="run_ended"):
    """The last event. `resume` is the command that continues the run, or empty."""

    status: str
    reason: str
    message: str
    exit_code: int
    resume: str = ""
    verified: bool | None = None  # whether a check has proven the work; None: unknown
    plain: str = ""  # `message` without node ids, if it has any
    wake_at: float | None = None  # of a paused run: Unix time when it can continue by itself
    signals: Sequence[str] = ()  # names of the signals that it waits for
    result: Any = None  # what the workflow returned, up to 64 KiB as JSON
    result_omitted: bool = False  # the result is larger: `atomic sessions result` prints it
    cost: float | None = None  # dollars, of all processes of the run; None: the price is unknown
    report: str = ""  # the path of the run's report, if it has one
    session_dir: str = ""

    @property
    def said(self) -> str:
        """The message for the user."""
        return self.plain or self.message


WorkflowEvent: TypeAlias = (
    RunStarted
    | NodeStarted
    | NodeEnded
    | AgentActivity
    | TasksChanged
    | QuestionAsked
    | LimitReached
    | Warning
    | RunEnded
)


def as_line(event: WorkflowEvent) -> Mapping[str, Any]:
    """Return the event as the object that is written on one line."""
    return msgspec.to_builtins(event)
