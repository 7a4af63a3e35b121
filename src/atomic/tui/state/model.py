"""The state of the screen as plain data: no Textual, no clock, no file."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto

from atomic.base.usage import dollars
from atomic.chat.protocol import CommandInfo, PickOpened, RunKind, StatusChanged
from atomic.providers.events import PlanItem, Usage
from atomic.questions import Question
from atomic.tasks import Task


class Changes(Flag):
    """Parts that must be repainted, as a set of flags."""

    NONE = 0
    TRANSCRIPT = auto()
    TASKS = auto()
    AGENTS = auto()
    GRAPH = auto()
    QUESTIONS = auto()
    STATUS = auto()
    COMMANDS = auto()
    PICK = auto()
    QUEUE = auto()
    THEME = auto()
    LEFT = auto()


PANELS = Changes.TASKS | Changes.AGENTS | Changes.GRAPH | Changes.QUESTIONS
DURATIONS = Changes.TRANSCRIPT | Changes.STATUS | PANELS  # the parts that show how long something takes
EVERYTHING = DURATIONS | Changes.QUEUE


class BlockKind(StrEnum):
    """Kind of a block in the transcript."""

    USER = "user"  # sent by the user
    ANSWER = "answer"  # Markdown of an agent, one top-level part of it: a paragraph, a fence, a table
    THINKING = "thinking"  # folded
    TOOL = "tool"  # a card of one line that unfolds
    SUBAGENT = "subagent"  # the head of a sub-agent; its blocks are deeper
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    QUESTION = "question"  # with its answer, once it has one
    NODE = "node"  # an announced step of a workflow
    SHELL = "shell"
    RUN = "run"  # head or end of a workflow


class RunState(StrEnum):
    """State of a run. `stopping` begins with Esc, before the engine confirms it."""

    STARTING = "starting"
    ACTIVE = "active"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class Block:
    """A part of the transcript as source text. Every change increments `version`."""

    id: int
    kind: BlockKind
    run: str = ""
    text: str = ""
    title: str = ""  # of a tool, sub-agent or node
    detail: str = ""  # next to the title: a path, a command line, `+42 -3`
    output: str = ""  # of a tool, or the answer to a question
    actions: tuple[str, ...] = ()  # slash commands that a run offers at its end
    input: str = ""  # of a tool, formatted
    status: str = ""  # running, done, failed, interrupted, waiting
    started: float = 0.0
    seconds: float | None = None
    depth: int = 0  # 1: inside a sub-agent, 2: inside its sub-agent …
    folded: bool = True
    open: bool = False  # more text will follow
    version: int = 0
    gap: bool = False  # an empty line above it
    lead: bool = False  # the first of an answer, which has the bullet
    hidden: bool = False  # inside a folded sub-agent


@dataclass(slots=True)
class AgentEntry:
    """An agent in the panel: of the conversation, a worker, or a sub-agent."""

    id: str
    name: str
    run: str
    task: str = ""
    doing: str = ""  # its last activity
    status: str = "running"
    started: float = 0.0
    ended: float | None = None
    tools: int = 0
    depth: int = 0
    parent: str = ""  # key of the calling agent, or empty


@dataclass(slots=True)
class NodeEntry:
    """A node of a workflow."""

    id: str
    status: str = ""  # active, completed, failed, waiting
    times: int = 0  # how often it started: the iteration of a loop


@dataclass(slots=True)
class RunEntry:
    """A run of the screen, active or ended."""

    id: str
    kind: RunKind
    title: str = ""
    state: RunState = RunState.STARTING
    started: float = 0.0
    ended: float | None = None
    heard: float = 0.0  # when its last event arrived
    forced: bool = False  # Esc was pressed twice
    session: str = ""
    status: str = ""
    message: str = ""
    resume: str = ""
    actions: tuple[str, ...] = ()  # slash commands for its branch
    usage: Usage = field(default_factory=Usage)
    nodes: dict[str, NodeEntry] = field(default_factory=dict[str, NodeEntry])
    drawing: tuple[str, ...] = ()
    positions: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])

    @property
    def is_active(self) -> bool:
        return self.state is not RunState.ENDED


@dataclass(slots=True)
class QuestionEntry:
    """An open question."""

    id: str
    run: str
    question: Question
    who: str = ""


@dataclass(slots=True)
class Queued:
    """A text sent while the agent was busy."""

    id: int
    text: str


@dataclass(slots=True)
class Screen:
    """The whole state. Only `Store` changes it."""

    status: StatusChanged = field(default_factory=StatusChanged)
    commands: tuple[CommandInfo, ...] = ()
    agents_by_name: tuple[CommandInfo, ...] = ()
    blocks: list[Block] = field(default_factory=list[Block])
    runs: dict[str, RunEntry] = field(default_factory=dict[str, RunEntry])
    agents: dict[str, AgentEntry] = field(default_factory=dict[str, AgentEntry])  # by run and id
    tasks: tuple[Task, ...] = ()
    plan: tuple[PlanItem, ...] = ()
    questions: dict[str, QuestionEntry] = field(default_factory=dict[str, QuestionEntry])
    pick: PickOpened | None = None
    queue: list[Queued] = field(default_factory=list[Queued])
    theme: str = ""  # the chosen theme, or empty
    left: str | None = None  # the engine's final message, if it has arrived

    @property
    def is_busy(self) -> bool:
        """Return whether a run is active. Derived, so it cannot become stale."""
        return any(run.is_active for run in self.runs.values())


def amount(tokens: int) -> str:
    """Return a number of tokens as 950, 68k or 1.2M."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.0f}k" if tokens < 999_500 else f"{tokens / 1_000_000:.1f}M"


def spent(usage: Usage) -> str:
    """Return the cost if it is known, otherwise the tokens, otherwise an empty string."""
    if usage.cost is not None:
        return dollars(usage.cost)
    if usage.input or usage.output:
        return f"↑{amount(usage.input)} ↓{amount(usage.output)}"
    return ""
