"""What can go wrong in a workflow beyond its graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from atomic.deferred import deferred
from atomic.errors import AtomicError, closest

if TYPE_CHECKING:
    from pathlib import Path  # the door for workflow authors opens without it
else:
    Path = deferred("pathlib", "Path")


class SubagentError(AtomicError):
    """A sub-agent came back without success."""

    def __init__(self, agent: str, reason: str) -> None:
        self.agent, self.reason = agent, reason
        super().__init__(f'agent "{agent}" failed: {reason}')


class TurnFailedError(AtomicError):
    """A turn of an agent did not end well; `reason` is that of its end, `said` the agent's last message."""

    def __init__(self, reason: str, why: str, *, said: str = "") -> None:
        self.reason, self.said = reason, said
        super().__init__(why)


class TurnCutError(TurnFailedError):
    """A turn was interrupted because it took too long, or its agent was silent for too long."""

    def __init__(self, why: str) -> None:
        super().__init__("interrupted", why)


class WorkflowProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a file."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class WorkflowLoadError(AtomicError):
    """A workflow cannot be loaded; `problems` lists all that is wrong with its file."""

    exit_code = 2

    def __init__(self, name: str, problems: Sequence[WorkflowProblem]) -> None:
        self.name, self.problems = name, tuple(problems)
        why = "; ".join(map(str, self.problems)) or "it has no file"
        super().__init__(f'Workflow "{name}" cannot be loaded: {why}')


class WorkflowCodeError(AtomicError):
    """A function that a workflow's file defines failed, outside of its graph."""

    def __init__(self, function: str, problem: WorkflowProblem) -> None:
        self.function, self.problem = function, problem
        super().__init__(f"{function} failed: {problem}")


class WorkflowNotFoundError(AtomicError):
    """A workflow was named that nothing defines."""

    exit_code = 2

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.suggestion = name, closest(name, known)
        hint = f'did you mean "{self.suggestion}"?' if self.suggestion else "atomic workflows list shows them"
        super().__init__(f'Workflow not found: "{name}" ({hint})')


class WorkflowGoneError(AtomicError):
    """The workflow that a run was started with is not there any more."""

    exit_code = 2

    def __init__(self, name: str, path: str) -> None:
        where = f"from {path}" if path else "that is built in"
        super().__init__(f'The run was started with the workflow "{name}" {where}, which is not there: put it back')


class UnknownRoleError(AtomicError):
    """A flag names a role that the workflow does not have."""

    exit_code = 2

    def __init__(self, flag: str, role: str, workflow: str, roles: Sequence[str]) -> None:
        super().__init__(f'{flag} {role}=…: {workflow} has no role "{role}" (its roles: {", ".join(roles)})')


class ToolNotFoundError(AtomicError):
    """A custom tool was named that no file defines."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = tuple(known)
        self.name, self.suggestion = name, closest(name, names)
        hint = f'did you mean "{self.suggestion}"?' if self.suggestion else f"there are: {', '.join(names) or 'none'}"
        super().__init__(f'Tool not found: "{name}" ({hint})')


class UntrustedError(AtomicError):
    """Code of the project would run, and nobody has approved it as it is now."""

    exit_code = 4

    def __init__(self, project: str, hash: str, items: Sequence[str], *, given: str | None = None) -> None:
        self.project, self.hash, self.items, self.given = project, hash, tuple(items), given
        what = ", ".join(self.items[:5]) + (f" and {len(self.items) - 5} more" if len(self.items) > 5 else "")
        if given is not None:
            said = f"--trust {given} is not the hash of this project in its current state ({hash})"
        else:
            said = f"this project is not trusted in its current state; it would run {what or 'nothing'}"
        super().__init__(
            f"{said} (see it: atomic trust --show; approve it: atomic trust; for one command: --trust {hash})"
        )


class TrustError(AtomicError):
    """An approval cannot be read, given or kept."""


class WorkflowFileError(AtomicError):
    """A workflow's file cannot be written."""

    exit_code = 2
