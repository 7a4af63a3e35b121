"""A scripted model on loopback: real agents run on it without a key, a login or a network."""

from atomic.testing.model_server.calls import CallState, ModelCall, OtherRequest
from atomic.testing.model_server.conversation import Protocol
from atomic.testing.model_server.environments import claude_env, copilot_env, opencode_env
from atomic.testing.model_server.errors import ModelServerError, NoSuchCallError, NotRunningError, ScriptNameError
from atomic.testing.model_server.script import (
    Big,
    Call,
    Cut,
    Drip,
    Fail,
    HalfCharacter,
    Pause,
    Say,
    Script,
    Stall,
    Stop,
    Think,
    Tokens,
    Turn,
    Word,
)
from atomic.testing.model_server.server import ModelServer
from atomic.testing.model_server.thread import in_thread

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
    "copilot_env",
    "in_thread",
    "opencode_env",
]
