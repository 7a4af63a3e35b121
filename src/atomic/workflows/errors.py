"""Errors of workflows, in addition to the errors of graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from atomic.base.errors import AtomicError, ExitCode, did_you_mean
from atomic.base.lazy_types import deferred

if TYPE_CHECKING:
    from pathlib import Path  # not imported at run time: `atomic.workflows` must import quickly
else:
    Path = deferred("pathlib", "Path")


class SubagentError(AtomicError):
    """A sub-agent failed."""

    # A replay of a workflow function makes it again from `args`, also the errors below.
    def __init__(self, agent: str, reason: str) -> None:
        self.agent = agent
        self.reason = reason
        super().__init__(agent, reason)

    def __str__(self) -> str:
        return f'agent "{self.agent}" failed: {self.reason}'


class TurnFailedError(AtomicError):
    """A turn of an agent failed for `reason`; `said` is the agent's last message."""

    def __init__(self, reason: str, why: str, said: str = "") -> None:
        self.reason = reason
        self.why = why
        self.said = said
        super().__init__(reason, why, said)

    def __str__(self) -> str:
        return self.why


class TurnCutError(TurnFailedError):
    """A turn was interrupted because it took too long, or its agent was silent for too
    long.
    """

    def __init__(self, why: str) -> None:
        super().__init__("interrupted", why)
        self.args = (why,)


class AgentsPausedError(AtomicError):
    """A turn outside of a run stopped where a run would pause: at a cap, a usage limit
    or a question. `code` is the reason as one word.
    """

    def __init__(self, reason: str, code: str) -> None:
        self.code = code
        super().__init__(reason)


class MergeError(AtomicError):
    """Results of isolated nodes could not be merged.

    `left` has the name of each, and the reason with both sides.
    """

    def __init__(self, number: int, left: Sequence[tuple[str, str]]) -> None:
        self.left = tuple(left)
        what = "1 result was" if len(left) == 1 else f"{len(left)} results were"
        reasons = "\n\n".join(f"{name}: {reason}" for name, reason in left)
        super().__init__(f"{what} not merged, of {number}. The work is kept: atomic salvage.\n\n{reasons}")


class WorkflowProblem(msgspec.Struct, frozen=True):
    """One problem of a file."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class WorkflowLoadError(AtomicError):
    """A workflow cannot be loaded; `problems` lists all problems of its file."""

    exit_code = ExitCode.USAGE

    def __init__(self, name: str, problems: Sequence[WorkflowProblem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        why = "; ".join(map(str, self.problems)) or "it has no file"
        super().__init__(f'Workflow "{name}" cannot be loaded: {why}')


class WorkflowCodeError(AtomicError):
    """A function that a workflow's file defines failed, outside of its graph."""

    def __init__(self, function: str, problem: WorkflowProblem) -> None:
        self.function = function
        self.problem = problem
        super().__init__(f"{function} failed: {problem}")


class WorkflowNotFoundError(AtomicError):
    """No workflow has this name."""

    exit_code = ExitCode.USAGE

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        hint = did_you_mean(name, known, otherwise="atomic workflows list shows them")
        super().__init__(f'Workflow not found: "{name}"{hint}')


class WorkflowGoneError(AtomicError):
    """The workflow of a resumed run no longer exists."""

    exit_code = ExitCode.USAGE

    def __init__(self, name: str, path: str) -> None:
        where = f"from {path}" if path else "that is built in"
        super().__init__(f'The run was started with the workflow "{name}" {where}, which no longer exists: restore it')


class UnknownRoleError(AtomicError):
    """A flag names a role that the workflow does not have."""

    exit_code = ExitCode.USAGE

    def __init__(self, flag: str, role: str, workflow: str, roles: Sequence[str]) -> None:
        super().__init__(f'{flag} {role}=…: {workflow} has no role "{role}" (its roles: {", ".join(roles)})')


class ToolNotFoundError(AtomicError):
    """No file defines a custom tool with this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = tuple(known)
        self.name = name
        hint = did_you_mean(name, names, otherwise=f"there are: {', '.join(names) or 'none'}")
        super().__init__(f'Tool not found: "{name}"{hint}')


SHORT_HASH = 12  # digits that identify a state for a reader; only the whole hash approves it


class UntrustedError(AtomicError):
    """Code of the project would run, and the user has not approved its current state.

    `items` are what would run, or only what is `changed` since the last approval.
    """

    exit_code = ExitCode.UNTRUSTED

    def __init__(
        self, project: str, hash: str, items: Sequence[str], *, given: str | None = None, changed: bool = False
    ) -> None:
        self.project = project
        self.hash = hash
        self.items = tuple(items)
        self.given = given
        short = hash[:SHORT_HASH]
        what = ", ".join(self.items[:5]) + (f" and {len(self.items) - 5} more" if len(self.items) > 5 else "")
        if given is not None:
            more = ", only its beginning: give all of it" if given and hash.startswith(given) else ""
            said = f"--trust {given[:SHORT_HASH]} is not the hash of this project in its current state{more}"
        elif changed:
            said = f"this project has changed since you approved it: {what}"
        else:
            said = f"this project is not trusted in its current state; it would run {what or 'nothing'}"
        super().__init__(
            f"{said} (see it and its whole hash, {short}…: atomic trust --show; approve it: atomic trust;"
            " in CI: --trust HASH)"
        )


class TrustError(AtomicError):
    """An approval cannot be read or written."""


class WorkflowFileError(AtomicError):
    """A workflow's file cannot be written."""

    exit_code = ExitCode.USAGE
