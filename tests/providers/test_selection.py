"""Find the model that a file names among the models of the agent in use."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from atomic.commands import TurnPrompt
from atomic.providers import AgentProvider, Capabilities, ModelInfo
from atomic.providers.selection import ModelFinder


class Provider:
    """An agent with a list of models."""

    def __init__(self, name: str, *models: str) -> None:
        self.name = name
        self.capabilities = Capabilities(models=bool(models))
        self.listed = 0
        self._models = models

    async def models(self) -> Sequence[ModelInfo]:
        self.listed += 1
        return [ModelInfo(model) for model in self._models]


OPENCODE = "anthropic/claude-opus-4-5", "openai/gpt-5"


@pytest.mark.parametrize(
    ("agent", "models", "written_for", "original", "family", "model"),
    [
        ("claude", (), "opencode", "anthropic/claude-opus-4-5", "opus", "opus"),
        ("claude", (), "claude", "claude-opus-4-1", "opus", "claude-opus-4-1"),
        ("claude", (), "claude", "SONNET", "sonnet", "sonnet"),
        ("claude", (), "claude", "gpt-4o", None, None),
        ("opencode", OPENCODE, "atomic", "opus", "opus", "anthropic/claude-opus-4-5"),
        ("opencode", OPENCODE, "opencode", "openai/gpt-5", None, "openai/gpt-5"),
        ("opencode", OPENCODE, "copilot", "gpt-5", None, None),  # written for another agent
        ("opencode", OPENCODE, "atomic", "gpt-5", None, "openai/gpt-5"),
        ("opencode", OPENCODE, "atomic", "inherit", None, None),
        ("opencode", OPENCODE, "atomic", None, None, None),
        ("acp:x", (), "atomic", "opus", "opus", None),
    ],
)
async def test_a_model_of_a_file_is_mapped_to_a_model_of_the_agent(
    agent: str, models: tuple[str, ...], written_for: str, original: str | None, family: str | None, model: str | None
) -> None:
    warnings: list[str] = []
    prompt = TurnPrompt(text="x", model=family, original_model=original, provider=written_for)
    assert await ModelFinder(as_provider(Provider(agent, *models)), warnings.append).find(prompt) == model
    assert warnings == []


async def test_a_model_that_the_agent_does_not_have_causes_a_warning() -> None:
    warnings: list[str] = []
    finder = ModelFinder(as_provider(Provider("opencode", *OPENCODE)), warnings.append)
    assert await finder.find(TurnPrompt(text="x", model="haiku")) is None
    assert warnings == ["opencode has no model haiku: it uses its default"]


async def test_the_agent_lists_its_models_at_most_once() -> None:
    provider = Provider("opencode", *OPENCODE)
    finder = ModelFinder(as_provider(provider), print)
    await finder.find(TurnPrompt(text="x"))
    assert provider.listed == 0
    for _ in range(2):
        await finder.find(TurnPrompt(text="x", model="opus"))
    assert provider.listed == 1


def as_provider(provider: Provider) -> AgentProvider:
    return provider  # pyright: ignore[reportReturnType]  # no session is opened here
