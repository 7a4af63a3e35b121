"""How the program is started: its command line, its environment, and what it is told before the first prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomic.config import Settings
from atomic.providers.base import AgentLike, SessionOptions
from atomic.providers.claude.command import Command, Origin
from atomic.providers.claude.control import Json
from atomic.providers.claude.environ import PROVIDER, environment
from atomic.providers.claude.servers import Servers, clean_name
from atomic.providers.starting import start_seconds
from atomic.providers.toolnames import spelled

QUESTION = "AskUserQuestion"

_PLAN_MODE = ("EnterPlanMode", "ExitPlanMode")  # a plan waits for somebody's word, and nobody is there at night


class Launch:
    """Everything that a session's program is started with, each time it is started."""

    def __init__(self, program: Path, settings: Settings, options: SessionOptions) -> None:
        self.program, self.settings, self.options = program, settings, options
        self.servers = Servers(options)
        self.cwd = os.fspath(options.cwd) if options.cwd is not None else None
        self.env = environment(settings, options)

    def command_line(
        self, origin: Origin, folder: Path, *, model: str | None, schema: Mapping[str, Any] | None
    ) -> list[str]:
        """The words of the command; what is long or secret stands in files of `folder`."""
        options = self.options
        return Command(
            program=str(self.program),
            origin=origin,
            tools=self._tools(),
            denied_tools=self._denied(),
            setting_sources=None if options.trusted else ["user"],
            settings=self._settings(),
            servers=self.servers.write(folder),
            only_these_servers=options.tools is not None,  # "only these" holds for the user's own servers, too
            system_prompt=self._system_prompt(folder),
            model=model,
            max_turns=options.max_turns,
            schema=schema,
            more=self.settings.provider(PROVIDER).args,
        ).words()

    def greeting(self) -> Json:
        """What the program is told before the first prompt."""
        agents = {agent.name: _definition(agent) for agent in self.options.agents}
        return {
            "subtype": "initialize",
            "forwardSubagentText": True,
            **({"agents": agents} if agents else {}),
            # A session that is resumed would go on with the system prompt that it began with.
            **({"systemPromptSnapshot": False} if self.options.resume is not None else {}),
        }

    @property
    def patience(self) -> float:
        """Seconds for its first answer: servers start before it. The variable is the program's own."""
        said = self.env.get("CLAUDE_CODE_STREAM_CLOSE_TIMEOUT", "")
        seconds = start_seconds()
        return max(seconds, int(said) / 1000) if said.isdecimal() else seconds

    def _tools(self) -> list[str] | None:
        if self.options.tools is None:
            return None
        brought = ["task"] if self.options.agents else []  # or nobody could call them
        brought += ["question"] if self.options.ask is not None else []
        return spelled([*self.options.tools, *brought], PROVIDER)

    def _denied(self) -> list[str]:
        unasked = [QUESTION] if self.options.ask is None else []
        # Settings among the user's own arguments replace ours: a server would run, but its tools stay out of sight.
        switched_off = [f"mcp__{clean_name(server)}" for server in self.options.disabled_mcp_servers]
        return [*spelled(self.options.denied_tools, PROVIDER), *unasked, *_PLAN_MODE, *switched_off]

    def _settings(self) -> str | None:
        if not self.options.disabled_mcp_servers:
            return None
        return json.dumps({"deniedMcpServers": [{"serverName": name} for name in self.options.disabled_mcp_servers]})

    def _system_prompt(self, folder: Path) -> str | None:
        if not self.options.system_prompt:
            return None
        path = folder / "system-prompt.md"
        path.write_text(self.options.system_prompt, "utf-8", errors="replace")
        return str(path)


def _definition(agent: AgentLike) -> Json:
    given = {
        "description": agent.description,
        "prompt": agent.prompt,
        "tools": None if agent.tools is None else spelled(agent.tools, PROVIDER),
        "model": agent.model,
    }
    return {name: value for name, value in given.items() if value is not None}
