"""Decide how a turn ended, from its last message and reported errors."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atomic.providers.events import EndReason, LimitReached
from atomic.providers.opencode import messages
from atomic.providers.opencode.limits import ended_at_limit, problem_reset

_REFUSALS = frozenset({"content-filter", "refusal"})
_UNFINISHED = frozenset({None, "tool-calls", "unknown"})  # another model call had to follow
_HINTS = {401: " (is the key right?)", 403: " (may this key use the model?)"}


class Outcome(msgspec.Struct, frozen=True):
    """The reason and its details."""

    reason: EndReason
    error: str | None = None
    text: str | None = None  # None: the streamed text
    limit: LimitReached | None = None


def outcome(
    last: messages.Message | None, complaint: messages.Problem | None, *, now: datetime, wants_value: bool
) -> Outcome:
    """Evaluate the end of a turn.

    `wants_value` means that the turn was to return a value; the caller judges a text
    then.
    """
    problem = complaint if last is None else last.error
    if problem is not None and not (wants_value and problem.name == "StructuredOutputError"):
        return _of_problem(problem, now)
    if last is None:
        return Outcome(EndReason.ERROR, "OpenCode stopped without an answer")
    if last.structured is not msgspec.UNSET and wants_value:
        return Outcome(EndReason.DONE, text=msgspec.json.encode(last.structured).decode())
    if last.finish in _REFUSALS:
        return Outcome(EndReason.REFUSED, "the model refused to answer")
    if last.finish in _UNFINISHED:
        return Outcome(EndReason.ERROR, "OpenCode stopped after a tool call")
    if last.finish == "length":
        return Outcome(EndReason.ERROR, "the answer reached the model's limit for one message")
    return Outcome(EndReason.DONE)


def describe(problem: messages.Problem) -> str:
    """Return the error with the provider's message."""
    data = problem.data
    number = "" if data.status_code is None else f" {data.status_code}"
    message = data.message.partition("\n    at ")[0]  # without a stack trace
    return f"{problem.name}{number}: {message}" + _HINTS.get(data.status_code or 0, "")


def _of_problem(problem: messages.Problem, now: datetime) -> Outcome:
    if problem.name == "MessageAbortedError":
        return Outcome(EndReason.INTERRUPTED)
    if problem.name == "ContentFilterError":
        return Outcome(EndReason.REFUSED, problem.data.message or "the provider's filter blocked the answer")
    if ended_at_limit(problem):
        limit = LimitReached(problem_reset(problem, now), problem.data.message)
        return Outcome(EndReason.LIMIT, describe(problem), limit=limit)
    return Outcome(EndReason.ERROR, describe(problem))
