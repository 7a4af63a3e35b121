"""Choose the agent that a turn is for."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.base.errors import message_of
from atomic.config import Settings
from atomic.hosts.errors import NoAgentError, NoModelsError, WrongAgentError
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers import (
    AgentProvider,
    Health,
    ModelInfo,
    ProgramMissingError,
    ProviderError,
    fitting_model,
    original_model,
    require_provider,
)
from atomic.providers.start_limit import VARIABLE

if TYPE_CHECKING:
    from atomic.commands import TurnPrompt

BY_PREFERENCE = ("claude", "opencode", "copilot")
CHECK_LIMIT = 10.0  # seconds
MODELS_LIMIT = 60.0  # seconds; some programs ask their service
_KNOWS_FAMILIES = ("claude", "replay")  # opus, sonnet and haiku are models there
_PATIENCE = {"copilot": 60.0}  # at its first start it unpacks itself; cut short, it would begin again each time

_KNOW_LOGIN = ("claude", "copilot")  # they can tell whether they have a login
_EXAMPLE = "Claude Code: npm install -g @anthropic-ai/claude-code"

_log = logging.getLogger(__name__)


async def choose_provider(name: str | None, settings: Settings) -> AgentProvider:
    """The agent of that name, else the configured one, else the first that can be used here.

    Raises NoAgentError if there is none, WrongAgentError for a wrong name, ProviderError if it cannot be used.
    """
    if name is not None:
        return named_provider(name, settings)
    if settings.agent is not None:
        return named_provider(settings.agent, settings, origin="set by ATOMIC_AGENT or the configuration")
    missing: list[str] = []
    wrong: list[str] = []  # programs that the user named and that are not there
    with neutral_folder():
        for candidate in BY_PREFERENCE:
            health = await check(candidate, settings)
            if health.ok and wrong:
                raise NoAgentError(wrong[0])  # another agent than the one that was meant would be paid
            if health.ok:
                return require_provider(candidate, settings)
            if health.program or _is_chosen(candidate, settings):  # it is there: what it lacks is the nearest way out
                missing.append(f"{candidate}: {health.remedy}")
                wrong += [] if health.program else missing[-1:]
    way_out = missing[0] if missing else f"install one, for example {_EXAMPLE}"
    more = "atomic doctor says what is missing for each; atomic demo shows a run without one"
    raise NoAgentError(f"No agent can be used here: {way_out} ({more})")


def named_provider(name: str, settings: Settings, *, origin: str = "") -> AgentProvider:
    """The agent of that name. Raises WrongAgentError, ProgramMissingError if its SDK is not installed."""
    try:
        return require_provider(name, settings)
    except ProgramMissingError:
        raise
    except ProviderError as error:
        raise WrongAgentError(f"{error}{f', {origin}' if origin else ''}") from error


async def check(name: str, settings: Settings) -> Health:
    """Whether the agent of that name can be used; one that gives no answer in time cannot."""

    async def load_and_check() -> Health:
        # An SDK may take a second to import: the other checks need not stand still for it.
        provider = await asyncio.to_thread(require_provider, name, settings)
        return await provider.check()

    return await _within_limit(name, load_and_check())


async def require_usable(names: Iterable[str], settings: Settings) -> None:
    """Raise NoAgentError if one of these agents is not installed, is too old or has no login.

    An agent that gives no answer in time may only be slow: its first turn tells. Agents that cannot know
    it without a session are not asked (OpenCode has models that need no login).
    """
    known = [name for name in dict.fromkeys(names) if name in _KNOW_LOGIN]
    if not known:
        return
    with neutral_folder():
        found = await asyncio.gather(*(_answer(name, settings) for name in known))
    for name, health in zip(known, found, strict=True):
        if health is not None and not health.ok:
            raise NoAgentError(f"{name}: {health.remedy.removeprefix(f'{name}: ')}")


async def _answer(name: str, settings: Settings) -> Health | None:
    try:
        async with asyncio.timeout(_PATIENCE.get(name, CHECK_LIMIT)):
            return await require_provider(name, settings).check()
    except TimeoutError:
        return None


async def remedy_for(provider: AgentProvider, why: str = "") -> str:
    """What to do for an agent that failed; empty if nothing is wrong with the agent itself, or `why` says it."""
    if VARIABLE in why:
        return ""  # it has not started: another try would take as long
    with neutral_folder():
        return (await _within_limit(provider.name, provider.check())).remedy


async def list_models(provider: AgentProvider) -> Sequence[ModelInfo]:
    """The models of an agent. Raises NoModelsError if it does not list them."""
    if not provider.capabilities.models:
        raise NoModelsError(f"{provider.name} has no list of models")
    try:
        with neutral_folder():
            async with asyncio.timeout(MODELS_LIMIT):
                return await provider.models()
    except TimeoutError:
        raise NoModelsError(
            f"{provider.name} did not list its models within {MODELS_LIMIT:g} s (atomic doctor)"
        ) from None


class Fitting:
    """Finds the agent's models that files name; the agent is asked for its list once, if at all."""

    def __init__(self, provider: AgentProvider, tell: Callable[[str], None]) -> None:
        self._provider, self._tell = provider, tell
        self._known: list[str] | None = None

    async def model(self, entity: TurnPrompt) -> str | None:
        """The model that a skill, command or agent names; None if it names none, or the agent has none such."""
        provider = self._provider
        original = original_model(entity, provider.name)
        if provider.name in _KNOWS_FAMILIES:
            return original if original and "claude" in original.casefold() else entity.model
        if not (original or entity.model) or not provider.capabilities.models:
            return None
        if self._known is None:
            self._known = [model.id for model in await list_models(provider)]
        model = fitting_model(self._known, original, entity.model)
        if model is None:
            self._tell(f"{provider.name} has no model {original or entity.model}: it takes its own")
        return model


async def _within_limit(name: str, checking: Coroutine[Any, Any, Health]) -> Health:
    task = asyncio.create_task(checking)
    limit = _PATIENCE.get(name, CHECK_LIMIT)
    await asyncio.wait({task}, timeout=limit)
    if not task.done():
        task.cancel()
        return Health(False, remedy=f"it gave no answer within {limit:g} s: start it once by hand and see why")
    try:
        health = task.result()
        return msgspec.structs.replace(health, remedy=health.remedy.removeprefix(f"{name}: "))  # who asks knows whom
    except (ProviderError, OSError) as error:
        return Health(False, remedy=str(error).removeprefix(f"{name}: "))
    except Exception as error:  # a mistake of ours in one adapter says nothing about the others
        _log.exception("%s: the check failed", name)
        return Health(False, remedy=message_of(error))


def _is_chosen(name: str, settings: Settings) -> bool:
    """Whether the user said which program it is."""
    return bool(os.environ.get(f"ATOMIC_{name.upper()}_PATH") or settings.provider(name).path)


@contextmanager
def neutral_folder() -> Generator[None]:
    """Be in an empty folder: a program that is only asked about itself shall not find a stranger's plugins."""
    for name in BY_PREFERENCE:
        path = os.environ.get(f"ATOMIC_{name.upper()}_PATH", "")
        if os.sep in path and not path.startswith("~"):
            os.environ[f"ATOMIC_{name.upper()}_PATH"] = os.path.abspath(path)  # it was meant from where we are
    before = os.open(".", os.O_RDONLY)  # not by its name: it may have none any more
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
