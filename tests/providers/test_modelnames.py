"""Test which model of an agent fits the name in a file."""

from __future__ import annotations

import pytest

from atomic.providers import fitting_model

OPENCODE = [
    "anthropic/claude-opus-4-1", "anthropic/claude-opus-4-5", "anthropic/claude-opus-4-20250514",
    "anthropic/claude-opus-4-5-20251101",
    "anthropic/claude-sonnet-4-5", "openai/gpt-4o", "openai/gpt-4o-mini", "x/octopus-1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("original", "family", "model"),
    [
        ("openai/gpt-4o", None, "openai/gpt-4o"),
        ("GPT-4o", None, "openai/gpt-4o"),
        ("anthropic/claude-opus-4-1", "opus", "anthropic/claude-opus-4-1"),
        ("claude-opus-9", "opus", "anthropic/claude-opus-4-5"),
        (None, "opus", "anthropic/claude-opus-4-5"),
        (None, "sonnet", "anthropic/claude-sonnet-4-5"),
        (None, "haiku", None),
        ("gemini-1.5-pro", None, None),
        (None, None, None),
    ],
)
def test_a_name_selects_its_model_or_the_newest_of_its_family(
    original: str | None, family: str | None, model: str | None
) -> None:
    assert fitting_model(OPENCODE, original, family) == model
    assert fitting_model(OPENCODE[::-1], original, family) == model


def test_versions_may_have_a_dot_as_in_copilot() -> None:
    assert fitting_model(["gpt-5", "claude-sonnet-4", "claude-sonnet-4.5"], None, "sonnet") == "claude-sonnet-4.5"
    assert fitting_model([], "x", "opus") is None
