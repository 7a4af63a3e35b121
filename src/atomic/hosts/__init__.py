"""What all hosts share, the command line and the screen alike: agents, trust, runs of other processes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomic.hosts.agents import (
        BY_PREFERENCE,
        CHECK_LIMIT,
        Fitting,
        check,
        choose_provider,
        list_models,
        named_provider,
        neutral_folder,
        remedy_for,
        require_usable,
    )
    from atomic.hosts.errors import FolderGoneError, HostError, NoAgentError, NoModelsError, WrongAgentError
    from atomic.hosts.log_follower import follow, last_start
    from atomic.hosts.messages import ask_to_stop, leave_answer, put_answer
    from atomic.hosts.project import current_folder, is_trusted

# Each is imported when it is asked for: who names an agent need not pay for the logs of runs.
_PLACES = {
    "BY_PREFERENCE": "agents",
    "CHECK_LIMIT": "agents",
    "Fitting": "agents",
    "FolderGoneError": "errors",
    "HostError": "errors",
    "NoAgentError": "errors",
    "NoModelsError": "errors",
    "WrongAgentError": "errors",
    "ask_to_stop": "messages",
    "check": "agents",
    "choose_provider": "agents",
    "current_folder": "project",
    "follow": "log_follower",
    "is_trusted": "project",
    "last_start": "log_follower",
    "leave_answer": "messages",
    "list_models": "agents",
    "named_provider": "agents",
    "neutral_folder": "agents",
    "put_answer": "messages",
    "remedy_for": "agents",
    "require_usable": "agents",
}

__all__ = [
    "BY_PREFERENCE",
    "CHECK_LIMIT",
    "Fitting",
    "FolderGoneError",
    "HostError",
    "NoAgentError",
    "NoModelsError",
    "WrongAgentError",
    "ask_to_stop",
    "check",
    "choose_provider",
    "current_folder",
    "follow",
    "is_trusted",
    "last_start",
    "leave_answer",
    "list_models",
    "named_provider",
    "neutral_folder",
    "put_answer",
    "remedy_for",
    "require_usable",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
