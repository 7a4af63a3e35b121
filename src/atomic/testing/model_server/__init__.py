"""A scripted model on loopback.

Real agents use it without a key, a login or a network.
"""

from atomic.testing.model_server.calls import CallState, ModelCall, OtherRequest, Protocol
from atomic.testing.model_server.environments import claude_env, codex_env, copilot_env, gemini_env, opencode_env
from atomic.testing.model_server.script import (
    Big,
    Call,
    Cut,
    Drip,
    Fail,
    HalfCharacter,
    ModelServerError,
    NoSuchCallError,
    NotRunningError,
    Pause,
    Say,
    Script,
    ScriptNameError,
    Stall,
    Stop,
    Think,
    Tokens,
    Turn,
    Word,
)
from atomic.testing.model_server.server import ModelServer, in_thread

__all__ = [
    "Big",
    "Call",
    "CallState",
    "Cut",
    "Drip",
    "Fail",
    "HalfCharacter",
    "ModelCall",
    "ModelServer",
    "ModelServerError",
    "NoSuchCallError",
    "NotRunningError",
    "OtherRequest",
    "Pause",
    "Protocol",
    "Say",
    "Script",
    "ScriptNameError",
    "Stall",
    "Stop",
    "Think",
    "Tokens",
    "Turn",
    "Word",
    "claude_env",
    "codex_env",
    "copilot_env",
    "gemini_env",
    "in_thread",
    "opencode_env",
]
