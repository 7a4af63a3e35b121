"""Messages of OpenCode's server, as far as Atomic reads them.

Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from atomic.providers.errors import ProgramFailedError

StructT = TypeVar("StructT", bound=msgspec.Struct)


class UnreadableError(ProgramFailedError):
    """OpenCode sent something unreadable: not JSON, too big, too deep, invalid UTF-8."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"OpenCode sent something unreadable: {reason}", provider="opencode")


class Tokens(msgspec.Struct, frozen=True):
    """Token counts; the kinds do not overlap."""

    class Cache(msgspec.Struct, frozen=True):
        read: float = 0
        write: float = 0

    input: float = 0
    output: float = 0
    reasoning: float = 0
    cache: Cache = Cache()

    @property
    def read(self) -> int:
        """Return all tokens that the model read."""
        return int(self.input + self.cache.read + self.cache.write)

    @property
    def written(self) -> int:
        return int(self.output + self.reasoning)


class Problem(msgspec.Struct, frozen=True):
    """An error."""

    class Data(msgspec.Struct, frozen=True, rename="camel"):
        message: str = ""
        status_code: int | None = None
        response_headers: dict[str, str] = {}

    name: str
    data: Data = Data()


class Times(msgspec.Struct, frozen=True):
    """Times in milliseconds since 1970."""

    created: float = 0
    completed: float | None = None
    start: float | None = None
    end: float | None = None


class Message(msgspec.Struct, frozen=True):
    """A message without its parts."""

    id: str
    role: str
    time: Times = Times()
    error: Problem | None = None
    finish: str | None = None
    summary: Any = None  # True: a summary of the conversation
    structured: Any = msgspec.UNSET
    tokens: Tokens = Tokens()
    model: str = msgspec.field(default="", name="modelID")
    provider: str = msgspec.field(default="", name="providerID")

    @property
    def is_summary(self) -> bool:
        return self.summary is True


class ToolState(msgspec.Struct, frozen=True):
    """The state of a tool call: pending, running, completed or error."""

    status: str
    input: dict[str, Any] = {}
    output: str = ""
    error: str = ""
    metadata: dict[str, Any] = {}


class Part(msgspec.Struct, frozen=True):
    """A part of a message, such as a text, reasoning, a tool call or the end of a step."""

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
    """idle, busy or retry.

    `next` is the time of the next try in milliseconds since 1970.
    """

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


# Events


class Payload(msgspec.Struct, frozen=True):
    type: str
    properties: msgspec.Raw = msgspec.Raw(b"{}")


class Envelope(msgspec.Struct, frozen=True):
    """One event of the server's stream."""

    payload: Payload


class Owner(msgspec.Struct, frozen=True):
    """The session of an event."""

    session: str | None = msgspec.field(default=None, name="sessionID")


class SessionCreated(msgspec.Struct, frozen=True):
    info: Session


class MessageUpdated(msgspec.Struct, frozen=True):
    info: Message


class PartUpdated(msgspec.Struct, frozen=True):
    part: Part


class Delta(msgspec.Struct, frozen=True):
    part: str = msgspec.field(name="partID")
    field: str = ""
    delta: str = ""


class StatusChanged(msgspec.Struct, frozen=True):
    status: Status


class SessionFailed(msgspec.Struct, frozen=True):
    error: Problem | None = None


class TodosUpdated(msgspec.Struct, frozen=True):
    todos: list[Todo] = []


# Lists


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
    """Decode JSON. Raise msgspec.ValidationError for another type, UnreadableError if
    not JSON.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(str(error)) from error
    except RecursionError as error:
        raise UnreadableError("it is nested too deep") from error
