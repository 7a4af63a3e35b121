"""What the verbs that run a workflow share: their flags, the project of a run, and the host that shows its events."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import AtomicError, ExitCode, is_debugging, message_of
from atomic.cli import signals
from atomic.cli.errors import CliError, exit_code_of
from atomic.cli.output import Output
from atomic.cli.progress import Asking, View, view_for
from atomic.cli.streams import STDERR, STDIN, claim_stdout, tell
from atomic.cli.turn import recordable
from atomic.cli.workflow_flags import config_of
from atomic.config import CapSettings, Settings, atomic_home, read_duration, read_limit
from atomic.graph import RunOwnedError
from atomic.hosts import (
    BY_PREFERENCE,
    check,
    choose_provider,
    current_folder,
    named_provider,
    neutral_folder,
    require_usable,
)
from atomic.loading.catalog import WorkflowCatalog
from atomic.questions import Question
from atomic.runs.endings import Stop
from atomic.runs.events import RunEnded
from atomic.runs.executor import WorkflowRun
from atomic.runs.host import Choices, Person, Runtime
from atomic.runs.limits import Caps
from atomic.workflows.capabilities import tools_of

if TYPE_CHECKING:
    from atomic.loading.project_tools import ToolCatalog
    from atomic.loading.trust import Snapshot
    from atomic.providers import AgentProvider, SessionOptions
    from atomic.wiring import SessionMcp, Wiring
    from atomic.workflows.definition import LoadedWorkflow, Untrusted
    from atomic.workflows.runtime import EntityKind, EntityLike

MOST_WAITING = 1_000  # lines that standard output has not taken; more are joined until it does
_STOPS = {signal.SIGINT: Stop.INTERRUPT, signal.SIGTERM: Stop.TERMINATE, signal.SIGHUP: Stop.HANG_UP}


class RunFlags(msgspec.Struct, frozen=True):
    """The flags of every run; None for a flag that was not given."""

    agents: Mapping[str, str] = {}
    models: Mapping[str, str] = {}
    caps: Mapping[str, float] = {}
    on_limit: Any = None
    record: str | None = None
    trust: str | None = None
    as_json: bool = False
    config: Mapping[str, Any] = {}  # from the workflow's own flags

    def over(self, old: Mapping[str, Any]) -> RunFlags:
        """Return these flags, with those of the run's start where none is given."""
        return RunFlags(
            {**old.get("agents", {}), **self.agents},
            {**old.get("models", {}), **self.models},
            {**{name: cap for name, cap in old.get("caps", {}).items() if cap is not None}, **self.caps},
            self.on_limit or old.get("on_limit"),
            self.record or old.get("record"),
            self.trust,
            self.as_json,
            self.config,
        )


def read_flags(arguments: Arguments) -> RunFlags:
    """Read the flags of a command line. Raises UsageError."""
    record = arguments.value("--record")
    return RunFlags(
        _by_role(arguments, "--agent"),
        _by_role(arguments, "--model"),
        _caps(arguments),
        arguments.value("--on-limit"),
        None if record is None else recordable(record),
        arguments.value("--trust"),
        arguments.has("--json"),
        config_of(arguments),
    )


def _by_role(arguments: Arguments, flag: str) -> dict[str, str]:
    """Read `X` for all roles and `ROLE=X` for one. A name may contain `=` after a slash or a colon."""
    chosen: dict[str, str] = {}
    for value in arguments.values(flag):
        role, equals, name = value.partition("=")
        if equals and not any(sign in role for sign in "/:"):
            chosen[role.strip()] = name.strip()
        else:
            role, name, chosen[""] = "", value, value
        if (equals and not role.strip()) or not name.strip():
            raise UsageError(f'{flag} cannot be "{value}": give NAME, or ROLE=NAME')
    return chosen


def _caps(arguments: Arguments) -> dict[str, float]:
    readers: dict[str, Callable[[str], float]] = {
        "max_cost": float,
        "max_tokens": int,
        "max_time": read_duration,
        "turn_limit": read_limit,
        "idle_limit": read_limit,
    }
    caps: dict[str, float] = {}
    for name, read in readers.items():
        flag = f"--{name.replace('_', '-')}"
        if (text := arguments.value(flag)) is None:
            continue
        try:
            is_number = read in (float, int)
            caps[name] = read(text.replace(",", "_").removeprefix("$") if is_number else text)
        except ValueError:
            caps[name] = -1
        least = 0 if read is read_limit else 1e-9
        if not least <= caps[name] < float("inf"):
            raise UsageError(f'{flag} cannot be "{text}": give {_EXAMPLES[name]}')
    return caps


_EXAMPLES = {
    "max_cost": "dollars, such as 2.50",
    "max_tokens": "a number, such as 200000",
    "max_time": "a time, such as 90s, 30m or 6h",
    "turn_limit": "a time, such as 90s, 30m or 2h, or 0 for no limit",
    "idle_limit": "a time, such as 90s, 10m or 1h, or 0 for no limit",
}


def caps_of(flags: RunFlags, settings: CapSettings) -> Caps:
    """Return the caps of a run; flags override the settings."""
    return msgspec.convert({**msgspec.to_builtins(settings), **flags.caps}, Caps)


class Place:
    """A project with everything that a run uses, each part made when it is needed."""

    def __init__(self, project: Path | None, cwd: Path, trust: str | None) -> None:
        self.project, self.cwd, self._trust = project or cwd, cwd, trust
        self._servers: dict[str, SessionMcp] = {}
        self._trying = asyncio.Lock()

    @cached_property
    def wiring(self) -> Wiring:
        from atomic.wiring import Wiring

        return Wiring(self.project, is_approved=lambda: self.catalog.snapshot.approved)

    @property
    def settings(self) -> Settings:
        return self.wiring.settings

    @cached_property
    def catalog(self) -> WorkflowCatalog:
        return WorkflowCatalog(self.project, trusted=self._trust, settings=self.settings)

    @cached_property
    def tools(self) -> ToolCatalog:
        from atomic.loading.project_tools import ToolCatalog

        return ToolCatalog(self.catalog)

    async def runtime(self, flags: RunFlags, loaded: LoadedWorkflow, person: Person | None) -> Runtime:
        """Build the runtime of a run. Raises CliError for a missing agent, before there is a session."""
        for name in flags.agents.values():
            named_provider(name, self.settings)
        for _, tool in tools_of(loaded.graph) if loaded.graph else ():
            self.tools.allow(tool)
        runtime = Runtime(
            home=atomic_home(),
            project=self.project,
            cwd=self.cwd,
            choose=self._choose,
            entities=_LazyEntities(self.wiring),
            workflows=self.catalog,
            tools=_LazyTools(self),
            settings=self.settings,
            choices=Choices(flags.agents, flags.models),
            caps=caps_of(flags, self.settings.caps),
            on_limit=flags.on_limit or "wait",
            others=await self._others() if flags.on_limit == "switch" else (),
            record=flags.record,
            untrusted=_untrusted(self.catalog.snapshot),
            trusted=self.catalog.snapshot.allows(self.cwd),
            prepare=self._with_mcp_servers,
            person=person,
            trust_after=self._trust_after if self.catalog.snapshot.approved else None,
        )
        if loaded.graph is None or loaded.capabilities.subagents:
            await self._require_agents(flags.agents)
        return runtime

    async def _require_agents(self, named: Mapping[str, str]) -> None:
        """Find the agents before there is a session, so that a missing one does not stop work halfway."""
        wanted = list(named.values())
        if not named.get("") and self.settings.agent is not None:
            wanted.append(self.settings.agent)
        await require_usable(wanted, self.settings)
        if not named.get(""):
            await self._choose(None)

    async def _with_mcp_servers(
        self, provider: AgentProvider, options: SessionOptions, tell: Callable[[str], object]
    ) -> SessionOptions:
        """Add the MCP servers that the user has configured; they are tried once for each agent."""
        async with self._trying:
            if provider.name not in self._servers:
                found = self._servers[provider.name] = await self.wiring.session_mcp(provider, trusted=options.trusted)
                for notice in (*found.notices, *self.wiring.entity_notices):
                    tell(notice)
        return self._servers[provider.name].added_to(options)

    def _trust_after(self, started: Any) -> Any:
        """Record what the run itself changed, so that it can be resumed without a new approval."""
        from atomic.loading import trust

        return msgspec.convert(msgspec.to_builtins(started), trust.RunTrust).note(trust.look(self.project))

    async def _choose(self, name: str | None) -> AgentProvider:
        if name is None and self._found is not None:
            return self._found
        provider = await choose_provider(name, self.settings)
        if name is None:
            self._found = provider
        return provider

    _found: AgentProvider | None = None

    async def _others(self) -> Sequence[str]:
        """Return the names of the agents that can be used here."""
        names = [*BY_PREFERENCE, *(f"acp:{name}" for name in self.settings.acp)]
        with neutral_folder():
            found = await asyncio.gather(*(check(name, self.settings) for name in names))
        return [name for name, health in zip(names, found, strict=True) if health.ok]


def _untrusted(snapshot: Snapshot) -> Untrusted | None:
    """Return the checks that the project configures, if its current state is not approved."""
    from atomic.loading.executables import Kind
    from atomic.workflows.definition import Untrusted

    gates = [(item.path, item.text) for item in snapshot.items if item.kind is Kind.GATE]
    return None if snapshot.approved or not gates else Untrusted(snapshot.project, snapshot.hash, gates)


class _LazyEntities:
    """The project's entities, which are read when a node first asks for one."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def require(self, kind: EntityKind, name: str) -> EntityLike:
        return self._wiring.entities.require(kind, name)


class _LazyTools:
    """The project's custom tools, whose files are read when a node first asks for one."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def require(self, name: str) -> Any:
        return self._place.tools.require(name)


class Elsewhere:
    """A user at another process, the screen. Answers come through the inbox, which the run reads itself."""

    async def ask(self, question: Question) -> None:
        """Wait until the run has read the answer and cancels this."""
        await asyncio.get_running_loop().create_future()


Start = Callable[["Person | None"], Awaitable[WorkflowRun]]


def host(start: Start, *, as_json: bool) -> int:
    """Show a run to its end and return its exit code. Errors are shown, not raised."""
    return signals.run(lambda stop: RunHost(stop, as_json=as_json).run(start))


class RunHost:
    """Shows the events of a run and handles signals."""

    def __init__(self, stop: signals.Stop, *, as_json: bool) -> None:
        self._stop, self._as_json = stop, as_json
        self._out = Output(claim_stdout()) if as_json else Output()
        self._view: View = view_for(self._out, as_json=as_json)

    async def run(self, start: Start) -> int:
        cancel = self._stop.act
        code = await self._attempt(start)
        self._stop.act = cancel  # the reader of the output may have stopped reading
        await self._out.drain()
        if self._out.failure is not None:
            tell(f"standard output could not take all of it: {self._out.failure.strerror}")
        return code

    async def _attempt(self, start: Start) -> int:
        try:
            run = await start(self._person())
            self._stop.act = lambda: run.stop(_STOPS[signal.Signals(self._stop.number or signal.SIGINT)])
            return await self._watch(run)
        except Exception as error:  # a program that reads JSON gets internal errors too
            if is_debugging() and not isinstance(error, AtomicError):
                raise
            code, why = exit_code_of(error), message_of(error)
            if isinstance(error, RunOwnedError):
                id = error.execution_id
                code = ExitCode.OWNED
                why = f"{why} (watch it: atomic attach {id}; pause it: atomic stop {id})"
            self._view.refuse(why, code)
            return code
        finally:
            self._view.close()

    def _person(self) -> Person | None:
        if os.environ.pop("ATOMIC_ANSWERS", "") == "inbox":  # processes of the run must not inherit it
            return Elsewhere()
        has_user = not self._as_json and os.isatty(STDIN) and os.isatty(STDERR)
        return Asking(self._out, self._view) if has_user else None

    async def _watch(self, run: WorkflowRun) -> int:
        code = ExitCode.DONE
        async for event in run:
            self._view.show(event)
            if isinstance(event, RunEnded):
                code = event.exit_code
            while self._out.backlog > MOST_WAITING:  # noqa: ASYNC110  # a thread makes the room
                await asyncio.sleep(0.05)  # meanwhile the run joins its events
        return code


def place_here(flags: RunFlags) -> Place:
    """Return the project of the current folder."""
    from atomic.config import find_project

    cwd = Path(current_folder())
    return Place(find_project(), cwd, flags.trust)


def warn_of_settings(place: Place) -> None:
    for warning in place.settings.warnings:
        tell(f"warning: {warning}")


def gone(folder: str) -> CliError:
    return CliError(f"{folder}, where this run was started, no longer exists", 2)
