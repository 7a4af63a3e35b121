"""All that a host is told about a run. They live below: a host reads them without loading what runs a workflow."""

from atomic.run_events import (
    AgentActivity,
    LimitReached,
    NodeEnded,
    NodeStarted,
    QuestionAsked,
    RunEnded,
    RunStarted,
    TasksChanged,
    Warning,
    WorkflowEvent,
    as_line,
)

__all__ = [
    "AgentActivity",
    "LimitReached",
    "NodeEnded",
    "NodeStarted",
    "QuestionAsked",
    "RunEnded",
    "RunStarted",
    "TasksChanged",
    "Warning",
    "WorkflowEvent",
    "as_line",
]
