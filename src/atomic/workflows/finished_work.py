"""The sub-agents of a step that are through, kept until the step itself is.

Where one of several must wait, or the process is killed, those that have ended are paid for: the step that goes on
takes their results from the journal and spawns only the rest.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.errors import AtomicError
from atomic.graph.nodes import checked
from atomic.usage import Usage
from atomic.workflows.runtime import SubagentRequest, SubagentResult

if TYPE_CHECKING:
    from atomic.graph.context import StepContext


class FinishedWork:
    """What came of the requests of one step, found again by the request itself: a changed one is a new one."""

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._attempt = ctx.attempt
        self._seen: Counter[str] = Counter()

    def key_of(self, request: SubagentRequest) -> str:
        """The key of the next request like this one: a step may ask the same thing twice."""
        if self._attempt != self._ctx.attempt:
            self._attempt, self._seen = self._ctx.attempt, Counter()
        facts = [getattr(request, name) for name in request.__struct_fields__ if name != "schema"]
        digest = sha256(msgspec.msgpack.encode([*facts, repr(request.schema)])).hexdigest()
        self._seen[digest] += 1
        return f"subagent-{digest}-{self._seen[digest]}"

    def find(self, key: str, schema: Any) -> SubagentResult | None:
        """The result of an earlier try of this step."""
        kept = self._ctx.remembered(key)
        if kept is None:
            return None
        facts: dict[str, Any] = {**kept}  # what is remembered stays as it is
        facts["usage"] = msgspec.convert(kept["usage"], Usage | None)
        try:
            facts["value"] = None if kept["value"] is None else checked(kept["value"], schema, "value")
        except AtomicError:  # the type is another one than it was: this answer is none to what is asked now
            return None
        return SubagentResult(**facts)

    async def keep(self, key: str, result: SubagentResult) -> None:
        """Write it down: it is on the disk when this returns."""
        await self._ctx.remember(key, result)
