"""Agents by name: programs, features, and deviations from the protocol.

The quirks of OpenCode and Copilot were observed on the real programs. An agent that
only the user's configuration names has none: it follows the protocol.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.providers.base import Capabilities
from atomic.providers.errors import ProgramMissingError, ProviderError, UnknownProviderError
from atomic.providers.programs import find_program


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent deviates from the protocol."""

    input_grows: bool = False  # the input of a pending tool is incomplete
    titles_are_names: bool = False  # the first title of a call is the tool's name
    unknown_commands_vanish: bool = False  # "/etc/hosts is wrong" gets no answer
    usage_adds_up: bool = False  # a turn reports the usage of the whole session
    prints_as_the_model: bool = False  # notices and errors come as text: "Info: ...", "Error: ..."
    subagents_are_unnamed: bool = False  # a sub-agent's text looks like the agent's own
    any_model: bool = False  # models that are not offered can be set
    compact: bool = False  # has the command /compact
    compact_focus: bool = False  # /compact accepts a focus
    model_variable: str = ""  # in which the user sets the model
    model_flag: str = ""  # the model can only be set at the start
    only_tools_flag: str = ""
    denied_tools_flag: str = ""
    mcp_off_flag: str = ""  # disables a server
    mcp_file_flag: str = ""  # for servers that are programs


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A known agent."""

    program: str = ""
    args: tuple[str, ...] = ()
    install: str = ""
    login: str
    own: tuple[str, ...] = ()  # its variables; a name that ends with `_` is a prefix
    can: Capabilities
    quirks: Quirks = Quirks()
    spelling: str = ""  # the spelling of its tools' names
    settings: str = ""  # the provider whose path and settings apply to it


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
        quirks=Quirks(compact=True, compact_focus=True),
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
        quirks=Quirks(compact=True),
    ),
    "copilot": Known(
        program="copilot",
        args=("--acp",),
        install="npm install -g @github/copilot",
        login="run `copilot login`, or set COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL",
        own=("COPILOT_", "GH_", "GITHUB_"),
        can=Capabilities(
            resume=True,
            custom_tools=True,
            mcp_servers=True,
            mcp_switching=True,
            system_prompt=True,
            tool_selection=True,
            models=True,
            thinking=True,
            usage=True,
            context_meter=True,
            compact=True,
        ),
        quirks=Quirks(
            usage_adds_up=True,
            prints_as_the_model=True,
            subagents_are_unnamed=True,
            any_model=True,
            model_variable="COPILOT_MODEL",
            compact=True,
            compact_focus=True,
            only_tools_flag="--available-tools",
            denied_tools_flag="--excluded-tools",
            mcp_off_flag="--disable-mcp-server",
            mcp_file_flag="--additional-mcp-config",
        ),
        spelling="copilot",
        settings="copilot",
    ),
    "gemini": Known(
        program="gemini",
        args=("--acp",),
        install="npm install -g @google/gemini-cli",
        login="run `gemini` once and log in, or set GEMINI_API_KEY",
        own=("GEMINI_", "GOOGLE_"),
        can=Capabilities(resume=True, system_prompt=True, thinking=True),
        quirks=Quirks(model_flag="--model"),
    ),
    "opencode": Known(
        program="opencode",
        # It retries a failed call endlessly and reports that only in its log.
        args=("acp", "--print-logs", "--log-level", "ERROR"),
        install="npm install -g opencode-ai",
        login="run `opencode auth login`",
        own=("OPENCODE_",),
        can=Capabilities(
            resume=True,
            fork=True,
            custom_tools=True,
            mcp_servers=True,
            mcp_switching=True,
            system_prompt=True,
            models=True,
            thinking=True,
            # Not `usage`: it reports only the tokens of a turn's last model call.
            cost=True,
            context_meter=True,
            compact=True,
        ),
        quirks=Quirks(
            input_grows=True,
            titles_are_names=True,
            unknown_commands_vanish=True,
            compact=True,
        ),
        spelling="opencode",
        settings="opencode",
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

    @property
    def capabilities(self) -> Capabilities:
        return self.known.can

    @property
    def quirks(self) -> Quirks:
        return self.known.quirks

    @property
    def is_opencode(self) -> bool:
        return self.known.settings == "opencode"


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


def command_line(agent: Agent, settings: Settings) -> tuple[str, ...]:
    """Return the program's path and its first arguments. Raise ProgramMissingError."""
    known = agent.known
    if agent.command:
        first = str(_on_path(agent, agent.command[0], remedy=f"install it, or correct [acp.{agent.name}] command"))
        return (first, *agent.command[1:])
    if known.settings:
        path = find_program(known.settings, known.program, settings, install=known.install)
    else:
        path = _on_path(agent, known.program, remedy=known.install)
    return (str(path), *known.args)


def _on_path(agent: Agent, program: str, *, remedy: str) -> Path:
    found = shutil.which(Path(program).expanduser())
    if found is None:
        raise ProgramMissingError(
            f"{agent.provider}: the program '{program}' is not installed", provider=agent.provider, remedy=remedy
        )
    return Path(found).absolute()  # the agent runs in another folder
