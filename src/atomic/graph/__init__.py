"""The engine: graphs of nodes over a state, recorded step by step. Pure: no file, network, terminal or agent."""

from atomic.graph import reducers
from atomic.graph.builder import GraphBuilder, GraphOptions, graph
from atomic.graph.compile import Edge, GraphConfig, compile_graph, with_options
from atomic.graph.compiled import CompiledGraph, RunResult, StreamEvent
from atomic.graph.control import (
    END,
    Abort,
    Event,
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
from atomic.graph.errors import (
    GraphError,
    JournalError,
    NodeError,
    Problem,
    QuestionError,
    RunNotFoundError,
    RunOwnedError,
    StateError,
)
from atomic.graph.journal import Journal, MemoryJournal, Record, RunInfo
from atomic.graph.node import Node, NodeContext, NodeKind
from atomic.graph.nodes import (
    ask_user_node,
    decision_node,
    map_node,
    node,
    parallel_node,
    subgraph_node,
    tool_node,
    wait_node,
)
from atomic.graph.run import Step
from atomic.graph.state import State

__all__ = [
    "END",
    "Abort",
    "CompiledGraph",
    "Edge",
    "Event",
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
    "SignalKind",
    "Skip",
    "State",
    "StateError",
    "Step",
    "StreamEvent",
    "Suspend",
    "ask_user_node",
    "compile_graph",
    "decision_node",
    "graph",
    "map_node",
    "node",
    "parallel_node",
    "reducers",
    "subgraph_node",
    "tool_node",
    "wait_node",
    "with_options",
]
