"""A workflow: as its file describes it (nothing has run), and after it was loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.flags import ConfigFlag, config_flags
from atomic.base.lazy_types import deferred
from atomic.graph import CompiledGraph, FunctionWorkflow, State
from atomic.graph.engine.builder import MigrateState
from atomic.workflows.errors import WorkflowLoadError, WorkflowProblem

if TYPE_CHECKING:
    from pathlib import Path  # not imported at run time: `atomic.workflows` must import quickly
else:
    Path = deferred("pathlib", "Path")

DEFAULT_ITERATIONS = 100
Runnable = CompiledGraph[Any] | FunctionWorkflow[..., Any]
"""What a workflow runs: a graph or a function. Both have the members that hosts use."""


class WorkflowSource(StrEnum):
    """The origin of a workflow.

    Of two with the same name, the first in this order wins.
    """

    PROJECT = "project"
    USER = "user"
    BUILTIN = "builtin"
    FILE = "file"  # named by its path; only a command line does that
    PACKAGE = "package"


class Untrusted(msgspec.Struct, frozen=True):
    """The checks of a project that the user has not approved, and the set-up of its
    workspaces.

    Running one raises UntrustedError.
    """

    project: str
    hash: str
    gates: Sequence[tuple[str, str]] = ()  # the file that names it, and the command
    setup: str = ""  # the file that sets a copy of the project up


class WorkflowStateParams(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a workflow's `create_state` and `check_start`."""

    prompt: str = ""
    session_id: str = ""
    session_dir: str = ""
    cwd: str = ""  # where the run works
    max_iterations: int = DEFAULT_ITERATIONS  # 0: no limit
    config: Mapping[str, Any] = {}  # `default_config`, overridden by the settings and flags
    given: Mapping[str, Any] = {}  # the part of it that flags have set
    project: str = ""  # the root of the project; `cwd` is there or below
    untrusted: Untrusted | None = None


class ResumeParams(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a workflow's `check_resume`, which may refuse a resume."""

    run: str
    cwd: str  # where the run works
    given: Mapping[str, Any]  # the flags of the resume
    config: Mapping[str, Any]  # of the start and of earlier resumes
    has_worked: bool  # an agent was called


CreateState = Callable[[WorkflowStateParams], State | Mapping[str, Any]]


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a workflow's `at_end`: how a run ended.

    `state` is the last known one.
    """

    session_dir: str
    status: str
    reason: str
    message: str
    plain: str = ""  # `message` without node ids, if it has any
    save: Callable[[str, str], None]  # writes a file of the session's folder (name, text), without secrets
    state: Any = None
    facts: Mapping[str, Any] = {}  # the values of `ctx.deps.facts`


class EndNote(msgspec.Struct, frozen=True):
    """The result of `at_end`: a message, used if the run has none, and whether a check
    has proven the work.
    """

    message: str = ""
    verified: bool | None = None


AtEnd = Callable[[RunEnd], str | EndNote | None]  # a text means EndNote(text)


class Capabilities(msgspec.Struct, frozen=True):
    """The features that a workflow's graph uses."""

    subagents: bool = False
    task_list: bool = False
    questions: bool = False

    def joined(self, other: Capabilities) -> Capabilities:
        """Return the features of either."""
        return Capabilities(
            self.subagents or other.subagents, self.task_list or other.task_list, self.questions or other.questions
        )


class LoadedWorkflow(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A loaded workflow. Without a graph, a run is one turn with the prompt."""

    graph: Runnable | None
    create_state: CreateState
    check_start: Callable[[WorkflowStateParams], None] | None = None  # raises to refuse a start
    check_resume: Callable[[ResumeParams], None] | None = None  # raises to refuse a resume
    migrate_state: MigrateState | None = None
    capabilities: Capabilities = Capabilities()
    at_end: AtEnd | None = None  # called at each end of a run, also at a pause
    calls: Sequence[str] = ()  # the workflows that a function calls by name

    def iteration_limit(self, given: int | None, config: Mapping[str, Any]) -> int:
        """Return `params.max_iterations`: of the caller, else of the config, else of
        the graph, else 100.
        """
        limit = config.get("max_iterations") if given is None else given
        if isinstance(limit, int) and not isinstance(limit, bool):
            return limit
        bound = None if self.graph is None else self.graph.program.max_iterations
        return DEFAULT_ITERATIONS if bound is None else bound


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """A demonstration run that needs no agent.

    `folder` has `recording.jsonl`, which replays the agents, and `project.json`, the
    files of the project at the start. In `config` and in the commands `{python}` is
    replaced by the name of Python on this machine.
    """

    folder: str
    prompt: str
    config: Mapping[str, Any] = {}
    story: str = ""  # a description of the demonstration
    tests: str = ""  # the command that checks the work
    look: str = ""  # a command that shows the result
    play: str = ""  # a command to use in a terminal


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a workflow function, as its file has it.

    `kind` is "text", "int", "number", "flag", "texts" or "json".
    """

    name: str
    kind: str
    has_default: bool = False
    default: Any = None  # None also for a default that is not a literal
    choices: Sequence[str] = ()
    is_prompt: bool = False  # the prompt of a command goes to it


class WorkflowDefinition(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A workflow as its file describes it; nothing of the file has run."""

    name: str
    description: str = ""
    aliases: Sequence[str] = ()
    version: str = ""
    min_sdk_version: str = ""
    state_version: int = 1
    argument_hint: str = ""
    default_config: Mapping[str, Any] = {}
    node_descriptions: Mapping[str, str] = {}
    config_descriptions: Mapping[str, str] = {}  # by key of `default_config`: the help of its flag
    resume_config: Sequence[str] | None = None  # the keys that a resume may change; None: all
    parameters: Sequence[Parameter] | None = None  # of a workflow function; None: it is a graph, or not known
    roles: Sequence[str] = ()  # the roles for `--agent` and `--model`; empty: the roles that its prompts name
    source: WorkflowSource = WorkflowSource.BUILTIN
    path: Path | None = None
    sha256: str = ""  # of its file
    problems: Sequence[WorkflowProblem] = ()
    refused: bool = False  # one of the problems prevents loading
    loader: Callable[[WorkflowDefinition], LoadedWorkflow] | None = None
    demo: Demo | None = None

    @property
    def problem(self) -> str | None:
        """The first problem of its file, or None."""
        return str(self.problems[0]) if self.problems else None

    @property
    def flags(self) -> list[ConfigFlag]:
        """The flags that the workflow adds to those of every run: one for each key of
        `default_config`, and for each parameter of its function.
        """
        on_resume = () if self.parameters is not None else self.resume_config
        return config_flags(self.default_config, self.config_descriptions, on_resume, self.parameters or ())

    def load(self) -> LoadedWorkflow:
        """Run the file's bytes and compile its graph.

        Raises:
            UntrustedError: it belongs to a project that is not trusted in its current state.
            WorkflowLoadError: with all problems.
        """
        if self.refused or self.loader is None:
            raise WorkflowLoadError(self.name, self.problems)
        return self.loader(self)

    def config(self, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return `default_config`, overridden by `[workflows.NAME]` of the settings."""
        wanted = self.name.casefold()
        merged = dict(self.default_config)
        for name, table in settings.items():
            if name.casefold() == wanted:
                merged = _merged(merged, table)
        return merged


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables recursively; replace everything else."""
    merged = {**below, **above}
    for name, value in above.items():
        old = below.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value))
    return merged
