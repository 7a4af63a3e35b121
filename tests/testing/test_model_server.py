"""Test every element of a script over the wire, in each protocol."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest

from atomic.testing import (
    Big,
    Call,
    CallState,
    Cut,
    Drip,
    Fail,
    HalfCharacter,
    ModelServer,
    Pause,
    Protocol,
    Say,
    Script,
    ScriptNameError,
    Stall,
    Stop,
    Think,
    Tokens,
)
from tests.testing.wire import LIMIT, PATHS, ask, client, events, path_of, request_body

each_protocol = pytest.mark.parametrize("protocol", list(Protocol))
streamed_or_whole = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def post(http: httpx2.AsyncClient, protocol: Protocol, prompt: str, **options: Any) -> Any:
    """Open a stream without reading it."""
    path = path_of(protocol, stream=options.get("stream", True))
    return http.stream("POST", path, json=request_body(protocol, prompt, **options))


async def raw_bytes(server: ModelServer, protocol: Protocol, prompt: str, *, stream: bool) -> tuple[list[bytes], bool]:
    """Return the pieces of the body as they arrive, and whether it was complete."""
    pieces: list[bytes] = []
    async with client(server) as http, post(http, protocol, prompt, stream=stream) as response:
        try:
            async for piece in response.aiter_raw():
                pieces.append(piece)
        except (httpx2.RemoteProtocolError, httpx2.ReadError):
            return pieces, False
    return pieces, True


@each_protocol
@streamed_or_whole
async def test_text_thinking_and_a_tool_call_arrive(protocol: Protocol, stream: bool) -> None:
    turn = [
        Think("Let me see. This takes a while."),
        Say("I write a file with ümläuts."),
        Call("write", {"n": [1, "ü"]}),
    ]
    async with ModelServer({"go": [turn]}) as server:
        answer = await ask(server, protocol, "@@go@@", stream=stream)
    assert (answer.thinking, answer.text) == ("Let me see. This takes a while.", "I write a file with ümläuts.")
    assert answer.calls == [("write", {"n": [1, "ü"]})]


@each_protocol
@streamed_or_whole
async def test_two_calls_in_one_turn_stay_separate(protocol: Protocol, stream: bool) -> None:
    async with ModelServer({"go": [[Call("a", {"long": "x" * 500}), Call("b", {})]]}) as server:
        answer = await ask(server, protocol, "@@go@@", stream=stream)
    assert answer.calls == [("a", {"long": "x" * 500}), ("b", {})]


async def test_each_call_has_its_own_id_unless_the_script_gives_one() -> None:
    async with ModelServer({"go": [[Call("a"), Call("a"), Call("a", id="mine")]]}) as server, client(server) as http:
        body = request_body(Protocol.ANTHROPIC, "@@go@@", stream=False)
        blocks = (await http.post(PATHS[Protocol.ANTHROPIC], json=body)).json()["content"]
    ids = [block["id"] for block in blocks]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"


@each_protocol
async def test_texts_with_a_pause_between_them_are_one_text(protocol: Protocol) -> None:
    async with (
        ModelServer({"go": [["one ", Pause(0.01), "two"]]}) as server,
        client(server) as http,
        post(http, protocol, "@@go@@") as response,
    ):
        seen = [event async for event in events(response)]
    begun = [e for e in seen if e.get("type") in ("content_block_start", "response.output_item.added")]
    assert len(begun) == (0 if protocol in (Protocol.GEMINI, Protocol.OPENAI_CHAT) else 1)


@each_protocol
@streamed_or_whole
async def test_tokens_are_counted_as_in_the_protocol(protocol: Protocol, stream: bool) -> None:
    turn = ["Hello.", Tokens(input=1000, output=500, cached=200, written=30)]
    async with ModelServer({"go": [turn]}) as server:
        answer = await ask(server, protocol, "@@go@@", stream=stream)
    assert answer.tokens == {"read": 1230, "cached": 200, "output": 500}


@streamed_or_whole
async def test_an_answer_has_a_stop_reason(stream: bool) -> None:
    scripts: dict[str, Script] = {
        "done": "Done.",
        "call": Call("write"),
        "refusal": [["No.", Stop("refusal")]],
        "length": [["And then", Stop("length")]],
    }
    async with ModelServer(scripts) as server:
        stops = {
            protocol: [(await ask(server, protocol, f"@@{name}@@", stream=stream)).stop for name in scripts]
            for protocol in Protocol
        }
    assert stops == {
        Protocol.ANTHROPIC: ["end_turn", "tool_use", "refusal", "max_tokens"],
        Protocol.GEMINI: ["STOP", "STOP", "SAFETY", "MAX_TOKENS"],
        Protocol.OPENAI_CHAT: ["stop", "tool_calls", "content_filter", "length"],
        Protocol.OPENAI_RESPONSES: ["completed", "completed", "content_filter", "max_output_tokens"],
    }


@each_protocol
async def test_an_answer_of_8_mb_arrives_whole(protocol: Protocol) -> None:
    async with ModelServer({"go": Big(8_000_000)}) as server:
        answer = await ask(server, protocol, "@@go@@")
    assert len(answer.text) == 8_000_000


@each_protocol
async def test_only_the_conversation_decides_the_turn(protocol: Protocol) -> None:
    script = [Call("write"), Call("write"), "Done: {{tool_result}} by {{model}}"]
    async with ModelServer({"go": script}) as server:
        late = await ask(server, protocol, "@@go@@", results=["one", "two"])
        early = await ask(server, protocol, "@@go@@")
        over = await ask(server, protocol, "@@go@@", results=["1", "2", "3"])
    assert late.text == "Done: two by scripted-1"
    assert early.calls == [("write", {})]
    assert over.text == "(the script go is over)"
    assert [call.turn for call in server.calls] == [2, 0, 3]


async def test_the_newest_marker_selects_the_script_and_starts_its_turns() -> None:
    messages = [
        {"role": "user", "content": "@@old@@"},
        {"role": "assistant", "content": "old answer"},
        {"role": "user", "content": "@@older@@ but @@new@@ <system-reminder>@@old@@</system-reminder>"},
        {"role": "system", "content": "@@old@@"},
    ]
    async with ModelServer({"old": "old", "older": "older", "new": "new"}) as server, client(server) as http:
        body = {**request_body(Protocol.ANTHROPIC, "", stream=False), "messages": messages}
        answer = (await http.post(PATHS[Protocol.ANTHROPIC], json=body)).json()
    assert answer["content"][0]["text"] == "new"
    assert (server.calls[0].user_text, server.calls[0].turn) == ("@@older@@ but @@new@@", 0)


@each_protocol
async def test_a_request_without_tools_gets_the_side_text(protocol: Protocol) -> None:
    async with ModelServer({"go": "scripted", "plain": "plain"}, side_text="A title", toolless=["plain"]) as server:
        texts = [(await ask(server, protocol, f"@@{name}@@", tools=())).text for name in ("go", "plain")]
    assert texts == ["A title", "plain"]
    assert [call.script for call in server.calls] == [None, "plain"]


@each_protocol
async def test_a_request_for_the_title_of_a_session_gets_the_side_text(protocol: Protocol) -> None:
    """Claude Code quotes the session, and so the marker of its script."""
    quoted = "<session>\n@@plain@@ Go on.\n</session>\nWrite the title."
    async with ModelServer({"plain": "plain"}, side_text="A title", toolless=["plain"]) as server:
        answer = await ask(server, protocol, quoted, tools=())
    assert (answer.text, server.calls[0].script) == ("A title", None)


async def test_a_thought_of_gemini_is_sent_in_one_piece() -> None:
    async with (
        ModelServer({"go": [[Think("I ponder the question."), "It is done. " * 10]]}) as server,
        client(server) as http,
        post(http, Protocol.GEMINI, "@@go@@") as response,
    ):
        seen = [event async for event in events(response)]
    parts = [part for event in seen for part in event["candidates"][0]["content"]["parts"]]
    assert [part["text"] for part in parts if part.get("thought")] == ["I ponder the question."]
    assert len([part for part in parts if not part.get("thought")]) > 1


async def test_a_prompt_with_an_unknown_script_gets_an_explanation() -> None:
    async with ModelServer({"hello": "Hello."}) as server:
        no_marker = await ask(server, Protocol.ANTHROPIC, "hello")
        misspelt = await ask(server, Protocol.ANTHROPIC, "@@helo@@")
    async with ModelServer(default=[Think("hm"), "Whatever."]) as server:
        own = await ask(server, Protocol.ANTHROPIC, "hello")
    assert (no_marker.text, own.text) == ("(unscripted)", "Whatever.")
    assert misspelt.text == 'there is no script "helo" (did you mean "hello"?)'


async def test_a_function_can_select_the_script_of_a_prompt_without_a_marker() -> None:
    def named(text: str) -> str | None:
        return "work" if text.startswith("[atomic role=worker") else None

    async with ModelServer({"work": "Done.", "hello": "Hello."}, named=named) as server:
        worker = await ask(server, Protocol.ANTHROPIC, "[atomic role=worker task=1 attempt=1]\n\nDo it.")
        marked = await ask(server, Protocol.ANTHROPIC, "[atomic role=worker task=1 attempt=1]\n\n@@hello@@")
        other = await ask(server, Protocol.ANTHROPIC, "Do it.")
    assert (worker.text, marked.text, other.text) == ("Done.", "Hello.", "(unscripted)")


@each_protocol
async def test_a_call_with_several_tools_uses_the_first_available_one(protocol: Protocol) -> None:
    scripts: dict[str, Script] = {
        "names": Call(["Agent", "Task", "task"], {"prompt": "go"}),
        "inputs": Call({"Write": {"file_path": "a"}, "create": {"path": "a"}}),
        "none": Call(["first", "second"]),
    }
    async with ModelServer(scripts) as server:
        calls = [(await ask(server, protocol, f"@@{n}@@", tools=["task", "create", "Task"])).calls[0] for n in scripts]
    assert calls == [("Task", {"prompt": "go"}), ("create", {"path": "a"}), ("first", {})]


async def test_an_input_can_quote_a_tool_result() -> None:
    script = ["", Call("write", {"list": [{"text": "<{{tool_result}}>"}], "n": 1})]
    async with ModelServer({"go": script}) as server:
        answer = await ask(server, Protocol.OPENAI_CHAT, "@@go@@", results=["{{model}}"])
    # A placeholder in the quoted result is not expanded.
    assert answer.calls == [("write", {"list": [{"text": "<{{model}}>"}], "n": 1})]


async def test_parallel_requests_do_not_affect_each_other() -> None:
    script = [[Pause(0.01 * n), f"turn {n}: {{{{tool_result}}}}"] for n in range(5)]
    async with ModelServer({"go": script}) as server:
        wanted = [(protocol, steps) for protocol in Protocol for steps in range(5) for _ in range(3)]
        answers = await asyncio.gather(
            *(ask(server, p, f"@@go@@ {n}", results=[f"r{i}" for i in range(s)]) for n, (p, s) in enumerate(wanted))
        )
    assert [a.text for a in answers] == [f"turn {s}: " + (f"r{s - 1}" if s else "") for _, s in wanted]


@each_protocol
@streamed_or_whole
async def test_a_pause_at_the_beginning_delays_the_first_byte(protocol: Protocol, stream: bool) -> None:
    async with ModelServer({"go": [[Pause(LIMIT), "Hello."]]}) as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=0.3, trust_env=False) as http:
            with pytest.raises(httpx2.ReadTimeout):
                await http.post(path_of(protocol, stream=stream), json=request_body(protocol, "@@go@@", stream=stream))
        call = await server.wait_for(lambda call: call.state is not CallState.OPEN)
    assert call.state is CallState.CLIENT_CLOSED


@each_protocol
async def test_a_drip_sends_words_one_by_one_until_the_client_disconnects(protocol: Protocol) -> None:
    async with ModelServer({"go": Drip("w", times=1000, every=0.02)}) as server:
        started = time.monotonic()
        async with client(server) as http, post(http, protocol, "@@go@@") as response:
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if "w5 " in text:
                    break
        took = time.monotonic() - started
        call = await server.wait_for(lambda call: call.state is not CallState.OPEN)
    assert "w900 " not in text
    assert took >= 4 * 0.02
    assert call.state is CallState.CLIENT_CLOSED


async def test_a_drip_ends_after_the_given_times() -> None:
    async with ModelServer({"go": Drip("w", times=3, every=0)}) as server:
        assert (await ask(server, Protocol.ANTHROPIC, "@@go@@", stream=False)).text == "w1 w2 w3 "


@each_protocol
@streamed_or_whole
async def test_a_failure_has_the_type_of_its_status_and_its_headers(protocol: Protocol, stream: bool) -> None:
    statuses = (400, 401, 429, 500, 529, 599)
    scripts: dict[str, Script] = {
        str(status): Fail(status, message="no", headers={"retry-after": str(status)}) for status in statuses
    }
    async with ModelServer(scripts) as server:
        answers = [await ask(server, protocol, f"@@{status}@@", stream=stream) for status in statuses]
    types = ["invalid_request_error", "authentication_error", "rate_limit_error", "server_error", "overloaded_error"]
    if protocol is Protocol.ANTHROPIC:
        types[3] = "api_error"
    elif protocol is Protocol.GEMINI:
        types = ["INVALID_ARGUMENT", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE"]
    types.append(types[3])  # of an unknown status
    assert [(answer.status, answer.error) for answer in answers] == [
        (status, f"{type}: no") for status, type in zip(statuses, types, strict=True)
    ]
    assert [answer.headers["retry-after"] for answer in answers] == [str(status) for status in statuses]
    assert {call.state for call in server.calls} == {CallState.ANSWERED}


async def test_a_failure_can_name_its_own_type() -> None:
    async with ModelServer({"go": [[Pause(0.01), Fail(400, "context_length_exceeded", "too long")]]}) as server:
        answer = await ask(server, Protocol.OPENAI_CHAT, "@@go@@")
    assert (answer.status, answer.error) == (400, "context_length_exceeded: too long")
    assert "retry-after" not in answer.headers


@each_protocol
async def test_a_failure_can_end_after_some_attempts(protocol: Protocol) -> None:
    turn = [Fail(429, times=2), Fail(529, times=1), "At last."]
    async with ModelServer({"go": ["", turn]}) as server:
        tries = [await ask(server, protocol, "@@go@@ one", results=["r"]) for _ in range(4)]
        other = await ask(server, protocol, "@@go@@ two", results=["r"])
    assert [answer.status for answer in tries] == [429, 429, 529, 200]
    assert tries[-1].text == "At last."
    assert other.status == 429  # another conversation has its own failures


@each_protocol
async def test_a_failure_after_some_text_is_an_event_of_the_stream(protocol: Protocol) -> None:
    async with ModelServer({"go": [["Some text", Fail(529, message="busy"), "never"]]}) as server:
        answer = await ask(server, protocol, "@@go@@")
        whole = await ask(server, protocol, "@@go@@", stream=False)
    error = "UNAVAILABLE: busy" if protocol is Protocol.GEMINI else "overloaded_error: busy"
    assert (answer.status, answer.text, answer.error) == (200, "Some text", error)
    assert (whole.status, whole.error) == (529, error)


@each_protocol
@streamed_or_whole
async def test_a_stalled_answer_stays_open_until_the_client_disconnects(protocol: Protocol, stream: bool) -> None:
    async with (
        ModelServer({"go": [["Some text", Stall(), "never"]]}) as server,
        client(server) as http,
        post(http, protocol, "@@go@@", stream=stream) as response,
    ):
        pieces = response.aiter_raw()
        first = b""
        while (b"Some text" if stream else b"{") not in first:
            first += await anext(pieces)
        await server.wait_for(lambda call: call.state is CallState.STALLED)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await anext(pieces)
        assert b"never" not in first
        await response.aclose()
        await server.wait_for(lambda call: call.state is CallState.CLIENT_CLOSED)


@each_protocol
@streamed_or_whole
async def test_a_stalled_answer_ends_with_the_server(protocol: Protocol, stream: bool) -> None:
    async with ModelServer({"go": Stall()}) as server:
        asking = asyncio.create_task(raw_bytes(server, protocol, "@@go@@", stream=stream))
        await server.wait_for(lambda call: call.state is CallState.STALLED)
    async with asyncio.timeout(LIMIT):
        _, is_complete = await asking
    assert not is_complete
    assert server.calls[0].state is CallState.STALLED


@each_protocol
async def test_a_cut_answer_ends_in_the_middle_of_an_event(protocol: Protocol) -> None:
    async with ModelServer({"go": [["Some text", Cut(), "never"]]}) as server:
        pieces, is_complete = await raw_bytes(server, protocol, "@@go@@", stream=True)
        half, whole_is_complete = await raw_bytes(server, protocol, "@@go@@", stream=False)
    body = b"".join(pieces)
    assert not is_complete
    assert b"Some text" in body
    assert b"never" not in body
    assert not body.endswith(b"\n\n")
    assert b"".join(half).startswith(b"{")
    assert not whole_is_complete
    assert {call.state for call in server.calls} == {CallState.ANSWERED}


@each_protocol
@streamed_or_whole
@pytest.mark.parametrize("after", [0, 1, 1000], ids=["at once", "one byte", "some events"])
async def test_an_answer_can_be_cut_after_some_bytes(protocol: Protocol, stream: bool, after: int) -> None:
    text = "Some text. " * 100
    async with ModelServer({"go": [[Cut(after), text]], "all": [[Cut(1_000_000), text]]}) as server:
        pieces, is_complete = await raw_bytes(server, protocol, "@@go@@", stream=stream)
        _, all_is_complete = await raw_bytes(server, protocol, "@@all@@", stream=stream)
    assert (len(b"".join(pieces)), is_complete) == (after, False)
    assert all_is_complete


@each_protocol
@streamed_or_whole
@pytest.mark.parametrize("character", ["ü", "€", "😀"])
async def test_half_a_character_is_sent_before_the_rest(protocol: Protocol, stream: bool, character: str) -> None:
    async with ModelServer({"go": [["before ", HalfCharacter(character), " after"]]}) as server:
        pieces, is_complete = await raw_bytes(server, protocol, "@@go@@", stream=stream)
        answer = await ask(server, protocol, "@@go@@", stream=stream)
    first = character.encode()[:1]
    assert is_complete
    assert [piece for piece in pieces if piece.endswith(first)]
    assert [piece for piece in pieces if piece.startswith(character.encode()[1:])]
    assert answer.text == f"before {character} after"


@each_protocol
@streamed_or_whole
async def test_an_answer_can_end_with_half_a_character(protocol: Protocol, stream: bool) -> None:
    async with ModelServer({"go": [["before ", HalfCharacter(cut=True), " after"]]}) as server:
        pieces, is_complete = await raw_bytes(server, protocol, "@@go@@", stream=stream)
    assert not is_complete
    assert b"".join(pieces).endswith("€".encode()[:1])


async def test_an_error_in_a_script_is_raised_when_the_server_closes() -> None:
    server = await ModelServer({"go": Call("write", {"no json": object()})}).__aenter__()
    with pytest.raises(httpx2.RemoteProtocolError):
        await ask(server, Protocol.ANTHROPIC, "@@go@@")
    with pytest.raises(ExceptionGroup) as failed:
        await server.__aexit__(None, None, None)
    assert failed.group_contains(TypeError)


def test_an_invalid_script_is_refused() -> None:
    with pytest.raises(ScriptNameError, match='"two words"'):
        ModelServer({"two words": "Hello."})
    for wrong in (lambda: Fail(200), lambda: Cut(-1), lambda: HalfCharacter("x"), lambda: HalfCharacter("üü")):
        with pytest.raises(ValueError, match=r"Fail|Cut|HalfCharacter"):
            wrong()
