"""Without a host the run pauses at the signal; a resume continues with it, or after the time."""

import asyncio
from datetime import timedelta

from invoice import invoice, sent

from atomic.workflows import MemoryJournal, RunStatus


def test_a_payment_ends_the_wait() -> None:
    async def run() -> None:
        journal = MemoryJournal()
        paused = await invoice.run("7", journal=journal, execution_id="mine")
        assert (paused.status, paused.signals) == (RunStatus.PAUSED, ("paid",))
        journal.signal("mine", "paid", {"amount": 40})  # another process does the same with the same file
        ended = await invoice.resume(journal, "mine")
        assert ended.result == "paid"
        assert sent == ["invoice 7", "thanks for 40"]

    sent.clear()
    asyncio.run(run())


def test_a_reminder_is_sent_once() -> None:
    async def run() -> None:
        journal = MemoryJournal()
        ended = await invoice.run("7", timedelta(seconds=0.05), journal=journal, execution_id="mine")
        while ended.status is RunStatus.PAUSED:
            ended = await invoice.resume(journal, "mine")
        assert ended.result == "reminded"
        assert sent == ["invoice 7", "reminder for 7"]

    sent.clear()
    asyncio.run(run())
