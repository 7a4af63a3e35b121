"""What the screen knows. Plain data: no Textual, no clock, no file."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from atomic.providers.events import PlanItem, Usage
from atomic.questions import Question
from atomic.tasks import Task
from atomic.tui.protocol import CommandInfo, PickOpened, RunKind, StatusChanged


class BlockKind(StrEnum):
    """What a block of the transcript is."""

    USER = "user"  # what the person sent
    ANSWER = "answer"  # Markdown of an agent, one top-level part of it: a paragraph, a fence, a table
    THINKING = "thinking"  # folded
    TOOL = "tool"  # a card of one line that unfolds
    SUBAGENT = "subagent"  # the head of a sub-agent; its blocks are deeper
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    QUESTION = "question"  # with its answer, once there is one
    NODE = "node"  # a step of a workflow that is announced
    SHELL = "shell"
    RUN = "run"  # head or end of a workflow


class RunState(StrEnum):
    """Where a run is. `stopping` begins with Esc, before anybody has answered."""

    STARTING = "starting"
    ACTIVE = "active"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class Block:
    """A piece of the transcript: source text, never what is painted. `version` grows with every change."""

    id: int
    kind: BlockKind
    run: str = ""
    text: str = ""
    title: str = ""  # of a tool, sub-agent or node
    detail: str = ""  # beside the title: a path, a command line, `+42 -3`
    output: str = ""  # of a tool; of a question its answer
    input: str = ""  # of a tool, as a person reads it
    status: str = ""  # running, done, failed, interrupted, waiting
    started: float = 0.0
    seconds: float | None = None
    depth: int = 0  # 1: of a sub-agent, 2: of its sub-agent …
    folded: bool = True
    open: bool = False  # more text is coming
    version: int = 0
    gap: bool = False  # an empty line stands above it
    lead: bool = False  # the first of an answer: it carries the sign
    hidden: bool = False  # a sub-agent above it is folded


@dataclass(slots=True)
class AgentEntry:
    """An agent at work, for the panel: the conversation's, a worker, a sub-agent."""

    id: str
    name: str
    run: str
    task: str = ""
    doing: str = ""  # the last thing that it did
    status: str = "running"
    started: float = 0.0
    ended: float | None = None
    tools: int = 0
    depth: int = 0
    parent: str = ""  # the key of the agent that called it, empty for none


@dataclass(slots=True)
class NodeEntry:
    """A node of a workflow."""

    id: str
    status: str = ""  # active, completed, failed, waiting
    times: int = 0  # how often it began: the iteration of a loop


@dataclass(slots=True)
class Run:
    """Something at work, and what is left of it."""

    id: str
    kind: RunKind
    title: str = ""
    state: RunState = RunState.STARTING
    started: float = 0.0
    ended: float | None = None
    heard: float = 0.0  # when it last said something
    forced: bool = False  # Esc was pressed twice
    session: str = ""
    status: str = ""
    message: str = ""
    resume: str = ""
    usage: Usage = field(default_factory=Usage)
    nodes: dict[str, NodeEntry] = field(default_factory=dict[str, NodeEntry])
    picture: tuple[str, ...] = ()
    places: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])

    @property
    def is_active(self) -> bool:
        return self.state is not RunState.ENDED


@dataclass(slots=True)
class QuestionEntry:
    """A question that waits."""

    id: str
    run: str
    question: Question
    who: str = ""


@dataclass(slots=True)
class Queued:
    """A text that was sent while the agent was busy."""

    id: int
    text: str


@dataclass(slots=True)
class Screen:
    """All of it. Who changes it: `Store` alone."""

    status: StatusChanged = field(default_factory=StatusChanged)
    commands: tuple[CommandInfo, ...] = ()
    agents_by_name: tuple[CommandInfo, ...] = ()
    blocks: list[Block] = field(default_factory=list[Block])
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    agents: dict[str, AgentEntry] = field(default_factory=dict[str, AgentEntry])  # by run and id
    tasks: tuple[Task, ...] = ()
    plan: tuple[PlanItem, ...] = ()
    questions: dict[str, QuestionEntry] = field(default_factory=dict[str, QuestionEntry])
    pick: PickOpened | None = None
    queue: list[Queued] = field(default_factory=list[Queued])
    theme: str = ""  # as the person calls it; empty: nobody has chosen
    left: str | None = None  # the engine's last word, once it is said

    @property
    def is_busy(self) -> bool:
        """Whether anything is at work; derived, so that nobody can forget to take it back."""
        return any(run.is_active for run in self.runs.values())
