"""The agents that are known by name: how each is started, what it can do, and where it goes its own way.

The ways of OpenCode and Copilot were seen on the real programs. An agent that only the user's configuration names has
none: it does what the protocol says.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atomic.providers.base import Capabilities


class LogPlace(msgspec.Struct, frozen=True):
    """Where a program writes its log: below the folder of a variable, or below one in the home folder."""

    variable: str
    folder: str
    name: str


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent differs from what the protocol lets expect."""

    input_grows: bool = False  # a tool that is pending does not have its whole input yet
    titles_are_names: bool = False  # the first title of a tool call is the name of the tool
    unknown_commands_vanish: bool = False  # "/etc/hosts is wrong" is answered with nothing
    usage_adds_up: bool = False  # the usage of a turn is told as that of the whole session
    speaks_for_the_model: bool = False  # notices and errors come as text: "Info: ...", "Error: ..."
    subagents_speak_unnamed: bool = False  # a sub-agent's text comes as if it were the agent's own
    any_model: bool = False  # a model may be set that is not offered
    compact: bool = False  # knows the command /compact
    compact_focus: bool = False  # which takes a focus
    model_variable: str = ""  # by which the user sets the model
    log: LogPlace | None = None  # a file in which alone it says that a call failed
    model_flag: str = ""  # for agents that let the model be chosen only when they start
    only_tools_flag: str = ""
    denied_tools_flag: str = ""
    mcp_off_flag: str = ""  # for a server that it is not to load
    mcp_file_flag: str = ""  # for servers that are programs, where the protocol's own way is refused


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is known by name."""

    program: str = ""
    args: tuple[str, ...] = ()
    install: str = ""
    login: str
    own: tuple[str, ...] = ()  # the variables that belong to it, a prefix where it ends with `_`
    can: Capabilities
    ways: Ways = Ways()
    spelling: str = ""  # whose names its tools have
    settings: str = ""  # the provider whose path, variable and settings hold for its program, too


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
        ways=Ways(compact=True, compact_focus=True),
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
        ways=Ways(compact=True),
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
        ways=Ways(
            usage_adds_up=True,
            speaks_for_the_model=True,
            subagents_speak_unnamed=True,
            any_model=True,
            model_variable="COPILOT_MODEL",
            log=LogPlace("COPILOT_HOME", ".copilot", "process-*-{pid}.log"),
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
        ways=Ways(model_flag="--model"),
    ),
    "opencode": Known(
        program="opencode",
        # It tries a failed call for ever and tells nobody but its log.
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
            # Not `usage`: of a turn with many calls of the model it tells only the last one's tokens.
            cost=True,
            context_meter=True,
            compact=True,
        ),
        ways=Ways(
            input_grows=True,
            titles_are_names=True,
            unknown_commands_vanish=True,
            compact=True,
        ),
        spelling="opencode",
        settings="opencode",
    ),
}

# Of an agent that only the configuration names: what the protocol can do at all, and nothing of its own. What the
# agent then cannot do is refused when it has said so.
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
