"""How the program is started: its command line, its environment, and what it is told before the first prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from claude_agent_sdk import AgentDefinition, CanUseTool, ClaudeAgentOptions
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import SystemPromptPreset

from atomic.config import Settings
from atomic.providers.base import AgentLike, SessionOptions
from atomic.providers.claude.environ import PROVIDER, environment
from atomic.providers.claude.servers import Servers, clean_name
from atomic.providers.errors import ProviderError
from atomic.providers.toolnames import spelled

QUESTION = "AskUserQuestion"

_PLAN_MODE = ("EnterPlanMode", "ExitPlanMode")  # a plan waits for somebody's word, and nobody is there at night
_PRESET = SystemPromptPreset(type="preset", preset="claude_code")


class Origin(msgspec.Struct, frozen=True):
    """Where a conversation begins: anew under `id`, as the session of that id, or as a copy (`fork_of`) under it."""

    id: str
    known: bool = False  # the program has it on its disk
    fork_of: str | None = None

    def arguments(self) -> dict[str, Any]:
        if self.known:
            return {"resume": self.id}
        if self.fork_of is not None:
            return {"resume": self.fork_of, "fork_session": True, "session_id": self.id}
        return {"session_id": self.id}


class Launch:
    """Everything that a session's program is started with, each time it is started."""

    def __init__(self, program: Path, settings: Settings, options: SessionOptions) -> None:
        if options.max_turns is not None and options.max_turns < 1:
            raise ProviderError(f"max_turns is at least 1, not {options.max_turns}", provider=PROVIDER)
        self.program, self.settings, self.options = program, settings, options
        self.servers = Servers(options)
        self.cwd = os.fspath(options.cwd) if options.cwd is not None else None
        self.env = environment(settings, options)

    def command_line(
        self, origin: Origin, folder: Path, *, model: str | None, schema: Mapping[str, Any] | None
    ) -> list[str]:
        """The words of the command; what is long or secret stands in files of `folder`."""
        options = self.options
        told = ClaudeAgentOptions(
            cli_path=self.program,
            system_prompt=_PRESET,
            tools=self._tools(),
            disallowed_tools=self._denied(),
            permission_mode="bypassPermissions",
            permission_prompt_tool_name="stdio",  # a user's `ask` rule would be a refusal if nobody could be asked
            setting_sources=None if options.trusted else ["user"],
            strict_mcp_config=options.tools is not None,  # "only these" holds for the user's own servers, too
            mcp_servers=self.servers.write(folder),
            settings=self._settings(),
            max_turns=options.max_turns,
            model=model,
            output_format=None if schema is None else {"type": "json_schema", "schema": dict(schema)},
            include_partial_messages=True,
            extra_args=self._system_prompt(folder),
            **origin.arguments(),
        )
        builder = SubprocessCLITransport(prompt="", options=told)
        words = builder._build_command()  # pyright: ignore[reportPrivateUsage]  # the SDK has no other way to it
        return [*words, *self.settings.provider(PROVIDER).args]

    def spoken(self, can_use_tool: CanUseTool) -> ClaudeAgentOptions:
        """What the SDK itself tells the program, and does for it, while it runs."""
        return ClaudeAgentOptions(
            system_prompt=_PRESET if self.options.resume is None else {**_PRESET, "snapshot": False},
            agents={agent.name: _definition(agent) for agent in self.options.agents} or None,
            mcp_servers=self.servers.in_process,
            can_use_tool=can_use_tool,
            forward_subagent_text=True,
        )

    def _tools(self) -> list[str] | None:
        if self.options.tools is None:
            return None
        agents = ["task"] if self.options.agents else []  # or nobody could call them
        return spelled([*self.options.tools, *agents], PROVIDER)

    def _denied(self) -> list[str]:
        unasked = [QUESTION] if self.options.ask is None else []
        # Settings among the user's own arguments replace ours: a server would run, but its tools stay out of sight.
        switched_off = [f"mcp__{clean_name(server)}" for server in self.options.disabled_mcp_servers]
        return [*spelled(self.options.denied_tools, PROVIDER), *unasked, *_PLAN_MODE, *switched_off]

    def _settings(self) -> str | None:
        if not self.options.disabled_mcp_servers:
            return None
        return json.dumps({"deniedMcpServers": [{"serverName": name} for name in self.options.disabled_mcp_servers]})

    def _system_prompt(self, folder: Path) -> dict[str, str | None]:
        if not self.options.system_prompt:
            return {}
        path = folder / "system-prompt.md"
        path.write_text(self.options.system_prompt, "utf-8", errors="replace")
        return {"append-system-prompt-file": str(path)}


def _definition(agent: AgentLike) -> AgentDefinition:
    return AgentDefinition(
        description=agent.description,
        prompt=agent.prompt,
        tools=None if agent.tools is None else spelled(agent.tools, PROVIDER),
        model=agent.model,
    )
