"""`agents`: use agents from Python, without the `atomic` command.

It is a host of runs like the command: it builds the parts of a project, and the rooms
below do the work.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.config import ProviderSettings, Settings, atomic_home, read_duration
from atomic.config.known_agents import AGENT_NAMES
from atomic.graph.engine.run_deps import AgentChoice, NamedAgent
from atomic.runs.open_agents import Agents, OpenAgents, Programs
from atomic.wiring import Project, RunFlags
from atomic.workflows.runtime import Entities, Tools, Workflows

if TYPE_CHECKING:
    from atomic.providers import AgentProvider, SessionOptions
    from atomic.runs.host import ChooseProvider, Prepare, Runtime

__all__ = ["Agents", "OpenAgents", "agents"]


def agents(
    agent: AgentChoice | None = None,
    *,
    model: str | Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    project: str | os.PathLike[str] | None = None,
    entities: Entities | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    max_time: float | str | None = None,
    max_concurrency: int | None = None,
    on_limit: Literal["wait", "stop"] = "wait",
    park: bool = False,
    trusted: bool = False,
    record: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Agents:
    """Open agents for `async with`, which yields the `deps` of runs.

        async with agents("claude", max_cost=2) as runtime:
            result = await workflow.run({"prompt": "…"}, deps=runtime)

    Args:
        agent: A name, a provider, or one of these for each role, as in
            `{"": "claude", "reviewer": "opencode"}`; a role is the name of a sub-agent or
            a node, and "" are all others. None: the agent of the user's settings, or the
            first one that can be used.
        model: The model, or one for each role.
        cwd: The folder that agents work in; the current one by default.
        project: The folder whose commands, skills, sub-agents, tools, workflows and MCP
            servers are used; by default the project of `cwd`.
        entities: Commands, skills and sub-agents to use instead of those of the project.
        max_cost: Dollars that each run may take, with its resumes. A run that reaches a
            cap is paused.
        max_tokens: Tokens, in the same way.
        max_time: Seconds, or a text such as "30m", in the same way.
        max_concurrency: How many turns may run at once, in all runs together.
        on_limit: Whether a run waits for the reset of an agent's usage limit, or stops.
        park: A run in which every step only sleeps pauses, with `wake_at`, instead of
            keeping the process.
        trusted: Approve the code of the project as it is now: its workflows, tools, hooks
            and MCP servers. Without it they run if `atomic trust` has approved them.
        record: A file to which all turns are recorded, for `replay:FILE`.
        env: Variables for the agents' programs.

    Raises:
        AtomicError: An argument cannot be used.
    """
    chosen = _by_role(agent)
    caps = {
        "max_cost": _cap("max_cost", max_cost),
        "max_tokens": _cap("max_tokens", max_tokens),
        "max_time": _seconds(max_time),
    }
    if max_concurrency is not None and (isinstance(max_concurrency, bool) or max_concurrency < 1):
        raise AtomicError(f"agents(max_concurrency={max_concurrency!r}): give a number of turns, 1 or more")
    if on_limit not in ("wait", "stop"):
        raise AtomicError(f'agents(on_limit={on_limit!r}): give "wait" or "stop"')
    folder = _folder("cwd", cwd)
    of_folder = _folder("project", project)
    recording = None if record is None else os.path.abspath(record)
    models = {"": model} if isinstance(model, str) else dict(model or {})

    async def open_host(temporary: Path, programs: Programs) -> Runtime:
        from atomic.providers.selection import first_usable_agent, require_program, require_ready
        from atomic.sessions.store import SessionStore

        of_project = _project(folder, of_folder, env or {}, trusted=trusted)
        settings = of_project.settings
        known = _Known(of_project.choose, chosen.values(), programs)
        names = {role: known.name_of(choice) for role, choice in chosen.items()}
        if known.is_given(names.get("")):  # the settings are about the user's own agents
            settings = msgspec.structs.replace(settings, agent=None, model=None)
        default = names.get("") or settings.agent
        to_check = [name for name in (*names.values(), default) if name is not None and not known.is_given(name)]
        found = [await of_project.choose(name) for name in dict.fromkeys(to_check)]
        for provider in found:
            require_program(provider)
        await require_ready(found)
        if default is None:
            settings = msgspec.structs.replace(settings, agent=(await first_usable_agent(settings)).name)
        flags = RunFlags(
            agents=names,
            models=models,
            caps={name: cap for name, cap in caps.items() if cap is not None},
            on_limit=on_limit,
            record=recording,
            park=park,
        )
        parts = of_project.host_parts(flags)
        return msgspec.structs.replace(
            parts,
            store=SessionStore(temporary, of_project.redactor),
            choose=known.choose,
            settings=settings,
            library=_Library(of_project, entities),
            prepare=_prepare(parts.prepare, env or {}, known),
            home=atomic_home(),
            caller="python",
            around_call=programs.turn,
        )

    return Agents(open_host, max_concurrency)


class _Known:
    """Finds agents by name: first among given objects, then among the user's agents."""

    def __init__(self, choose: ChooseProvider, chosen: Iterable[str | NamedAgent], programs: Programs) -> None:
        self._choose = choose
        self._programs = programs
        self._objects: dict[str, NamedAgent] = {}
        self._given: dict[str, AgentProvider] = {}  # the same, whose programs end with the agents
        chosen = list(chosen)
        names = {choice for choice in chosen if isinstance(choice, str)}
        for choice in chosen:
            if isinstance(choice, str) or any(choice is other for other in self._objects.values()):
                continue
            name = _free_name(choice.name, {*names, *self._objects})
            self._objects[name] = choice
            self._given[name] = programs.owned(cast("AgentProvider", choice))

    def name_of(self, choice: str | NamedAgent) -> str:
        """Return the name under which runs know an agent."""
        if isinstance(choice, str):
            return choice
        return next(name for name, known in self._objects.items() if known is choice)

    def is_given(self, name: str | None) -> bool:
        """Return whether an object was given for the agent of that name."""
        return name in self._given

    def has_made(self, provider: AgentProvider) -> bool:
        """Return whether a provider is one of the objects that were given."""
        return any(provider is given for given in self._given.values())

    async def choose(self, name: str | None) -> AgentProvider:
        """Return the agent of that name, whose programs end with the agents."""
        given = self._given.get(name or "")
        if given is not None:
            return given
        return self._programs.owned(await self._choose(name))


class _Library:
    """What nodes find by name."""

    def __init__(self, project: Project, entities: Entities | None) -> None:
        self._project = project
        self._entities = entities

    @property
    def entities(self) -> Entities:
        return self._entities or self._project.entities

    @property
    def workflows(self) -> Workflows:
        return self._project.workflows

    @property
    def tools(self) -> Tools:
        return self._project.tools


def _project(cwd: Path | None, folder: Path | None, env: Mapping[str, str], *, trusted: bool) -> Project:
    """Return the project, with the variables among its settings, so that checks of
    logins see them and nothing writes their secrets.
    """
    project = Project(folder, cwd=cwd)
    settings = project.settings
    if env:
        names = (*AGENT_NAMES, "acp")
        settings = msgspec.structs.replace(
            settings, providers={**settings.providers, **{name: _with_env(settings, name, env) for name in names}}
        )
    trust = project.snapshot.hash if trusted else None
    return Project(folder, cwd=cwd, trust=trust, settings=settings)


def _with_env(settings: Settings, name: str, env: Mapping[str, str]) -> ProviderSettings:
    known = settings.provider(name)
    return msgspec.structs.replace(known, env={**known.env, **env})


def _prepare(prepare: Prepare | None, env: Mapping[str, str], known: _Known) -> Prepare:
    """Return what completes the options of a session: the variables and, for agents of
    the user, the MCP servers of the configuration.
    """

    async def prepared(
        provider: AgentProvider, options: SessionOptions, tell: Callable[[str], object]
    ) -> SessionOptions:
        if env:
            options = msgspec.structs.replace(options, env={**env, **(options.env or {})})
        if prepare is None or known.has_made(provider):
            return options
        return await prepare(provider, options, tell)

    return prepared


def _by_role(agent: AgentChoice | None) -> dict[str, str | NamedAgent]:
    """Return the agent of each role. Raises AtomicError."""
    if agent is None:
        return {}
    found: Mapping[Any, Any] = agent if isinstance(agent, Mapping) else {"": agent}
    for role, choice in found.items():
        if isinstance(choice, OpenAgents | Agents):
            raise AtomicError("agent= was given agents(…), which is a runtime: give deps= instead")
        is_provider = hasattr(choice, "open") and hasattr(choice, "capabilities")
        if not isinstance(role, str) or not (isinstance(choice, str) or is_provider):
            raise AtomicError(
                f'{choice!r:.60} is not an agent: give a name such as "claude", a provider,'
                ' or these by role, such as {"": "claude", "reviewer": "opencode"}'
            )
    return dict(found)


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number if it is taken."""
    free = name
    number = 2
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _folder(name: str, path: str | os.PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise AtomicError(f'agents({name}="{os.fspath(path)}"): there is no such folder')
    return folder


def _cap(name: str, value: float | None) -> float | None:
    """Return a cap. Raises AtomicError."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
    if not is_number or not math.isfinite(value) or value < 0:
        raise AtomicError(f"agents({name}={value!r:.40}): give a number, 0 or more")
    return value


def _seconds(value: float | str | None) -> float | None:
    if not isinstance(value, str):
        return _cap("max_time", value)
    try:
        return read_duration(value)
    except ValueError:
        raise AtomicError(f'agents(max_time="{value}"): give seconds, or a text such as "90s" or "2h"') from None
