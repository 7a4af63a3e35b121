"""The merged settings, and the error of an invalid configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.errors import AtomicError


class ConfigError(AtomicError):
    """A configuration file cannot be used; the message has the place and the reason."""

    def __init__(self, file: Path, line: int, reason: str, *, key: str = "") -> None:
        self.file = file
        self.line = line
        self.key = key
        self.reason = reason
        super().__init__(f"{file}:{line}: {reason}")


class ProviderSettings(msgspec.Struct, frozen=True):
    """`[providers.NAME]`: another program, more arguments, more variables."""

    path: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}


class AcpSettings(msgspec.Struct, frozen=True):
    """`[acp.NAME]`: the command line of an agent that speaks ACP."""

    command: Sequence[str]


class EnvSettings(msgspec.Struct, frozen=True):
    """`[env]`: variables that agents get although they look like secrets or name a
    repository.
    """

    pass_: Sequence[str] = msgspec.field(default=(), name="pass")
    # All variables of agents, instead of those of this process: no file can set it.
    base: Mapping[str, str] | None = None


class CheckSettings(msgspec.Struct, frozen=True):
    """`[checks]`: variables that checks get although they look like secrets or name a
    repository.
    """

    env: Sequence[str] = ()


class WorkspaceSettings(msgspec.Struct, frozen=True):
    """`[workspace]`: the ignored files that a workspace gets, and how it is set up."""

    copy: Sequence[str] | None = None  # names or paths; None: `.worktreeinclude`, else well-known folders
    max_size: int | None = None  # bytes of all these files; None is the default
    setup: str = ""  # a command that is run once for all workspaces of a run


class CapSettings(msgspec.Struct, frozen=True):
    """`[caps]`: limits of a run and its turns, with times in seconds.

    None is the default.
    """

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
    keys: Mapping[str, Sequence[str]] = {}  # the keys of each action
    caps: CapSettings = CapSettings()
    providers: Mapping[str, ProviderSettings] = {}
    acp: Mapping[str, AcpSettings] = {}
    env: EnvSettings = EnvSettings()
    checks: CheckSettings = CheckSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    workflows: Mapping[str, Mapping[str, Any]] = {}  # they override `default_config`
    warnings: tuple[str, ...] = ()  # ignored keys, with file and line

    def provider(self, name: str) -> ProviderSettings:
        return self.providers.get(name) or ProviderSettings()
