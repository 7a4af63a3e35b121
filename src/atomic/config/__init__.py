"""What the user has set; flags beat the environment, that beats the project's file, that beats the user's.

A project may come from a stranger: from its file only what `keys.BY_PROJECT` names is taken, and only so far that it
spends and skips no more than the user allows. Each other key is a warning.
"""

from atomic.config.errors import ConfigError
from atomic.config.loader import load_settings
from atomic.config.paths import atomic_home, config_files, current_folder, find_project
from atomic.config.repositories import common_folder, git_folder, main_checkout, up_to_repository
from atomic.config.schema import read_duration, read_limit
from atomic.config.settings import AcpSettings, CapSettings, EnvSettings, ProviderSettings, Settings

__all__ = [
    "AcpSettings",
    "CapSettings",
    "ConfigError",
    "EnvSettings",
    "ProviderSettings",
    "Settings",
    "atomic_home",
    "common_folder",
    "config_files",
    "current_folder",
    "find_project",
    "git_folder",
    "load_settings",
    "main_checkout",
    "read_duration",
    "read_limit",
    "up_to_repository",
]
