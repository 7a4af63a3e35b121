"""Agents by name: their programs and features.

`atomic.config.known_agents` has what is said of them everywhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.config.known_agents import ACP_NAMES, KnownAgent, find_known_agent
from atomic.providers.base import Capabilities
from atomic.providers.errors import ProgramMissingError, ProviderError, UnknownProviderError
from atomic.providers.logins import login_remedy
from atomic.providers.programs import find_program


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do over the protocol."""

    can: Capabilities
    has_compact_focus: bool = False  # its command /compact accepts a focus
    model_flag: str = ""  # the model can only be set at the start
    # What Atomic declares besides the protocol: extensions of the agent.
    extensions: Mapping[str, Any] = {}
    defaults: Mapping[str, str] = {}  # variables, unless the user sets them


FEATURES: Mapping[str, Features] = {
    "claude": Features(
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
        # Its adapter makes a model call after each turn, to propose the next prompt.
        defaults={"CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false"},
    ),
    "codex": Features(
        can=Capabilities(
            resume=True,
            mcp_servers=True,
            system_prompt=True,
            models=True,
            thinking=True,
            usage=True,
            compact=True,
        ),
        extensions={
            # Report a failed model call as a failure: see `TurnDone.failure`.
            "jetbrains": {"air": {"version": 1, "capabilities": ["sessionFailure"]}},
            "terminal_output_delta": True,
        },
        # Ask Atomic, which allows every tool, and not a second model, whose calls cost
        # money and which may refuse.
        defaults={"INITIAL_AGENT_MODE": "workspace-write"},
    ),
    "gemini": Features(can=Capabilities(resume=True, system_prompt=True, thinking=True), model_flag="--model"),
}

# Other agents: all features of the protocol. Features that an agent does not support
# are refused after it has reported its capabilities.
UNKNOWN = Features(
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

# Over the protocol, Claude Code is driven by an adapter of another package.
CLAUDE = KnownAgent(
    name="claude",
    title="Claude Code over ACP",
    program="claude-agent-acp",
    install="npm install -g @agentclientprotocol/claude-agent-acp",
    pays="",
    docs="",
    vendor_program="claude",
    login=("auth", "login"),
    keys=("ANTHROPIC_API_KEY",),
    variables=("ANTHROPIC_", "CLAUDE_", "DISABLE_", "IS_SANDBOX"),
)


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be started."""

    name: str  # after `acp:`
    command: tuple[str, ...] = ()  # from the configuration; empty: the known one
    known: KnownAgent | None = None
    features: Features = UNKNOWN

    @property
    def provider(self) -> str:
        return self.name if self.name in ACP_NAMES else f"acp:{self.name}"

    @property
    def login(self) -> str:
        """Return how to log in."""
        return "log in with the agent's own program" if self.known is None else login_remedy(self.known)

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that it gets although they look like secrets."""
        return () if self.known is None else self.known.variables


def find_agent(name: str, settings: Settings) -> Agent:
    """Return the agent of that name; the configuration overrides known agents.

    Raise UnknownProviderError.
    """
    configured = settings.acp.get(name)
    known = CLAUDE if name == CLAUDE.name else find_known_agent(name)
    if configured is None and known is None:
        names = {CLAUDE.name, *ACP_NAMES, *settings.acp}
        raise UnknownProviderError(f"acp:{name}", [f"acp:{one}" for one in sorted(names)])
    if configured is not None and not configured.command:
        raise ProviderError(
            f"[acp.{name}] has an empty command",
            provider=f"acp:{name}",
            remedy="set it to the agent's program and arguments",
        )
    command = () if configured is None else tuple(configured.command)
    return Agent(name=name, command=command, known=known, features=FEATURES.get(name, UNKNOWN))


def command_line(agent: Agent, settings: Settings) -> tuple[str, ...]:
    """Return the program's path and its first arguments. Raise ProgramMissingError."""
    if agent.command or agent.known is None:
        return _configured_command(agent)
    known = agent.known
    try:
        found = find_program(agent.provider, known.program, settings, install=known.install)
    except ProgramMissingError:
        vendor = vendor_program(agent)
        if not vendor:
            raise
        raise ProgramMissingError(
            f"{agent.provider}: {vendor} needs the adapter '{known.program}', which is not installed",
            provider=agent.provider,
            remedy=known.install,
        ) from None
    return (str(found.absolute()), *known.args)  # the agent runs in another folder


def vendor_program(agent: Agent) -> str:
    """Return the path of the vendor's program that an adapter drives; "" if it is not
    on PATH.
    """
    name = agent.known.vendor_program if agent.known is not None else ""
    return (shutil.which(name) or "") if name else ""


def _configured_command(agent: Agent) -> tuple[str, ...]:
    program, *args = agent.command
    found = shutil.which(Path(program).expanduser())
    if found is None:
        raise ProgramMissingError(
            f"{agent.provider}: the program '{program}' is not installed",
            provider=agent.provider,
            remedy=f"install it, or correct [acp.{agent.name}] command",
        )
    return (str(Path(found).absolute()), *args)
