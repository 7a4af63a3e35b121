"""Tasks: what is to be done, in which order, and what may start now."""

from atomic.tasks.errors import NoTaskListError, TaskFileError, TaskNotFoundError, TasksError, UnknownStatusError
from atomic.tasks.model import TaskList, convert_feature_list
from atomic.tasks.task import ProblemKind, Task, TaskProblem, TaskStatus
from atomic.tasks.task import Task as WorkflowTask

__all__ = [
    "NoTaskListError",
    "ProblemKind",
    "Task",
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
