"""The Protocols of `ctx.deps`: the objects that a workflow's node can use.

Nodes that need an agent or an entity are written against these. The host of a run
passes the real implementations, a test passes small ones. There is no global and no
setter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar

import msgspec

from atomic.base.lazy_types import deferred
from atomic.base.terminal import one_line
from atomic.base.usage import Usage
from atomic.graph import CompiledGraph, FunctionWorkflow
from atomic.questions import Question
from atomic.tasks import TaskList

if TYPE_CHECKING:
    from pathlib import Path

    from atomic.base.redaction import Redactor
    from atomic.providers.base import CustomTool
    from atomic.sessions.facts import Facts
    from atomic.workspaces import Conflict, Landed, OpenWorkspace, RunWorkspaces, View, Work
else:
    Path = deferred("pathlib", "Path")
    CustomTool = deferred("atomic.providers.base", "CustomTool")
    Redactor = deferred("atomic.base.redaction", "Redactor")
    Facts = deferred("atomic.sessions.facts", "Facts")
    RunWorkspaces = deferred("atomic.workspaces.run_workspaces", "RunWorkspaces")
    View = deferred("atomic.workspaces.views", "View")
    Conflict = deferred("atomic.workspaces", "Conflict")
    Landed = deferred("atomic.workspaces", "Landed")
    OpenWorkspace = deferred("atomic.workspaces", "OpenWorkspace")
    Work = deferred("atomic.workspaces", "Work")

EntityKind = Literal["command", "skill", "agent"]
ProblemT = TypeVar("ProblemT")
MAX_TITLE = 60  # characters of the first line of a commit's message


class EntityLike(Protocol):
    """A command, skill or agent as a node needs it."""

    @property
    def name(self) -> str: ...

    @property
    def prompt(self) -> str: ...

    @property
    def model(self) -> str | None: ...

    @property
    def tools(self) -> Sequence[str] | None: ...

    @property
    def denied_tools(self) -> Sequence[str]: ...

    def expand(self, arguments: str) -> str:
        """Return its prompt with the placeholders replaced."""
        ...


class Entities(Protocol):
    """Finds entities by name. `require` raises an error with the nearest name."""

    def require(self, kind: EntityKind, name: str) -> EntityLike: ...


class Workflows(Protocol):
    """Finds workflows by name."""

    def require(self, name: str) -> CompiledGraph[Any] | FunctionWorkflow[..., Any]: ...


class Tools(Protocol):
    """Finds custom tools by name: each is a plain or async function."""

    def require(self, name: str) -> Any: ...


class Broker(Protocol):
    """Asks the user."""

    async def ask(self, question: Question) -> str | list[str]: ...


class SubagentRequest(msgspec.Struct, frozen=True):
    """The request to a sub-agent.

    With `isolate` it works in a workspace of its own. A `Work` is continued: the
    workspace begins with its commits, and has the tip of the run's branch as the branch
    `atomic-tip`.
    """

    agent: str
    task: str
    id: str = ""
    system_prompt: str | None = None
    model: str | None = None
    tools: Sequence[str] | None = None
    timeout: float | None = None
    cwd: str | None = None
    schema: Any = None
    isolate: bool | Work = False


class SubagentResult(msgspec.Struct, frozen=True):
    """The result of a sub-agent."""

    id: str
    success: bool
    text: str = ""
    error: str | None = None
    value: Any = None
    usage: Usage | None = None
    tool_calls: int = 0
    seconds: float = 0.0
    work: Work | None = None  # of an isolated sub-agent


class IsolatedResult(msgspec.Struct, frozen=True):
    """The output of an isolated node: the answer of the agent, and its commits.

    `value` is the answer as `output_schema` describes it, if the node has one. In the
    state it is plain data: `state.outputs["id"]["work"]`.
    """

    text: str
    work: Work
    value: Any = None


class SubagentBridge(Protocol):
    """Spawns sub-agents over any provider, each in a new session."""

    async def spawn(self, request: SubagentRequest) -> SubagentResult: ...

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> Sequence[SubagentResult]: ...


class ContextMeter(Protocol):
    """The use of a session's context; `limit` 0 means unknown."""

    @property
    def used(self) -> int: ...

    @property
    def limit(self) -> int: ...


class NamedSessions(Protocol):
    """The sessions that several nodes share by name."""

    async def clear(self, name: str) -> None:
        """End a session, so that the next turn under its name starts a new one."""
        ...

    async def context(self, name: str) -> ContextMeter | None:
        """Return the context meter of a session; None if there is no such session."""
        ...

    async def compact(self, name: str) -> None:
        """Summarise the context of a session."""
        ...


class Tasks(Protocol):
    """The task list of the run."""

    def read(self) -> TaskList: ...

    def write(self, tasks: TaskList) -> None:
        """Replace the list, and publish it."""
        ...


class Files(Protocol):
    """The session's folder, to which a workflow may write."""

    @property
    def dir(self) -> Path: ...

    @property
    def redactor(self) -> Redactor: ...

    def write(self, name: str, text: str) -> None:
        """Replace a file of the folder, without secrets."""
        ...


class TurnOptions(TypedDict, total=False):
    """The options of `turn`. See `WorkflowRuntime.turn`."""

    agent: str | None
    provider: str | None
    model: str | None
    session: str | None
    tools: Sequence[str] | None
    custom_tools: Sequence[CustomTool]
    strict: bool
    workspace: OpenWorkspace | View | None


class WorkspaceOptions(TypedDict, total=False):
    """The options of `workspace`. See `WorkflowRuntime.workspace`."""

    continues: Work | None
    message: str
    start: str
    at: str
    attempt: int
    keep: bool


class WorkflowRuntime(Protocol):
    """The `ctx.deps` of nodes."""

    @property
    def entities(self) -> Entities: ...

    @property
    def workflows(self) -> Workflows: ...

    @property
    def tools(self) -> Tools: ...

    @property
    def bridge(self) -> SubagentBridge: ...

    @property
    def sessions(self) -> NamedSessions: ...

    @property
    def broker(self) -> Broker | None: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def files(self) -> Files: ...

    @property
    def facts(self) -> Facts:
        """Named values that the run keeps in its journal."""
        ...

    @property
    def folder(self) -> Path:
        """The folder of the user in which the run was started."""
        ...

    @property
    def workspaces(self) -> RunWorkspaces:
        """The workspaces of the run, and its branch."""
        ...

    def workspace(
        self,
        name: str = "",
        *,
        continues: Work | None = None,
        message: str = "",
        start: str = "",
        at: str = "",
        attempt: int = 0,
        keep: bool = False,
    ) -> AbstractAsyncContextManager[OpenWorkspace]:
        """Open a workspace of the run: a copy of the project in which a step can work.

        It begins with the last commit of the run's branch, which is made from the
        user's last commit when the first workspace is opened. Start programs with its
        `run`, and agents with `turn(…, workspace=…)`. At its end all its programs are
        ended, everything in it is parked at `refs/atomic/<run>/<name>/<attempt>`, and
        its `work` has the commits, for `merge`. Uncommitted files are committed with
        `message`. If the body fails, everything is parked too.

        A step that is killed, paused or stopped finds its workspace again. The name is
        that of the step, unless it is given. Steps can share a named one: the step that
        gives `keep=True` does not remove it.

        `continues` opens a work again, with the tip of the run's branch as the branch
        `atomic-tip`. A workspace that has to be made begins `at` a commit; its work are
        the commits after `start`.

        The kind is `isolate` of the run's config, or `auto`. Raises IsolationError if
        the project has no commit or the kind does not work here, WorkspaceError.
        """
        ...

    async def merge(
        self, work: Work, *, order: int = 0, check: Callable[[str], Awaitable[ProblemT | None]] | None = None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the run's branch, and move the branch.

        Of several works that wait, the one with the lowest `order` is next. Each is put
        on top of the one before it and lands after it; their checks run at the same
        time. `check` gets the commit that the branch would move to, and returns what is
        wrong with it, or None. It is called again if a work before this one does not
        land. Return where the work is on the branch, or why it was not merged: a
        conflict, or what `check` has returned. Work that is on the branch is not merged
        again, also after a kill at any moment.
        """
        ...

    @property
    def check_variables(self) -> Sequence[str]:
        """The environment variables that checks get although they look like secrets."""
        ...

    def timed(self, what: str) -> AbstractAsyncContextManager[None]:
        """Interrupt the body, which is not a turn, after `--max-time` and its grace.

        The run pauses then.
        """
        ...

    @property
    def trusted(self) -> bool:
        """Whether the user has approved the code that the project brings."""
        ...

    @property
    def configured(self) -> Sequence[str]:
        """The providers that flags and settings name, whether they work or not."""
        ...

    def provider_of(self, role: str) -> str | None:
        """Return the provider that flags and settings name for a role.

        None: the default one.
        """
        ...

    def publish(self, url: str) -> None:
        """Save the address where the work was published."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The current config of the run, which a resume may have changed."""
        ...

    async def turn(
        self,
        prompt: str,
        *,
        agent: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        session: str | None = None,
        tools: Sequence[str] | None = None,
        custom_tools: Sequence[CustomTool] = (),
        strict: bool = True,
        workspace: OpenWorkspace | View | None = None,
    ) -> str:
        """Run one turn in a new session, or in the named one, and return the answer.

        The agent's program runs in the workspace, if one is given. `custom_tools` are
        offered if the provider supports them. With `strict=False` a system prompt or
        tools that the provider does not support are moved into the prompt or left out.
        """
        ...


def message_of(name: str, title: str) -> str:
    """Return the message of the commit of files that a step has left uncommitted."""
    first = one_line(title)[:MAX_TITLE].strip() or f"Work of {name}"
    return f"{first}\n\nAtomic-Step: {name}"
