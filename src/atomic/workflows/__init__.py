"""What workflow authors import: the graph, its nodes, the journals and the tasks.

This package does not know how a run is executed. It must import quickly, so SQLite and
the code that runs a workflow are imported on use. Start with `builder` and
`definition`.

Public modules: `arguments`, `builder`, `capabilities`, `code_names`, `definition`,
`errors`, `nodes`, `runtime`, `task_loop`.
"""

from typing import TYPE_CHECKING, Any

from atomic.base.errors import AtomicError
from atomic.graph import (
    END,
    Abort,
    Blocked,
    CompiledGraph,
    Edge,
    Event,
    Failed,
    FlowState,
    FunctionWorkflow,
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
    Overwrite,
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
    SignalError,
    SignalKind,
    Skip,
    State,
    StateError,
    Step,
    StepError,
    StreamEvent,
    Suspend,
    WorkflowChangedError,
    WorkflowEndedError,
    ask_user_node,
    compile_graph,
    decision_node,
    map_node,
    node,
    parallel_node,
    sleep_node,
    subgraph_node,
    tool_node,
    wait_node,
)
from atomic.graph.engine import reducers
from atomic.questions import AnswerError, Option, Question
from atomic.runs.subagents import Bridge
from atomic.sessions import SqliteJournal
from atomic.tasks import Task, TaskList, TaskStatus, WorkflowTask
from atomic.workflows.builder import WorkflowBuilder, graph
from atomic.workflows.definition import EndNote, LoadedWorkflow, RunEnd, WorkflowDefinition, WorkflowStateParams
from atomic.workflows.errors import (
    AgentsPausedError,
    MergeError,
    SubagentError,
    TurnFailedError,
    UntrustedError,
    WorkflowLoadError,
    WorkflowNotFoundError,
)
from atomic.workflows.flow import Flow, workflow
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
from atomic.workflows.steps import StepFunction, current_step, step
from atomic.workflows.task_loop import criteria_loop_node, task_loop_node
from atomic.workflows.templates import map_reduce, review_cycle, sequential, task_loop

if TYPE_CHECKING:
    from atomic.agents import agents
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
    "AgentsPausedError",
    "AnswerError",
    "AtomicError",
    "Blocked",
    "Bridge",
    "CompiledGraph",
    "Edge",
    "EndNote",
    "Event",
    "Failed",
    "Flow",
    "FlowState",
    "FunctionWorkflow",
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
    "Overwrite",
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
    "SignalError",
    "SignalKind",
    "Skip",
    "SqliteJournal",
    "State",
    "StateError",
    "Step",
    "StepError",
    "StepFunction",
    "StreamEvent",
    "SubagentError",
    "SubagentRequest",
    "SubagentResult",
    "Suspend",
    "Task",
    "TaskList",
    "TaskStatus",
    "TurnFailedError",
    "UntrustedError",
    "Work",
    "WorkflowBuilder",
    "WorkflowChangedError",
    "WorkflowDefinition",
    "WorkflowEndedError",
    "WorkflowLoadError",
    "WorkflowNotFoundError",
    "WorkflowRuntime",
    "WorkflowStateParams",
    "WorkflowTask",
    "agent_node",
    "agents",
    "ask_user_node",
    "clear_context_node",
    "command_node",
    "compile_graph",
    "context_monitor_node",
    "criteria_loop_node",
    "current_step",
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
    "sleep_node",
    "step",
    "subagent_node",
    "subgraph_node",
    "task_loop",
    "task_loop_node",
    "tool_node",
    "wait_node",
    "workflow",
]


# The events of a run. Not in __all__: `import *` in a workflow's file would hide
# Python's own Warning.
_EVENTS = (
    "AgentActivity", "LimitReached", "NodeEnded", "NodeStarted", "QuestionAsked", "RunEnded", "RunStarted",
    "TasksChanged", "Warning", "WorkflowEvent",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "agents":
        from atomic.agents import agents

        return agents
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
