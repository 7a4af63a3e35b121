"""A project and a user with workflow and tool files, and the approval of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from atomic.loading import trust
from atomic.loading.catalog import WorkflowCatalog
from atomic.workflows.errors import WorkflowLoadError

HEAD = "from atomic.workflows import *\nfrom typing import Annotated\n"
S = HEAD + "class S(State):\n    prompt: str = ''\n    log: Annotated[list[str], reducers.concat] = []\n"
SAY = S + "workflow = graph(S).tool('say', run=lambda: 'hi').compile()\n"


class World:
    """A home folder and a project; `catalog` reads their current files."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        for made in (self.home / ".atomic", self.project):
            made.mkdir(parents=True)

    def write(self, name: str, text: str | bytes, *, user: bool = False) -> Path:
        file = (self.home if user else self.project) / ".atomic" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return file

    def flow(self, name: str, text: str | bytes, *, user: bool = False) -> Path:
        return self.write(f"workflows/{name}.py", text, user=user)

    def tool(self, name: str, text: str, *, user: bool = False) -> Path:
        return self.write(f"tools/{name}.py", text, user=user)

    def file(self, name: str, text: str) -> Path:
        file = self.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    @property
    def catalog(self) -> WorkflowCatalog:
        return WorkflowCatalog(self.project, self.home, builtin=())

    def look(self) -> trust.Snapshot:
        return trust.look(self.project, home=self.home / ".atomic")

    def trust(self) -> WorkflowCatalog:
        trust.approve(self.look(), home=self.home / ".atomic")
        return self.catalog

    def reasons(self, name: str) -> list[tuple[int, str]]:
        """Return the reasons why a workflow of the trusted project does not load."""
        try:
            self.trust().definition(name).load()
        except WorkflowLoadError as error:
            return [(problem.line, problem.reason) for problem in error.problems]
        return []


def config_of(world: World, name: str, settings: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    return world.catalog.definition(name).config(settings)
