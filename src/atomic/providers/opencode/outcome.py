"""How a turn ended, read from its last message and from what OpenCode complained about."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atomic.providers.events import EndReason, LimitReached
from atomic.providers.opencode import wire
from atomic.providers.opencode.limits import ended_at_limit, problem_reset

_REFUSALS = frozenset({"content-filter", "refusal"})
_UNFINISHED = frozenset({None, "tool-calls", "unknown"})  # the model was to be asked again
_HINTS = {401: " (is the key right?)", 403: " (may this key use the model?)"}


class Outcome(msgspec.Struct, frozen=True):
    """The reason, and what belongs to it."""

    reason: EndReason
    error: str | None = None
    text: str | None = None  # None: what was heard
    limit: LimitReached | None = None


def outcome(last: wire.Message | None, complaint: wire.Problem | None, *, now: datetime, wants_value: bool) -> Outcome:
    """What the end means. `wants_value`: the turn was to give a value; a text is then for the caller to judge."""
    problem = (last.error if last is not None else None) or (complaint if last is None else None)
    if problem is not None and not (wants_value and problem.name == "StructuredOutputError"):
        return _of_problem(problem, now)
    if last is None:
        return Outcome(EndReason.ERROR, "OpenCode stopped without an answer")
    if last.structured is not msgspec.UNSET and wants_value:
        return Outcome(EndReason.DONE, text=msgspec.json.encode(last.structured).decode())
    if last.finish in _REFUSALS:
        return Outcome(EndReason.REFUSED, "the model refused to answer")
    if last.finish in _UNFINISHED:
        return Outcome(EndReason.ERROR, "OpenCode stopped behind a tool call")
    if last.finish == "length":
        return Outcome(EndReason.ERROR, "the answer was cut off at the model's limit for one message")
    return Outcome(EndReason.DONE)


def describe(problem: wire.Problem) -> str:
    """What went wrong, in the provider's own words."""
    data = problem.data
    number = "" if data.status_code is None else f" {data.status_code}"
    words = data.message.partition("\n    at ")[0]  # a message may drag its stack along
    return f"{problem.name}{number}: {words}" + _HINTS.get(data.status_code or 0, "")


def _of_problem(problem: wire.Problem, now: datetime) -> Outcome:
    if problem.name == "MessageAbortedError":
        return Outcome(EndReason.INTERRUPTED)
    if problem.name == "ContentFilterError":
        return Outcome(EndReason.REFUSED, problem.data.message or "the provider's filter blocked the answer")
    if ended_at_limit(problem):
        limit = LimitReached(problem_reset(problem, now), problem.data.message)
        return Outcome(EndReason.LIMIT, describe(problem), limit=limit)
    return Outcome(EndReason.ERROR, describe(problem))
