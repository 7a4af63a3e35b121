"""What screen and engine say to each other, one JSON object a line: intents go down, news come up.

`atomic --plain`, the screen and a browser read the same news; a conversation on disk is a list of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from atomic.providers.events import AgentEvent, Usage
from atomic.questions import Question
from atomic.runs.events import WorkflowEvent


class RunKind(StrEnum):
    """What is at work."""

    TURN = "turn"  # the agent of the conversation answers
    AGENTS = "crew"  # sub-agents that the user called by name
    SHELL = "shell"  # a command line of the person
    WORKFLOW = "workflow"  # in a process of its own, which outlives the screen
    COMMAND = "command"  # a slash command that takes its time: /compact, /mcp


class PickKind(StrEnum):
    """What a person is to choose from."""

    MODEL = "model"
    PROVIDER = "provider"
    THEME = "theme"
    SESSION = "session"
    MCP = "mcp"


class Level(StrEnum):
    """How much a notice matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all messages have: their type."""


# --- Intents: what the person wants ---


class Submit(_Message, frozen=True, kw_only=True, tag="submit"):
    """A text was sent: a prompt, a slash command or `@agents`. Pastes are filled in. It begins the run `run`."""

    run: str
    text: str


class Shell(_Message, frozen=True, kw_only=True, tag="shell"):
    """`!command`: run by the person's shell; what it says is shown and goes along with the next prompt."""

    run: str
    command: str


class Interrupt(_Message, frozen=True, kw_only=True, tag="interrupt"):
    """Stop a run: a turn is interrupted, a workflow pauses. `force`: do not wait for anybody."""

    run: str
    force: bool = False


class Answer(_Message, frozen=True, kw_only=True, tag="answer"):
    """The labels or the words for a question; None: dismissed."""

    question: str
    answers: tuple[str, ...] | None


class Picked(_Message, frozen=True, kw_only=True, tag="picked"):
    """What was chosen; None: nothing."""

    request: str
    value: str | None


class FindFiles(_Message, frozen=True, kw_only=True, tag="find_files"):
    """`@` and some letters: files of the project that fit, the best first."""

    request: str
    text: str
    limit: int = 50


class Watch(_Message, frozen=True, kw_only=True, tag="watch"):
    """Show a run or a conversation that is on disk, and follow it while it goes on."""

    session: str


class ScreenSize(_Message, frozen=True, kw_only=True, tag="screen_size"):
    """How wide a line may be."""

    width: int


class Leave(_Message, frozen=True, kw_only=True, tag="leave"):
    """End the conversation; the engine ends after it has said Left. Workflows go on unless `pause`."""

    pause: bool = False


Intent: TypeAlias = Submit | Shell | Interrupt | Answer | Picked | FindFiles | Watch | ScreenSize | Leave


# --- ChatEvent: what happened ---


class CommandInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slash command as the prompt offers it."""

    name: str
    description: str
    category: str
    aliases: tuple[str, ...] = ()
    argument_hint: str = ""
    hidden: bool = False


class PickRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to choose; `detail` stands beside it, `group` above it."""

    value: str
    label: str
    detail: str = ""
    group: str = ""
    current: bool = False


class StatusChanged(_Message, frozen=True, kw_only=True, tag="status_changed"):
    """What the status line shows; each time all of it."""

    session: str = ""
    provider: str = ""
    model: str = ""
    project: str = ""
    branch: str = ""
    context_used: int = 0
    context_limit: int = 0
    usage: Usage = Usage()
    ready: bool = False  # an agent was found; it may still be starting
    problem: str = ""  # why there is none, and what to do


class CommandsListed(_Message, frozen=True, kw_only=True, tag="commands_listed"):
    """The commands of this prompt, and the agents that `@` can name."""

    commands: tuple[CommandInfo, ...]
    agents: tuple[CommandInfo, ...] = ()


class RunStarted(_Message, frozen=True, kw_only=True, tag="run_started"):
    """Something is at work. `prompt` is what the person said, `session` the folder's id of a workflow."""

    run: str
    kind: RunKind
    title: str = ""
    prompt: str = ""
    session: str = ""
    time: float = 0.0


class Activity(_Message, frozen=True, kw_only=True, tag="activity"):
    """An agent of a turn or a crew does something; the events of one of a crew carry its id as `agent`."""

    run: str
    event: AgentEvent
    time: float = 0.0


class WorkflowActivity(_Message, frozen=True, kw_only=True, tag="workflow"):
    """A workflow tells something, in its own words."""

    run: str
    event: WorkflowEvent


class GraphDrawn(_Message, frozen=True, kw_only=True, tag="graph_drawn"):
    """The picture of a workflow's graph, and where in it each node's name stands: row, column, cells."""

    run: str
    lines: tuple[str, ...]
    positions: dict[str, tuple[int, int, int]] = msgspec.field(
        default_factory=dict[str, tuple[int, int, int]], name="places"
    )


class ShellOutput(_Message, frozen=True, kw_only=True, tag="shell_said"):
    """What a command line of the person wrote."""

    run: str
    text: str


class RunEnded(_Message, frozen=True, kw_only=True, tag="run_ended"):
    """A run is over: once for each, whatever happened. `resume` is the command that goes on."""

    run: str
    status: str  # done, failed, interrupted, limit, or a workflow's status
    message: str = ""
    resume: str = ""
    time: float = 0.0


class QuestionOpened(_Message, frozen=True, kw_only=True, tag="question_opened"):
    """Somebody is asked; `who` is the agent or node."""

    id: str
    run: str
    question: Question
    who: str = ""


class QuestionClosed(_Message, frozen=True, kw_only=True, tag="question_closed"):
    """Nobody waits for this answer any more."""

    id: str
    answers: tuple[str, ...] | None = None


class PickOpened(_Message, frozen=True, kw_only=True, tag="pick_opened"):
    """A person is to choose; the answer is `Picked`."""

    request: str
    kind: PickKind
    title: str
    rows: tuple[PickRow, ...] = ()


class FilesFound(_Message, frozen=True, kw_only=True, tag="files_found"):
    """The answer to FindFiles."""

    request: str
    paths: tuple[str, ...]


class ChatNotice(_Message, frozen=True, kw_only=True, tag="said"):
    """A text of Atomic itself for the transcript: what a command shows, a notice, an error."""

    text: str
    level: Level = Level.INFO
    run: str = ""
    markdown: bool = False


class ThemeSet(_Message, frozen=True, kw_only=True, tag="theme_set"):
    """`/theme NAME`."""

    name: str


class Cleared(_Message, frozen=True, kw_only=True, tag="cleared"):
    """A new conversation began; the transcript is empty. `session` is the new folder's id."""

    session: str = ""


class History(_Message, frozen=True, kw_only=True, tag="history"):
    """What was said before, of a conversation or run that is opened again; it comes in pieces."""

    events: tuple[msgspec.Raw, ...] = msgspec.field(name="news")
    last: bool = True


class Left(_Message, frozen=True, kw_only=True, tag="left"):
    """The engine's last word. `message` is for the terminal after the screen has gone: how to resume."""

    message: str = ""


ChatEvent: TypeAlias = (
    StatusChanged
    | CommandsListed
    | RunStarted
    | Activity
    | WorkflowActivity
    | GraphDrawn
    | ShellOutput
    | RunEnded
    | QuestionOpened
    | QuestionClosed
    | PickOpened
    | FilesFound
    | ChatNotice
    | ThemeSet
    | Cleared
    | History
    | Left
)


def encode(message: Intent | ChatEvent) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


decode_intent = msgspec.json.Decoder(Intent).decode
decode_event = msgspec.json.Decoder(ChatEvent).decode
