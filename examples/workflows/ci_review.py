"""Review a change in CI: `git diff main | atomic run ci-review -` exits with 1 if there is a blocking finding."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.workflows import EndNote, Failed, NodeContext, RunEnd, State, agent_node, graph

name = "ci-review"
description = "Review a diff, and fail if a finding blocks"
argument_hint = "-"
node_descriptions = {"review": "Reviewing the change", "judge": "Looking for blocking findings"}


class Finding(msgspec.Struct):
    """One problem in the change."""

    file: str
    line: int
    text: str
    blocking: bool


class Findings(msgspec.Struct):
    """The reviewer's answer."""

    findings: list[Finding] = []


class ReviewState(State):
    prompt: str = ""
    findings: list[Finding] = []


def review_prompt(state: ReviewState) -> str:
    return f"Review this diff. A finding that must be repaired before the merge is blocking.\n\n{state.prompt}"


def lines(findings: list[Finding]) -> str:
    return "\n".join(f"{one.file}:{one.line}: {one.text}" for one in findings)


async def judge(ctx: NodeContext[ReviewState]) -> Failed | None:
    """Write all findings to a file for the next CI step. The run fails if one blocks."""
    findings = ctx.state.findings
    Path("review.md").write_text(lines(findings) + "\n", encoding="utf-8")
    blocking = [one for one in findings if one.blocking]
    if blocking:
        return Failed(f"blocking findings:\n{lines(blocking)}")
    return None


def at_end(end: RunEnd) -> EndNote | None:
    if end.status != "completed":
        return None
    return EndNote("no blocking finding; all findings are in review.md")


workflow = (
    graph(ReviewState)
    .then(
        agent_node(
            "review",
            review_prompt,
            output_schema=Findings,
            output_mapper=lambda answer, state: {"findings": answer.findings},
        )
    )
    .node("judge", judge)
    .compile()
)
