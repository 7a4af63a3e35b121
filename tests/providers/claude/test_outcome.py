"""Test the outcome of a turn."""

from __future__ import annotations

import pytest

from atomic.providers import EndReason
from atomic.providers.claude.messages import Result
from atomic.providers.claude.translate import outcome_of

DONE = Result("success", num_turns=1, result="done")
NOTHING = Result("success")  # a background task returned without text
ABORTED = Result("error_during_execution", is_error=True, errors=["aborted"])


@pytest.mark.parametrize(
    ("results", "reason", "text", "error"),
    [
        ([DONE], EndReason.DONE, "done", None),
        ([DONE, NOTHING], EndReason.DONE, "done", None),
        ([NOTHING], EndReason.DONE, None, None),
        ([DONE, Result("success", num_turns=1, result="later")], EndReason.DONE, "later", None),
        ([Result("success", num_turns=2, result="so", structured_output={"n": 7})], EndReason.DONE, '{"n":7}', None),
        ([ABORTED], EndReason.ERROR, None, "aborted"),
        ([DONE, ABORTED], EndReason.ERROR, None, "aborted"),
        ([Result("error_max_budget_usd", is_error=True)], EndReason.ERROR, None, "error_max_budget_usd"),
        ([Result("success", is_error=True, result="full", api_error_status=529)], EndReason.LIMIT, None, "full"),
        ([], EndReason.ERROR, None, "Claude Code did not answer: the prompt was discarded"),
    ],
)
def test_a_turn_ends_with_reason_text_and_error(
    results: list[Result], reason: EndReason, text: str | None, error: str | None
) -> None:
    outcome = outcome_of(results, "discarded", "log in")
    assert (outcome.reason, outcome.text, outcome.error) == (reason, text, error)
