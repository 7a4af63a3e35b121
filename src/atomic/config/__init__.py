"""What the user has set; flags beat the environment, that beats the project's file, that beats the user's.

A project may come from a stranger: what could run a program, reach an endpoint, hand out a secret or spend more than
the user allows is not taken from its file, and said so.
"""

from atomic.config.errors import ConfigError
from atomic.config.keys import read_duration
from atomic.config.loading import load_settings
from atomic.config.places import atomic_home, config_files, find_project
from atomic.config.settings import AcpSettings, CapSettings, EnvSettings, ProviderSettings, Settings

__all__ = [
    "AcpSettings",
    "CapSettings",
    "ConfigError",
    "EnvSettings",
    "ProviderSettings",
    "Settings",
    "atomic_home",
    "config_files",
    "find_project",
    "load_settings",
    "read_duration",
]
