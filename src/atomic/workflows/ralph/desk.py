"""What the nodes of one run share: its folder, and the files in the session's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from atomic.git import Pictures, shared_pictures
from atomic.graph import Suspend
from atomic.saving import replace_file
from atomic.tasks import TaskList
from atomic.workflows.nodes import Context
from atomic.workflows.ralph.evidence import Evidence, evidence_path, read_evidence, write_evidence
from atomic.workflows.ralph.gates import GateBook
from atomic.workflows.ralph.options import most_iterations
from atomic.workflows.ralph.prompts import Place
from atomic.workflows.ralph.state import RalphState

Ralph = Context[RalphState]
ITERATIONS = "iterations.json"
PICTURES = "pictures"
NOTES = "notes.md"
TASKS = "tasks.json"


class Desk:
    """The files of a run, as a node needs them."""

    def __init__(self, ctx: Ralph) -> None:
        state = ctx.state
        self._ctx, self.options = ctx, state.options
        self.cwd, self.session = Path(state.cwd), Path(state.session_dir)
        self.book = GateBook.open(self.session)

    def check_folder(self) -> None:
        """Raises FolderGoneError where the project is not there any more."""
        if not self.cwd.is_dir():
            raise FolderGoneError(
                f"{self.cwd}, where the work is done, is not there any more: bring it back and resume"
            )

    @property
    def pictures(self) -> Pictures:
        return shared_pictures(self.session / PICTURES, self.cwd)

    @property
    def tasks(self) -> TaskList:
        return TaskList.read(self.session / TASKS)

    def write_tasks(self, tasks: TaskList) -> None:
        self._ctx.deps.tasks.write(tasks)

    @property
    def evidence(self) -> dict[str, Evidence]:
        return read_evidence(self.session)

    def write_evidence(self, evidence: Evidence) -> None:
        write_evidence(self.session, evidence, self._ctx.deps.files.redactor)

    def place(self) -> Place:
        """Where the work is done, in the words of a prompt."""
        state, book = self._ctx.state, self.book
        return Place(
            cwd=str(self.cwd),
            notes=str(self.session / NOTES),
            is_git=state.start is not None and state.start.head is not None,
            gates=tuple(gate.command for gate in book.gates),
            red_before=tuple(gate.command for gate in book.gates if not book.is_blocking(gate.command)),
            shared=self.options.workers > 1,
        )

    def begin_turn(self) -> None:
        """Count a turn of a worker or fixer. Raises Suspend where there may be no more.

        The count is written before the turn: a turn that was cut off by a kill counts, and none is free.
        """
        path, most = self.session / ITERATIONS, most_iterations(self._ctx.deps.config)
        turns = turns_in(self.session)
        if most and turns >= most:
            raise Suspend(
                f"max_iterations reached: {turns} of {most} turns of workers and fixers are used; "
                f"atomic resume {self.session.name} --max-iterations {most * 2} goes on",
                code="max_iterations",
            )
        replace_file(str(path), msgspec.json.encode({"turns": turns + 1}))

    def say(self, text: str) -> None:
        """Tell the user something that is no failure."""
        self._ctx.emit("warning", {"text": text})


class FolderGoneError(Exception):
    """The project's folder was moved or deleted while a run worked in it."""


def turns_in(session: Path) -> int:
    """How many turns of workers and fixers have begun."""
    try:
        data: dict[str, Any] = msgspec.json.decode((session / ITERATIONS).read_bytes())
    except FileNotFoundError:
        return 0
    return int(data["turns"])


def has_evidence(session: Path, task: str) -> bool:
    return evidence_path(session, task).exists()
