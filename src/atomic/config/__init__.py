"""Settings. Flags override the environment, the project's file and then the user's
file.

A project may be untrusted. Its file may set only the keys of `schema.BY_PROJECT`, and
only values that spend and skip no more than the user allows. Every other key is a
warning.

Start with `loader`.

Public modules: `json_schema`, `known_agents`, `ralph_flags`, `schema`.
"""

from atomic.config.loader import Layer, load_settings, read_layers
from atomic.config.paths import atomic_home, config_files, config_home, current_folder, find_project
from atomic.config.repositories import common_folder, git_folder, main_checkout, up_to_repository
from atomic.config.schema import read_duration, read_limit
from atomic.config.settings import (
    AcpSettings,
    CapSettings,
    ConfigError,
    EnvSettings,
    ProviderSettings,
    Settings,
    WorkspaceSettings,
)

__all__ = [
    "AcpSettings",
    "CapSettings",
    "ConfigError",
    "EnvSettings",
    "Layer",
    "ProviderSettings",
    "Settings",
    "WorkspaceSettings",
    "atomic_home",
    "common_folder",
    "config_files",
    "config_home",
    "current_folder",
    "find_project",
    "git_folder",
    "load_settings",
    "main_checkout",
    "read_duration",
    "read_layers",
    "read_limit",
    "up_to_repository",
]
