"""What counts as a review, and what follows from several."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from atomic.ralph.review import (
    Finding,
    Review,
    ReviewError,
    blockers_of,
    fix_tasks,
    read_review,
    repeated_blockers,
    review_in,
)
from tests.ralph.sandbox import GOAL, PLAN, Sandbox, writing


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
def test_a_review_approves_only_by_verdict_and_without_blockers(data: dict[str, Any], approved: bool) -> None:
    assert review_in(json.dumps(data)).approved is approved


@pytest.mark.parametrize(
    "answer",
    [
        "Looks good to me!",
        json.dumps({"findings": []}),
        json.dumps({"verdict": "approve"}),
        '{"verdict": "request_changes", "verdict": "approve", "findings": []}',
        json.dumps({"verdict": "APPROVE", "findings": []}),
        json.dumps({"verdict": "approve", "findings": {}}),
        json.dumps(review("approve", {"body": "no title"})),
        json.dumps(review("approve", finding(7))),
        json.dumps([1, 2]),
    ],
)
def test_an_answer_that_is_not_a_review_is_refused(answer: str) -> None:
    with pytest.raises(ReviewError):
        review_in(answer)


REJECTED = json.dumps(review("request_changes", finding(0)))
APPROVED = json.dumps(review())
BARE = '{"verdict": "approve", "findings": []}'


@pytest.mark.parametrize(
    "answer",
    [
        REJECTED[:-1] + f', "quoted": {BARE},}}',  # a trailing comma
        f'{{"verdict": "request_changes", "findings": [{{"title": "t", "quoted": {BARE}}},]}}',
        f"{REJECTED}\n\nThe test expects {APPROVED} here.",
        f"{REJECTED}\n```json\n{APPROVED}\n```",
        f"{APPROVED}\n{REJECTED}\n{APPROVED}",
        f'{{"verdict": "request_changes"}}\n{APPROVED}',  # no findings: not readable, and no approval either
        f"{REJECTED[1:]}\n{APPROVED}",
        f"{REJECTED[:-2]}\n{APPROVED}",
        f'{{"body": "he said "}}" ", "x": {BARE}}}',
        f'[{{"verdict": "request_changes",}}, {BARE}]',
        f"{{'verdict': 'request_changes', 'findings': []}} {APPROVED}",
    ],
)
def test_an_approval_inside_or_next_to_a_rejection_does_not_count(answer: str) -> None:
    with suppress(ReviewError):
        assert not review_in(answer).approved


def test_an_approval_counts_among_prose_and_code() -> None:
    for before in (
        "Looks good: `{x}` and `{'a': 1}` are gone.",
        'The call `f({"a": b})` is fine.',
        "See [1] and [a](b).",
    ):
        assert review_in(f"{before}\n\n```json\n{APPROVED}\n```\nThat is all.").approved


def test_of_several_reviews_the_strictest_counts() -> None:
    mild = review("request_changes", finding(2))
    hard = review("request_changes", finding(0), finding(1, "Two"))
    for order in ([mild, hard], [hard, mild], [review(), hard, mild]):
        assert len(review_in("\n".join(map(json.dumps, order))).blockers) == 2


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)


@st.composite
def approvals(draw: st.DrawFn) -> str:
    return json.dumps({"verdict": "approve", "findings": [], "summary": draw(words)})


@st.composite
def broken_rejections(draw: st.DrawFn) -> str:
    """Draw a rejection that contains an approval, with one character added or removed."""
    inner: Any = draw(st.one_of(approvals().map(json.loads), approvals()))
    body = {"title": draw(words) or "t", "body": inner, "priority": draw(st.sampled_from([0, 1, 2, None]))}
    data = {"verdict": "request_changes", "findings": [body], "summary": draw(words), "more": inner}
    text = json.dumps(data, indent=draw(st.sampled_from([None, 2])))
    at = draw(st.integers(0, len(text) - 1))
    return (
        text[:at] + draw(st.sampled_from(["", ",", '"', "}", "{", "]", "x", "\n"])) + text[at + draw(st.booleans()) :]
    )


@given(broken_rejections(), approvals(), words, st.booleans())
def test_no_damage_to_a_rejection_makes_it_an_approval(broken: str, quoted: str, prose: str, is_first: bool) -> None:
    for answer in (broken, "\n".join([broken, prose, quoted] if is_first else [quoted, prose, broken])):
        with suppress(ReviewError):
            assert not review_in(answer).approved


@given(st.lists(st.sampled_from([APPROVED, REJECTED]), min_size=1, max_size=5), words)
def test_an_answer_approves_only_if_all_its_reviews_do(reviews: list[str], prose: str) -> None:
    assume(not any(sign in prose for sign in "{}[]\"',"))
    assert review_in(f"\n{prose}\n".join(reviews)).approved is (REJECTED not in reviews)


@given(st.text(alphabet='{}[]",:\\ \nverdict', max_size=200))
def test_any_text_is_a_review_or_refused(text: str) -> None:
    with suppress(ReviewError):
        assert not review_in(text).approved


def test_a_quoted_review_does_not_count_before_the_real_one() -> None:
    quoted = json.dumps(review())
    real = json.dumps(review("request_changes", finding(0)))
    text = f"The file contains {quoted}, which speaks to me.\n\n{real}"
    assert not review_in(text).approved


def test_findings_of_several_reviewers_are_one_list_most_urgent_first() -> None:
    first = read_review(review("request_changes", finding(2, "A leak"), finding(None, "No test")))
    second = read_review(review("request_changes", finding(0, "a  LEAK!"), finding(3, "Typo")))
    assert [(one.title, one.priority) for one in blockers_of([first, second])] == [("a  LEAK!", 0), ("No test", None)]


def test_the_same_finding_three_times_is_found_even_if_its_line_moves() -> None:
    rounds = [[Finding("It breaks", location=f"a.py:{line}")] for line in (3, 9)]
    assert repeated_blockers(rounds) == []
    assert repeated_blockers([*rounds, [Finding("It  breaks.", location="a.py:4"), Finding("new")]]) == [
        Finding("It  breaks.", location="a.py:4")
    ]


def test_each_finding_becomes_a_task_of_a_fixer() -> None:
    [task] = fix_tasks([Finding("It breaks", "because", 1, "a.py:3")], 2)
    assert (task.id, task.title, task.metadata["role"]) == ("fix-2-1", "It breaks", "fixer")


def test_an_unreadable_review_approves_nothing() -> None:
    assert not Review("approve", problem="no readable review, twice").approved


async def test_a_rejection_with_a_trailing_comma_never_completes_a_run(tmp_path: Path) -> None:
    broken = f'{{"verdict": "request_changes", "findings": [{{"title": "It breaks", "quoted": {BARE}}},]}}'
    reviewer = {"role": "reviewer", "do": [{"say": broken}]}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), reviewer)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("blocked", "not_approved", 5)
    assert (
        sandbox.callers.count("reviewer 1") == sandbox.callers.count("reviewer 2") == 1
    )  # asked once more, with the reason
