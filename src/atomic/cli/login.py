"""`atomic login AGENT`: hand the terminal over to the agent's own login."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import AtomicError, ExitCode, suggest
from atomic.cli.streams import has_terminal, tell
from atomic.config import Settings, load_settings
from atomic.config.known_agents import AGENT_NAMES, KnownAgent, find_known_agent
from atomic.providers.logins import find_login_program

# Python ignores them, and a program would inherit that.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class LoginError(AtomicError):
    """The agent's own login cannot be started."""


def login_command(arguments: Arguments) -> int:
    """Become the agent's program, so its exit code is that of `atomic login`."""
    name = arguments.words[0]
    settings = load_settings()
    agent = _require_agent(name, settings)
    program = find_login_program(agent, settings).absolute()
    if not has_terminal():
        words = " ".join((str(program), *agent.login))
        raise UsageError(f"There is no terminal to log in with: run atomic login {agent.name}, or {words}, in one")
    if not agent.login:
        tell(f"{agent.title} asks for a login at its start, or after /login. Leave it when you are logged in.")
    return _become(agent, program, settings)


def _require_agent(name: str, settings: Settings) -> KnownAgent:
    agent = find_known_agent(name)
    if agent is not None:
        return agent
    kind, _, detail = name.partition(":")
    if kind == "acp" and detail in settings.acp:
        command = settings.acp[detail].command[0]
        raise UsageError(f'Atomic does not know how to log in to "{name}": log in with its own program, {command}')
    hint = suggest(name, AGENT_NAMES, otherwise=f"known: {', '.join(AGENT_NAMES)}")
    raise UsageError(f'Unknown agent: "{name}" ({hint})')


def _become(agent: KnownAgent, program: Path, settings: Settings) -> int:
    """Run the program in place of this process, in the home folder: an agent may load
    code of the folder that it starts in.
    """
    env = {**os.environ, **settings.provider(agent.name if agent.has_own_adapter else "acp").env}
    home = Path(env.get("HOME") or "/")
    env["PWD"] = str(home)
    sys.stdout.flush()
    sys.stderr.flush()
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(home)
        os.execve(program, [str(program), *agent.login], env)
    except OSError as error:
        raise LoginError(f"{agent.name}: {program} cannot be started: {error.strerror}") from error
    return ExitCode.DONE
