"""The workflow engine: graphs of nodes over a state, recorded step by step.

`engine/` compiles, runs and records graphs. It is pure: it opens no file, network
connection, terminal or agent. `drawing/` shows a compiled graph as text, SVG or
Mermaid. Start reading with `engine/builder.py`, `engine/compile.py` and
`engine/token.py`.

Public modules: `drawing.text`, `engine`, `engine.author_functions`, `engine.builder`,
`engine.code_changes`, `engine.context`, `engine.control`, `engine.errors`,
`engine.function`, `engine.function_history`, `engine.function_state`,
`engine.function_step`, `engine.function_values`, `engine.history`, `engine.journal`,
`engine.node`, `engine.nodes`, `engine.run_deps`, `engine.sent_signals`, `engine.state`.
"""

from atomic.graph.engine import reducers
from atomic.graph.engine.active_run import RunResult, StreamEvent
from atomic.graph.engine.builder import GraphBuilder, GraphOptions, graph
from atomic.graph.engine.compile import with_options
from atomic.graph.engine.compile_edges import Edge, GraphConfig, compile_graph
from atomic.graph.engine.compiled import CompiledGraph
from atomic.graph.engine.control import (
    END,
    Abort,
    Blocked,
    Event,
    Failed,
    Goto,
    NodeResult,
    Postpone,
    Retry,
    RunStatus,
    Signal,
    SignalKind,
    Skip,
    Suspend,
)
from atomic.graph.engine.errors import (
    GraphError,
    JournalError,
    NodeError,
    Problem,
    QuestionError,
    RunNotFoundError,
    RunOwnedError,
    SignalError,
    StateError,
    StepError,
    WorkflowChangedError,
    WorkflowEndedError,
)
from atomic.graph.engine.function import FunctionWorkflow
from atomic.graph.engine.function_state import FlowState
from atomic.graph.engine.journal import Journal, MemoryJournal, Record, RunInfo
from atomic.graph.engine.node import Node, NodeContext, NodeKind
from atomic.graph.engine.nodes import (
    ask_user_node,
    decision_node,
    map_node,
    node,
    parallel_node,
    sleep_node,
    subgraph_node,
    tool_node,
    wait_node,
)
from atomic.graph.engine.run import Step
from atomic.graph.engine.state import Overwrite, State

__all__ = [
    "END",
    "Abort",
    "Blocked",
    "CompiledGraph",
    "Edge",
    "Event",
    "Failed",
    "FlowState",
    "FunctionWorkflow",
    "Goto",
    "GraphBuilder",
    "GraphConfig",
    "GraphError",
    "GraphOptions",
    "Journal",
    "JournalError",
    "MemoryJournal",
    "Node",
    "NodeContext",
    "NodeError",
    "NodeKind",
    "NodeResult",
    "Overwrite",
    "Postpone",
    "Problem",
    "QuestionError",
    "Record",
    "Retry",
    "RunInfo",
    "RunNotFoundError",
    "RunOwnedError",
    "RunResult",
    "RunStatus",
    "Signal",
    "SignalError",
    "SignalKind",
    "Skip",
    "State",
    "StateError",
    "Step",
    "StepError",
    "StreamEvent",
    "Suspend",
    "WorkflowChangedError",
    "WorkflowEndedError",
    "ask_user_node",
    "compile_graph",
    "decision_node",
    "graph",
    "map_node",
    "node",
    "parallel_node",
    "reducers",
    "sleep_node",
    "subgraph_node",
    "tool_node",
    "wait_node",
    "with_options",
]
