"""The answer of the real Claude Code is JSON, and becomes a Review."""

import asyncio

import msgspec
from typed_answer import Finding, Review, review

from atomic.testing import ModelServer
from atomic.workflows import RunStatus


def test_a_major_finding_fails_the_run() -> None:
    async def run() -> None:
        answer = Review(False, [Finding(7, "major", "The lock is never released")])
        async with ModelServer({}, default=msgspec.json.encode(answer).decode()) as server:
            ended = await review.run("queue.py", agent=server.connect("claude"))
        assert ended.status is RunStatus.FAILED
        assert str(ended.error) == "review: 1 major: The lock is never released"
        assert msgspec.convert(ended.result, Review) == answer

    asyncio.run(run())
