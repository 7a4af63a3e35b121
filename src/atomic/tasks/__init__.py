"""Task lists: the tasks, their order, and which of them may start now.

Start with `model`. Only `model` reads and writes files.

Public modules: `task`.
"""

from atomic.tasks.model import TaskDocument, TaskList, convert_feature_list
from atomic.tasks.task import (
    NoTaskListError,
    ProblemKind,
    Task,
    TaskFileError,
    TaskNotFoundError,
    TaskProblem,
    TasksError,
    TaskStatus,
    UnknownStatusError,
)
from atomic.tasks.task import Task as WorkflowTask

__all__ = [
    "NoTaskListError",
    "ProblemKind",
    "Task",
    "TaskDocument",
    "TaskFileError",
    "TaskList",
    "TaskNotFoundError",
    "TaskProblem",
    "TaskStatus",
    "TasksError",
    "UnknownStatusError",
    "WorkflowTask",
    "convert_feature_list",
]
