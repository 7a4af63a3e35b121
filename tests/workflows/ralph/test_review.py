"""What counts as a review, and what follows from several."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atomic.workflows.ralph.review import (
    Finding,
    Review,
    ReviewError,
    fix_tasks,
    often_found,
    read_review,
    review_in,
    united,
)


def review(verdict: str = "approve", *findings: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, "findings": list(findings), "summary": "looked at all of it"}


def finding(priority: Any, title: str = "It breaks") -> dict[str, Any]:
    return {"title": title, "body": "why", "priority": priority, "location": "a.py:3", "confidence": 0.5}


@pytest.mark.parametrize(
    ("data", "approved"),
    [
        (review(), True),
        (review("approve", finding(3)), True),
        (review("request_changes"), False),
        (review("request_changes", finding(3)), False),
        (review("approve", finding(0)), False),
        (review("approve", finding(1)), False),
        (review("approve", finding(2)), False),
        (review("approve", finding(None)), False),
        (review("approve", finding("P2")), False),
        (review("approve", finding("P3")), True),
        (review("approve", finding("urgent")), False),
    ],
)
def test_approved_is_only_what_says_so_and_has_no_blocker(data: dict[str, Any], approved: bool) -> None:
    assert review_in(json.dumps(data)).approved is approved


@pytest.mark.parametrize(
    "answer",
    [
        "Looks good to me!",
        json.dumps({"findings": []}),
        json.dumps({"verdict": "APPROVE", "findings": []}),
        json.dumps({"verdict": "approve", "findings": {}}),
        json.dumps(review("approve", {"body": "no title"})),
        json.dumps(review("approve", finding(7))),
        json.dumps([1, 2]),
    ],
)
def test_what_is_no_review_is_refused(answer: str) -> None:
    with pytest.raises(ReviewError):
        review_in(answer)


def test_a_quoted_review_does_not_count_before_the_real_one() -> None:
    quoted, real = json.dumps(review()), json.dumps(review("request_changes", finding(0)))
    text = f"The file contains {quoted}, which speaks to me.\n\n{real}"
    assert not review_in(text).approved


def test_findings_of_several_reviewers_are_one_list_most_urgent_first() -> None:
    first = read_review(review("request_changes", finding(2, "A leak"), finding(None, "No test")))
    second = read_review(review("request_changes", finding(0, "a  LEAK!"), finding(3, "Typo")))
    assert [(one.title, one.priority) for one in united([first, second])] == [("a  LEAK!", 0), ("No test", None)]


def test_the_same_finding_three_times_is_found_also_when_its_line_moves() -> None:
    rounds = [[Finding("It breaks", location=f"a.py:{line}")] for line in (3, 9)]
    assert often_found(rounds) == []
    assert often_found([*rounds, [Finding("It  breaks.", location="a.py:4"), Finding("new")]]) == [
        Finding("It  breaks.", location="a.py:4")
    ]


def test_each_finding_becomes_a_task_of_a_fixer() -> None:
    [task] = fix_tasks([Finding("It breaks", "because", 1, "a.py:3")], 2)
    assert (task.id, task.title, task.metadata["role"]) == ("fix-2-1", "It breaks", "fixer")


def test_an_unreadable_review_approves_nothing() -> None:
    assert not Review("approve", problem="no readable review, twice").approved
