"""Optional arguments of the builder's methods, which forward them to the node factories.

The factories in `nodes.py` hold the defaults. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypedDict

from atomic.graph.engine.control import Duration, RetryLike
from atomic.graph.engine.node import Condition, Merge, OnError
from atomic.graph.engine.nodes import Args, OutputMapper
from atomic.graph.engine.state import StateT
from atomic.questions import Option


class Labels(TypedDict, total=False):
    """Texts that every node may have."""

    name: str
    description: str


class ScopeOptions(Labels, Generic[StateT], total=False):
    """Options of a node that runs other nodes."""

    timeout: Duration | None
    on_error: OnError[StateT] | None
    model: str | None


class StepOptions(Labels, Generic[StateT], total=False):
    """Options of a node that calls a function."""

    retry: RetryLike | None
    timeout: Duration | None
    on_error: OnError[StateT] | None
    recovery: bool


class NodeOptions(StepOptions[StateT], total=False):
    """Options of a node whose function may use a model."""

    model: str | None


class ToolOptions(StepOptions[StateT], total=False):
    """Options of a node that calls a tool."""

    args: Args[StateT] | None
    output_mapper: OutputMapper[StateT] | None
    input_schema: Any
    output_schema: Any


class AskUserOptions(Labels, Generic[StateT], total=False):
    """Options of a node that asks the user a question."""

    options: Sequence[Option | str]
    header: str
    multi_select: bool
    default: str | None
    output_mapper: OutputMapper[StateT] | None


class WaitOptions(Labels, Generic[StateT], total=False):
    """Options of a node that waits for an approval."""

    input_mapper: OutputMapper[StateT] | None
    auto_approve: bool | Condition[StateT]


class ParallelOptions(ScopeOptions[StateT], total=False):
    """Options of a node that runs branches at the same time."""

    strategy: str
    merge: Merge[StateT] | None
    max_concurrency: int | None


class MapOptions(ScopeOptions[StateT], total=False):
    """Options of a node that runs nodes for each item."""

    max_concurrency: int | None


class SubgraphOptions(ScopeOptions[StateT], total=False):
    """Options of a node that runs another graph."""

    input_mapper: Callable[[StateT], Mapping[str, Any]] | None
    output_mapper: OutputMapper[StateT] | None
