"""The settings as they hold, whoever set them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class ProviderSettings(msgspec.Struct, frozen=True):
    """`[providers.NAME]`: another program, more arguments, more variables."""

    path: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}


class AcpSettings(msgspec.Struct, frozen=True):
    """`[acp.NAME]`: the command line of an agent that speaks ACP."""

    command: Sequence[str]


class EnvSettings(msgspec.Struct, frozen=True):
    """`[env]`: variables that agents get though they look like secrets or name a repository."""

    pass_: Sequence[str] = msgspec.field(default=(), name="pass")


class CheckSettings(msgspec.Struct, frozen=True):
    """`[checks]`: variables that checks get though they look like secrets or name a repository."""

    env: Sequence[str] = ()


class CapSettings(msgspec.Struct, frozen=True):
    """`[caps]`: what a run and its turns may take; None means the default. Times are seconds."""

    max_cost: float | None = None  # dollars
    max_tokens: int | None = None
    max_time: float | None = None
    turn_limit: float | None = None  # 0: no limit
    idle_limit: float | None = None  # 0: no limit
    grace: float | None = None


class Settings(msgspec.Struct, frozen=True):
    """All settings, merged."""

    agent: str | None = None
    model: str | None = None
    theme: str | None = None
    editor: str | None = None
    keys: Mapping[str, Sequence[str]] = {}  # what a key does -> the keys that do it
    caps: CapSettings = CapSettings()
    providers: Mapping[str, ProviderSettings] = {}
    acp: Mapping[str, AcpSettings] = {}
    env: EnvSettings = EnvSettings()
    checks: CheckSettings = CheckSettings()
    workflows: Mapping[str, Mapping[str, Any]] = {}  # over a workflow's own `default_config`
    warnings: tuple[str, ...] = ()  # what was ignored, and where it stands

    def provider(self, name: str) -> ProviderSettings:
        return self.providers.get(name) or ProviderSettings()
