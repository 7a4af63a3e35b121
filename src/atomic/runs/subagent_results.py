"""Results of the sub-agents of a step, kept in the journal until the step ends.

If one of several sub-agents must wait, or the process is killed, the results of the others
are paid for. The resumed step takes them from the journal and spawns only the rest.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.usage import Usage
from atomic.graph.engine.nodes import checked
from atomic.workflows.runtime import SubagentRequest, SubagentResult

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext


class SubagentResults:
    """The results of one step by request; a changed request is a new one."""

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._attempt = ctx.attempt
        self._seen: Counter[str] = Counter()

    def key_of(self, request: SubagentRequest) -> str:
        """Return the key of a request; equal requests of a step are numbered."""
        if self._attempt != self._ctx.attempt:
            self._attempt = self._ctx.attempt
            self._seen = Counter()
        facts = [getattr(request, name) for name in request.__struct_fields__ if name != "schema"]
        digest = sha256(msgspec.msgpack.encode([*facts, repr(request.schema)])).hexdigest()
        self._seen[digest] += 1
        return f"subagent-{digest}-{self._seen[digest]}"

    def find(self, key: str, schema: Any) -> SubagentResult | None:
        """Return the result that an earlier attempt of this step has kept, if there is one."""
        kept = self._ctx.remembered(key)
        if kept is None:
            return None
        facts: dict[str, Any] = {**kept}  # a copy: the remembered value must not change
        facts["usage"] = msgspec.convert(kept["usage"], Usage | None)
        try:
            facts["value"] = None if kept["value"] is None else checked(kept["value"], schema, "value")
        except AtomicError:  # the schema has changed, so this answer does not fit
            return None
        return SubagentResult(**facts)

    async def keep(self, key: str, result: SubagentResult) -> None:
        """Keep a result; it is on the disk when this returns."""
        await self._ctx.remember(key, result)
