"""The messages between screen and engine: intents go to the engine, events come back.

Each message is a line with a JSON object. The screen, `atomic --plain` and the browser
read the same events; a conversation on disk is a list of them, so tags and fields never
change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from atomic.providers.events import AgentEvent, EndReason, Usage
from atomic.questions import Question
from atomic.runs.events import WorkflowEvent


class RunKind(StrEnum):
    """Kind of a run."""

    TURN = "turn"  # of the conversation's agent
    AGENTS = "crew"  # sub-agents that the user called by name
    SHELL = "shell"  # a command line of the user
    WORKFLOW = "workflow"  # in its own process, which outlives the screen
    COMMAND = "command"  # a slash command


class PickKind(StrEnum):
    """The choice of the user."""

    MODEL = "model"
    PROVIDER = "provider"
    THEME = "theme"
    SESSION = "session"
    MCP = "mcp"


class Level(StrEnum):
    """Severity of a notice."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all messages: `type` is their tag."""


# Intents of the user.


class Submit(_Message, frozen=True, kw_only=True, tag="submit"):
    """Start the run `run` with a prompt, a slash command or `@agents`.

    Pastes are complete.
    """

    run: str
    text: str


class Shell(_Message, frozen=True, kw_only=True, tag="shell"):
    """Run `!command` in the user's shell.

    Its output is shown and precedes the next prompt.
    """

    run: str
    command: str


class Interrupt(_Message, frozen=True, kw_only=True, tag="interrupt"):
    """Interrupt a turn or pause a workflow. `force` does not wait for the agent."""

    run: str
    force: bool = False


class Answer(_Message, frozen=True, kw_only=True, tag="answer"):
    """Answer a question with labels or text. None dismisses it."""

    question: str
    answers: tuple[str, ...] | None


class Picked(_Message, frozen=True, kw_only=True, tag="picked"):
    """Answer a PickOpened. None closes it without a choice."""

    request: str
    value: str | None


class FindFiles(_Message, frozen=True, kw_only=True, tag="find_files"):
    """Find files of the project that match the letters after `@`."""

    request: str
    text: str
    limit: int = 50


class Watch(_Message, frozen=True, kw_only=True, tag="watch"):
    """Show a run or conversation from disk, and follow it while it runs."""

    session: str


class ScreenSize(_Message, frozen=True, kw_only=True, tag="screen_size"):
    """Report the width of a line."""

    width: int


class Leave(_Message, frozen=True, kw_only=True, tag="leave"):
    """End the conversation. The engine answers with Left.

    Workflows keep running unless `pause`.
    """

    pause: bool = False


Intent: TypeAlias = Submit | Shell | Interrupt | Answer | Picked | FindFiles | Watch | ScreenSize | Leave


# Events of the engine.


class CommandInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slash command or a sub-agent that the prompt suggests."""

    name: str
    description: str
    category: str
    aliases: tuple[str, ...] = ()
    argument_hint: str = ""
    hidden: bool = False


class PickRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of a picker: `detail` is next to the label, `group` is the heading above."""

    value: str
    label: str
    detail: str = ""
    group: str = ""
    current: bool = False


class StatusChanged(_Message, frozen=True, kw_only=True, tag="status_changed"):
    """The complete state of the status line."""

    session: str = ""
    provider: str = ""
    model: str = ""
    project: str = ""
    branch: str = ""
    context_used: int = 0
    context_limit: int = 0
    usage: Usage = Usage()
    ready: bool = False  # an agent was found; it may still be starting
    problem: str = ""  # why there is no agent, and what to do


class CommandsListed(_Message, frozen=True, kw_only=True, tag="commands_listed"):
    """The slash commands, and the sub-agents that `@` can name."""

    commands: tuple[CommandInfo, ...]
    agents: tuple[CommandInfo, ...] = ()


class RunStarted(_Message, frozen=True, kw_only=True, tag="run_started"):
    """A run has started. `session` is the id of a workflow's session folder."""

    run: str
    kind: RunKind
    title: str = ""
    prompt: str = ""
    session: str = ""
    time: float = 0.0


class Activity(_Message, frozen=True, kw_only=True, tag="activity"):
    """An event of an agent in a turn.

    Agents that the user called are identified by `agent`.
    """

    run: str
    event: AgentEvent
    time: float = 0.0


class WorkflowActivity(_Message, frozen=True, kw_only=True, tag="workflow"):
    """An event of a workflow."""

    run: str
    event: WorkflowEvent


class GraphDrawn(_Message, frozen=True, kw_only=True, tag="graph_drawn"):
    """The drawing of a workflow's graph, and row, column and width of each node's name."""

    run: str
    lines: tuple[str, ...]
    positions: dict[str, tuple[int, int, int]] = msgspec.field(
        default_factory=dict[str, tuple[int, int, int]], name="places"
    )


class ShellOutput(_Message, frozen=True, kw_only=True, tag="shell_said"):
    """Output of a shell command."""

    run: str
    text: str


class RunEnded(_Message, frozen=True, kw_only=True, tag="run_ended"):
    """The end of a run, sent exactly once. `resume` is the command that resumes it.

    `actions` are slash commands for the branch of the run.
    """

    run: str
    status: str  # done, failed, interrupted, limit, or a workflow's status
    message: str = ""
    resume: str = ""
    actions: tuple[str, ...] = ()
    time: float = 0.0


def status_of(reason: EndReason) -> str:
    """Return the status of a run that is one turn, or of a sub-agent."""
    if reason in (EndReason.DONE, EndReason.INTERRUPTED, EndReason.LIMIT):
        return reason.value
    return "failed"


class QuestionOpened(_Message, frozen=True, kw_only=True, tag="question_opened"):
    """A question to the user. `who` is the agent or node that asks."""

    id: str
    run: str
    question: Question
    who: str = ""


class QuestionClosed(_Message, frozen=True, kw_only=True, tag="question_closed"):
    """A question was answered, dismissed or withdrawn."""

    id: str
    answers: tuple[str, ...] | None = None


class PickOpened(_Message, frozen=True, kw_only=True, tag="pick_opened"):
    """A list to choose from. The answer is Picked."""

    request: str
    kind: PickKind
    title: str
    rows: tuple[PickRow, ...] = ()


class FilesFound(_Message, frozen=True, kw_only=True, tag="files_found"):
    """The answer to FindFiles."""

    request: str
    paths: tuple[str, ...]


class ChatNotice(_Message, frozen=True, kw_only=True, tag="said"):
    """A text of Atomic for the transcript: output of a command, a notice, an error."""

    text: str
    level: Level = Level.INFO
    run: str = ""
    markdown: bool = False


class ThemeSet(_Message, frozen=True, kw_only=True, tag="theme_set"):
    """The user has chosen a theme."""

    name: str


class Cleared(_Message, frozen=True, kw_only=True, tag="cleared"):
    """Another conversation has started with an empty transcript.

    `session` is its id.
    """

    session: str = ""


class History(_Message, frozen=True, kw_only=True, tag="history"):
    """Earlier events of a reopened conversation, in pieces."""

    events: tuple[msgspec.Raw, ...] = msgspec.field(name="news")
    last: bool = True


class Left(_Message, frozen=True, kw_only=True, tag="left"):
    """The engine's last event.

    `message` is printed after the screen has ended: how to resume.
    """

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
    """Return a message as a line."""
    return msgspec.json.encode(message) + b"\n"


decode_intent = msgspec.json.Decoder(Intent).decode
decode_event = msgspec.json.Decoder(ChatEvent).decode
