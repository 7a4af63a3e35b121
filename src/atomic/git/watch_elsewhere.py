"""Watch a folder in a workspace, by a program that runs in it.

A workspace may show files that Atomic itself does not see. So this module is also a
program: `python -m atomic.git.watch_elsewhere FOLDER [IGNORED...]` notes the state of
the folder, waits for a line on its standard input, and prints what has changed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atomic.base.redaction import Redactor
from atomic.git.calls import GitError
from atomic.git.folder_changes import Changes, watch_folder
from atomic.processes import ExecError, Program, running

_LINE_LIMIT = 2**30  # bytes of all changes together
_WORDS = ("watch",)  # the command in an error


class _Answer(msgspec.Struct, frozen=True):
    """A line of the program: it is ready, or the changes, or why there are none."""

    changes: Changes | None = None
    problem: str = ""


class WatchElsewhere:
    """The state of a folder of a workspace when the watch began."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def start(self) -> None:
        """Wait until the state is noted. Raises GitError."""
        await self._answer()

    async def changes(self, *, is_secret: Callable[[str], bool] = lambda text: False) -> Changes:
        """Return the changes since the start.

        A binary file with a secret of the environment is left out, or all if the patch
        has one that only `is_secret` finds. Raises GitError.
        """
        assert self._program.stdin is not None
        self._program.stdin.write(b"\n")
        changes = (await self._answer()).changes or Changes()
        binary = [part for part in (*changes.commits, changes.patch) if "\nGIT binary patch\n" in part]
        if any(map(is_secret, binary)):
            raise GitError(_WORDS, "a binary file has a secret")
        return changes

    async def _answer(self) -> _Answer:
        try:
            answer = msgspec.json.decode(await self._program.stdout.readline(), type=_Answer)
        except (ValueError, OSError) as error:  # it has ended, or was killed
            raise GitError(_WORDS, f"the workspace is gone: {self._program.stderr_tail or error}") from error
        if answer.problem:
            raise GitError(_WORDS, answer.problem)
        return answer


@asynccontextmanager
async def watch_folder_in(
    launcher: Sequence[str], folder: Path, *, ignored: Collection[Path] = ()
) -> AsyncGenerator[WatchElsewhere]:
    """Do what `watch_folder` does, in the workspace that `launcher` starts programs in.

    Raises GitError.
    """
    words = (*launcher, sys.executable, "-P", "-m", __name__, str(folder), *map(str, ignored))
    try:
        async with running(*words, cwd="/", env=dict(os.environ), limit=_LINE_LIMIT) as program:
            watch = WatchElsewhere(program)
            await watch.start()
            yield watch
    except ExecError as error:
        raise GitError(_WORDS, str(error)) from error


async def _watch(folder: str, ignored: Collection[Path]) -> None:
    async with watch_folder(folder, ignored=ignored) as watch:
        _print(_Answer())
        if not await asyncio.to_thread(sys.stdin.readline):
            return  # Atomic has ended
        _print(_Answer(await watch.changes(is_secret=Redactor.of_environment().finds)))


def _print(answer: _Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Watch the folder that the first argument names."""
    try:
        asyncio.run(_watch(sys.argv[1], [Path(path) for path in sys.argv[2:]]))
    except (GitError, OSError) as error:
        _print(_Answer(problem=str(error)))


if __name__ == "__main__":
    main()
