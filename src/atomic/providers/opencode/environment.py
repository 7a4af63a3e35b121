"""The program's environment: the user's, with keys of the model providers in use only."""

from __future__ import annotations

from collections.abc import Iterable

from atomic.config import Settings
from atomic.providers.base import SessionOptions
from atomic.providers.environment import base_environment, child_environment
from atomic.providers.opencode.configuration import UserConfiguration, split_model

# Variables whose names do not follow from the provider's, from OpenCode's own table.
_NAMES: dict[str, tuple[str, ...]] = {
    "alibaba": ("DASHSCOPE_API_KEY",),
    "alibaba-cn": ("DASHSCOPE_API_KEY",),
    "amazon-bedrock": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_SHARED_CREDENTIALS_FILE",
    ),
    "cloudflare-ai-gateway": ("CLOUDFLARE_API_TOKEN", "CF_AIG_TOKEN"),
    "cloudflare-workers-ai": ("CLOUDFLARE_API_KEY", "CLOUDFLARE_API_TOKEN"),
    "digitalocean": ("DIGITALOCEAN_ACCESS_TOKEN",),
    "fireworks-ai": ("FIREWORKS_API_KEY",),
    "github-copilot": ("GITHUB_TOKEN",),
    "github-models": ("GITHUB_TOKEN",),
    "google": ("GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
    "google-vertex": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "google-vertex-anthropic": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "huggingface": ("HF_TOKEN",),
    "io-net": ("IOINTELLIGENCE_API_KEY",),
    "moonshotai": ("MOONSHOT_API_KEY",),
    "moonshotai-cn": ("MOONSHOT_API_KEY",),
    "novita-ai": ("NOVITA_API_KEY",),
    "ollama-cloud": ("OLLAMA_API_KEY",),
    "sap-ai-core": ("AICORE_SERVICE_KEY",),
    "togetherai": ("TOGETHER_API_KEY",),
    "vercel": ("AI_GATEWAY_API_KEY",),
    "volcengine": ("ARK_API_KEY",),
    "watsonx": ("WATSONX_AI_APIKEY",),
    "zai": ("ZHIPU_API_KEY",),
    "zai-coding-plan": ("ZHIPU_API_KEY",),
    "zhipuai": ("ZHIPU_API_KEY",),
    "zhipuai-coding-plan": ("ZHIPU_API_KEY",),
}
_ENDINGS = ("API_KEY", "API_TOKEN", "ACCESS_TOKEN", "AUTH_TOKEN", "TOKEN", "KEY")

# The providers without a configuration: their keys give access to models only. A key
# for a whole account (AWS, GitHub, Cloudflare, …) is passed only if its provider is
# configured.
USUAL = (
    "anthropic",
    "cerebras",
    "cohere",
    "deepinfra",
    "deepseek",
    "fireworks-ai",
    "google",
    "groq",
    "huggingface",
    "mistral",
    "moonshotai",
    "nvidia",
    "openai",
    "openrouter",
    "perplexity",
    "togetherai",
    "vercel",
    "xai",
    "zai",
)


def variables_of(providers: Iterable[str]) -> set[str]:
    """Return the variables that may hold the keys of these providers."""
    names: set[str] = set()
    for provider in providers:
        prefix = "".join(letter if letter.isalnum() else "_" for letter in provider.upper())
        names.update(_NAMES.get(provider, ()), (f"{prefix}_{ending}" for ending in _ENDINGS))
    return names


def environment(settings: Settings, user: UserConfiguration, options: SessionOptions) -> dict[str, str]:
    """Return the user's variables, with keys of the model providers in use only."""
    providers = user.providers() or set(USUAL)
    if options.model is not None:
        providers.add(split_model(options.model)[0])
    variables = variables_of(providers) | user.variables
    return child_environment(
        ("OPENCODE_", *sorted(variables)),
        passed=settings.env.pass_,
        extra={**settings.provider("opencode").env, **(options.env or {})},
        base=base_environment(settings),
    )
