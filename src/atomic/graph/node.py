"""A node: a place in the graph, and all that its function may reach while it runs.

A composite node (parallel, map, loop …) has a `body` instead of a function; the compiler takes it apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from atomic.deferred import deferred
from atomic.graph.control import Abort, Duration, Goto, NodeResult, Retry, RetryLike, Skip
from atomic.graph.errors import NodeError
from atomic.graph.state import State, StateT
from atomic.questions import Question

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    from atomic.graph.compiled import CompiledGraph
    from atomic.processes import ExecResult

    DepsT = DefaultTypeVar("DepsT", default=Any)
    ReadDepsT = DefaultTypeVar("ReadDepsT", default=Any, covariant=True)
else:
    ExecResult = deferred("atomic.processes", "ExecResult")
    DepsT = TypeVar("DepsT")
    ReadDepsT = TypeVar("ReadDepsT", covariant=True)

ReadStateT = TypeVar("ReadStateT", bound=State, covariant=True)


class NodeKind(StrEnum):
    """What a node is, for pictures and for what a workflow can do."""

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
    """What a node's function gets."""

    if not TYPE_CHECKING:  # the second parameter has a default, which typing learns in Python 3.13

        def __class_getitem__(cls, item):
            return super().__class_getitem__(item if isinstance(item, tuple) else (item, Any))

    @property
    def state(self) -> ReadStateT:
        """The state when the step began; it never changes."""
        ...

    @property
    def node_id(self) -> str: ...

    @property
    def output_key(self) -> str:
        """The key of this node in `outputs`: its id without subgraph and item."""
        ...

    @property
    def step_id(self) -> str:
        """The same in every attempt and after every resume: a key for whatever the node does outside."""
        ...

    @property
    def attempt(self) -> int: ...

    @property
    def model(self) -> str | None:
        """Of the node, else of its parent, else the graph's default."""
        ...

    @property
    def errors(self) -> Sequence[NodeError]:
        """What has failed so far, failed attempts included."""
        ...

    @property
    def deps(self) -> ReadDepsT: ...

    @property
    def item(self) -> Any:
        """The item of a map, the task in a task loop."""
        ...

    @property
    def index(self) -> int | None: ...

    def emit(self, type: str, data: Any = None) -> None:
        """Tell the host something; it is part of the step's events."""
        ...

    def output_of(self, node_id: str) -> Any:
        """What that node left in `outputs`, or None."""
        ...

    def add_usage(self, usage: Mapping[str, float]) -> None:
        """Count tokens or money to this step's record."""
        ...

    async def remember(self, key: str, value: Any) -> None:
        """Keep a part of the step's work: it is on the disk when this returns.

        The step finds it again after a pause or a kill, until it is recorded or an attempt of it has failed.
        """
        ...

    def remembered(self, key: str, default: Any = None) -> Any:
        """What the step has remembered under that key, as plain data."""
        ...

    async def ask(self, question: Question | str) -> Any:
        """Ask a person: a string, or a list of strings for a multi-select."""
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
        """Run a program in its own process group; it ends with the step."""
        ...


NodeAnswer = NodeResult | Mapping[str, Any] | None
Run = Callable[[NodeContext[StateT, DepsT]], Awaitable[NodeAnswer]]
ErrorAnswer = Retry | Skip | Abort | Goto
OnError = Callable[[Exception, NodeContext[StateT, Any]], ErrorAnswer | Awaitable[ErrorAnswer]]
Condition = Callable[[StateT], Any]
Merge = Callable[[Mapping[str, StateT], StateT], Mapping[str, Any] | None]


class Mapped(msgspec.Struct, frozen=True, eq=False):
    """How a factory's `run` answers: never with a goto, and with what the mapper makes; without one `outputs` alone."""

    run: Callable[..., Any]
    mapper: Callable[..., Any] | None = None


class Node(msgspec.Struct, Generic[StateT, DepsT], frozen=True, eq=False):
    """A place in the graph. Made by the factories (`tool_node`, `subagent_node` …), not by hand.

    An empty `id` is numbered when the graph is compiled: `wait-1`, `parallel-2`.
    """

    id: str
    kind: NodeKind
    run: Run[StateT, DepsT] | None = None
    body: Body | None = None
    name: str = ""
    description: str = ""
    retry: RetryLike | None = None  # a Retry, when compiled
    timeout: Duration | None = None  # seconds, when compiled
    on_error: OnError[StateT] | None = None
    model: str | None = None
    recovery: bool = False
    targets: tuple[str, ...] = ()  # where its function may go to by itself
    problems: tuple[str, ...] = ()  # what its factory saw; said when the graph is compiled
    mapped: Mapped | None = None  # for the compiler, which cannot look into a factory's `run`
    tool: str = ""  # the host's tool that it calls by name

    if not TYPE_CHECKING:  # the second parameter has a default, which typing learns in Python 3.13

        def __class_getitem__(cls, item):
            return super().__class_getitem__(item if isinstance(item, tuple) else (item, Any))


class Chain(Protocol[StateT]):
    """A builder, where a node may stand too."""

    @property
    def items(self) -> tuple[Node[StateT, Any], ...]: ...

    @property
    def catcher(self) -> Node[StateT, Any] | None: ...


NodeLike = Node[StateT, Any] | Chain[StateT]
Sequel = NodeLike[StateT] | Sequence[NodeLike[StateT]]


class Block(msgspec.Struct, frozen=True, eq=False):
    """Nodes one after the other, as they stand in a branch or a body."""

    nodes: tuple[Node[Any, Any], ...]
    catcher: Node[Any, Any] | None = None


class IfBody(msgspec.Struct, frozen=True, eq=False):
    """The first branch whose condition holds is taken; a condition of None always holds."""

    branches: tuple[tuple[Condition[Any] | None, Block], ...]


class LoopBody(msgspec.Struct, frozen=True, eq=False):
    """`max_iterations` 0 means no bound. The first iteration begins with the node at `enter_at`."""

    block: Block
    until: Condition[Any] | None
    max_iterations: int
    enter_at: int = 0


class ParallelBody(msgspec.Struct, frozen=True, eq=False):
    branches: tuple[tuple[str, Block], ...]
    strategy: str
    merge: Merge[Any] | None
    max_concurrency: int | None


class MapBody(msgspec.Struct, frozen=True, eq=False):
    over: Callable[[Any], Iterable[Any]]
    block: Block
    max_concurrency: int | None


class SubgraphBody(msgspec.Struct, frozen=True, eq=False):
    """`graph` is a compiled graph, or the name of a workflow that `ctx.deps` resolves when the node runs."""

    graph: CompiledGraph[Any] | str
    input_mapper: Callable[[Any], Mapping[str, Any]] | None
    output_mapper: Callable[[Any, Any], Mapping[str, Any] | None] | None


class Dispatcher(Protocol):
    """Decides which item a worker of a `TasksBody` takes next. Keys are texts; items are what `ctx.item` gives."""

    def take(self, state: Callable[[], Any]) -> tuple[str, Any] | None:
        """The next item that may start now, marked as taken; None if there is none at the moment."""
        ...

    def finish(self, key: str, error: Exception | None) -> None:
        """The item's nodes are through, or one of them failed."""
        ...

    def put_back(self, key: str) -> None:
        """The item was taken, and nothing that counts was done for it: it is still to be begun."""
        ...

    def postpone(self, key: str, first: Sequence[Any]) -> None:
        """The item was taken, and these come first: nothing else is taken before they are done."""
        ...

    def finished(self) -> Sequence[str]:
        """The keys of all that is done."""
        ...

    def go_on(self, begun: Sequence[str]) -> None:
        """These items had been taken when the run was cut; they count for any bound."""
        ...

    def try_again(self) -> None:
        """Somebody goes on with a blocked run: what has failed may be taken once more."""
        ...

    def blockers_of(self, key: str) -> Sequence[str]:
        """The items that this one had to wait for, and theirs."""
        ...

    def order(self) -> Sequence[str]:
        """All keys, in the order in which the updates of several workers are merged."""
        ...

    def items(self) -> Sequence[Any]:
        """All items as they are now, for whoever shows them."""
        ...

    def unfinished(self) -> str | None:
        """Why work is left; None if all is done."""
        ...


class TasksBody(msgspec.Struct, frozen=True, eq=False):
    """A worker takes the next ready item as soon as it is free; there are no rounds."""

    dispatcher: Callable[[Any, Any], Dispatcher]  # called with the state and the run's deps when the node begins
    block: Block
    until: Condition[Any] | None
    max_concurrency: int | Callable[[Any], int]  # a function is asked when the node begins


Body = IfBody | LoopBody | ParallelBody | MapBody | SubgraphBody | TasksBody
