"""All that a host is told about a run, in the words of `atomic run --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from atomic.providers.events import AgentEvent
from atomic.questions import Question
from atomic.tasks import Task


class _News(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename=None):
    """What all have: which run, the how-manieth piece of news, and when (seconds since 1970)."""

    run: str
    seq: int
    time: float


class RunStarted(_News, frozen=True, kw_only=True, tag="run_started"):
    """The run begins, or goes on."""

    workflow: str
    prompt: str
    session_dir: str
    resumed: bool = False


class NodeStarted(_News, frozen=True, kw_only=True, tag="node_started"):
    """A step begins. `description` is empty for nodes that are not announced."""

    node: str
    step_id: str
    attempt: int
    description: str = ""


class NodeEnded(_News, frozen=True, kw_only=True, tag="node_ended"):
    """A step has ended; `error` says why it is not completed."""

    node: str
    step_id: str
    attempt: int
    description: str = ""
    status: str = "completed"
    seconds: float = 0.0
    error: str | None = None

    @property
    def why(self) -> str:
        """The error without the name of the node, for whoever has said that already."""
        return (self.error or "").removeprefix(f"{self.node}: ")


class AgentActivity(_News, frozen=True, kw_only=True, tag="agent_activity"):
    """An agent does something: the provider's own event, with whose it is."""

    node: str
    task: str | None
    role: str | None
    event: AgentEvent


class TasksChanged(_News, frozen=True, kw_only=True, tag="tasks_changed"):
    """The list of tasks as it is now."""

    tasks: Sequence[Task]


class QuestionAsked(_News, frozen=True, kw_only=True, tag="question_asked"):
    """Somebody is asked; the answer goes to the broker, or by `atomic answer`."""

    question: Question
    node: str


class LimitReached(_News, frozen=True, kw_only=True, tag="limit_reached"):
    """A cap of the user's (`max_cost`, `max_tokens`, `max_time`) or a limit of the provider (`provider`)."""

    kind: str
    limit: float | None
    spent: float | None
    reset_at: float | None = None  # seconds since 1970; None: nobody knows


class Warning(_News, frozen=True, kw_only=True, tag="warning"):
    """Something that a person should know; the run continues. `node` is empty where no node says it."""

    text: str
    node: str = ""


class RunEnded(_News, frozen=True, kw_only=True, tag="run_ended"):
    """Always the last. `resume` is the command that goes on, empty where nothing is left."""

    status: str
    reason: str
    message: str
    exit_code: int
    resume: str = ""
    verified: bool | None = None  # whether a check has proven the work; None: the workflow does not say
    plain: str = ""  # `message` without the ids of nodes, where it has them

    @property
    def said(self) -> str:
        """The message for people."""
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
    """The event as it is written, one object a line."""
    return msgspec.to_builtins(event)
