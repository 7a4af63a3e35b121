"""What workflow authors import: the graph, its nodes, the journals and the tasks.

This package does not know how a run is executed. It must import quickly, so SQLite and
the code that runs a workflow are imported on use. Start with `builder` and
`definition`.

Public modules: `builder`, `capabilities`, `definition`, `errors`, `nodes`, `runtime`,
`task_loop`.
"""

from typing import TYPE_CHECKING, Any

from atomic.base.errors import AtomicError
from atomic.graph import (
    END,
    Abort,
    CompiledGraph,
    Edge,
    Event,
    Goto,
    GraphBuilder,
    GraphConfig,
    GraphError,
    Journal,
    JournalError,
    MemoryJournal,
    Node,
    NodeContext,
    NodeError,
    NodeKind,
    NodeResult,
    Problem,
    QuestionError,
    Record,
    Retry,
    RunInfo,
    RunNotFoundError,
    RunOwnedError,
    RunResult,
    RunStatus,
    Signal,
    SignalKind,
    Skip,
    State,
    StateError,
    Step,
    StreamEvent,
    Suspend,
    ask_user_node,
    compile_graph,
    decision_node,
    map_node,
    node,
    parallel_node,
    subgraph_node,
    tool_node,
    wait_node,
)
from atomic.graph.engine import reducers
from atomic.questions import Option, Question
from atomic.runs.subagents import Bridge
from atomic.sessions import SqliteJournal
from atomic.tasks import Task, TaskList, TaskStatus, WorkflowTask
from atomic.workflows.builder import WorkflowBuilder, graph
from atomic.workflows.definition import EndNote, LoadedWorkflow, RunEnd, WorkflowDefinition, WorkflowStateParams
from atomic.workflows.errors import MergeError, SubagentError, UntrustedError, WorkflowLoadError, WorkflowNotFoundError
from atomic.workflows.merging import MergeOutcome, merge_node
from atomic.workflows.nodes import (
    agent_node,
    clear_context_node,
    command_node,
    context_monitor_node,
    custom_tool_node,
    parallel_subagent_node,
    skill_node,
    subagent_node,
)
from atomic.workflows.runtime import IsolatedResult, SubagentRequest, SubagentResult, WorkflowRuntime
from atomic.workflows.task_loop import criteria_loop_node, task_loop_node
from atomic.workflows.templates import map_reduce, review_cycle, sequential, task_loop

if TYPE_CHECKING:
    from atomic.runs.events import AgentActivity as AgentActivity
    from atomic.runs.events import LimitReached as LimitReached
    from atomic.runs.events import NodeEnded as NodeEnded
    from atomic.runs.events import NodeStarted as NodeStarted
    from atomic.runs.events import QuestionAsked as QuestionAsked
    from atomic.runs.events import RunEnded as RunEnded
    from atomic.runs.events import RunStarted as RunStarted
    from atomic.runs.events import TasksChanged as TasksChanged
    from atomic.runs.events import Warning as Warning
    from atomic.runs.events import WorkflowEvent as WorkflowEvent
    from atomic.runs.executor import run_workflow
    from atomic.workspaces import Work

__all__ = [
    "END",
    "Abort",
    "AtomicError",
    "Bridge",
    "CompiledGraph",
    "Edge",
    "EndNote",
    "Event",
    "Goto",
    "GraphBuilder",
    "GraphConfig",
    "GraphError",
    "IsolatedResult",
    "Journal",
    "JournalError",
    "LoadedWorkflow",
    "MemoryJournal",
    "MergeError",
    "MergeOutcome",
    "Node",
    "NodeContext",
    "NodeError",
    "NodeKind",
    "NodeResult",
    "Option",
    "Problem",
    "Question",
    "QuestionError",
    "Record",
    "Retry",
    "RunEnd",
    "RunInfo",
    "RunNotFoundError",
    "RunOwnedError",
    "RunResult",
    "RunStatus",
    "Signal",
    "SignalKind",
    "Skip",
    "SqliteJournal",
    "State",
    "StateError",
    "Step",
    "StreamEvent",
    "SubagentError",
    "SubagentRequest",
    "SubagentResult",
    "Suspend",
    "Task",
    "TaskList",
    "TaskStatus",
    "UntrustedError",
    "Work",
    "WorkflowBuilder",
    "WorkflowDefinition",
    "WorkflowLoadError",
    "WorkflowNotFoundError",
    "WorkflowRuntime",
    "WorkflowStateParams",
    "WorkflowTask",
    "agent_node",
    "ask_user_node",
    "clear_context_node",
    "command_node",
    "compile_graph",
    "context_monitor_node",
    "criteria_loop_node",
    "custom_tool_node",
    "decision_node",
    "graph",
    "map_node",
    "map_reduce",
    "merge_node",
    "node",
    "parallel_node",
    "parallel_subagent_node",
    "reducers",
    "review_cycle",
    "run_workflow",
    "sequential",
    "skill_node",
    "subagent_node",
    "subgraph_node",
    "task_loop",
    "task_loop_node",
    "tool_node",
    "wait_node",
]


# The events of a run. Not in __all__: `import *` in a workflow's file would hide
# Python's own Warning.
_EVENTS = (
    "AgentActivity", "LimitReached", "NodeEnded", "NodeStarted", "QuestionAsked", "RunEnded", "RunStarted",
    "TasksChanged", "Warning", "WorkflowEvent",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "run_workflow":
        from atomic.runs.executor import run_workflow

        return run_workflow
    if name == "Work":
        from atomic.workspaces import Work

        return Work
    if name in _EVENTS:
        from atomic.runs import events

        return getattr(events, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
