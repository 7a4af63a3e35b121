"""A workspace of a run, as the code that works in it sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from atomic.processes import ExecResult
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.run_branch import Work
from atomic.workspaces.views import View


class OpenWorkspace:
    """A copy of the project in which programs can be started.

    When it has ended, `work` has the commits that were made in it.
    """

    def __init__(self, name: str, start: str, view: View) -> None:
        self.name = name
        self.start = start  # the commit at which it began
        self.view = view
        self._work: Work | None = None

    @property
    def root(self) -> Path:
        """Return the root of the project, as programs in the workspace see it."""
        return self.view.root

    @property
    def work(self) -> Work:
        """Return the work done in it. Raises WorkspaceError before its end."""
        if self._work is None:
            raise WorkspaceError(f'The work in "{self.name}" is known at the end of its workspace: read it after that')
        return self._work

    def end(self, work: Work) -> None:
        """Note the work done in it; all its programs have ended."""
        self._work = work

    async def run(
        self,
        *argv: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> ExecResult:
        """Run a program in it: in `cwd` as the workspace has it, else in its root.

        Raises ExecError.
        """
        return await self.view.run(*argv, cwd=cwd, env=env, timeout=timeout, on_output=on_output)
