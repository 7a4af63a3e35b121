"""Run git once, without the configuration of the user or of the repository."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from atomic.base.errors import AtomicError
from atomic.processes import ExecError, execute

# Seconds. Git needs a small part of it on every folder that we look at.
TIMEOUT = 120.0

# How often files are read that change while git reads them, and the seconds in between.
_READS = 10
_PAUSE = 0.05
# What git prints then: a file became shorter or other, or it was replaced by a folder
# or deleted. It maps a longer file into memory, and a shorter one ends it with SIGBUS.
_CHANGED = (
    "short read while indexing",
    "read error while indexing",
    "unstable object source data",
    "is a directory - add individual files instead",
    '"): No such file or directory',
)

# Options before the command whose value is the next argument.
_WITH_VALUE = frozenset({"-c", "-C", "--git-dir"})

ResultT = TypeVar("ResultT")

# Git reads only the configuration that we write, so no file can name a hook, monitor,
# pager, filter, driver or include. No protocol is allowed, so git cannot fetch objects
# that a partial clone lacks.
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


class GitError(AtomicError):
    """A call of git failed; `reason` is git's own message."""

    def __init__(self, arguments: Sequence[str], reason: str) -> None:
        self.arguments = tuple(arguments)
        self.reason = reason
        super().__init__(f"git {_command_of(arguments)} failed: {reason}")


def _command_of(arguments: Sequence[str]) -> str:
    """Return the command in the arguments of git, which options may precede."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            return word
        if word in _WITH_VALUE:
            next(words, None)
    return ""


class FileChangedError(GitError):
    """A file changed while git read it, which may work the next time."""


async def run_git(
    *arguments: str,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str | None],
    input: str = "",
    timeout: float = TIMEOUT,
    base: Mapping[str, str] | None = None,
    is_short: bool = True,
) -> str:
    """Return git's standard output. Raises GitError.

    Bytes that are not UTF-8 are surrogates in `input` and in the result. `env` is added
    to `base`, which is the environment of this process without git's variables if it is
    None. A value of None removes a variable. `is_short`: git starts no other program.
    """
    if base is None:
        base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**base, **_OWN, **env}
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
    if result.exit_code == -signal.SIGBUS:
        raise FileChangedError(arguments, "a file became shorter while git read it")
    if result.exit_code != 0:
        error = FileChangedError if any(words in result.stderr for words in _CHANGED) else GitError
        raise error(arguments, result.stderr.strip() or f"exit code {result.exit_code}")
    return result.stdout


async def read_again(read: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return what `read` returns; call it again if a file changes while git reads it.

    Raises GitError, also if files still change after several calls.
    """
    for _ in range(_READS - 1):
        try:
            return await read()
        except FileChangedError:
            await asyncio.sleep(_PAUSE)
    try:
        return await read()
    except FileChangedError as error:
        reason = error.reason.partition("\n")[0]
        raise GitError(
            error.arguments,
            f"a file changed each of the {_READS} times that git read it ({reason}); stop the program that writes it",
        ) from error


def settings_in(listed: str) -> list[tuple[str, str]]:
    """Return names and values in an output of `git config -z --list`.

    A name without a value means true.
    """
    pairs = (entry.partition("\n") for entry in split(listed))
    return [(name, value if separator else "true") for name, separator, value in pairs]


def split(listed: str) -> list[str]:
    """Return the parts of an output of `git ... -z`, which end with a zero byte each."""
    return listed.split("\0")[:-1]
