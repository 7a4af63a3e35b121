"""Nodes, and the context that their functions receive.

A composite node (parallel, map, loop …) has a `body` instead of a function. The
compiler lowers it to operations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, overload

import msgspec

from atomic.base.lazy_types import deferred
from atomic.graph.engine.control import Abort, Blocked, Duration, Failed, Goto, NodeResult, Retry, RetryPolicies, Skip
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.state import State, StateT
from atomic.questions import Question

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    from atomic.graph.engine.compiled import CompiledGraph
    from atomic.processes import ExecResult

    DepsT = DefaultTypeVar("DepsT", default=Any)
    ReadDepsT = DefaultTypeVar("ReadDepsT", default=Any, covariant=True)
else:
    ExecResult = deferred("atomic.processes", "ExecResult")
    DepsT = TypeVar("DepsT")
    ReadDepsT = TypeVar("ReadDepsT", covariant=True)

DataT = TypeVar("DataT")
ChildT = TypeVar("ChildT", bound=State)
ReadStateT = TypeVar("ReadStateT", bound=State, covariant=True)


class NodeKind(StrEnum):
    """The kind of a node, for drawings and for the list of a workflow's capabilities."""

    PLAIN = "plain"
    TOOL = "tool"
    AGENT = "agent"
    DECISION = "decision"
    ASK = "ask"
    WAIT = "wait"
    PARALLEL = "parallel"
    MAP = "map"
    SUBGRAPH = "subgraph"
    LOOP = "loop"
    IF = "if"
    TASKS = "tasks"


class NodeContext(Protocol[ReadStateT, ReadDepsT]):
    """The argument of a node's function."""

    if not TYPE_CHECKING:  # the second parameter has a default, which typing learns in Python 3.13

        def __class_getitem__(cls, item):
            return super().__class_getitem__(item if isinstance(item, tuple) else (item, Any))

    @property
    def state(self) -> ReadStateT:
        """Return the state when the step began. It never changes."""
        ...

    @property
    def node_id(self) -> str: ...

    @property
    def output_key(self) -> str:
        """Return the key of this node in `outputs`: its id without subgraph and item."""
        ...

    @property
    def step_id(self) -> str:
        """Return an id that is the same in every attempt and after every resume.

        Use it as a key for effects outside of the run.
        """
        ...

    @property
    def attempt(self) -> int: ...

    @property
    def model(self) -> str | None:
        """Return the model of the node, else of its parent, else the graph's default."""
        ...

    @property
    def errors(self) -> Sequence[NodeError]:
        """Return all failures so far, also of failed attempts."""
        ...

    @property
    def deps(self) -> ReadDepsT: ...

    @property
    def item(self) -> Any:
        """Return the item of a map, or the task of a task loop."""
        ...

    @property
    def index(self) -> int | None: ...

    def free_worker(self) -> None:
        """Let another task of the task loop begin while this one waits for something
        that needs no worker, such as a merge.

        Without a task loop, or with one worker, nothing happens.
        """
        ...

    async def take_worker(self) -> None:
        """Wait until a worker is free again for a task that has called `free_worker`."""
        ...

    def emit(self, type: str, data: Any = None) -> None:
        """Send an event to the host. It is also part of the step's events."""
        ...

    def output_of(self, node_id: str) -> Any:
        """Return the output of a node, or None."""
        ...

    def add_usage(self, usage: Mapping[str, float]) -> None:
        """Add tokens or money to this step's record."""
        ...

    async def remember(self, key: str, value: Any) -> None:
        """Store a part of the step's work. It is on disk when this returns.

        The step can read it after a pause or a kill, until the step is recorded or an
        attempt fails.
        """
        ...

    def remembered(self, key: str, default: Any = None) -> Any:
        """Return the part that the step stored under that key, as plain data."""
        ...

    async def ask(self, question: Question | str) -> Any:
        """Ask the user. The answer is a string, a list of strings for a multi-select,
        or a value of the question's `returns`.
        """
        ...

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any: ...

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None, returns: type[DataT]) -> DataT: ...

    async def wait_for(self, name: str, *, timeout: Duration | None = None, returns: Any = Any) -> Any:
        """Return the data of the next signal of that name, checked against `returns`.

        Signals arrive in order and survive a kill, and each is received once: a step that
        runs again receives the same ones. One that was sent earlier is kept. Without a
        host the run pauses until it is resumed.

        Raises:
            TimeoutError: `timeout` after the first wait there was no signal.
        """
        ...

    async def sleep(
        self,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> None:
        """Sleep for the sum of these. After a kill the step sleeps only the rest."""
        ...

    async def sleep_until(self, when: datetime) -> None:
        """Sleep until a time, which has a time zone."""
        ...

    @overload
    async def run(self, graph: CompiledGraph[ChildT], input: Mapping[str, Any] | State | None = None) -> ChildT: ...

    @overload
    async def run(self, graph: str, input: Mapping[str, Any] | State | None = None) -> State: ...

    async def run(self, graph: Any, input: Mapping[str, Any] | State | None = None) -> Any:
        """Run a graph, or a workflow by its name, and return its final state.

        Its steps belong to this run, as `node/child`, those of a second call as
        `node[1]/child`. A node that starts again after a kill or a pause gets what its
        calls have finished, in the order of the calls; another attempt calls them
        again. Raises NodeError if the graph fails.
        """
        ...

    def is_answered(self, question_id: str) -> bool:
        """Return whether a question of this step was answered while the run was paused."""
        ...

    async def exec(
        self,
        *argv: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        timeout: float | None = None,
    ) -> ExecResult:
        """Run a program in its own process group. It is stopped when the step ends."""
        ...


NodeAnswer = NodeResult | Mapping[str, Any] | Failed | Blocked | None
Run = Callable[[NodeContext[StateT, DepsT]], Awaitable[NodeAnswer]]
ErrorAnswer = Retry | Skip | Abort | Goto
OnError = Callable[[Exception, NodeContext[StateT, Any]], ErrorAnswer | Awaitable[ErrorAnswer]]
Strategy = Literal["all", "race", "any"]
Condition = Callable[[StateT], Any] | Callable[[StateT, Any], Any]  # the second argument is the item of a map
Merge = Callable[[Mapping[str, StateT], StateT], Mapping[str, Any] | None]
Limit = int | Callable[[StateT], int] | Callable[[StateT, Any], int]
Over = Callable[[StateT], Iterable[Any]] | Callable[[StateT, Any], Iterable[Any]]
InputMapper = Callable[[StateT], Mapping[str, Any]] | Callable[[StateT, Any], Mapping[str, Any]]
OutputMapper = (
    Callable[[Any, StateT], Mapping[str, Any] | None] | Callable[[Any, StateT, Any], Mapping[str, Any] | None]
)


class Node(msgspec.Struct, Generic[StateT, DepsT], frozen=True, eq=False):
    """A node of a graph.

    Use the factories (`tool_node`, `subagent_node` …) to make one.

    An empty `id` gets a number when the graph is compiled: `wait-1`, `parallel-2`.
    """

    id: str
    kind: NodeKind
    run: Run[StateT, DepsT] | None = None
    body: Body | None = None
    name: str = ""
    description: str = ""
    retry: RetryPolicies | None = None  # a Retry or several after compiling
    timeout: Duration | None = None  # seconds after compiling
    on_error: OnError[StateT] | None = None
    model: str | None = None
    recovery: bool = False
    targets: tuple[str, ...] = ()  # nodes that its function may go to
    problems: tuple[str, ...] = ()  # found by the factory, reported when the graph is compiled
    tool: str = ""  # the host's tool that it calls
    reads: tuple[str, ...] = ()  # nodes whose outputs it uses
    isolated: bool = False  # it works in a copy of the project, which the host makes
    of_item: tuple[str, ...] = ()  # its functions that take the item of a map or task loop

    if not TYPE_CHECKING:  # the second parameter has a default, which typing learns in Python 3.13

        def __class_getitem__(cls, item):
            return super().__class_getitem__(item if isinstance(item, tuple) else (item, Any))


class Chain(Protocol[StateT]):
    """A builder, which may be used in place of a node."""

    @property
    def items(self) -> tuple[Node[StateT, Any], ...]: ...

    @property
    def catcher(self) -> Node[StateT, Any] | None: ...


NodeLike = Node[StateT, Any] | Chain[StateT]
Sequel = NodeLike[StateT] | Sequence[NodeLike[StateT]]


class Block(msgspec.Struct, frozen=True, eq=False):
    """A sequence of nodes, as in a branch or a body."""

    nodes: tuple[Node[Any, Any], ...]
    catcher: Node[Any, Any] | None = None


class IfBody(msgspec.Struct, frozen=True, eq=False):
    """Branches, of which the first whose condition holds runs.

    A condition of None always holds.
    """

    branches: tuple[tuple[Condition[Any] | None, Block], ...]


class LoopBody(msgspec.Struct, frozen=True, eq=False):
    """A loop. `max_iterations` 0 means no limit.

    The first iteration starts at `enter_at`.
    """

    block: Block
    until: Condition[Any] | None
    max_iterations: int
    enter_at: int = 0


class ParallelBody(msgspec.Struct, frozen=True, eq=False):
    branches: tuple[tuple[str, Block], ...]
    strategy: str
    merge: Merge[Any] | None
    max_concurrency: Limit[Any] | None  # a function is called when the node begins


class MapBody(msgspec.Struct, frozen=True, eq=False):
    over: Over[Any]
    block: Block
    max_concurrency: Limit[Any] | None  # a function is called when the node begins


class SubgraphBody(msgspec.Struct, frozen=True, eq=False):
    """A subgraph: a compiled graph, or the name of a workflow that `ctx.deps` resolves
    at run time.
    """

    graph: CompiledGraph[Any] | str
    input_mapper: InputMapper[Any] | None
    output_mapper: OutputMapper[Any] | None


class Dispatcher(Protocol):
    """Decides which item a worker of a `TasksBody` takes next.

    Keys are texts. Items are the values of `ctx.item`.
    """

    def take(self, state: Callable[[], Any]) -> tuple[str, Any] | None:
        """Return the next item that may start now and mark it as taken, or None."""
        ...

    def finish(self, key: str, error: Exception | None) -> None:
        """Record that the item's nodes are done, or that one of them failed."""
        ...

    def put_back(self, key: str) -> None:
        """Return an item to the queue, because no work was done for it."""
        ...

    def postpone(self, key: str, first: Sequence[Any]) -> None:
        """Return an item to the queue and take only these first."""
        ...

    def finished(self) -> Sequence[str]:
        """Return the keys of all finished items."""
        ...

    def resume(self, begun: Sequence[str]) -> None:
        """Count the items that had been taken when the run stopped towards any limit."""
        ...

    def retry_failed(self) -> None:
        """Make failed items available again, because the user resumed a blocked run."""
        ...

    def blockers_of(self, key: str) -> Sequence[str]:
        """Return the items that this one waited for, directly or through others."""
        ...

    def order(self) -> Sequence[str]:
        """Return all keys, in the order in which updates of several workers are merged."""
        ...

    def items(self) -> Sequence[Any]:
        """Return all items as they are now, for display."""
        ...

    def unfinished(self) -> str | None:
        """Return why work is left, or None if everything is done."""
        ...


class TasksBody(msgspec.Struct, frozen=True, eq=False):
    """A task loop. A worker takes the next ready item as soon as it is free."""

    # Called with the state, the run's deps and the item of a map around it when the node begins.
    dispatcher: Callable[[Any, Any, Any], Dispatcher]
    block: Block
    until: Condition[Any] | None
    max_concurrency: Limit[Any]  # a function is called when the node begins


Body = IfBody | LoopBody | ParallelBody | MapBody | SubgraphBody | TasksBody


def blocks_in(node: Node[Any, Any]) -> list[Block]:
    """Return the blocks of a composite, but not the graph of a subgraph."""
    match node.body:
        case IfBody(branches) | ParallelBody(branches):
            return [block for _, block in branches]
        case LoopBody(block) | MapBody(_, block) | TasksBody(_, block):
            return [block]
        case _:
            return []
