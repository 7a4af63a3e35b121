"""What is known of a workflow: from its file without running it, and after it was loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.deferred import deferred
from atomic.graph import CompiledGraph, State
from atomic.workflows.errors import WorkflowLoadError, WorkflowProblem

if TYPE_CHECKING:
    from pathlib import Path  # the door for workflow authors opens without it
else:
    Path = deferred("pathlib", "Path")

DEFAULT_ITERATIONS = 100
MigrateState = Callable[[dict[str, Any], int], dict[str, Any]]


class WorkflowSource(StrEnum):
    """Whose a workflow is; of two with one name the first here wins."""

    PROJECT = "project"
    USER = "user"
    BUILTIN = "builtin"


class Untrusted(msgspec.Struct, frozen=True):
    """The gates of a project that nobody has approved as it is: who wants to run one of them raises UntrustedError."""

    project: str
    hash: str
    gates: Sequence[tuple[str, str]] = ()  # the file that brings it, and the command


class WorkflowStateParams(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow's `create_state` is given."""

    prompt: str = ""
    session_id: str = ""
    session_dir: str = ""
    cwd: str = ""  # where the work is done
    max_iterations: int = DEFAULT_ITERATIONS  # 0: no limit
    config: Mapping[str, Any] = {}  # `default_config` under what the settings say
    given: Mapping[str, Any] = {}  # what of it the caller has said, by flags
    project: str = ""  # the root of the project; `cwd` is there or below
    untrusted: Untrusted | None = None


class ResumeParams(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow is told of a resume, which it may refuse."""

    run: str
    cwd: str  # where the run works
    given: Mapping[str, Any]  # what the flags of the resume say
    config: Mapping[str, Any]  # what the run was started with, and earlier resumes
    has_worked: bool  # an agent was called


CreateState = Callable[[WorkflowStateParams], State | Mapping[str, Any]]


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, for a workflow that leaves a report; `state` is the last one that is known."""

    session_dir: str
    status: str
    reason: str
    message: str
    plain: str = ""  # `message` without the ids of nodes, where it has them
    save: Callable[[str, str], None]  # writes a file of the session's folder: its name, its text; without secrets
    state: Any = None
    facts: Mapping[str, Any] = {}  # what the run has set in `ctx.deps.facts`


class EndNote(msgspec.Struct, frozen=True):
    """What a workflow adds to its end: the message, where there is no other, and whether a check proved the work."""

    message: str = ""
    verified: bool | None = None


AtEnd = Callable[[RunEnd], str | EndNote | None]  # a text is the message of an EndNote


class Capabilities(msgspec.Struct, frozen=True):
    """What a workflow can do, as its graph shows it."""

    subagents: bool = False
    task_list: bool = False
    questions: bool = False

    def joined(self, other: Capabilities) -> Capabilities:
        """What either can do."""
        return Capabilities(
            self.subagents or other.subagents, self.task_list or other.task_list, self.questions or other.questions
        )


class LoadedWorkflow(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A workflow that can be run. Without a graph its prompt goes to the chat."""

    graph: CompiledGraph[Any] | None
    create_state: CreateState
    check_start: Callable[[WorkflowStateParams], None] | None = (
        None  # raises what is wrong with a start, before a session
    )
    check_resume: Callable[[ResumeParams], None] | None = None  # raises what is wrong with a resume
    migrate_state: MigrateState | None = None
    capabilities: Capabilities = Capabilities()
    at_end: AtEnd | None = None  # called at every end of a run, also at a pause

    def iteration_limit(self, given: int | None, config: Mapping[str, Any]) -> int:
        """Return `params.max_iterations`: what the caller or the config says, else the graph's, else 100."""
        limit = config.get("max_iterations") if given is None else given
        if isinstance(limit, int) and not isinstance(limit, bool):
            return limit
        bound = None if self.graph is None else self.graph.program.max_iterations
        return DEFAULT_ITERATIONS if bound is None else bound


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """A run that anybody can watch without an agent.

    `folder` holds `recording.jsonl`, which plays the agents, and `project.json`, the texts of the files that the run
    begins with. In `config` and in the commands `{python}` becomes the name of Python on this machine.
    """

    folder: str
    prompt: str
    config: Mapping[str, Any] = {}
    story: str = ""  # what will be seen
    tests: str = ""  # the command that proves the work
    look: str = ""  # a command that shows what was built
    play: str = ""  # a command for a person at a terminal


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
    config_descriptions: Mapping[str, str] = {}  # by key of `default_config`: what its flag does
    resume_config: Sequence[str] | None = None  # the keys that a resume may change; None: all
    roles: Sequence[str] = ()  # all that `--agent` and `--model` may name; empty: whatever its prompts say
    source: WorkflowSource = WorkflowSource.BUILTIN
    path: Path | None = None
    sha256: str = ""  # of its file
    problems: Sequence[WorkflowProblem] = ()
    refused: bool = False  # one of the problems keeps it from being loaded
    loader: Callable[[WorkflowDefinition], LoadedWorkflow] | None = None
    demo: Demo | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong with its file, for people; None if nothing is."""
        return str(self.problems[0]) if self.problems else None

    def load(self) -> LoadedWorkflow:
        """Run the file's bytes and compile its graph.

        Raises:
            UntrustedError: it belongs to a project that nobody has trusted as it is now.
            WorkflowLoadError: with all that is wrong.
        """
        if self.refused or self.loader is None:
            raise WorkflowLoadError(self.name, self.problems)
        return self.loader(self)

    def config(self, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """`default_config` with what `[workflows.NAME]` of the settings says instead."""
        wanted = self.name.casefold()
        said = (table for name, table in settings.items() if name.casefold() == wanted)
        merged = dict(self.default_config)
        for table in said:
            merged = _over(merged, table)
        return merged


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, all else is replaced."""
    merged = {**below, **above}
    for name, value in above.items():
        old = below.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[name] = _over(cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value))
    return merged
