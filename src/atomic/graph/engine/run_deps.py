"""The deps of a run: the agents that `agent=` names, and one object for each run.

Deps may be any object. Those of `agents(…)` have three methods for the engine, which
`Run` calls: `require_usable` before anything is recorded, `begin_run` when the journal is
open, and `end_run` of its result at the end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib import import_module
from typing import Any, Protocol

from atomic.base.errors import AtomicError


class NamedAgent(Protocol):
    """An agent that was made by other code: a provider."""

    @property
    def name(self) -> str: ...


AgentChoice = str | NamedAgent | Mapping[str, str | NamedAgent]
"""The agent of a run: its name, a provider, or one of these by role; "" is the role of the others."""


def opened_agents(agent: AgentChoice | None, deps: Any) -> AbstractAsyncContextManager[Any]:
    """Open the deps of a run: `deps`, or the runtime of the agents that `agent` names.

    Those agents end with the body. Every way to run a workflow goes through here. Raises
    AtomicError if both are given; entering it, if the agent cannot be used.
    """
    if agent is None:
        return nullcontext(deps)
    if deps is not None:
        raise AtomicError(
            "agent= and deps= were both given: give agent= for agents that end with the run, or deps= for a runtime"
        )
    # Imported by name, because the engine is below the agents.
    return import_module("atomic.agents").agents(agent)


def is_in_step() -> bool:
    """Return whether a node of a run has called this function, however deep.

    The answer is in the stack, so that steps do not pay for a rare question.
    """
    from inspect import currentframe

    from atomic.graph.engine.function_step import is_in_function_step
    from atomic.graph.engine.token import Token

    if is_in_function_step():
        return True
    frame = currentframe()
    while frame is not None:
        if frame.f_code is Token.advance.__code__:
            return True
        frame = frame.f_back
    return False


def find_workflow(deps: Any, name: str) -> Any:
    """Return the graph or the workflow function of that name. Raise AtomicError."""
    workflows = getattr(deps, "workflows", None)
    if workflows is None:
        reason = "the run has no workflows; give it the deps of `async with agents(…)`"
        raise AtomicError(f'workflow "{name}" cannot be found: {reason}')
    return workflows.require(name)
