"""What OpenCode's server says, as far as Atomic reads it. What it adds later is passed over."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from atomic.providers.errors import ProgramFailedError

StructT = TypeVar("StructT", bound=msgspec.Struct)


class UnreadableError(ProgramFailedError):
    """OpenCode said something that cannot be read at all: not JSON, too big, too deep, half a character."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"OpenCode said something that cannot be read: {reason}", provider="opencode")


class Tokens(msgspec.Struct, frozen=True):
    """The kinds do not overlap."""

    class Cache(msgspec.Struct, frozen=True):
        read: float = 0
        write: float = 0

    input: float = 0
    output: float = 0
    reasoning: float = 0
    cache: Cache = Cache()

    @property
    def read(self) -> int:
        """All that the model read."""
        return int(self.input + self.cache.read + self.cache.write)

    @property
    def written(self) -> int:
        return int(self.output + self.reasoning)


class Problem(msgspec.Struct, frozen=True):
    """Why something failed."""

    class Data(msgspec.Struct, frozen=True, rename="camel"):
        message: str = ""
        status_code: int | None = None
        response_headers: dict[str, str] = {}

    name: str
    data: Data = Data()


class Times(msgspec.Struct, frozen=True):
    """Milliseconds since 1970."""

    created: float = 0
    completed: float | None = None
    start: float | None = None
    end: float | None = None


class Message(msgspec.Struct, frozen=True):
    """A message without its parts: who, and how far."""

    id: str
    role: str
    time: Times = Times()
    error: Problem | None = None
    finish: str | None = None
    summary: Any = None  # True: this one is a summary of the conversation
    structured: Any = msgspec.UNSET
    tokens: Tokens = Tokens()
    model: str = msgspec.field(default="", name="modelID")
    provider: str = msgspec.field(default="", name="providerID")

    @property
    def is_summary(self) -> bool:
        return self.summary is True


class ToolState(msgspec.Struct, frozen=True):
    """How far a tool has come: pending, running, completed or error."""

    status: str
    input: dict[str, Any] = {}
    output: str = ""
    error: str = ""
    metadata: dict[str, Any] = {}


class Part(msgspec.Struct, frozen=True):
    """A piece of a message: text, reasoning, tool, step-finish, …"""

    id: str
    message: str = msgspec.field(name="messageID")
    type: str = ""
    text: str = ""
    time: Times | None = None
    tool: str = ""
    state: ToolState | None = None
    tokens: Tokens = Tokens()
    cost: float = 0
    reason: str = ""


class MessageWithParts(msgspec.Struct, frozen=True):
    info: Message
    parts: list[Part] = []


class Session(msgspec.Struct, frozen=True):
    id: str
    parent: str | None = msgspec.field(default=None, name="parentID")


class Status(msgspec.Struct, frozen=True):
    """idle, busy or retry; `next` is when it tries again, in milliseconds since 1970."""

    type: str
    attempt: int = 0
    message: str = ""
    action: Any = None
    next: float = 0


class Todo(msgspec.Struct, frozen=True):
    content: str
    status: str = "pending"


class QuestionOption(msgspec.Struct, frozen=True):
    label: str
    description: str = ""


class OneQuestion(msgspec.Struct, frozen=True):
    question: str
    header: str = ""
    options: list[QuestionOption] = []
    multiple: bool = False


class QuestionRequest(msgspec.Struct, frozen=True):
    id: str
    session: str = msgspec.field(name="sessionID")
    questions: list[OneQuestion] = []


class PermissionRequest(msgspec.Struct, frozen=True):
    id: str
    session: str = msgspec.field(name="sessionID")
    permission: str = ""


# events --------------------------------------------------------------------------------------------------------


class Payload(msgspec.Struct, frozen=True):
    type: str
    properties: msgspec.Raw = msgspec.Raw(b"{}")


class Envelope(msgspec.Struct, frozen=True):
    """One event of the server's stream."""

    payload: Payload


class Owner(msgspec.Struct, frozen=True):
    """Whom an event belongs to."""

    session: str | None = msgspec.field(default=None, name="sessionID")


class SessionNews(msgspec.Struct, frozen=True):
    info: Session


class MessageNews(msgspec.Struct, frozen=True):
    info: Message


class PartNews(msgspec.Struct, frozen=True):
    part: Part


class Delta(msgspec.Struct, frozen=True):
    part: str = msgspec.field(name="partID")
    field: str = ""
    delta: str = ""


class StatusNews(msgspec.Struct, frozen=True):
    status: Status


class ProblemNews(msgspec.Struct, frozen=True):
    error: Problem | None = None


class TodoNews(msgspec.Struct, frozen=True):
    todos: list[Todo] = []


# lists ---------------------------------------------------------------------------------------------------------


class Limit(msgspec.Struct, frozen=True):
    context: float = 0


class Model(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    limit: Limit = Limit()


class Provider(msgspec.Struct, frozen=True):
    id: str
    models: dict[str, Model] = {}


class Providers(msgspec.Struct, frozen=True):
    providers: list[Provider] = []


class McpStatus(msgspec.Struct, frozen=True):
    status: str
    error: str = ""


def read(data: bytes | msgspec.Raw, type: type[StructT]) -> StructT:
    """Read it as that. Raises msgspec.ValidationError for something else, UnreadableError for no JSON at all."""
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(str(error)) from error
    except RecursionError as error:
        raise UnreadableError("it is nested too deep") from error
