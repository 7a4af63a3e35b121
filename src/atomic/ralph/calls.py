"""The agent calls of a run, from its journal; no call is made twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from atomic.graph import NodeContext
from atomic.runs.spending import CallRecord, read_calls

Call = CallRecord
AnswerT = TypeVar("AnswerT")
_ANSWER = "answer"


def calls_of(facts: Mapping[str, Any]) -> list[Call]:
    """Return the agent calls that have ended, oldest first."""
    return [call for call in read_calls(facts) if call.is_over and call.id]


def has_answer(ctx: NodeContext[Any, Any]) -> bool:
    """Return whether the turn of this step has ended in a process that was killed before it recorded the step."""
    return ctx.remembered(_ANSWER) is not None


async def ask_once(ctx: NodeContext[Any, Any], kind: type[AnswerT], ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Return the answer to the one turn of this step.

    The answer is in the journal before anything else is done with it, so a step that is killed while it looks at the
    files does not pay for its turn again.
    """
    if (kept := ctx.remembered(_ANSWER)) is not None:
        return msgspec.convert(kept, kind)
    answer = await ask()
    await ctx.remember(_ANSWER, answer)
    return answer
