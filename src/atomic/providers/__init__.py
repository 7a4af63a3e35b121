"""The agents that do the work, with one interface and one vocabulary of events.

`base` defines the interface, `events` the vocabulary, `session` the common behaviour.
Each agent has a package with the same file names: `provider`, `session`, `launch`,
`translate`, `messages`, `limits`. This room does not import workflows, runs or the
screen.

Public modules: `answers`, `base`, `environment`, `errors`, `events`, `logins`,
`mcp_servers`, `model_names`, `programs`, `prompt_title`, `recording`, `replay`,
`selection`, `session`.
"""

from atomic.providers.base import (
    AgentLike,
    AgentProvider,
    AgentSession,
    AgentSpec,
    Ask,
    Capabilities,
    ContextUsage,
    CustomTool,
    Health,
    McpServer,
    ModelInfo,
    SessionOptions,
)
from atomic.providers.catalog import PROVIDERS, require_provider
from atomic.providers.errors import (
    AnswerError,
    NotLoggedInError,
    ProgramFailedError,
    ProgramMissingError,
    ProviderError,
    SessionBusyError,
    UnknownProviderError,
    UnsupportedError,
    UntrustedProjectError,
)
from atomic.providers.events import (
    AgentEvent,
    Compacted,
    EndReason,
    LimitReached,
    Notice,
    PlanChanged,
    PlanItem,
    QuestionAsked,
    SkillLoaded,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Usage,
    UsageReported,
)
from atomic.providers.model_names import fitting_model, original_model
from atomic.providers.tools import tool
from atomic.questions import Option, Question

__all__ = [
    "PROVIDERS",
    "AgentEvent",
    "AgentLike",
    "AgentProvider",
    "AgentSession",
    "AgentSpec",
    "AnswerError",
    "Ask",
    "Capabilities",
    "Compacted",
    "ContextUsage",
    "CustomTool",
    "EndReason",
    "Health",
    "LimitReached",
    "McpServer",
    "ModelInfo",
    "NotLoggedInError",
    "Notice",
    "Option",
    "PlanChanged",
    "PlanItem",
    "ProgramFailedError",
    "ProgramMissingError",
    "ProviderError",
    "Question",
    "QuestionAsked",
    "SessionBusyError",
    "SessionOptions",
    "SkillLoaded",
    "SubagentEnded",
    "SubagentStarted",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolOutput",
    "ToolStarted",
    "TurnEnded",
    "UnknownProviderError",
    "UnsupportedError",
    "UntrustedProjectError",
    "Usage",
    "UsageReported",
    "fitting_model",
    "original_model",
    "require_provider",
    "tool",
]
