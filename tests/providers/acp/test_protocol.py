"""Test an agent from the configuration: its updates become events, its requests are answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import (
    ContextUsage,
    EndReason,
    LimitReached,
    NotLoggedInError,
    PlanChanged,
    PlanItem,
    ProgramFailedError,
    Question,
    QuestionAsked,
    SkillLoaded,
    SubagentEnded,
    SubagentStarted,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    UnsupportedError,
    Usage,
    tool,
)
from atomic.providers.session import LiveSession
from tests.providers.acp.sandbox import open_puppet, run_steps
from tests.providers.turns import all_of, end_of, text_of, turn


def call(id: str = "t1", **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": id, "title": "Reading a file", **fields}}


def progress(id: str = "t1", **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}}


def content(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


async def test_text_and_thinking_become_events(tmp_path: Path) -> None:
    thought = {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm."}}
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"update": thought}, {"say": "Hel"}, {"say": "lo."})
    assert [event.text for event in all_of(ThinkingDelta, events)] == ["Hm."]
    assert text_of(events) == end_of(events).text == "Hello."
    assert end_of(events).reason is EndReason.DONE


async def test_a_tool_starts_when_its_input_is_complete_and_ends_once(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(
            session,
            {"say": "Before. "},
            call(kind="read", status="pending"),
            progress(rawInput={"path": "a.txt"}),
            progress(status="in_progress", content=content("one\n")),
            progress(status="in_progress", content=content("one\ntwo\n")),
            progress(status="completed", content=content("one\ntwo\n")),
            progress(status="completed", content=content("again")),
            {"say": "After."},
        )
    assert all_of(ToolStarted, events) == [ToolStarted("t1", "read", {"path": "a.txt"})]
    assert [event.text for event in all_of(ToolOutput, events)] == ["one\n", "two\n"]
    assert all_of(ToolEnded, events) == [ToolEnded("t1", "one\ntwo\n")]
    assert end_of(events).text == "After."


async def test_a_failed_tool_has_a_reason(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, call(), progress(status="failed", rawOutput={"error": "no such file"}))
    assert all_of(ToolEnded, events) == [ToolEnded("t1", "no such file", "no such file")]


async def test_a_running_tool_ends_with_its_turn(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, call(rawInput={"a": 1}, status="in_progress"), {"exit": 3})
    assert [event.error for event in all_of(ToolEnded, events)] == ["interrupted"]
    assert end_of(events).reason is EndReason.ERROR


async def test_a_sub_agent_is_reported_with_its_tools(tmp_path: Path) -> None:
    given = {"subagent_type": "worker", "prompt": "Do it.", "description": "work"}
    inner = {"claudeCode": {"parentToolUseId": "t1", "toolName": "Bash"}}
    async with open_puppet(tmp_path) as session:
        events = await run_steps(
            session,
            {"say": "Before. "},
            call(rawInput=given, status="in_progress"),
            call("t2", rawInput={"command": "true"}, _meta=inner),
            progress("t2", status="completed", content=content("ran")),
            progress(status="completed", content=content("PART")),
            {"say": "After."},
        )
    assert all_of(SubagentStarted, events) == [SubagentStarted("t1", "worker", "Do it.")]
    assert all_of(SubagentEnded, events) == [SubagentEnded("t1", "PART")]
    assert all_of(ToolStarted, events) == [ToolStarted("t2", "Bash", {"command": "true"}, "t1")]
    assert [event.agent for event in all_of(ToolEnded, events)] == ["t1"]
    assert end_of(events).text == "After."


async def test_plans_and_skills_are_reported(tmp_path: Path) -> None:
    entries = [{"content": "one", "priority": "high", "status": "completed"}]
    entries += [{"content": "two", "priority": "low", "status": "pending"}]
    skill = call("t3", rawInput={"skill": "commit"}, _meta={"claudeCode": {"toolName": "Skill"}})
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"update": {"sessionUpdate": "plan", "entries": entries}}, skill)
    assert all_of(PlanChanged, events) == [PlanChanged((PlanItem("one", "completed"), PlanItem("two", "pending")))]
    assert all_of(SkillLoaded, events) == [SkillLoaded("commit")]


async def test_usage_cost_and_context_are_reported(tmp_path: Path) -> None:
    def meter(used: int, cost: float) -> dict[str, Any]:
        update = {"sessionUpdate": "usage_update", "used": used, "size": 1000}
        return {"update": {**update, "cost": {"amount": cost, "currency": "USD"}}}

    usage = {"totalTokens": 350, "inputTokens": 100, "outputTokens": 50, "cachedReadTokens": 200}
    async with open_puppet(tmp_path) as session:
        first = await run_steps(session, meter(150, 0.25), {"stop": {"stopReason": "end_turn", "usage": usage}})
        second = await run_steps(session, meter(300, 0.75), {"stop": {"stopReason": "end_turn", "usage": usage}})
        context = await session.context()
    assert end_of(first).usage == Usage(300, 50, 200, 0.25)
    assert end_of(second).usage == Usage(300, 50, 200, 0.5)
    assert context == ContextUsage(300, 1000)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", EndReason.DONE),
        ("max_tokens", EndReason.MAX_TURNS),
        ("max_turn_requests", EndReason.MAX_TURNS),
        ("refusal", EndReason.REFUSED),
        ("cancelled", EndReason.INTERRUPTED),
        ("a headache", EndReason.ERROR),
    ],
)
async def test_the_agents_stop_reason_decides_how_a_turn_ends(tmp_path: Path, stop: str, reason: EndReason) -> None:
    async with open_puppet(tmp_path) as session:
        assert end_of(await run_steps(session, {"stop": {"stopReason": stop}})).reason is reason


async def test_a_refused_prompt_is_an_error_and_the_next_turn_works(tmp_path: Path) -> None:
    refusal = {"code": -32603, "message": "Internal error", "data": {"details": "the model is on holiday"}}
    async with open_puppet(tmp_path) as session:
        end = end_of(await run_steps(session, {"refuse": refusal}))
        assert end.reason is EndReason.ERROR
        assert end.error == "acp:puppet: the model is on holiday"
        assert end_of(await run_steps(session, {"say": "Here."})).text == "Here."


async def test_a_limit_is_reported_with_its_reset_time(tmp_path: Path) -> None:
    refusal = {"code": -32603, "message": "429 rate limit reached, try again in 90 seconds"}
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"refuse": refusal})
    [limit] = all_of(LimitReached, events)
    assert limit.reset_at is not None
    assert end_of(events).reason is EndReason.LIMIT


async def test_permission_to_run_a_tool_is_granted_at_once(tmp_path: Path) -> None:
    options = [
        {"optionId": "n", "name": "No", "kind": "reject_once"},
        {"optionId": "a", "name": "Always", "kind": "allow_always"},
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
    ]
    ask: dict[str, Any] = {
        "leave": {"toolCall": {"toolCallId": "t1"}, "options": options, "_meta": {"options": [], "x": 1}}
    }
    nothing = {"leave": {"toolCall": {"toolCallId": "t1"}, "options": options[:1]}}
    async with open_puppet(tmp_path) as session:
        assert json.loads(text_of(await run_steps(session, ask))) == {
            "outcome": {"outcome": "selected", "optionId": "y"}
        }
        assert json.loads(text_of(await run_steps(session, nothing))) == {"outcome": {"outcome": "cancelled"}}


FORM = {
    "message": "Please choose.",
    "mode": "form",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "colour": {
                "type": "string",
                "title": "Which colour?",
                "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue", "description": "as the sea"}],
                "default": "b",
            },
            "toppings": {"type": "array", "title": "Toppings?", "items": {"type": "string", "enum": ["Nuts", "Figs"]}},
            "count": {"type": "integer", "title": "How many?"},
            "sure": {"type": "boolean", "title": "Sure?"},
            "more": {"type": "string", "title": "Anything else?"},
        },
        "required": ["colour", "sure"],
    },
}


async def test_the_user_sees_a_form_and_the_agent_gets_the_answers(tmp_path: Path) -> None:
    asked: list[Question] = []

    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        asked.extend(questions)
        return [["Red"], ["Nuts", "Figs"], ["3"], ["Yes"], []]

    async with open_puppet(tmp_path, ask=ask) as session:
        events = await run_steps(session, {"ask": FORM})
    [event] = all_of(QuestionAsked, events)
    assert list(event.questions) == asked
    assert [question.text for question in asked][:2] == ["Which colour?", "Toppings?"]
    assert [(option.label, option.description) for option in asked[0].options] == [("Red", ""), ("Blue", "as the sea")]
    assert [asked[0].default, asked[1].multi_select, asked[3].options[0].label] == ["Blue", True, "Yes"]
    contents = {"colour": "r", "toppings": ["Nuts", "Figs"], "count": 3, "sure": True}
    assert json.loads(text_of(events)) == {"action": "accept", "content": contents}


@pytest.mark.parametrize("answers", [[[], [], [], ["Yes"], []], [["Red"], [], ["many"], ["Yes"], []]])
async def test_an_invalid_answer_declines_the_form(tmp_path: Path, answers: list[list[str]]) -> None:
    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        return answers

    async with open_puppet(tmp_path, ask=ask) as session:
        assert json.loads(text_of(await run_steps(session, {"ask": FORM}))) == {"action": "decline"}


def form(field: Mapping[str, Any], *, required: bool = False) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"one": field}, "required": ["one"] if required else []}
    return {"message": "Please choose.", "mode": "form", "requestedSchema": schema}


NUTS = {"type": "array", "items": {"type": "string", "enum": ["Nuts", "Figs"]}}


@pytest.mark.parametrize(
    ("asked", "answer", "reply"),
    [
        (form({"type": ["integer", "null"]}), ["3"], {"action": "accept", "content": {"one": 3}}),
        (form({"type": ["null", "boolean"]}, required=True), ["Yes"], {"action": "accept", "content": {"one": True}}),
        (form({"type": ["string", "null"]}), [], {"action": "accept", "content": {}}),
        (form({"type": ["string", "integer"]}), ["3"], {"action": "decline"}),
        (form({"type": {"of": "string"}}), ["3"], {"action": "decline"}),
        (form(NUTS, required=True), [], {"action": "accept", "content": {"one": []}}),
        (form({**NUTS, "minItems": 1}), [], {"action": "accept", "content": {}}),
        (form({**NUTS, "minItems": 1}, required=True), [], {"action": "decline"}),
        (form({**NUTS, "minItems": 2}, required=True), ["Nuts"], {"action": "decline"}),
    ],
)
async def test_a_form_is_answered_as_its_schema_demands(
    tmp_path: Path, asked: Mapping[str, Any], answer: list[str], reply: Mapping[str, Any]
) -> None:
    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        return [answer]

    async with open_puppet(tmp_path, ask=ask) as session:
        assert json.loads(text_of(await run_steps(session, {"ask": asked}))) == reply


async def test_without_a_user_a_form_is_declined(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"ask": FORM})
    assert json.loads(text_of(events)) == {"action": "decline"}
    assert not all_of(QuestionAsked, events)


async def test_an_unanswerable_question_cancels_the_form_and_ends_the_turn(tmp_path: Path) -> None:
    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        raise OSError("the line is dead")

    async with open_puppet(tmp_path, ask=ask) as session:
        events = await run_steps(session, {"ask": FORM})
    assert json.loads(text_of(events)) == {"action": "cancel"}
    assert end_of(events).reason is EndReason.ERROR
    assert "could not be answered: OSError: the line is dead" in (end_of(events).error or "")


async def test_an_interrupt_cancels_the_question(tmp_path: Path) -> None:
    """The agent waits for the answer and would not notice the cancellation."""
    cancelled: list[bool] = []

    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        stopping.append(asyncio.create_task(session.interrupt()))
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return []

    stopping: list[asyncio.Task[None]] = []
    async with open_puppet(tmp_path, ask=ask) as session:
        events = await run_steps(session, {"ask": FORM})
        await stopping[0]
        assert end_of(events).reason is EndReason.INTERRUPTED
        assert json.loads(text_of(events)) == {"action": "cancel"}
        assert cancelled == [True]


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "session/dance"])
async def test_requests_for_files_and_terminals_are_refused(tmp_path: Path, method: str) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"call": method})
    assert json.loads(text_of(events)) == {"code": -32601, "message": f"Method not found: {method}"}


async def test_a_malformed_request_is_refused_and_the_turn_continues(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"leave": {"toolCall": "t1", "options": []}})
    assert json.loads(text_of(events))["code"] == -32602
    assert end_of(events).reason is EndReason.DONE


async def test_malformed_optional_fields_are_ignored(tmp_path: Path) -> None:
    pieces: list[Any] = [*content("one"), {"type": "content", "content": 7}, {"type": "hologram"}]
    entries: list[Any] = [{"content": "do it", "status": "pending"}, {"content": "dance", "status": "perhaps"}, 7]
    usage = {"totalTokens": 3.0, "inputTokens": 2, "outputTokens": 1, "thoughtTokens": "many"}
    async with open_puppet(tmp_path) as session:
        events = await run_steps(
            session,
            call(kind="dance", status="perhaps", rawInput={"a": 1}, _meta=[], content="none"),
            progress(status="completed", title=None, content=pieces),
            {"update": {"sessionUpdate": "plan", "entries": entries}},
            {"stop": {"stopReason": "end_turn", "usage": usage}},
        )
    assert all_of(ToolStarted, events) == [ToolStarted("t1", "Reading a file", {"a": 1})]
    assert all_of(ToolEnded, events) == [ToolEnded("t1", "one")]
    assert all_of(PlanChanged, events) == [PlanChanged((PlanItem("do it", "pending"),))]
    assert end_of(events).usage == Usage(2, 1)


async def test_a_malformed_answer_is_an_error(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        end = end_of(await run_steps(session, {"stop": {"stopReason": 7}}))
        assert "acp:puppet sent an answer of an unknown shape" in (end.error or "")
        assert "stopReason" in (end.error or "")
        assert end_of(await run_steps(session, {"say": "Here."})).text == "Here."


async def test_the_system_prompt_follows_the_first_prompt(tmp_path: Path) -> None:
    async with open_puppet(tmp_path, system_prompt="Write briefly.") as session:
        first = await run_steps(session, {"prompt": True})
        second = await run_steps(session, {"prompt": True})
    assert json.loads(text_of(first)) == ['[{"prompt": true}]\n\n<system_prompt>\nWrite briefly.\n</system_prompt>']
    assert json.loads(text_of(second)) == ['[{"prompt": true}]']


async def test_the_system_prompt_follows_the_first_prompt_after_a_command(tmp_path: Path) -> None:
    async with open_puppet(tmp_path, system_prompt="Write briefly.") as session:
        assert end_of(await turn(session, "/hello")).reason is EndReason.DONE
        assert "Write briefly." in json.loads(text_of(await run_steps(session, {"prompt": True})))[0]


async def test_half_a_character_in_a_prompt_becomes_a_question_mark(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await turn(session, '[{"say": "a\ud800b"}]')
    assert end_of(events).text == "a?b"


async def test_a_login_by_variable_is_automatic(tmp_path: Path) -> None:
    async with open_puppet(tmp_path, "--logged-out", env={"PUPPET_KEY": "x"}) as session:
        assert end_of(await run_steps(session, {"say": "In."})).text == "In."
    with pytest.raises(NotLoggedInError, match="log in"):
        async with open_puppet(tmp_path, "--logged-out"):
            pass


async def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailedError, match="version 7"):
        async with open_puppet(tmp_path, "--stale"):
            pass


async def test_unsupported_options_are_refused_when_a_session_opens(tmp_path: Path) -> None:
    async def hello() -> str:
        """Return a greeting."""
        return "hello"

    for options in ({"resume": "puppet-1"}, {"resume": "puppet-1", "fork": True}, {"custom_tools": [tool(hello)]}):
        with pytest.raises(UnsupportedError, match="acp:puppet cannot"):
            async with open_puppet(tmp_path, "--forgetful", **options):
                pass
    with pytest.raises(UnsupportedError, match="choosing the model"):
        async with open_puppet(tmp_path, model="fast"):
            pass
    with pytest.raises(UnsupportedError, match="some tools"):
        async with open_puppet(tmp_path, tools=["read"]):
            pass


async def test_the_session_has_the_capabilities_of_the_agent(tmp_path: Path) -> None:
    async with open_puppet(tmp_path, "--forgetful", "--http") as session:
        assert isinstance(session, LiveSession)
        can = session.capabilities
        assert [can.resume, can.fork, can.custom_tools, can.models] == [False, False, True, False]
        with pytest.raises(UnsupportedError):
            await session.compact()
