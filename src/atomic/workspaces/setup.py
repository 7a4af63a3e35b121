"""Run a project's set-up command once, for all workspaces of a run.

Its results, such as installed packages, become part of the base. They contain absolute
paths, so the command must see the base where its workspaces will be: in an overlay that
is the project's own path.
"""

from __future__ import annotations

import shlex
from collections import deque
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from atomic.processes import ExecError, ExecResult, ExecTimeoutError
from atomic.workspaces.copy_views import open_copy
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.isolation import Isolation, IsolationKind
from atomic.workspaces.views import View, open_bound

TIMEOUT = 3600.0  # seconds
_MAX_OUTPUT = 64 * 1024  # bytes that are kept
_MAX_LINES = 30  # of an error message
_ADVICE = "Correct the set-up command of the project, or give --isolate none"


class ProjectSetup(msgspec.Struct, frozen=True):
    """How a project is set up: by a command, or by a script whose bytes were approved."""

    name: str  # the command, or the path of the script, as users know it
    folder: Path  # where it runs
    script: bytes | None = None
    env: dict[str, str] | None = None  # None: the environment of this process

    def written_to(self, folder: Path) -> tuple[str, ...]:
        """Return the words that run it. A script is written to a file in `folder`."""
        if self.script is None:
            return ("sh", "-c", self.name)
        path = folder / "setup"
        path.write_bytes(self.script)
        path.chmod(0o700)
        return (str(path),) if self.script.startswith(b"#!") else ("sh", str(path))


class Setup(msgspec.Struct, frozen=True):
    """The set-up command of a project, and how workspaces are kept apart.

    `folder` is where it runs, relative to the root of the repository. Without `env` it
    gets the environment of this process.
    """

    command: tuple[str, ...]
    isolation: Isolation
    folder: str = "."
    env: dict[str, str] | None = None
    timeout: float = TIMEOUT


class _Tail:
    """The end of an output."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        while self._size - len(self._parts[0]) > _MAX_OUTPUT:
            self._size -= len(self._parts.popleft())

    @property
    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace")[-_MAX_OUTPUT:]


async def run_setup(root: Path, folder: Path, setup: Setup) -> ExecResult:
    """Run a set-up command in a base, and return the end of its output.

    `root` is the user's checkout, `folder` the checkout of the base. All processes of
    the command have ended when this returns. Raises WorkspaceError if it fails.
    """
    tail = _Tail()
    try:
        async with _open(root, folder, setup.isolation) as view:
            done = await view.run(
                *setup.command,
                cwd=view.root / setup.folder,
                env=setup.env,
                timeout=setup.timeout,
                on_output=tail.add,
            )
    except ExecTimeoutError as error:
        raise _failure(root, setup, f"took longer than {setup.timeout:g} s", tail.text) from error
    except ExecError as error:
        raise _failure(root, setup, f"could not be started: {error}", tail.text) from error
    if done.exit_code != 0:
        raise _failure(root, setup, f"failed (exit code {done.exit_code})", tail.text)
    return ExecResult(done.exit_code, tail.text, "", done.seconds)


def _open(root: Path, folder: Path, isolation: Isolation) -> AbstractAsyncContextManager[View]:
    if isolation.kind is IsolationKind.OVERLAY:
        return open_bound(root, folder, own_user=isolation.own_user)
    return open_copy(folder, root, isolation)


def _failure(root: Path, setup: Setup, what: str, output: str) -> WorkspaceError:
    words = shlex.join(setup.command)
    lines = output.strip().splitlines()[-_MAX_LINES:]
    said = "\n".join(["Its last output:", *lines]) if lines else "It printed nothing."
    return WorkspaceError(f"The set-up command `{words}` for a copy of {root} {what}. {_ADVICE}. {said}")
