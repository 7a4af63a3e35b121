"""Workflows of microsoft/conductor's `examples/`, with the outputs that they declare."""

import sys
from collections import deque
from pathlib import Path

import msgspec

from atomic.workflows import AtomicError, Failed, Flow, Journal, RunStatus, workflow
from tests.ports.agents import scripted
from tests.ports.source import port


@port("conductor", "for-each-simple.yaml", lines=149)
async def test_for_each(journal: Journal) -> None:
    class Processed(msgspec.Struct):
        original: str
        processed: str

    @workflow
    async def for_each(flow: Flow, items: list[str] | None = None) -> dict[str, str | int]:
        topics = items or await flow.agent("item_finder", "List 5 programming concepts.", returns=list[str])

        async def process(item: str) -> Processed | None:
            try:
                return await flow.agent("item_processor", f"Process this item: {item}", returns=Processed)
            except AtomicError:  # the item is left out
                return None

        outputs = [one for one in await flow.map(process, topics, max_concurrency=3) if one is not None]
        summary = await flow.agent("aggregator", "Summarize: " + ", ".join(one.processed for one in outputs))
        return {
            "summary": summary,
            "success_rate": f"{len(outputs)}/{len(topics)}",
            "total_items": len(topics),
            "processed": len(outputs),
            "failed": len(topics) - len(outputs),
        }

    def answer(prompt: str) -> str:
        if prompt.startswith("List"):
            return '["functional programming", "type systems", "concurrency", "closures", "macros"]'
        if prompt.startswith("Summarize"):
            return prompt
        item = prompt.split("\n")[0].removeprefix("Process this item: ")
        return "no JSON" if item == "macros" else f'{{"original": "{item}", "processed": "{item.upper()}"}}'

    given = await for_each.run(["apple", "banana", "cherry"], agent=scripted(answer), journal=journal)
    assert given.result == {
        "summary": "Summarize: APPLE, BANANA, CHERRY",
        "success_rate": "3/3",
        "total_items": 3,
        "processed": 3,
        "failed": 0,
    }
    found = (await for_each.run(agent=scripted(answer), journal=journal)).result
    assert (found["success_rate"], found["processed"], found["failed"]) == ("4/5", 4, 1)


@port("conductor", "wait-step.yaml", lines=109)
async def test_wait(journal: Journal, tmp_path: Path) -> None:
    class Status(msgspec.Struct):
        status: str
        attempt: int

    poll = (
        "import json, pathlib, sys; p = pathlib.Path(sys.argv[1]);"
        "count = int(p.read_text()) + 1 if p.exists() else 1; p.write_text(str(count));"
        "print(json.dumps({'status': 'ready' if count >= int(sys.argv[2]) else 'pending', 'attempt': count}))"
    )

    @workflow
    async def wait_step(flow: Flow, poll_interval_seconds: float = 5, max_attempts: int = 3) -> dict[str, str | int]:
        while True:
            argv = (sys.executable, "-c", poll, str(tmp_path / "count"), str(max_attempts))
            polled = await flow.exec(*argv, name="check_status")
            status = msgspec.json.decode(polled.stdout, type=Status)
            if status.status == "ready":
                break
            await flow.sleep(seconds=poll_interval_seconds)
        result = await flow.agent("summarize", f"Ready on attempt {status.attempt}.")
        return {"result": result, "attempts": status.attempt}

    ended = await wait_step.run(
        poll_interval_seconds=0.01, agent=scripted(lambda prompt: prompt), journal=journal, execution_id="1"
    )
    assert ended.result == {"result": "Ready on attempt 3.", "attempts": 3}
    names = [record.node_id for record in journal.records("1")]
    assert names == ["check_status", "sleep", "check_status", "sleep", "check_status", "summarize"]


@port("conductor", "terminate", lines=122)
async def test_terminate(journal: Journal) -> None:
    class Verdict(msgspec.Struct):
        verdict: str
        reason: str = ""

    @workflow
    async def gate(flow: Flow, request: str) -> dict[str, str] | Failed:
        checked = await flow.agent("check", f"Check: {request}", returns=Verdict)
        if checked.verdict == "nothing_to_do":
            return {"status": "success", "reason": checked.reason}
        if checked.verdict == "refused":
            return Failed(checked.reason, {"status": "failed"})
        return {"status": "success", "result": await flow.agent("work", f"Do: {request}")}

    verdicts = {
        "Check: done": '{"verdict": "nothing_to_do", "reason": "done before"}',
        "Check: bad": '{"verdict": "refused", "reason": "against the policy"}',
        "Check: good": '{"verdict": "go"}',
    }
    agent = scripted(lambda prompt: verdicts.get(prompt.split("\n")[0], "worked"))
    early = await gate.run("done", agent=agent, journal=journal, execution_id="early")
    assert (early.status, early.result) == (RunStatus.COMPLETED, {"status": "success", "reason": "done before"})
    failed = await gate.run("bad", agent=agent, journal=journal, execution_id="failed")
    assert (failed.status, failed.result) == (RunStatus.FAILED, {"status": "failed"})
    assert "against the policy" in str(failed.error)
    again = await gate.resume(journal, "failed", agent=agent)
    assert (again.status, again.steps) == (RunStatus.FAILED, failed.steps)  # over for good
    worked = await gate.run("good", agent=agent, journal=journal)
    assert worked.result == {"status": "success", "result": "worked"}


@port("conductor", "design.yaml", lines=488)
async def test_design(journal: Journal) -> None:
    class Draft(msgspec.Struct):
        file_path: str
        revision_notes: str

    class Review(msgspec.Struct):
        score: int
        feedback: str = ""

    @workflow
    async def design(flow: Flow, purpose: str) -> dict[str, str | int]:
        feedback = ""
        while True:
            draft = await flow.agent("architect", f"Design: {purpose}\n{feedback}", returns=Draft)
            scores: dict[str, int] = {}
            for reviewer in ("technical", "readability"):
                prompt = f"Review ({reviewer}): {draft.file_path}\nNotes: {draft.revision_notes}"
                review = await flow.agent(f"{reviewer}_reviewer", prompt, returns=Review)
                scores[f"{reviewer}_review_score"] = review.score
                if review.score < 90:
                    feedback = f"{reviewer} feedback ({review.score}/100): {review.feedback}"
                    break
            else:
                return {"design_file": draft.file_path, **scores}

    notes = deque(["Initial draft.", "Fixed versions.", "Rewrote the summary."])
    scores = deque([70, 95, 80, 92, 96])  # technical; technical, readability; technical, readability
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt.split("\n")[1])
        if prompt.startswith("Design"):
            return f'{{"file_path": "jwt.design.md", "revision_notes": "{notes.popleft()}"}}'
        return f'{{"score": {scores.popleft()}, "feedback": "wrong version"}}'

    ended = await design.run("JWT", agent=scripted(answer), journal=journal, execution_id="1")
    assert ended.result == {
        "design_file": "jwt.design.md",
        "technical_review_score": 92,
        "readability_review_score": 96,
    }
    names = [record.node_id for record in journal.records("1")]
    assert [names.count(name) for name in ("architect", "technical_reviewer", "readability_reviewer")] == [3, 3, 2]
    assert asked[2] == "technical feedback (70/100): wrong version"
    assert asked[5] == "readability feedback (80/100): wrong version"
