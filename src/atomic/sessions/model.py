"""The contents of `session.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class SessionStatus(StrEnum):
    """The status of a run.

    `interrupted` is only shown, for a running one whose process is dead.
    """

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    CHAT = "chat"
    INTERRUPTED = "interrupted"


class Cost(msgspec.Struct, frozen=True):
    """The cost so far; `usd` None: the price is unknown."""

    usd: float | None = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    # Calls without a price, or that were killed: the real cost is not known.
    incomplete: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_incomplete(self) -> bool:
        return self.incomplete is True


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for an answer."""

    id: str
    text: str
    options: Sequence[str] = ()
    node: str = ""
    header: str = ""
    multi_select: bool = False
    default: str | None = None
    returns: dict[str, Any] | None = None  # the JSON Schema of the answer


class OwnerInfo(msgspec.Struct, frozen=True):
    """The process that owns a run.

    `mark` distinguishes it from a later process with the same pid.
    """

    pid: int
    mark: str = ""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `session.json`; times are ISO 8601 in UTC."""

    id: str
    workflow: str
    workflow_version: str = ""
    workflow_source: str = ""  # builtin, user or project; empty in records of older versions
    workflow_path: str = ""  # of its file; empty if built in
    workflow_sha256: str = ""  # of that file when the run was started
    project: str = ""
    prompt: str = ""
    status: SessionStatus = SessionStatus.RUNNING
    reason: str = ""
    created_at: str = ""
    updated_at: str = ""
    ended_at: str | None = None
    config: Mapping[str, Any] = {}
    cost: Cost = Cost()
    questions: Sequence[OpenQuestion] = ()
    owner: OwnerInfo | None = None
    begun: bool = False  # the journal has been written: without it the run cannot continue
    pr: str | None = None
    atomic_version: str = ""
    state_version: int = 1
    cwd: str = ""  # where the run was started
    options: Mapping[str, Any] = {}  # agents, models, caps and the choice at a limit, which a resume keeps
    parked_until: float | None = None  # Unix time
    wake_at: float | None = None  # of a paused run: Unix time when it can continue by itself
    signals: Sequence[str] = ()  # names of the signals that it waits for
    named: Mapping[str, Sequence[str]] = {}  # shared sessions by name: provider and session id
    result: Any = None  # of a run that has ended, up to 64 KiB as JSON
    result_omitted: bool = False  # the result is larger: only the journal has it
    trust: Any = None  # the project's code at the start of the run, and the run's own changes to it

    @property
    def is_conversation(self) -> bool:
        """Whether this is a chat.

        A workflow without a graph has the same status, but also a name.
        """
        return self.status is SessionStatus.CHAT and not self.workflow
