"""What `session.json` says of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class SessionStatus(StrEnum):
    """Where a run is; `interrupted` is only shown: a running one whose owner is dead."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    CHAT = "chat"
    INTERRUPTED = "interrupted"


class Cost(msgspec.Struct, frozen=True):
    """What was spent so far; `usd` None: nobody tells the price."""

    usd: float | None = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for an answer."""

    id: str
    text: str
    options: Sequence[str] = ()
    node: str = ""
    header: str = ""
    multi_select: bool = False
    default: str | None = None


class OwnerInfo(msgspec.Struct, frozen=True):
    """The process that works on it; `mark` tells it from another that gets its number later."""

    pid: int
    mark: str = ""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file, field for field; times are ISO 8601 in UTC."""

    id: str
    workflow: str
    workflow_version: str = ""
    workflow_source: str = ""  # builtin, user or project; empty in records of older versions
    workflow_path: str = ""  # of its file; empty for a built-in one
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
    options: Mapping[str, Any] = {}  # agents, models, caps and what is to be done at a limit: what a resume keeps
    parked_until: float | None = None  # seconds since 1970
    named: Mapping[str, Sequence[str]] = {}  # sessions that nodes share by name: provider and its id
    trust: Any = None  # what the project's code was when the run was started, and what the run made of it

    @property
    def is_conversation(self) -> bool:
        """Whether people talk with an agent in it; a workflow that only asks an agent has a name."""
        return self.status is SessionStatus.CHAT and not self.workflow
