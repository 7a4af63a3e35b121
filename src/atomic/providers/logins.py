"""Logins of known agents: how to log in, with which program, and what shows a login."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from atomic.config import Settings
from atomic.config.known_agents import KnownAgent
from atomic.providers.errors import ProgramMissingError
from atomic.providers.programs import find_package_program, find_program


def login_remedy(agent: KnownAgent) -> str:
    """Return how to log in."""
    remedy = f"run: atomic login {agent.name}"
    return f"{remedy}, or set {agent.keys[0]}" if agent.keys else remedy


def find_login_program(agent: KnownAgent, settings: Settings) -> Path:
    """Return the program that logs in, also one that a package brings without putting
    it on PATH.

    Raise ProgramMissingError.
    """
    if not agent.vendor_program:
        return _find_program(agent, settings)
    if (found := shutil.which(agent.vendor_program)) is not None:
        return Path(found)
    bundled = find_package_program(_find_program(agent, settings), agent.bundled) if agent.bundled else None
    if bundled is None:
        raise ProgramMissingError(
            f"{agent.name}: the program '{agent.vendor_program}', which logs in, is not on PATH",
            provider=agent.name,
            remedy=agent.docs,
        )
    return bundled


def _find_program(agent: KnownAgent, settings: Settings) -> Path:
    if agent.name == "claude":
        from atomic.providers.claude.provider import find_claude

        return find_claude(settings)
    return find_program(agent.name, agent.program, settings, install=agent.install)


def found_login(agent: KnownAgent, env: Mapping[str, str]) -> str:
    """Return the variable or the file that shows a login; "" if none is found."""
    for name in agent.keys:
        if env.get(name):
            return name
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    for path in agent.logins:
        folder = env.get(agent.home_variable) if agent.home_variable else None
        file = Path(folder) / Path(path).name if folder else home / path
        if file.is_file():
            return str(file)
    return ""


def describe_payment(agent: KnownAgent, login: str) -> str:
    """Return who pays for the work of an agent with that login."""
    return f"the account of {login} pays" if login in agent.keys else agent.pays
