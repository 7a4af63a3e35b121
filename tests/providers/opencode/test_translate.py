"""OpenCode's events as ours: the end is known, nothing is told twice, nothing is lost."""

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
from atomic.providers.opencode.router import Event
from atomic.providers.opencode.translate import Translator
from atomic.providers.turn import Turn

ROOT, PROMPT = "ses_root", "msg_prompt"


class Stage:
    """A translator, and what it told."""

    def __init__(self, *, max_turns: int | None = None) -> None:
        self.told: list[AgentEvent] = []
        self.turn = Turn("opencode", on_event=self.told.append)
        self.stops = 0
        self.adopted: list[str] = []
        self.translator = Translator(
            self.turn, ROOT, PROMPT, adopt=self.adopted.append, stop=self._stop, max_turns=max_turns
        )

    def _stop(self) -> None:
        self.stops += 1

    def say(self, type: str, session: str = ROOT, **properties: Any) -> None:
        self.translator.take(Event(session, type, msgspec.Raw(msgspec.json.encode(properties))))

    def begin(self) -> Stage:
        self.message(PROMPT, role="user")
        self.status("busy")
        return self

    def message(self, id: str, session: str = ROOT, *, role: str = "assistant", **info: Any) -> None:
        self.say("message.updated", session, info={"id": id, "role": role, **info})

    def complete(self, id: str, session: str = ROOT, **info: Any) -> None:
        done: dict[str, Any] = {"time": {"created": 1, "completed": 2}, "finish": "stop"}
        self.message(id, session, **{**done, **info})

    def part(self, id: str, message: str, session: str = ROOT, **part: Any) -> None:
        self.say("message.part.updated", session, part={"id": id, "messageID": message, **part})

    def delta(self, part: str, words: str, session: str = ROOT) -> None:
        self.say("message.part.delta", session, partID=part, field="text", delta=words)

    def tool(self, id: str, message: str, status: str, session: str = ROOT, tool: str = "bash", **state: Any) -> None:
        self.part(id, message, session, type="tool", tool=tool, state={"status": status, **state})

    def status(self, type: str, session: str = ROOT, **status: Any) -> None:
        self.say("session.status", session, status={"type": type, **status})

    def idle(self, session: str = ROOT) -> None:
        self.status("idle", session)
        self.say("session.idle", session)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]

    @property
    def end(self) -> TurnEnded | None:
        return next(iter(self.of(TurnEnded)), None)


def test_idle_is_not_the_end_before_the_prompt_was_taken_up_and_worked_on() -> None:
    stage = Stage()
    stage.idle()  # of the turn before
    assert stage.end is None
    stage.message(PROMPT, role="user")
    stage.idle()  # an abort that came too early says so
    assert stage.end is None
    assert not stage.translator.is_idle_without_answer
    stage.status("busy")
    stage.complete("a")
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is EndReason.DONE


def test_a_turn_that_continues_after_an_abort_is_interrupted() -> None:
    stage = Stage().begin()
    stage.complete("a")
    stage.turn.ending = True
    stage.complete("b")  # an abort may end a sub-agent alone
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is EndReason.INTERRUPTED


def test_what_was_done_before_it_could_be_stopped_is_done() -> None:
    stage = Stage().begin()
    stage.message("a")
    stage.turn.ending = True
    stage.complete("a")
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is EndReason.DONE


def test_the_first_idle_of_a_failed_turn_is_not_its_end() -> None:
    stage = Stage().begin()
    problem = {"name": "APIError", "data": {"message": "confused", "statusCode": 400}}
    stage.message("a")
    stage.say("session.error", error=problem)
    stage.idle()  # OpenCode is still cleaning up
    assert stage.end is None
    stage.complete("a", error=problem)
    stage.idle()
    assert stage.end is not None
    assert (stage.end.reason, stage.end.error) == (EndReason.ERROR, "APIError 400: confused")


def test_an_old_message_that_is_mentioned_again_is_not_the_answer() -> None:
    stage = Stage()
    stage.complete("old")
    stage.begin()
    stage.idle()
    assert stage.end is None
    assert stage.translator.is_idle_without_answer


def test_a_turn_that_cannot_even_begin_is_an_error() -> None:
    stage = Stage()
    stage.say("session.error", error={"name": "MessageAbortedError", "data": {"message": "Aborted"}})
    assert stage.end is None  # that was the turn before
    stage.say("session.error", error={"name": "UnknownError", "data": {"message": "no such agent\n    at x.js:1"}})
    assert stage.end is not None
    assert (stage.end.reason, stage.end.error) == (EndReason.ERROR, "UnknownError: no such agent")


def test_an_error_after_the_idle_event_is_used() -> None:
    stage = Stage().begin()
    stage.idle()
    assert stage.end is None
    stage.say("session.error", error={"name": "UnknownError", "data": {"message": "model not found"}})
    assert stage.end is not None
    assert stage.end.error == "UnknownError: model not found"


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
def test_the_last_message_has_the_reason_of_the_end(info: dict[str, Any], reason: EndReason) -> None:
    stage = Stage().begin()
    stage.complete("a", finish="tool-calls")
    stage.complete("b", **info)
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is reason
    assert bool(stage.end.error) == (reason not in (EndReason.DONE, EndReason.INTERRUPTED))


def test_a_limit_at_the_end_tells_the_providers_time() -> None:
    stage = Stage().begin()
    data = {"message": "slow down", "statusCode": 429, "responseHeaders": {"Retry-After": "600"}}
    stage.complete("a", error={"name": "APIError", "data": data})
    stage.idle()
    [limit] = stage.of(LimitReached)
    assert 590 < (limit.reset_at - datetime.now(UTC)).total_seconds() <= 600


def test_a_value_is_the_text_of_the_end() -> None:
    stage = Stage().begin()
    stage.translator.wants_value = True
    stage.complete("a", finish="tool-calls", structured={"ok": True})
    stage.idle()
    assert stage.end is not None
    assert (stage.end.reason, stage.end.text) == (EndReason.DONE, '{"ok":true}')


def test_where_a_value_was_wanted_a_text_is_for_the_caller_to_judge() -> None:
    stage = Stage().begin()
    stage.translator.wants_value = True
    stage.message("a")
    stage.part("t", "a", type="text", text="I would rather not.")
    stage.complete("a", error={"name": "StructuredOutputError", "data": {"message": "no", "retries": 0}})
    stage.idle()
    assert stage.end is not None
    assert (stage.end.reason, stage.end.text) == (EndReason.DONE, "I would rather not.")


def test_text_is_emitted_once_and_only_the_agents() -> None:
    stage = Stage().begin()
    stage.part("p", PROMPT, type="text", text="what the user said")
    stage.message("a")
    stage.part("t", "a", type="text", text="")
    stage.delta("t", "Hello ")
    stage.delta("t", "there.")
    stage.part("t", "a", type="text", text="Hello there.")
    stage.part("t", "a", type="text", text="Hello there.")
    assert [event.text for event in stage.of(TextDelta)] == ["Hello ", "there."]


def test_after_a_gap_the_rest_of_a_text_is_emitted_when_complete() -> None:
    stage = Stage().begin()
    stage.message("a")
    stage.part("t", "a", type="text", text="")
    stage.delta("t", "Hello ")
    stage.translator.note_gap()  # "dear "
    stage.delta("t", "reader, ")
    stage.part("new", "a", type="text", text="")
    stage.delta("new", "More.")
    stage.part("t", "a", type="text", text="Hello dear reader, goodbye.")
    stage.part("new", "a", type="text", text="More.")
    assert "".join(event.text for event in stage.of(TextDelta)) == "Hello More.dear reader, goodbye."


def test_a_summary_is_not_an_answer() -> None:
    stage = Stage().begin()
    stage.complete("a", finish="tool-calls", tokens={"input": 1000, "output": 50})
    stage.message("s", summary=True)
    stage.part("t", "s", type="text", text="All that happened so far")
    stage.complete("s", summary=True, tokens={"input": 1100, "output": 70})
    stage.say("session.compacted")
    assert not stage.of(TextDelta)
    assert stage.of(Compacted) == [Compacted(1100, 70)]


def test_a_tool_starts_when_its_input_is_complete_and_ends_once() -> None:
    stage = Stage().begin()
    stage.message("a")
    stage.tool("t", "a", "pending", input={})
    assert not stage.of(ToolStarted)
    for output in ("", "one\n", "one\ntwo\n"):
        stage.tool("t", "a", "running", input={"command": "x"}, metadata={"output": output})
    for _ in range(2):
        stage.tool("t", "a", "completed", input={"command": "x"}, output="one\ntwo\n")
    stage.tool("t", "a", "running", input={"command": "x"}, metadata={"output": "late"})
    assert stage.told == [
        ToolStarted("t", "bash", {"command": "x"}),
        ToolOutput("t", "one\n"),
        ToolOutput("t", "two\n"),
        ToolEnded("t", "one\ntwo\n"),
    ]


def test_of_a_long_output_only_the_end_is_shown_and_what_is_new_is_told() -> None:
    stage = Stage().begin()
    stage.message("a")
    lines = [f"line {number}\n" for number in range(200)]
    stage.tool("t", "a", "running", metadata={"output": "".join(lines[:100])})
    stage.tool("t", "a", "running", metadata={"output": "...\n\n" + "".join(lines[40:150])})
    assert "".join(event.text for event in stage.of(ToolOutput)) == "".join(lines[:150])


def test_a_failed_tool_has_a_reason() -> None:
    stage = Stage().begin()
    stage.message("a")
    stage.tool("t", "a", "error", input={"command": "x"}, error="it is denied")
    assert stage.of(ToolEnded) == [ToolEnded("t", "", "it is denied")]


def test_a_plan_is_emitted_when_it_changes() -> None:
    stage = Stage().begin()
    for status in ("pending", "pending", "completed"):
        stage.say("todo.updated", todos=[{"content": "one", "status": status, "priority": "high"}])
    assert [event.items[0].status for event in stage.of(PlanChanged)] == ["pending", "completed"]


def test_each_call_of_the_model_is_paid_once() -> None:
    stage = Stage().begin()
    stage.message("a")
    tokens = {"input": 100, "output": 20, "reasoning": 5, "cache": {"read": 30, "write": 7}}
    for _ in range(2):
        stage.part("s", "a", type="step-finish", reason="stop", cost=0.5, tokens=tokens)
    assert stage.of(UsageReported) == [UsageReported(Usage(137, 25, 30, 0.5))]


def begin_subagent(stage: Stage, call: str, child: str, message: str = "a", session: str = ROOT) -> None:
    given = {"subagent_type": "worker", "prompt": f"do {child}"}
    stage.tool(call, message, "running", session, "task", input=given, metadata={"sessionId": child})


def test_sub_agents_carry_the_id_of_their_call_also_one_in_another() -> None:
    stage = Stage().begin()
    stage.message("a")
    begin_subagent(stage, "call", "ses_child")
    stage.message("b", "ses_child")
    begin_subagent(stage, "inner", "ses_grandchild", "b", "ses_child")
    stage.message("c", "ses_grandchild")
    stage.part("t", "c", "ses_grandchild", type="text", text="deep down")
    stage.tool("inner", "b", "completed", "ses_child", "task", output="<task_result>\nfound\n</task_result>")
    stage.idle("ses_child")
    stage.tool("call", "a", "error", tool="task", error="it broke")
    assert stage.adopted == ["ses_child", "ses_grandchild"]
    assert stage.told == [
        SubagentStarted("call", "worker", "do ses_child"),
        SubagentStarted("inner", "worker", "do ses_grandchild", agent="call"),
        TextDelta("deep down", agent="inner"),
        SubagentEnded("inner", "found", agent="call"),
        SubagentEnded("call", "", "it broke"),
    ]


def test_what_a_sub_agent_does_before_its_call_is_known_waits() -> None:
    stage = Stage().begin()
    stage.message("a")
    stage.message("b", "ses_child")
    stage.part("t", "b", "ses_child", type="text", text="early")
    assert not stage.told
    begin_subagent(stage, "call", "ses_child")
    assert stage.told[1:] == [TextDelta("early", agent="call")]


def test_a_sub_agent_that_could_not_begin_ends_all_the_same() -> None:
    stage = Stage().begin()
    stage.message("a")
    stage.tool("call", "a", "error", tool="task", input={"subagent_type": "nobody"}, error="unknown agent")
    assert stage.told == [SubagentStarted("call", "nobody"), SubagentEnded("call", "", "unknown agent")]


def test_sub_agents_end_with_the_turn() -> None:
    stage = Stage().begin()
    stage.message("a")
    begin_subagent(stage, "call", "ses_child")
    stage.complete("a", error={"name": "MessageAbortedError", "data": {}})
    stage.idle()
    assert stage.told[1:] == [SubagentEnded("call", "", "interrupted"), TurnEnded(EndReason.INTERRUPTED)]


def test_too_many_calls_of_the_model_end_the_turn() -> None:
    stage = Stage(max_turns=2).begin()
    for number in range(2):
        assert not stage.stops
        stage.message(f"m{number}")
        stage.part(f"s{number}", f"m{number}", type="step-finish", reason="tool-calls")
    assert stage.stops == 1
    stage.complete("m1", finish="tool-calls")
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is EndReason.MAX_TURNS


def test_the_last_allowed_call_may_answer() -> None:
    stage = Stage(max_turns=1).begin()
    stage.message("a")
    stage.part("s", "a", type="step-finish", reason="stop")
    stage.complete("a")
    stage.idle()
    assert (stage.stops, stage.end and stage.end.reason) == (0, EndReason.DONE)


def retry(stage: Stage, message: str, *, attempt: int, wait: float) -> None:
    stage.status("retry", attempt=attempt, message=message, next=(time.time() + wait) * 1000)


def test_a_short_wait_at_a_limit_is_told_and_waited_for() -> None:
    stage = Stage().begin()
    stage.message("a")
    retry(stage, "Too many requests", attempt=1, wait=2.1)
    assert stage.of(LimitReached) == [LimitReached(None, "Too many requests")]
    assert not stage.stops
    stage.part("t", "a", type="text", text="There you are.")
    stage.complete("a")
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is EndReason.DONE


@pytest.mark.parametrize(("message", "attempt", "wait"), [("Overloaded", 4, 17), ("whatever", 1, 600)])
def test_a_long_wait_at_a_limit_ends_the_turn_there(message: str, attempt: int, wait: float) -> None:
    stage = Stage().begin()
    stage.message("a")
    retry(stage, message, attempt=attempt, wait=wait)
    [limit] = stage.of(LimitReached)
    assert (limit.reset_at is not None) == (wait == 600)  # else it is only OpenCode's own patience
    if limit.reset_at is not None:
        assert abs(limit.reset_at - datetime.now(UTC) - timedelta(seconds=wait)) < timedelta(seconds=5)
    assert stage.stops == 1
    stage.complete("a", error={"name": "MessageAbortedError", "data": {}})
    stage.idle()
    assert stage.end is not None
    assert (stage.end.reason, stage.end.error) == (EndReason.LIMIT, message)


def test_a_call_that_fails_for_another_reason_is_no_limit() -> None:
    stage = Stage().begin()
    stage.message("a")
    retry(stage, "socket hang up", attempt=1, wait=2)
    [notice] = stage.of(Notice)
    assert "socket hang up" in notice.text
    assert not stage.stops
    retry(stage, "socket hang up", attempt=4, wait=18)
    assert stage.stops == 1
    stage.complete("a", error={"name": "MessageAbortedError", "data": {}})
    stage.idle()
    assert stage.end is not None
    assert (stage.end.reason, stage.end.error) == (EndReason.ERROR, "socket hang up")


def test_who_interrupts_gets_an_interruption_whatever_the_program_says() -> None:
    stage = Stage().begin()
    stage.turn.ending = True
    stage.idle()
    assert stage.end is not None
    assert stage.end.reason is EndReason.INTERRUPTED


def test_unknown_messages_are_counted() -> None:
    stage = Stage().begin()
    stage.say("session.juggled", balls=3)
    stage.say("session.diff", diff=[])
    stage.say("session.next.step.started")
    stage.say("message.updated", info=7)
    assert dict(stage.turn.unknown) == {"session.juggled": 1, "message.updated": 1}


def test_tokens_do_not_overlap() -> None:
    tokens = messages.Tokens(input=1, output=2, reasoning=3, cache=messages.Tokens.Cache(read=4, write=5))
    assert (tokens.read, tokens.written) == (10, 5)
