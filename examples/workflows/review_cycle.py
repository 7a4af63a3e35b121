"""A change that is reviewed and repaired until the reviewer approves: `atomic run review-cycle "add a login page"`.

The reviewer's answer is checked against a schema, so that "approved" is a value and not a word somewhere in a text.
If the third review does not approve, the run fails with its findings.
"""

from __future__ import annotations

import msgspec

from atomic.workflows import Failed, State, agent_node, review_cycle

name = "review-cycle"
description = "Make a change, then review and repair it until the review approves"
argument_hint = "WHAT TO CHANGE"
node_descriptions = {"change": "Making the change", "review": "Reviewing it", "repair": "Repairing it"}

REVIEWS = 3  # at most; between them two repairs


class Review(msgspec.Struct):
    """The reviewer's answer."""

    approved: bool
    findings: list[str] = []


class CycleState(State):
    prompt: str = ""
    review: Review | None = None


def is_approved(state: CycleState) -> bool:
    return state.review is not None and state.review.approved


def findings(state: CycleState) -> str:
    return "\n".join(f"- {finding}" for finding in (state.review.findings if state.review else []))


def review_prompt(state: CycleState) -> str:
    return f"Review what was changed for this, and change nothing yourself: {state.prompt}"


def result(state: CycleState) -> str | Failed:
    if is_approved(state):
        return "The review approves."
    return Failed(f"not approved after {REVIEWS} reviews:\n{findings(state)}")


workflow = review_cycle(
    CycleState,
    executor=agent_node("change", lambda state: f"Make this change in the project: {state.prompt}"),
    reviewer=agent_node(
        "review",
        review_prompt,
        output_schema=Review,
        output_mapper=lambda review, state: {"review": review},
    ),
    fixer=agent_node("repair", lambda state: f"A review of your change has found this. Repair it:\n{findings(state)}"),
    until=is_approved,
    max_iterations=REVIEWS,
).compile()
