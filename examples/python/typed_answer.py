"""Get an answer of an agent as a Python object."""

from typing import Literal

import msgspec

from atomic.workflows import Failed, Flow, workflow


class Finding(msgspec.Struct):
    line: int
    severity: Literal["minor", "major"]
    text: str


class Review(msgspec.Struct):
    approved: bool
    findings: list[Finding] = []


@workflow
async def review(flow: Flow, path: str) -> Review | Failed:
    answer = await flow.agent("reviewer", f"Review the file {path}.", returns=Review, retry=2)
    major = [finding.text for finding in answer.findings if finding.severity == "major"]
    if major:
        return Failed(f"{len(major)} major: {'; '.join(major)}", answer)
    return answer
