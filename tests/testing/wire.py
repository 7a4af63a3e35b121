"""A client for each protocol of the model server, written from the protocol documentation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import httpx2
import msgspec

from atomic.testing import ModelServer, Protocol

LIMIT = 30.0  # seconds; a shared machine can be slow, a hang still ends
PATHS = {
    Protocol.ANTHROPIC: "/v1/messages",
    Protocol.GEMINI: "/v1beta/models/scripted-1:streamGenerateContent",
    Protocol.OPENAI_CHAT: "/v1/chat/completions",
    Protocol.OPENAI_RESPONSES: "/v1/responses",
}


def path_of(protocol: Protocol, *, stream: bool) -> str:
    """Return the path of a request; only Gemini's tells whether the answer is a stream."""
    if protocol is Protocol.GEMINI and not stream:
        return "/v1beta/models/scripted-1:generateContent"
    return PATHS[protocol]


class Answer(msgspec.Struct):
    """An answer as a client reads it."""

    status: int = 200
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, Any]] = []
    tokens: dict[str, int] = {}
    stop: str = ""
    error: str = ""
    headers: dict[str, str] = {}


def request_body(
    protocol: Protocol,
    prompt: str,
    *,
    results: Sequence[str] = (),
    tools: Iterable[str] = ("write",),
    stream: bool = True,
    system: str = "You are tested.",
) -> dict[str, Any]:
    """Return a request; each result is the tool result of an earlier step."""
    body: dict[str, Any] = {"model": "scripted-1", "stream": stream, "tools": [_tool(protocol, name) for name in tools]}
    steps = [item for number, result in enumerate(results) for item in _step(protocol, f"call_{number}", result)]
    user = {"role": "user", "content": prompt}
    match protocol:
        case Protocol.GEMINI:
            return {
                "systemInstruction": {"parts": [{"text": system}]},
                "tools": [{"functionDeclarations": body["tools"]}] if body["tools"] else [],
                "contents": [{"role": "user", "parts": [{"text": prompt}]}, *steps],
            }
        case Protocol.ANTHROPIC:
            return {**body, "max_tokens": 1000, "system": system, "messages": [user, *steps]}
        case Protocol.OPENAI_CHAT:
            return {**body, "messages": [{"role": "system", "content": system}, user, *steps]}
        case Protocol.OPENAI_RESPONSES:
            return {**body, "instructions": system, "input": [user, *steps]}


def _tool(protocol: Protocol, name: str) -> dict[str, Any]:
    match protocol:
        case Protocol.ANTHROPIC:
            return {"name": name, "input_schema": {"type": "object"}}
        case Protocol.GEMINI:
            return {"name": name, "parameters": {"type": "OBJECT"}}
        case Protocol.OPENAI_CHAT:
            return {"type": "function", "function": {"name": name, "parameters": {}}}
        case Protocol.OPENAI_RESPONSES:
            return {"type": "function", "name": name, "parameters": {}}


def _step(protocol: Protocol, id: str, result: str) -> list[dict[str, Any]]:
    match protocol:
        case Protocol.ANTHROPIC:
            call: dict[str, Any] = {"type": "tool_use", "id": id, "name": "write", "input": {}}
            answer = {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": result}]}
            return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
        case Protocol.GEMINI:
            answer = {"functionResponse": {"id": id, "name": "write", "response": {"output": result}}}
            return [
                {"role": "model", "parts": [{"functionCall": {"id": id, "name": "write", "args": {}}}]},
                {"role": "user", "parts": [answer]},
            ]
        case Protocol.OPENAI_CHAT:
            call = {"id": id, "type": "function", "function": {"name": "write", "arguments": "{}"}}
            assistant = {"role": "assistant", "content": None, "tool_calls": [call]}
            return [assistant, {"role": "tool", "tool_call_id": id, "content": result}]
        case Protocol.OPENAI_RESPONSES:
            return [
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "id": "fc_1", "call_id": id, "name": "write", "arguments": "{}"},
                {"type": "function_call_output", "call_id": id, "output": result},
            ]


def client(server: ModelServer) -> httpx2.AsyncClient:
    # verify=False: nothing here is encrypted, and reading the certificates takes longer than most tests.
    return httpx2.AsyncClient(base_url=server.url, timeout=LIMIT, trust_env=False, verify=False)


async def ask(server: ModelServer, protocol: Protocol, prompt: str, **options: Any) -> Answer:
    """Send a request and return the whole answer."""
    body = request_body(protocol, prompt, **options)
    stream = options.get("stream", True)
    path = path_of(protocol, stream=stream)
    async with client(server) as http, http.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            content = json.loads(await response.aread())["error"]
            error = f"{content['status' if protocol is Protocol.GEMINI else 'type']}: {content['message']}"
            return Answer(response.status_code, error=error, headers=dict(response.headers))
        if not stream:
            return _whole(protocol, json.loads(await response.aread()))
        answer = Answer()
        async for event in events(response):
            _READERS[protocol](answer, event)
        return answer


async def events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _read_anthropic(answer: Answer, event: dict[str, Any]) -> None:
    match event:
        case {"type": "message_start", "message": message}:
            assert message["role"] == "assistant"
        case {"type": "content_block_start", "content_block": {"type": "tool_use", "name": name}}:
            answer.calls.append((name, ""))
        case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}:
            answer.text += text
        case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": text}}:
            answer.thinking += text
        case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}:
            name, so_far = answer.calls[-1]
            answer.calls[-1] = name, so_far + text
        case {"type": "message_delta", "delta": delta, "usage": usage}:
            answer.stop = delta["stop_reason"]
            answer.tokens = _anthropic_tokens(usage)
            answer.calls = [(name, json.loads(arguments)) for name, arguments in answer.calls]
        case {"type": "error", "error": error}:
            answer.error = f"{error['type']}: {error['message']}"
        case _:
            assert event["type"] in ("content_block_start", "content_block_delta", "content_block_stop", "message_stop")


def _read_chat(answer: Answer, event: dict[str, Any]) -> None:
    if "error" in event:
        answer.error = f"{event['error']['type']}: {event['error']['message']}"
        return
    if not event["choices"]:
        answer.tokens = _chat_tokens(event["usage"])
        answer.calls = [(name, json.loads(arguments)) for name, arguments in answer.calls]
        return
    choice = event["choices"][0]
    answer.text += choice["delta"].get("content") or ""
    answer.thinking += choice["delta"].get("reasoning_content") or ""
    answer.stop = choice["finish_reason"] or answer.stop
    for call in choice["delta"].get("tool_calls", ()):
        index: int = call["index"]
        if "id" in call:
            answer.calls.append((call["function"]["name"], ""))
        name, so_far = answer.calls[index]
        answer.calls[index] = name, so_far + call["function"]["arguments"]


def _read_gemini(answer: Answer, event: dict[str, Any]) -> None:
    if "error" in event:
        answer.error = f"{event['error']['status']}: {event['error']['message']}"
        return
    (candidate,) = event["candidates"]
    assert candidate["content"]["role"] == "model"
    for part in candidate["content"]["parts"]:
        match part:
            case {"functionCall": call}:
                answer.calls.append((call["name"], call["args"]))
            case {"text": text, "thought": True}:
                answer.thinking += text
            case _:
                answer.text += part["text"]
    answer.stop = candidate.get("finishReason", answer.stop)
    if usage := event.get("usageMetadata"):
        answer.tokens = {
            "read": usage["promptTokenCount"],
            "cached": usage["cachedContentTokenCount"],
            "output": usage["candidatesTokenCount"],
        }


def _read_responses(answer: Answer, event: dict[str, Any]) -> None:
    match event:
        case {"type": "response.output_text.delta", "delta": text}:
            answer.text += text
        case {"type": "response.reasoning_summary_text.delta", "delta": text}:
            answer.thinking += text
        case {"type": "response.failed", "response": {"error": error}}:
            answer.error = f"{error['code']}: {error['message']}"
        case {"type": "response.completed" | "response.incomplete", "response": response}:
            whole = _whole(Protocol.OPENAI_RESPONSES, response)
            assert (whole.text, whole.thinking) == (answer.text, answer.thinking)  # the parts and the whole agree
            answer.calls = whole.calls
            answer.tokens = whole.tokens
            answer.stop = whole.stop
        case _:
            assert event["type"].startswith("response.")


_READERS = {
    Protocol.ANTHROPIC: _read_anthropic,
    Protocol.GEMINI: _read_gemini,
    Protocol.OPENAI_CHAT: _read_chat,
    Protocol.OPENAI_RESPONSES: _read_responses,
}


def _whole(protocol: Protocol, body: dict[str, Any]) -> Answer:
    match protocol:
        case Protocol.ANTHROPIC:
            return Answer(
                text="".join(block["text"] for block in body["content"] if block["type"] == "text"),
                thinking="".join(block["thinking"] for block in body["content"] if block["type"] == "thinking"),
                calls=[(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"],
                tokens=_anthropic_tokens(body["usage"]),
                stop=body["stop_reason"],
            )
        case Protocol.GEMINI:
            answer = Answer()
            _read_gemini(answer, body)
            return answer
        case Protocol.OPENAI_CHAT:
            message = body["choices"][0]["message"]
            calls = message.get("tool_calls", ())
            return Answer(
                text=message["content"] or "",
                thinking=message.get("reasoning_content", ""),
                calls=[(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls],
                tokens=_chat_tokens(body["usage"]),
                stop=body["choices"][0]["finish_reason"],
            )
        case Protocol.OPENAI_RESPONSES:
            return _whole_response(body)


def _whole_response(body: dict[str, Any]) -> Answer:
    answer = Answer(stop=(body["incomplete_details"] or {"reason": body["status"]})["reason"])
    for item in body["output"]:
        match item["type"]:
            case "message":
                answer.text += "".join(part["text"] for part in item["content"])
            case "reasoning":
                answer.thinking += "".join(part["text"] for part in item["summary"])
            case _:
                answer.calls.append((item["name"], json.loads(item["arguments"])))
    usage = body["usage"]
    answer.tokens = {
        "read": usage["input_tokens"],
        "cached": usage["input_tokens_details"]["cached_tokens"],
        "output": usage["output_tokens"],
    }
    return answer


def _anthropic_tokens(usage: dict[str, int]) -> dict[str, int]:
    cached = usage["cache_read_input_tokens"]
    written = usage["cache_creation_input_tokens"]
    return {"read": usage["input_tokens"] + cached + written, "cached": cached, "output": usage["output_tokens"]}


def _chat_tokens(usage: dict[str, Any]) -> dict[str, int]:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {"read": usage["prompt_tokens"], "cached": cached, "output": usage["completion_tokens"]}
