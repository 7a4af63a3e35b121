"""What the nodes of one run share: its folder, and the files in the session's folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import msgspec

from atomic.git import Pictures, find_repository, shared_pictures
from atomic.graph import Suspend
from atomic.redact import MARK
from atomic.sessions.facts import Facts
from atomic.sessions.files import make_folder
from atomic.sessions.store import notes_of
from atomic.tasks import TaskList
from atomic.terminal import harmless
from atomic.workflows.door import CutOff
from atomic.workflows.nodes import Context
from atomic.workflows.ralph.calls import calls_of, has_answer
from atomic.workflows.ralph.evidence import Evidence, read_evidence, write_evidence
from atomic.workflows.ralph.gates import GateBook
from atomic.workflows.ralph.notes import NOTES
from atomic.workflows.ralph.options import most_iterations
from atomic.workflows.ralph.prompts import Place
from atomic.workflows.ralph.state import RalphState
from atomic.workflows.ralph.users_files import read_users_files

Ralph = Context[RalphState]
ITERATIONS = "iterations.json"
FIRST_RULES = "first_rules"
PICTURES = "pictures"
TASKS = "tasks.json"
MOST_SAID = 2_000  # characters of an agent's last message that are kept
_WORKING = ("worker", "fixer")


class Desk:
    """The files of a run, as a node needs them."""

    def __init__(self, ctx: Ralph) -> None:
        state = ctx.state
        self._ctx, self.options = ctx, state.options
        self.cwd, self.session = Path(state.cwd), Path(state.session_dir)
        self.facts, self.redactor = ctx.deps.facts, ctx.deps.files.redactor
        self.book = GateBook(self.facts, ctx.deps.check_variables)

    def check_folder(self) -> None:
        """Raises FolderGoneError where the project is not there any more."""
        if not self.cwd.is_dir():
            raise FolderGoneError(f"{self.cwd}, where the work is done, no longer exists: restore it and resume")

    def timed(self, what: str) -> AbstractAsyncContextManager[None]:
        """Interrupt what is done inside when `--max-time` and its grace are over. Raises Suspend then."""
        return self._ctx.deps.timed(what)

    @property
    def pictures(self) -> Pictures:
        has_secret = self._ctx.deps.files.redactor.finds_in_file
        return shared_pictures(
            self.session / PICTURES,
            self.cwd,
            ignored=(self.notes,),
            has_secret=has_secret,
            first_rules=_FirstRules(self.facts),
        )

    @property
    def notes(self) -> Path:
        """The folder that prompts may name; `make_notes` makes it, before an agent may write there."""
        return notes_of(self.session)

    def make_notes(self) -> Path:
        make_folder(str(self.notes))
        return self.notes

    @property
    def tasks(self) -> TaskList:
        return self._ctx.deps.tasks.read()

    def write_tasks(self, tasks: TaskList) -> None:
        self._ctx.deps.tasks.write(tasks)

    @property
    def evidence(self) -> dict[str, Evidence]:
        return read_evidence(self.facts)

    def write_evidence(self, evidence: Evidence) -> None:
        write_evidence(self.facts, evidence)

    def place(self) -> Place:
        """Where the work is done, in the words of a prompt."""
        book = self.book
        return Place(
            cwd=str(self.cwd),
            notes=str(self.notes / NOTES),
            is_git=find_repository(self.cwd) is not None,  # also one that has no commit yet
            gates=tuple(gate.command for gate in book.gates),
            red_before=tuple(book.ignored),
            wanted=tuple(
                gate.command
                for gate in book.gates
                if book.must_pass(gate.command) and not book.is_blocking(gate.command)
            ),
            shared=self.options.workers > 1,
            users_files=tuple(read_users_files(self.facts).files),
        )

    @contextmanager
    def turn(self, task: str = "") -> Generator[None]:
        """Count a turn of a worker or fixer while it is made. Raises Suspend where there may be no more.

        The count is written before the turn: a turn that was cut off by a kill counts, and none is free. One that a cap
        or a provider's limit kept from being made is none. One whose answer is in the journal is counted already.
        """
        if not has_answer(self._ctx):
            self._begin_turn(task)
        self.make_notes()
        is_made = True
        try:
            yield
        except Suspend as pause:
            is_made = pause.question is not None or isinstance(pause, CutOff)
            raise
        finally:
            turns = read_turns(self.facts)
            self._write_turns(Turns(turns.turns - (not is_made), turns.open - {task}))

    def _begin_turn(self, task: str) -> None:
        turns, most = read_turns(self.facts), most_iterations(self._ctx.deps.config)
        if task in turns.open and _was_limited(self.facts, task):
            return  # Atomic was killed while it waited for the limit's end
        if most and turns.turns >= most:
            more = max(most * 2, turns.turns + most)
            raise Suspend(
                f"max_iterations reached: {turns.turns} of {most} worker and fixer turns are used "
                f"(to continue: atomic resume {self.session.name} --max-iterations {more})",
                code="max_iterations",
                begun=False,
                remedy=f"--max-iterations {more}",
            )
        self._write_turns(Turns(turns.turns + 1, turns.open | {task}))

    def _write_turns(self, turns: Turns) -> None:
        self.facts.set(ITERATIONS, turns)

    def others_work(self, task: str) -> bool:
        """Whether another task has a turn under way."""
        return bool(read_turns(self.facts).open - {task})

    def last_words(self, text: str) -> str:
        """The end of an agent's message as it may be kept and shown: without secrets and control characters."""
        clean = self._ctx.deps.files.redactor.text(harmless(text)).strip()
        return clean if len(clean) <= MOST_SAID else f"… {clean[-MOST_SAID:].lstrip()}"

    def note(self, task: str, text: str) -> None:
        """Note in `progress.txt` what came of an attempt at a task."""
        self._ctx.emit("progress", {"task": task, "text": text})

    def say(self, text: str) -> None:
        """Tell the user something that is no failure."""
        self._ctx.emit("warning", {"text": text})


class FolderGoneError(Exception):
    """The project's folder was moved or deleted while a run worked in it."""


class _FirstRules:
    """Keeps the first ignore rules as a fact: a worker could change a file of the session."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def read(self) -> bytes | None:
        found: str | None = self._facts.get(FIRST_RULES)
        if found is None:
            return None
        lines = (line for line in found.encode("latin-1").split(b"\n") if MARK.encode() not in line)
        return b"\n".join(lines)  # a redacted rule would be one for other files

    def write(self, rules: bytes) -> None:
        self._facts.set(FIRST_RULES, rules.decode("latin-1"))  # names of files may have any bytes


class Turns(msgspec.Struct, frozen=True):
    """How many turns of workers and fixers have begun, and the tasks of those that have not ended."""

    turns: int = 0
    open: frozenset[str] = frozenset()


def read_turns(facts: Facts) -> Turns:
    """The turns that are counted in a run."""
    return msgspec.convert(facts.get(ITERATIONS, {}), Turns)


def _was_limited(facts: Facts, task: str) -> bool:
    """Whether the last that is known of a task's turn is that its provider did not serve it."""
    ends = [call.reason for call in calls_of(facts) if call.who in _WORKING and (call.task or "") == task]
    return ends[-1:] == ["limit"]
