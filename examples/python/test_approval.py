"""A question pauses the run, or a host answers it. Nothing is built twice."""

import asyncio
from types import SimpleNamespace

from approval import ship

from atomic.workflows import MemoryJournal, Question, RunStatus


def test_nothing_is_deployed_without_an_answer() -> None:
    async def run() -> None:
        journal = MemoryJournal()
        paused = await ship.run("1.2", journal=journal, execution_id="mine")
        assert paused.status is RunStatus.PAUSED
        assert [question.text for question in paused.questions] == ["Deploy app-1.2.tar.gz?"]
        ended = await ship.resume(journal, "mine", answers={"go": "yes"})
        assert ended.result == "app-1.2.tar.gz is live"
        assert [record.node_id for record in journal.records("mine")] == ["build", "go", "deploy"]

    asyncio.run(run())


class Host:
    """Answers questions, as a terminal or a web page would."""

    async def ask(self, question: Question) -> str:
        return "no" if question.id == "go" else "yes"


def test_a_host_answers_at_once() -> None:
    ended = asyncio.run(ship.run("1.2", deps=SimpleNamespace(broker=Host())))
    assert ended.result == "app-1.2.tar.gz is kept back"
