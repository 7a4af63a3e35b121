"""What a run tells its host while it works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from atomic.runs.events import WorkflowEvent

if TYPE_CHECKING:
    from atomic.providers.events import AgentEvent
    from atomic.runs.agent_calls import Caller
    from atomic.runs.limits import CapReached

EventT = TypeVar("EventT", bound=WorkflowEvent)


class RunEvents(Protocol):
    """Receives what the parts of a run have to tell. See `EventLog`, which publishes it."""

    def emit(self, make: type[EventT], /, **fields: Any) -> object: ...

    def warn(self, text: str) -> object: ...

    def close_question(self, id: str) -> None: ...

    def agent_activity(self, caller: Caller, event: AgentEvent) -> None: ...

    def cap_reached(self, reached: CapReached) -> None: ...

    def provider_limited(self, until: float) -> None: ...

    def call_started(self, line: Mapping[str, Any]) -> None: ...

    def call_ended(self, line: Mapping[str, Any]) -> None: ...

    def save_named_sessions(self, ids: Mapping[str, Sequence[str]]) -> None: ...
