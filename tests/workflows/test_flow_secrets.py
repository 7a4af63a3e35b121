"""A journal that records no secrets: a resumed function gets a mark instead, and the user is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atomic.base.redaction import Redactor
from atomic.sessions.journal import open_redacting
from atomic.workflows import Flow, RunResult, step, workflow

SECRET = "hunter2-hunter2"


@step
async def log_in(user: str) -> str:
    return f"{user} with {SECRET}"


@step
async def count(words: str) -> int:
    return len(words.split())


@workflow
async def visit(flow: Flow, user: str) -> str:
    session = await log_in(user)
    await log_in("another")
    words = await count(session)
    return f"{await flow.ask('Go on?')}, {words}, {session}"


async def resumed(tmp_path: Path, user: str) -> tuple[RunResult[Any, str], list[str]]:
    with open_redacting(tmp_path / "runs.db", Redactor([SECRET])) as journal:
        first = await visit.run(user, journal=journal, execution_id="mine")
        assert first.warnings == ()
        ended = await visit.resume(journal, "mine", answers={"ask-1": "yes"})
    return ended, [event.data["text"] for event in ended.warnings]


async def test_a_resumed_function_that_gets_a_mark_for_a_secret_warns_once_and_names_the_step(tmp_path: Path) -> None:
    ended, warnings = await resumed(tmp_path, "me")
    assert ended.result == "yes, 3, me with [redacted]"
    (warning,) = warnings
    assert warning.startswith('log_in: the recorded result of log_in has "[redacted]" in place of a secret')
    assert warning.endswith("Read secrets from the environment, in the step that uses them")


async def test_a_secret_in_an_argument_of_the_run_is_reported_too(tmp_path: Path) -> None:
    _, warnings = await resumed(tmp_path, SECRET)
    assert [text.partition(" has ")[0] for text in warnings] == [
        "visit: an argument of visit", "log_in: the recorded result of log_in",
    ]  # fmt: skip
