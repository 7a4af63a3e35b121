"""A question that can wait for days: ask, end the process, answer from another one.

    python examples/ask_later.py                 # asks, and ends
    python examples/ask_later.py "to the moon"   # answers, in a new process

What ran before the question does not run again.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from atomic.workflows import RunStatus, SqliteJournal, State, graph

JOURNAL = Path(".ask-later.db")
RUN = "trip"


class Trip(State):
    packed: list[str] = []
    ticket: str = ""


def pack() -> list[str]:
    print("packing (this is printed once, however often you start the program)")
    return ["towel", "book"]


def book(state: Trip) -> str:
    return f"a ticket {state.outputs['where']}"


trip = (
    graph(Trip)
    .tool("pack", pack, output_mapper=lambda items, s: {"packed": items})
    .ask_user("where", "Where do you want to go?", options=["to the sea", "to the moon"], default="to the sea")
    .tool("book", book, output_mapper=lambda ticket, s: {"ticket": ticket})
    .compile("trip")
)


async def main(answer: str | None) -> int:
    with SqliteJournal(JOURNAL) as journal:
        if not any(run.execution_id == RUN for run in journal.list()):
            result = await trip.run(journal=journal, execution_id=RUN)
        else:
            result = await trip.resume(journal, RUN, answers={"where": answer} if answer else None)
    if result.status is RunStatus.PAUSED:
        for question in result.questions:
            labels = ", ".join(f'"{option.label}"' for option in question.options)
            print(f"{question.text} ({labels})\nAnswer with: python {sys.argv[0]} ANSWER")
        return 5
    print(f"booked {result.state.ticket}, with {' and '.join(result.state.packed)}")
    JOURNAL.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None)))
