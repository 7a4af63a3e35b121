"""The agents that Atomic knows by name: one table for everything that is said of them.

Selection, `doctor`, `login`, completion, error messages and documentation read it. The
order is the order in which an agent is chosen if the user names none.

`tested` is the version on which the contract of docs/providers.md was run, or with which
a session was opened ("opened with ..."). The facts of an agent without it are from its
documentation.
"""

from __future__ import annotations

import msgspec

OPENCODE_CONFIGS = ("opencode.json", "opencode.jsonc")  # its configuration files


class KnownAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that `--agent NAME` starts."""

    name: str
    title: str
    program: str  # that Atomic starts
    args: tuple[str, ...] = ()  # make the program an agent of the Agent Client Protocol
    install: str  # a command; a page if the vendor offers no package
    pays: str  # who pays for a login
    docs: str
    tested: str = ""
    has_own_adapter: bool = False  # it is not driven over the Agent Client Protocol
    # The vendor's program, if `program` is an adapter of another package.
    vendor_program: str = ""
    # The path of the vendor's program in the folder of an npm package, which may bring it.
    bundled: str = ""
    login: tuple[str, ...] = ()  # words after the vendor's program; () if it asks at its start
    keys: tuple[str, ...] = ()  # variables that replace a login
    # Files, below the home folder, that a login writes; () if they are not known. A
    # variable may name another folder than the first one of the path.
    logins: tuple[str, ...] = ()
    home_variable: str = ""
    # Variables that it gets although they look like secrets; a name that ends with `_`
    # is a prefix.
    variables: tuple[str, ...] = ()


KNOWN_AGENTS = (
    KnownAgent(
        name="claude",
        title="Claude Code",
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
        pays="your Claude plan or Console account pays",
        docs="https://code.claude.com/docs",
        tested="2.1.325",
        has_own_adapter=True,
        login=("auth", "login"),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        variables=("ANTHROPIC_", "CLAUDE_", "DISABLE_", "IS_SANDBOX"),
    ),
    KnownAgent(
        name="opencode",
        title="OpenCode",
        program="opencode",
        args=("acp",),
        install="npm install -g opencode-ai",
        pays="the model provider that you chose bills you",
        docs="https://opencode.ai/docs",
        tested="1.18.33",
        has_own_adapter=True,
        login=("auth", "login"),
        keys=("OPENCODE_API_KEY",),
    ),
    KnownAgent(
        name="copilot",
        title="GitHub Copilot",
        program="copilot",
        args=("--acp",),
        install="npm install -g @github/copilot",
        pays="your Copilot plan pays with premium requests",
        docs="https://docs.github.com/copilot",
        tested="1.0.102",
        has_own_adapter=True,
        login=("login",),
        keys=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
    ),
    KnownAgent(
        name="codex",
        title="OpenAI Codex",
        program="codex-acp",
        install="npm install -g @agentclientprotocol/codex-acp",
        pays="your ChatGPT plan pays",
        docs="https://developers.openai.com/codex",
        tested="codex-acp 2.6.0 with Codex 0.166.0",
        vendor_program="codex",
        bundled="@openai/codex/bin/codex.js",
        login=("login",),
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        logins=(".codex/auth.json",),
        home_variable="CODEX_HOME",
        variables=("CODEX_", "OPENAI_"),
    ),
    KnownAgent(
        name="gemini",
        title="Gemini CLI",
        program="gemini",
        args=("--acp",),
        install="npm install -g @google/gemini-cli",
        pays="your Google account pays, within its free quota or plan",
        docs="https://geminicli.com/docs",
        tested="0.61.0",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"),
        logins=(".gemini/oauth_creds.json", ".gemini/google_accounts.json", ".gemini/.env"),
        variables=("GEMINI_", "GOOGLE_"),
    ),
    KnownAgent(
        name="qwen",
        title="Qwen Code",
        program="qwen",
        args=("--acp",),
        install="npm install -g @qwen-code/qwen-code",
        pays="your Alibaba Cloud plan or the model provider that you chose bills you",
        docs="https://qwenlm.github.io/qwen-code-docs",
        login=("auth",),
        keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
        logins=(".qwen/oauth_creds.json", ".qwen/settings.json"),
        variables=("QWEN_", "OPENAI_", "DASHSCOPE_"),
    ),
    # The agents below are known from their documentation and the registry of the
    # protocol; their services cannot be replaced by a scripted model.
    KnownAgent(
        name="goose",
        title="goose",
        program="goose",
        args=("acp",),
        install="brew install block-goose-cli",
        pays="the model provider that you chose bills you",
        docs="https://block.github.io/goose",
        login=("configure",),
        keys=("GOOSE_PROVIDER",),
        logins=(".config/goose/config.yaml",),
        variables=("GOOSE_", "ANTHROPIC_", "OPENAI_", "GOOGLE_"),
    ),
    KnownAgent(
        name="cursor",
        title="Cursor",
        program="cursor-agent",
        args=("acp",),
        install="see https://cursor.com/docs/cli/installation",
        pays="your Cursor plan pays",
        docs="https://cursor.com/docs/cli",
        login=("login",),
        keys=("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"),
        variables=("CURSOR_",),
    ),
    KnownAgent(
        name="kimi",
        title="Kimi Code",
        program="kimi",
        args=("acp",),
        install="npm install -g @moonshot-ai/kimi-code",
        pays="your Kimi plan or the platform of your key bills you",
        docs="https://moonshotai.github.io/kimi-code",
        login=("login",),
        keys=("KIMI_API_KEY", "MOONSHOT_API_KEY"),
        variables=("KIMI_", "MOONSHOT_"),
    ),
    KnownAgent(
        name="vibe",
        title="Mistral Vibe",
        program="vibe-acp",
        install="uv tool install mistral-vibe",
        pays="your Mistral plan or API account pays",
        docs="https://github.com/mistralai/mistral-vibe",
        vendor_program="vibe",
        login=("--setup",),
        keys=("MISTRAL_API_KEY",),
        logins=(".vibe/.env",),
        home_variable="VIBE_HOME",
        variables=("MISTRAL_", "VIBE_"),
    ),
    KnownAgent(
        name="droid",
        title="Factory Droid",
        program="droid",
        args=("exec", "--output-format", "acp"),
        install="npm install -g droid",
        pays="your Factory plan pays",
        docs="https://docs.factory.ai",
        keys=("FACTORY_API_KEY",),
        variables=("FACTORY_", "DROID_"),
    ),
    KnownAgent(
        name="auggie",
        title="Auggie",
        program="auggie",
        args=("--acp",),
        install="npm install -g @augmentcode/auggie",
        pays="your Augment plan pays",
        docs="https://docs.augmentcode.com/cli",
        login=("login",),
        keys=("AUGMENT_SESSION_AUTH",),
        logins=(".augment/session.json",),
        variables=("AUGMENT_",),
    ),
    KnownAgent(
        name="cline",
        title="Cline",
        program="cline",
        args=("--acp",),
        install="npm install -g cline",
        pays="your Cline account or the model provider that you chose bills you",
        docs="https://docs.cline.bot",
        login=("auth",),
        variables=("CLINE_",),
    ),
    KnownAgent(
        name="kilo",
        title="Kilo Code",
        program="kilo",
        args=("acp",),
        install="npm install -g @kilocode/cli",
        pays="your Kilo account or the model provider that you chose bills you",
        docs="https://kilo.ai/docs",
        login=("auth", "login"),
        keys=("KILO_API_KEY",),
        variables=("KILO_",),
    ),
)
"""All known agents, in the order of preference."""

AGENT_NAMES = tuple(agent.name for agent in KNOWN_AGENTS)
NATIVE_NAMES = tuple(agent.name for agent in KNOWN_AGENTS if agent.has_own_adapter)
ACP_NAMES = tuple(agent.name for agent in KNOWN_AGENTS if not agent.has_own_adapter)

_BY_NAME = {agent.name: agent for agent in KNOWN_AGENTS}


def find_known_agent(name: str) -> KnownAgent | None:
    """Return the agent of that name; `acp:codex` is `codex`."""
    return _BY_NAME.get(name.removeprefix("acp:"))


def require_known_agent(name: str) -> KnownAgent:
    """Return the agent of a name that is in the table."""
    return _BY_NAME[name]


def uses_acp(name: str) -> bool:
    """Return whether the agent of that name is driven over the Agent Client Protocol."""
    return name in ACP_NAMES or name.startswith("acp:")
