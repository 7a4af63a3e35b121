"""One call of git, with nothing of the user's or the repository's own configuration in it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from atomic.git.errors import GitError
from atomic.processes import ExecError, execute

TIMEOUT = 120.0  # seconds; git on a folder of any size that we look at takes a small part of it

# No file but the one that we write is read for settings: no hook, monitor, pager, filter, driver or include can be
# named anywhere. And there is no way to a server, which git would take for a repository that lacks some objects.
_OWN = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "LC_ALL": "C",
}


def clean_environment() -> dict[str, str]:
    """The user's environment without what git would read of it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


async def run_git(
    *arguments: str,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str | None],
    input: str = "",
    timeout: float = TIMEOUT,
    base: Mapping[str, str] | None = None,
    is_short: bool = True,
) -> str:
    """What git says on stdout; bytes that are no UTF-8 come and go as surrogates. Raises GitError.

    `env` is set over the clean environment, or over `base`; None takes a variable away. `is_short`: git starts no
    program.
    """
    environment = {**(clean_environment() if base is None else base), **_OWN, **env}
    try:
        result = await execute(
            "git",
            "--literal-pathspecs",
            *arguments,
            cwd=cwd,
            env={name: value for name, value in environment.items() if value is not None},
            input=input.encode("utf-8", "surrogateescape"),
            timeout=timeout,
            errors="surrogateescape",
            is_short=is_short,
        )
    except ExecError as error:
        raise GitError(arguments, str(error)) from error
    if result.exit_code != 0:
        raise GitError(arguments, result.stderr.strip() or f"exit code {result.exit_code}")
    return result.stdout
