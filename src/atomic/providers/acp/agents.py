"""Agents by name: their programs and features."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.providers.base import Capabilities
from atomic.providers.errors import ProgramMissingError, ProviderError, UnknownProviderError


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A known agent."""

    program: str = ""
    args: tuple[str, ...] = ()
    install: str = ""
    login: str
    own: tuple[str, ...] = ()  # its variables; a name that ends with `_` is a prefix
    can: Capabilities
    has_compact_focus: bool = False  # its command /compact accepts a focus
    model_flag: str = ""  # the model can only be set at the start


KNOWN: Mapping[str, Known] = {
    "claude": Known(
        program="claude-agent-acp",
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        login="run `claude` once and log in, or set ANTHROPIC_API_KEY",
        own=("ANTHROPIC_", "CLAUDE_", "DISABLE_", "IS_SANDBOX"),
        can=Capabilities(
            resume=True,
            fork=True,
            custom_tools=True,
            mcp_servers=True,
            questions=True,
            multi_select=True,
            system_prompt=True,
            models=True,
            thinking=True,
            usage=True,
            cost=True,
            context_meter=True,
            compact=True,
        ),
        has_compact_focus=True,
    ),
    "codex": Known(
        program="codex-acp",
        install="npm install -g @agentclientprotocol/codex-acp",
        login="run `codex login`, or set OPENAI_API_KEY",
        own=("CODEX_", "OPENAI_"),
        can=Capabilities(
            resume=True,
            mcp_servers=True,
            system_prompt=True,
            models=True,
            thinking=True,
            usage=True,
            compact=True,
        ),
    ),
    "gemini": Known(
        program="gemini",
        args=("--acp",),
        install="npm install -g @google/gemini-cli",
        login="run `gemini` once and log in, or set GEMINI_API_KEY",
        own=("GEMINI_", "GOOGLE_"),
        can=Capabilities(resume=True, system_prompt=True, thinking=True),
        model_flag="--model",
    ),
}

# An agent that only the configuration names: all features of the protocol. Features
# that it does not support are refused after it has reported its capabilities.
UNKNOWN = Known(
    login="log in with the agent's own program",
    can=Capabilities(
        resume=True,
        fork=True,
        custom_tools=True,
        mcp_servers=True,
        questions=True,
        multi_select=True,
        system_prompt=True,
        models=True,
    ),
)


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be started."""

    name: str  # after `acp:`
    command: tuple[str, ...] = ()  # from the configuration; empty: the known one
    known: Known = UNKNOWN

    @property
    def provider(self) -> str:
        return f"acp:{self.name}"


def find_agent(name: str, settings: Settings) -> Agent:
    """Return the agent of that name; the configuration overrides known agents.

    Raise UnknownProviderError.
    """
    configured = settings.acp.get(name)
    if configured is None and name not in KNOWN:
        raise UnknownProviderError(f"acp:{name}", [f"acp:{one}" for one in sorted({*KNOWN, *settings.acp})])
    if configured is not None and not configured.command:
        raise ProviderError(
            f"[acp.{name}] has an empty command",
            provider=f"acp:{name}",
            remedy="set it to the agent's program and arguments",
        )
    command = () if configured is None else tuple(configured.command)
    return Agent(name=name, command=command, known=KNOWN.get(name, UNKNOWN))


def command_line(agent: Agent) -> tuple[str, ...]:
    """Return the program's path and its first arguments. Raise ProgramMissingError."""
    program, *args = agent.command or (agent.known.program, *agent.known.args)
    found = shutil.which(Path(program).expanduser())
    if found is None:
        correction = f"install it, or correct [acp.{agent.name}] command"
        raise ProgramMissingError(
            f"{agent.provider}: the program '{program}' is not installed",
            provider=agent.provider,
            remedy=correction if agent.command else agent.known.install,
        )
    return (str(Path(found).absolute()), *args)  # the agent runs in another folder
