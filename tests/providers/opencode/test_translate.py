"""Test the translation of OpenCode's events: the turn ends once, and no event is lost or repeated."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from atomic.providers import (
    AgentEvent,
    Compacted,
    EndReason,
    LimitReached,
    Notice,
    PlanChanged,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Usage,
    UsageReported,
)
from atomic.providers.opencode import messages
from atomic.providers.opencode.stream import Event
from atomic.providers.opencode.translate import Translator
from atomic.providers.turn import Turn

ROOT = "ses_root"
PROMPT = "msg_prompt"


class Translation:
    """A translator and the events that it emits."""

    def __init__(self, *, max_turns: int | None = None) -> None:
        self.emitted: list[AgentEvent] = []
        self.turn = Turn("opencode", on_event=self.emitted.append)
        self.stops = 0
        self.adopted: list[str] = []
        self.translator = Translator(
            self.turn, ROOT, PROMPT, adopt=self.adopted.append, stop=self._stop, max_turns=max_turns
        )

    def _stop(self) -> None:
        self.stops += 1

    def send(self, type: str, session: str = ROOT, **properties: Any) -> None:
        self.translator.take(Event(session, type, msgspec.Raw(msgspec.json.encode(properties))))

    def begin(self) -> Translation:
        self.message(PROMPT, role="user")
        self.status("busy")
        return self

    def message(self, id: str, session: str = ROOT, *, role: str = "assistant", **info: Any) -> None:
        self.send("message.updated", session, info={"id": id, "role": role, **info})

    def complete(self, id: str, session: str = ROOT, **info: Any) -> None:
        done: dict[str, Any] = {"time": {"created": 1, "completed": 2}, "finish": "stop"}
        self.message(id, session, **{**done, **info})

    def part(self, id: str, message: str, session: str = ROOT, **part: Any) -> None:
        self.send("message.part.updated", session, part={"id": id, "messageID": message, **part})

    def delta(self, part: str, text: str, session: str = ROOT) -> None:
        self.send("message.part.delta", session, partID=part, field="text", delta=text)

    def tool(self, id: str, message: str, status: str, session: str = ROOT, tool: str = "bash", **state: Any) -> None:
        self.part(id, message, session, type="tool", tool=tool, state={"status": status, **state})

    def status(self, type: str, session: str = ROOT, **status: Any) -> None:
        self.send("session.status", session, status={"type": type, **status})

    def idle(self, session: str = ROOT) -> None:
        self.status("idle", session)
        self.send("session.idle", session)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.emitted if isinstance(event, kind)]

    @property
    def end(self) -> TurnEnded | None:
        return next(iter(self.of(TurnEnded)), None)


def test_an_idle_event_before_the_prompt_is_processed_is_not_the_end() -> None:
    translation = Translation()
    translation.idle()  # of the turn before
    assert translation.end is None
    translation.message(PROMPT, role="user")
    translation.idle()  # after an abort that came too early
    assert translation.end is None
    assert not translation.translator.is_idle_without_answer
    translation.status("busy")
    translation.complete("a")
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is EndReason.DONE


def test_a_turn_that_continues_after_an_abort_is_interrupted() -> None:
    translation = Translation().begin()
    translation.complete("a")
    translation.turn.ending = True
    translation.complete("b")  # an abort may end only a sub-agent
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is EndReason.INTERRUPTED


def test_a_turn_that_finishes_before_the_interrupt_is_done() -> None:
    translation = Translation().begin()
    translation.message("a")
    translation.turn.ending = True
    translation.complete("a")
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is EndReason.DONE


def test_the_first_idle_of_a_failed_turn_is_not_its_end() -> None:
    translation = Translation().begin()
    problem = {"name": "APIError", "data": {"message": "confused", "statusCode": 400}}
    translation.message("a")
    translation.send("session.error", error=problem)
    translation.idle()  # OpenCode is still cleaning up
    assert translation.end is None
    translation.complete("a", error=problem)
    translation.idle()
    assert translation.end is not None
    assert (translation.end.reason, translation.end.error) == (EndReason.ERROR, "APIError 400: confused")


def test_a_repeated_old_message_is_not_the_answer() -> None:
    translation = Translation()
    translation.complete("old")
    translation.begin()
    translation.idle()
    assert translation.end is None
    assert translation.translator.is_idle_without_answer


def test_a_turn_that_cannot_begin_is_an_error() -> None:
    translation = Translation()
    translation.send("session.error", error={"name": "MessageAbortedError", "data": {"message": "Aborted"}})
    assert translation.end is None  # of the turn before
    translation.send(
        "session.error", error={"name": "UnknownError", "data": {"message": "no such agent\n    at x.js:1"}}
    )
    assert translation.end is not None
    assert (translation.end.reason, translation.end.error) == (EndReason.ERROR, "UnknownError: no such agent")


def test_an_error_after_the_idle_event_is_used() -> None:
    translation = Translation().begin()
    translation.idle()
    assert translation.end is None
    translation.send("session.error", error={"name": "UnknownError", "data": {"message": "model not found"}})
    assert translation.end is not None
    assert translation.end.error == "UnknownError: model not found"


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"finish": "stop"}, EndReason.DONE),
        ({"finish": "length"}, EndReason.ERROR),
        ({"finish": "tool-calls"}, EndReason.ERROR),
        ({"finish": "content-filter"}, EndReason.REFUSED),
        ({"error": {"name": "ContentFilterError", "data": {"message": "blocked"}}}, EndReason.REFUSED),
        ({"error": {"name": "MessageAbortedError", "data": {"message": "Aborted"}}}, EndReason.INTERRUPTED),
        ({"error": {"name": "APIError", "data": {"message": "x", "statusCode": 429}}}, EndReason.LIMIT),
        ({"error": {"name": "APIError", "data": {"message": "x", "statusCode": 529}}}, EndReason.LIMIT),
        ({"error": {"name": "UnknownError", "data": {"message": "Rate limit reached"}}}, EndReason.LIMIT),
        ({"error": {"name": "APIError", "data": {"message": "x", "statusCode": 500}}}, EndReason.ERROR),
        ({"error": {"name": "MessageOutputLengthError", "data": {}}}, EndReason.ERROR),
    ],
)
def test_the_last_message_decides_the_reason_of_the_end(info: dict[str, Any], reason: EndReason) -> None:
    translation = Translation().begin()
    translation.complete("a", finish="tool-calls")
    translation.complete("b", **info)
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is reason
    assert bool(translation.end.error) == (reason not in (EndReason.DONE, EndReason.INTERRUPTED))


def test_a_limit_at_the_end_reports_the_reset_time() -> None:
    translation = Translation().begin()
    data = {"message": "slow down", "statusCode": 429, "responseHeaders": {"Retry-After": "600"}}
    translation.complete("a", error={"name": "APIError", "data": data})
    translation.idle()
    [limit] = translation.of(LimitReached)
    assert 590 < (limit.reset_at - datetime.now(UTC)).total_seconds() <= 600


def test_a_structured_answer_is_the_text_of_the_end() -> None:
    translation = Translation().begin()
    translation.translator.wants_value = True
    translation.complete("a", finish="tool-calls", structured={"ok": True})
    translation.idle()
    assert translation.end is not None
    assert (translation.end.reason, translation.end.text) == (EndReason.DONE, '{"ok":true}')


def test_a_plain_text_instead_of_a_structured_answer_is_returned() -> None:
    translation = Translation().begin()
    translation.translator.wants_value = True
    translation.message("a")
    translation.part("t", "a", type="text", text="I would rather not.")
    translation.complete("a", error={"name": "StructuredOutputError", "data": {"message": "no", "retries": 0}})
    translation.idle()
    assert translation.end is not None
    assert (translation.end.reason, translation.end.text) == (EndReason.DONE, "I would rather not.")


def test_the_text_of_the_agent_is_emitted_once() -> None:
    translation = Translation().begin()
    translation.part("p", PROMPT, type="text", text="the text of the user")
    translation.message("a")
    translation.part("t", "a", type="text", text="")
    translation.delta("t", "Hello ")
    translation.delta("t", "there.")
    translation.part("t", "a", type="text", text="Hello there.")
    translation.part("t", "a", type="text", text="Hello there.")
    assert [event.text for event in translation.of(TextDelta)] == ["Hello ", "there."]


def test_after_a_gap_the_rest_of_a_text_is_emitted_when_complete() -> None:
    translation = Translation().begin()
    translation.message("a")
    translation.part("t", "a", type="text", text="")
    translation.delta("t", "Hello ")
    translation.translator.note_gap()  # "dear "
    translation.delta("t", "reader, ")
    translation.part("new", "a", type="text", text="")
    translation.delta("new", "More.")
    translation.part("t", "a", type="text", text="Hello dear reader, goodbye.")
    translation.part("new", "a", type="text", text="More.")
    assert "".join(event.text for event in translation.of(TextDelta)) == "Hello More.dear reader, goodbye."


def test_a_summary_is_not_an_answer() -> None:
    translation = Translation().begin()
    translation.complete("a", finish="tool-calls", tokens={"input": 1000, "output": 50})
    translation.message("s", summary=True)
    translation.part("t", "s", type="text", text="Everything so far")
    translation.complete("s", summary=True, tokens={"input": 1100, "output": 70})
    translation.send("session.compacted")
    assert not translation.of(TextDelta)
    assert translation.of(Compacted) == [Compacted(1100, 70)]


def test_a_tool_starts_when_its_input_is_complete_and_ends_once() -> None:
    translation = Translation().begin()
    translation.message("a")
    translation.tool("t", "a", "pending", input={})
    assert not translation.of(ToolStarted)
    for output in ("", "one\n", "one\ntwo\n"):
        translation.tool("t", "a", "running", input={"command": "x"}, metadata={"output": output})
    for _ in range(2):
        translation.tool("t", "a", "completed", input={"command": "x"}, output="one\ntwo\n")
    translation.tool("t", "a", "running", input={"command": "x"}, metadata={"output": "late"})
    assert translation.emitted == [
        ToolStarted("t", "bash", {"command": "x"}),
        ToolOutput("t", "one\n"),
        ToolOutput("t", "two\n"),
        ToolEnded("t", "one\ntwo\n"),
    ]


def test_only_new_lines_of_a_truncated_output_are_emitted() -> None:
    translation = Translation().begin()
    translation.message("a")
    lines = [f"line {number}\n" for number in range(200)]
    translation.tool("t", "a", "running", metadata={"output": "".join(lines[:100])})
    translation.tool("t", "a", "running", metadata={"output": "...\n\n" + "".join(lines[40:150])})
    assert "".join(event.text for event in translation.of(ToolOutput)) == "".join(lines[:150])


def test_a_failed_tool_has_a_reason() -> None:
    translation = Translation().begin()
    translation.message("a")
    translation.tool("t", "a", "error", input={"command": "x"}, error="it is denied")
    assert translation.of(ToolEnded) == [ToolEnded("t", "", "it is denied")]


def test_a_plan_is_emitted_when_it_changes() -> None:
    translation = Translation().begin()
    for status in ("pending", "pending", "completed"):
        translation.send("todo.updated", todos=[{"content": "one", "status": status, "priority": "high"}])
    assert [event.items[0].status for event in translation.of(PlanChanged)] == ["pending", "completed"]


def test_each_call_of_the_model_is_counted_once() -> None:
    translation = Translation().begin()
    translation.message("a")
    tokens = {"input": 100, "output": 20, "reasoning": 5, "cache": {"read": 30, "write": 7}}
    for _ in range(2):
        translation.part("s", "a", type="step-finish", reason="stop", cost=0.5, tokens=tokens)
    assert translation.of(UsageReported) == [UsageReported(Usage(137, 25, 30, 0.5))]


def begin_subagent(translation: Translation, call: str, child: str, message: str = "a", session: str = ROOT) -> None:
    given = {"subagent_type": "worker", "prompt": f"do {child}"}
    translation.tool(call, message, "running", session, "task", input=given, metadata={"sessionId": child})


def test_nested_sub_agents_have_the_ids_of_their_calls() -> None:
    translation = Translation().begin()
    translation.message("a")
    begin_subagent(translation, "call", "ses_child")
    translation.message("b", "ses_child")
    begin_subagent(translation, "inner", "ses_grandchild", "b", "ses_child")
    translation.message("c", "ses_grandchild")
    translation.part("t", "c", "ses_grandchild", type="text", text="deep down")
    translation.tool("inner", "b", "completed", "ses_child", "task", output="<task_result>\nfound\n</task_result>")
    translation.idle("ses_child")
    translation.tool("call", "a", "error", tool="task", error="it broke")
    assert translation.adopted == ["ses_child", "ses_grandchild"]
    assert translation.emitted == [
        SubagentStarted("call", "worker", "do ses_child"),
        SubagentStarted("inner", "worker", "do ses_grandchild", agent="call"),
        TextDelta("deep down", agent="inner"),
        SubagentEnded("inner", "found", agent="call"),
        SubagentEnded("call", "", "it broke"),
    ]


def test_events_of_a_sub_agent_wait_until_its_call_is_known() -> None:
    translation = Translation().begin()
    translation.message("a")
    translation.message("b", "ses_child")
    translation.part("t", "b", "ses_child", type="text", text="early")
    assert not translation.emitted
    begin_subagent(translation, "call", "ses_child")
    assert translation.emitted[1:] == [TextDelta("early", agent="call")]


def test_a_sub_agent_that_cannot_begin_starts_and_ends_with_the_error() -> None:
    translation = Translation().begin()
    translation.message("a")
    translation.tool("call", "a", "error", tool="task", input={"subagent_type": "missing"}, error="unknown agent")
    assert translation.emitted == [SubagentStarted("call", "missing"), SubagentEnded("call", "", "unknown agent")]


def test_sub_agents_end_with_the_turn() -> None:
    translation = Translation().begin()
    translation.message("a")
    begin_subagent(translation, "call", "ses_child")
    translation.complete("a", error={"name": "MessageAbortedError", "data": {}})
    translation.idle()
    assert translation.emitted[1:] == [SubagentEnded("call", "", "interrupted"), TurnEnded(EndReason.INTERRUPTED)]


def test_too_many_calls_of_the_model_end_the_turn() -> None:
    translation = Translation(max_turns=2).begin()
    for number in range(2):
        assert not translation.stops
        translation.message(f"m{number}")
        translation.part(f"s{number}", f"m{number}", type="step-finish", reason="tool-calls")
    assert translation.stops == 1
    translation.complete("m1", finish="tool-calls")
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is EndReason.MAX_TURNS


def test_the_last_allowed_call_may_answer() -> None:
    translation = Translation(max_turns=1).begin()
    translation.message("a")
    translation.part("s", "a", type="step-finish", reason="stop")
    translation.complete("a")
    translation.idle()
    assert (translation.stops, translation.end and translation.end.reason) == (0, EndReason.DONE)


def retry(translation: Translation, message: str, *, attempt: int, wait: float) -> None:
    translation.status("retry", attempt=attempt, message=message, next=(time.time() + wait) * 1000)


def test_a_short_wait_at_a_limit_is_reported_and_awaited() -> None:
    translation = Translation().begin()
    translation.message("a")
    retry(translation, "Too many requests", attempt=1, wait=2.1)
    assert translation.of(LimitReached) == [LimitReached(None, "Too many requests")]
    assert not translation.stops
    translation.part("t", "a", type="text", text="There you are.")
    translation.complete("a")
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is EndReason.DONE


@pytest.mark.parametrize(("message", "attempt", "wait"), [("Overloaded", 4, 17), ("whatever", 1, 600)])
def test_a_long_wait_at_a_limit_ends_the_turn(message: str, attempt: int, wait: float) -> None:
    translation = Translation().begin()
    translation.message("a")
    retry(translation, message, attempt=attempt, wait=wait)
    [limit] = translation.of(LimitReached)
    assert (limit.reset_at is not None) == (wait == 600)  # a shorter wait is OpenCode's own choice
    if limit.reset_at is not None:
        assert abs(limit.reset_at - datetime.now(UTC) - timedelta(seconds=wait)) < timedelta(seconds=5)
    assert translation.stops == 1
    translation.complete("a", error={"name": "MessageAbortedError", "data": {}})
    translation.idle()
    assert translation.end is not None
    assert (translation.end.reason, translation.end.error) == (EndReason.LIMIT, message)


def test_a_call_that_fails_for_another_reason_is_not_a_limit() -> None:
    translation = Translation().begin()
    translation.message("a")
    retry(translation, "socket hang up", attempt=1, wait=2)
    [notice] = translation.of(Notice)
    assert "socket hang up" in notice.text
    assert not translation.stops
    retry(translation, "socket hang up", attempt=4, wait=18)
    assert translation.stops == 1
    translation.complete("a", error={"name": "MessageAbortedError", "data": {}})
    translation.idle()
    assert translation.end is not None
    assert (translation.end.reason, translation.end.error) == (EndReason.ERROR, "socket hang up")


def test_an_interrupted_turn_ends_as_interrupted_without_an_answer() -> None:
    translation = Translation().begin()
    translation.turn.ending = True
    translation.idle()
    assert translation.end is not None
    assert translation.end.reason is EndReason.INTERRUPTED


def test_unknown_messages_are_counted() -> None:
    translation = Translation().begin()
    translation.send("session.juggled", balls=3)
    translation.send("session.diff", diff=[])
    translation.send("session.next.step.started")
    translation.send("message.updated", info=7)
    assert dict(translation.turn.unknown) == {"session.juggled": 1, "message.updated": 1}


def test_read_and_written_tokens_do_not_overlap() -> None:
    tokens = messages.Tokens(input=1, output=2, reasoning=3, cache=messages.Tokens.Cache(read=4, write=5))
    assert (tokens.read, tokens.written) == (10, 5)
