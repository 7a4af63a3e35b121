"""Choose an agent, check that it can be used, and find its models."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from atomic.base.errors import AtomicError, message_of
from atomic.config import Settings
from atomic.config.known_agents import ACP_NAMES, AGENT_NAMES, KNOWN_AGENTS, NATIVE_NAMES
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.base import AgentProvider, Health, ModelInfo
from atomic.providers.catalog import require_provider
from atomic.providers.errors import ProgramMissingError, ProviderError
from atomic.providers.model_names import FAMILIES_KNOWN, fitting_model, original_model
from atomic.providers.programs import START_VARIABLE

CHECK_SECONDS = 10.0
MODELS_SECONDS = 60.0  # some programs ask their service
# At its first start Copilot unpacks itself. If it were cut short, it would begin again
# each time.
_CHECK_SECONDS_BY_AGENT = {"copilot": 60.0}
_KNOW_LOGIN = ("claude", "copilot")  # these know without a session whether the user is logged in
_EXAMPLE = f"{KNOWN_AGENTS[0].title}: {KNOWN_AGENTS[0].install}"

_log = logging.getLogger(__name__)


class WrongAgentError(AtomicError):
    """The user named an agent that does not exist or is named incompletely."""


class NoAgentError(AtomicError):
    """No agent can be used, or not the one that the user wants."""


class NoModelsError(AtomicError):
    """An agent does not list its models."""


class NamesModel(Protocol):
    """A skill, command or agent whose file may name a model."""

    @property
    def model(self) -> str | None: ...


async def choose_provider(name: str | None, settings: Settings) -> AgentProvider:
    """Return the named agent, else the configured one, else the first that can be used.

    Raises NoAgentError, WrongAgentError for a wrong name, and ProviderError if the
    agent cannot be used.
    """
    if name is not None:
        return named_provider(name, settings)
    if settings.agent is not None:
        return named_provider(settings.agent, settings, origin="set by ATOMIC_AGENT or the configuration")
    with neutral_folder():
        return await first_usable_agent(settings)


async def first_usable_agent(settings: Settings) -> AgentProvider:
    """Return the first agent that can be used. Raises NoAgentError."""
    make_paths_absolute()
    installed: list[str] = []
    wrong_paths: list[str] = []
    for candidate in (*NATIVE_NAMES, *installed_acp_agents()):
        health = await check_agent(candidate, settings)
        if health.ok and wrong_paths:
            # Do not charge another agent than the one that the user has set a path for.
            raise NoAgentError(wrong_paths[0])
        if health.ok:
            return require_provider(candidate, settings)
        has_path = os.environ.get(f"ATOMIC_{candidate.upper()}_PATH") or settings.provider(candidate).path
        if health.program:
            installed.append(f"{candidate}: {health.remedy}")
        elif has_path:
            wrong_paths.append(f"{candidate}: {health.remedy}")
            installed.append(wrong_paths[-1])
    remedy = installed[0] if installed else f"install one, for example {_EXAMPLE}"
    more = "atomic doctor says what is missing for each; atomic demo shows a run without one"
    raise NoAgentError(f"No agent can be used here: {remedy} ({more})")


def named_provider(name: str, settings: Settings, *, origin: str = "") -> AgentProvider:
    """Return the agent of that name.

    `origin` is the source of the name, for the message.

    Raises WrongAgentError, or ProgramMissingError if its SDK is not installed.
    """
    try:
        return require_provider(name, settings)
    except ProgramMissingError:
        raise
    except ProviderError as error:
        raise WrongAgentError(f"{error}, {origin}" if origin else str(error)) from error


async def check_agent(name: str, settings: Settings) -> Health:
    """Return whether an agent can be used; one that does not answer in time cannot."""

    async def load_and_check() -> Health:
        # An SDK may take a second to import. Other checks continue.
        provider = await asyncio.to_thread(require_provider, name, settings)
        return await provider.check()

    return await _limited(name, load_and_check())


def agent_names(settings: Settings) -> list[str]:
    """Return the agents to choose from; none of them is started to find out.

    They are those with an adapter of their own, the other known ones that are
    installed, and those of the configuration.
    """
    configured = (name if name in ACP_NAMES else f"acp:{name}" for name in settings.acp)
    return list(dict.fromkeys([*NATIVE_NAMES, *installed_acp_agents(), *configured]))


def installed_acp_agents() -> list[str]:
    """Return the known agents without an adapter of their own that are on PATH, or that
    a variable names.
    """

    def is_installed(program: str) -> bool:
        return bool(program) and shutil.which(program) is not None

    return [
        agent.name
        for agent in KNOWN_AGENTS
        if agent.name in ACP_NAMES
        and (
            is_installed(agent.program)
            or is_installed(agent.vendor_program)
            or os.environ.get(f"ATOMIC_{agent.name.upper()}_PATH")
        )
    ]


async def usable_agents(settings: Settings) -> Sequence[str]:
    """Return the names of the installed and configured agents that can be used."""
    names = agent_names(settings)
    with neutral_folder():
        found = await asyncio.gather(*(check_agent(name, settings) for name in names))
    return [name for name, health in zip(names, found, strict=True) if health.ok]


async def require_usable(names: Iterable[str], settings: Settings) -> None:
    """Raise NoAgentError if one of these agents is missing, too old or has no login.

    An agent that does not answer in time may only be slow: its first turn will show it.
    Agents that need a session to know their login are not checked; OpenCode has models
    that need none.
    """
    known = [name for name in dict.fromkeys(names) if name in _KNOW_LOGIN]
    if known:
        with neutral_folder():
            await require_ready([require_provider(name, settings) for name in known])


def require_program(provider: AgentProvider) -> None:
    """Raise ProgramMissingError, with how to install it, if its program is missing."""
    from atomic.providers.session import LiveProvider  # a list of agents does not need it

    if isinstance(provider, LiveProvider):
        provider.require_program()


async def require_ready(providers: Sequence[AgentProvider]) -> None:
    """Raise NoAgentError if one of these is missing, too old or has no login, as far as
    it knows without a session.

    The current folder stays as it is.
    """
    make_paths_absolute()
    known = [provider for provider in providers if provider.name in _KNOW_LOGIN]

    async def check(provider: AgentProvider) -> Health | None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS_BY_AGENT.get(provider.name, CHECK_SECONDS)):
                return await provider.check()
        except TimeoutError:
            return None

    found = await asyncio.gather(*map(check, known))
    for provider, health in zip(known, found, strict=True):
        if health is not None and not health.ok:
            raise NoAgentError(f"{provider.name}: {health.remedy.removeprefix(f'{provider.name}: ')}")


async def remedy_for(provider: AgentProvider, why: str = "") -> str:
    """Return how to repair an agent that failed.

    Empty if it works, or if `why` explains it.
    """
    if START_VARIABLE in why:
        return ""  # it did not start in time, and a check would take as long
    with neutral_folder():
        health = await _limited(provider.name, provider.check())
    return health.remedy


async def list_models(provider: AgentProvider) -> Sequence[ModelInfo]:
    """Return the models of an agent. Raises NoModelsError if it does not list them."""
    if not provider.capabilities.models:
        raise NoModelsError(f"{provider.name} has no list of models")
    try:
        with neutral_folder():
            async with asyncio.timeout(MODELS_SECONDS):
                return await provider.models()
    except TimeoutError:
        raise NoModelsError(
            f"{provider.name} did not list its models within {MODELS_SECONDS:g} s (atomic doctor)"
        ) from None


class ModelFinder:
    """Finds an agent's models that files name.

    The agent lists its models at most once.
    """

    def __init__(self, provider: AgentProvider, warn: Callable[[str], None]) -> None:
        self._provider = provider
        self._warn = warn
        self._known: list[str] | None = None

    async def find(self, entity: NamesModel) -> str | None:
        """Return the model that an entity names.

        None if it names none or the agent has no such model.
        """
        provider = self._provider
        original = original_model(entity, provider.name)
        if provider.name in FAMILIES_KNOWN:
            return original if original and "claude" in original.casefold() else entity.model
        if not (original or entity.model) or not provider.capabilities.models:
            return None
        if self._known is None:
            self._known = [model.id for model in await list_models(provider)]
        model = fitting_model(self._known, original, entity.model)
        if model is None:
            self._warn(f"{provider.name} has no model {original or entity.model}: it uses its default")
        return model


async def _limited(name: str, check: Coroutine[Any, Any, Health]) -> Health:
    """Return the result of a check.

    A check that fails or takes too long is a result, too.
    """
    task = asyncio.create_task(check)
    seconds = _CHECK_SECONDS_BY_AGENT.get(name, CHECK_SECONDS)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()
        return Health(False, remedy=f"it gave no answer within {seconds:g} s: start it once by hand and see why")
    try:
        health = task.result()
    except (ProviderError, OSError) as error:
        health = Health(False, remedy=str(error))
    except Exception as error:  # a bug in one adapter must not hide the other agents
        _log.exception("%s: the check failed", name)
        return Health(False, remedy=message_of(error))
    return msgspec.structs.replace(health, remedy=health.remedy.removeprefix(f"{name}: "))


def make_paths_absolute() -> None:
    """Let the variables for paths of programs not depend on the current folder."""
    for name in AGENT_NAMES:
        variable = f"ATOMIC_{name.upper()}_PATH"
        path = os.environ.get(variable, "")
        if os.sep in path and not path.startswith("~"):
            os.environ[variable] = os.path.abspath(path)


@contextmanager
def neutral_folder() -> Generator[None]:
    """Work in an empty folder, so that a checked program does not load a project's
    plugins.
    """
    make_paths_absolute()
    before = os.open(".", os.O_RDONLY)  # not by name: the folder may be deleted
    try:
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix=temporary_prefix("ask"), ignore_cleanup_errors=True) as folder:
            os.chdir(folder)
            try:
                yield
            finally:
                os.fchdir(before)
    finally:
        os.close(before)
