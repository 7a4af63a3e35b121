"""Decide why a turn ended, from the program's last messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.providers.claude.limits import ended_at_limit
from atomic.providers.claude.messages import Result
from atomic.providers.events import EndReason


class Outcome(msgspec.Struct, frozen=True):
    """How a turn ended; `text` is None if the streamed text is the answer."""

    reason: EndReason
    text: str | None = None
    error: str | None = None


def outcome_of(results: Sequence[Result], prompt_state: str | None, login: str) -> Outcome:
    """Evaluate a turn: the result of the prompt, and of tasks that ended after it.

    `login` is the remedy for a missing login.
    """
    meaningful = [one for one in results if one.num_turns or one.is_error or one.result] or results
    if not meaningful:
        return Outcome(EndReason.ERROR, error=f"Claude Code did not answer: the prompt was {prompt_state}")
    last = meaningful[-1]
    if last.stop_reason == "refusal":
        return Outcome(EndReason.REFUSED, error=_problem(last, login) if last.is_error else None)
    if last.subtype == "error_max_turns":
        return Outcome(EndReason.MAX_TURNS, error=_problem(last, login))
    if ended_at_limit(last):
        return Outcome(EndReason.LIMIT, error=_problem(last, login))
    if last.is_error or last.subtype != "success":
        return Outcome(EndReason.ERROR, error=_problem(last, login))
    return Outcome(EndReason.DONE, text=_answer(meaningful))


def _answer(results: Sequence[Result]) -> str | None:
    structured = [one.structured_output for one in results if one.structured_output is not None]
    return msgspec.json.encode(structured[-1]).decode() if structured else results[-1].result or None


def _problem(result: Result, login: str) -> str:
    problem = "; ".join(result.errors or ()) or result.result or result.subtype
    return f"{problem} ({login})" if _is_about_login(result) else problem


def _is_about_login(result: Result) -> bool:
    return result.api_error_status in (401, 403) or (result.result or "").startswith("Not logged in")
