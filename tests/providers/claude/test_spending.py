"""Cost and tokens of a turn, from results of versions that report them differently."""

from __future__ import annotations

import msgspec
import pytest

from atomic.providers import Usage
from atomic.providers.claude.messages import Result
from atomic.providers.claude.spending import Spending

# Recorded from Claude Code 2.1.197, two prompts of one program; texts are shortened.
FIRST = b"""{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"duration_ms":2131,
"duration_api_ms":614,"num_turns":1,"result":"Done.","stop_reason":"end_turn","total_cost_usd":0.0006000000000000001,
"usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":20,
"service_tier":"standard","iterations":[],"speed":"standard"},
"modelUsage":{"claude-sonnet-4-5":{"inputTokens":100,"outputTokens":20,"cacheReadInputTokens":0,
"cacheCreationInputTokens":0,"webSearchRequests":0,"costUSD":0.0006000000000000001,"contextWindow":200000,
"maxOutputTokens":32000}},"permission_denials":[],"terminal_reason":"completed"}"""
SECOND = (
    FIRST.replace(b'"total_cost_usd":0.0006', b'"total_cost_usd":0.0012')
    .replace(b'"inputTokens":100,"outputTokens":20', b'"inputTokens":200,"outputTokens":40')
    .replace(b'"costUSD":0.0006', b'"costUSD":0.0012')
)
PRICE = pytest.approx(0.0006)


def read(frame: bytes) -> Result:
    return msgspec.json.decode(frame, type=Result)


def test_a_total_since_the_start_is_split_into_turns() -> None:
    spending = Spending()
    for frame in (FIRST, SECOND):
        used = spending.since_last(read(frame))
        assert (used.input, used.output, used.cost) == (100, 20, PRICE)


def test_a_new_program_begins_at_zero() -> None:
    """A resumed conversation starts a program whose first total is that of one turn."""
    spending = Spending()
    spending.since_last(read(FIRST))
    spending.program_started()
    used = spending.since_last(read(FIRST))
    assert (used.input, used.output, used.cost) == (100, 20, PRICE)


def test_a_total_that_begins_again_is_not_negative() -> None:
    spending = Spending()
    spending.since_last(read(SECOND))
    used = spending.since_last(read(FIRST))
    assert (used.input, used.output, used.cost) == (100, 20, PRICE)


def test_what_came_since_the_last_result_counts_if_it_is_reported() -> None:
    newer = (
        FIRST[:-1]
        + b""","model_usage_since_last_result":{"claude-sonnet-4-5":{"inputTokens":7,"outputTokens":3,
    "cacheReadInputTokens":0,"cacheCreationInputTokens":0,"costUSD":0.5}}}"""
    )
    spending = Spending()
    assert [spending.since_last(read(newer)) for _ in range(2)] == [Usage(7, 3, 0, 0.5)] * 2
