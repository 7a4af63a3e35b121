"""The parts that the nodes of a run share: its folders, facts, checks, calls and notes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from atomic.base.redaction import MARK
from atomic.base.terminal import harmless
from atomic.base.untrusted_files import read_start
from atomic.git import FolderSnapshot, SnapshotStore, find_repository, shared_snapshot_store
from atomic.graph import Suspend
from atomic.ralph.checks import CheckHistory
from atomic.ralph.evidence import Evidence, read_evidence, write_evidence
from atomic.ralph.file_names import named
from atomic.ralph.options import most_iterations
from atomic.ralph.prompts import PromptContext
from atomic.ralph.state import RalphState, Span, workers_of
from atomic.ralph.users_files import read_users_files
from atomic.runs.agent_calls import CutOff
from atomic.runs.spending import CallRecord, read_calls
from atomic.sessions.facts import Facts
from atomic.sessions.files import make_folder
from atomic.sessions.store import notes_of
from atomic.tasks import TaskList
from atomic.workflows.nodes import Context
from atomic.workspaces import BranchMovedError, RunWorkspaces, View

Ralph = Context[RalphState]
ITERATIONS = "iterations.json"
FIRST_RULES = "first_rules"
SNAPSHOTS = "pictures"  # a folder of the session
TASKS = "tasks.json"
NOTES = "notes.md"  # a file in which workers write to each other, outside of the session's folder
MAX_NOTES = 256 * 1024  # bytes that are kept with the session
MAX_SAID = 2_000  # characters of an agent's last message that are kept
AnswerT = TypeVar("AnswerT")
_WORKING = ("worker", "fixer")
_ANSWER = "answer"


class RunFolder:
    """The folders, facts and checks of a run, as a node needs them."""

    def __init__(self, ctx: Ralph) -> None:
        state = ctx.state
        self._ctx = ctx
        self.options = state.options
        self.cwd = Path(state.cwd)
        self.session = Path(state.session_dir)
        self.facts = ctx.deps.facts
        self.redactor = ctx.deps.files.redactor
        self.checks = CheckHistory(self.facts, ctx.deps.check_variables)

    def check_folder(self) -> None:
        """Raise FolderGoneError if the project's folder does not exist."""
        if not self.cwd.is_dir():
            raise FolderGoneError(f"{self.cwd}, where the work is done, no longer exists: restore it and resume")

    @property
    def workspaces(self) -> RunWorkspaces:
        return self._ctx.deps.workspaces

    @property
    def is_isolated(self) -> bool:
        """Return whether each worker has its own workspace."""
        return self.workspaces.branch is not None

    @property
    def workers(self) -> int:
        """Return how many tasks are worked on at once."""
        return workers_of(self._ctx.state)

    async def tip(self) -> str:
        """Return the last commit of the run's branch.

        Raises Suspend if another program has moved the branch.
        """
        try:
            return await self.workspaces.tip()
        except BranchMovedError as error:
            raise Suspend(str(error), code=error.code) from error

    async def snapshot_of(self, commit: str) -> FolderSnapshot:
        """Return the files of a commit of the user's repository."""
        tree = await self.workspaces.repository.git("rev-parse", "--verify", f"{commit}^{{tree}}")
        return FolderSnapshot(commit, tree.strip())

    async def current(self) -> FolderSnapshot:
        """Return the files of the run as they are: of its branch, or in the checkout."""
        if self.is_isolated:
            return await self.snapshot_of(await self.tip())
        return await self.snapshots.take()

    @asynccontextmanager
    async def reading(self, name: str) -> AsyncGenerator[View | None]:
        """Open a workspace at the tip, for an agent that should change nothing.

        What it changes anyway is parked. None: it works in the checkout.
        """
        if not self.is_isolated:
            yield None
            return
        await self.workspaces.put_away(name)  # of a run that was killed
        async with self._ctx.deps.workspace(name, message=f"Changes of {name}") as place:
            yield place.view

    def timed(self, what: str) -> AbstractAsyncContextManager[None]:
        """Interrupt the block when `--max-time` and its grace are over.

        Raises Suspend then.
        """
        return self._ctx.deps.timed(what)

    @property
    def snapshots(self) -> SnapshotStore:
        return shared_snapshot_store(
            self.session / SNAPSHOTS,
            self.cwd,
            ignored=(self.notes,),
            has_secret=self.redactor.finds_in_file,
            first_rules=_FirstRules(self.facts),
        )

    @property
    def notes(self) -> Path:
        """Return the folder for notes.

        `make_notes` makes it before an agent may write there.
        """
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
        """Replace the evidence of a task, and warn once of each file that decides what the
        checks do.
        """
        known = {path for proof in self.evidence.values() for path in proof.steering_files}
        write_evidence(self.facts, evidence)
        if new := [path for path in evidence.steering_files if path not in known]:
            self.say(f"files that decide what the checks do were changed: {named(new, most=5)}")

    @property
    def start(self) -> FolderSnapshot | None:
        """Return the files before the run; None before they are known."""
        return self._ctx.state.start

    def spans(self, task: str) -> Sequence[Span]:
        """Return the turns of a task."""
        return self._ctx.state.spans.get(task, ())

    def prompt_context(self, view: View | None = None) -> PromptContext:
        """Return the facts about the project that prompts have.

        `view`: the workspace of the agent.
        """
        checks = self.checks
        return PromptContext(
            cwd=str(self.cwd if view is None else view.path_of(self.cwd)),
            notes=str(self.notes / NOTES),
            is_git=find_repository(self.cwd) is not None,  # also one that has no commit yet
            checks=tuple(checks.commands),
            red_before=tuple(checks.ignored),
            wanted=tuple(
                check.command
                for check in checks.chosen
                if checks.must_pass(check.command) and not checks.is_blocking(check.command)
            ),
            shared=view is None and self.workers > 1,
            users_files=tuple(read_users_files(self.facts).files),
            isolated=view is not None,
        )

    @contextmanager
    def turn(self, task: str = "") -> Generator[None]:
        """Count a turn of a worker or fixer. Raises Suspend if the limit is reached.

        The count is written before the turn, so that a turn that was killed counts. A
        turn that a cap or a limit of the agent prevented does not count. A turn whose
        answer is in the journal is counted already.
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
        turns = read_turns(self.facts)
        most = most_iterations(self._ctx.deps.config)
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
        """Return whether a turn of another task is running."""
        return bool(read_turns(self.facts).open - {task})

    def last_words(self, text: str) -> str:
        """Return the end of an agent's message without secrets and control characters."""
        clean = self.redactor.text(harmless(text)).strip()
        return clean if len(clean) <= MAX_SAID else f"… {clean[-MAX_SAID:].lstrip()}"

    def note(self, task: str, text: str) -> None:
        """Write the result of an attempt at a task to `progress.txt`."""
        self._ctx.emit("progress", {"task": task, "text": text})

    def say(self, text: str) -> None:
        """Print a warning."""
        self._ctx.emit("warning", {"text": text})

    def inform(self, text: str) -> None:
        """Print a message that is no warning."""
        self._ctx.emit("warning", {"text": text, "notice": True})


class FolderGoneError(Exception):
    """The project's folder was moved or deleted while a run worked in it."""


class _FirstRules:
    """The first ignore rules, kept as a fact: a worker could change a file of the
    session.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def read(self) -> bytes | None:
        found: str | None = self._facts.get(FIRST_RULES)
        if found is None:
            return None
        lines = (line for line in found.encode("latin-1").split(b"\n") if MARK.encode() not in line)
        return b"\n".join(lines)  # a redacted rule would match other files

    def write(self, rules: bytes) -> None:
        self._facts.set(FIRST_RULES, rules.decode("latin-1"))  # names of files may have any bytes


class Turns(msgspec.Struct, frozen=True):
    """The number of turns of workers and fixers that have begun, and the tasks of those
    that have not ended.
    """

    turns: int = 0
    open: frozenset[str] = frozenset()


def read_turns(facts: Mapping[str, Any]) -> Turns:
    """Return the turns of a run."""
    return msgspec.convert(facts.get(ITERATIONS, {}), Turns)


def _was_limited(facts: Facts, task: str) -> bool:
    """Return whether the last turn of a task ended at a limit of its agent."""
    ends = [call.reason for call in calls_of(facts) if call.who in _WORKING and (call.task or "") == task]
    return ends[-1:] == ["limit"]


def calls_of(facts: Mapping[str, Any]) -> list[CallRecord]:
    """Return the agent calls that have ended, oldest first."""
    return [call for call in read_calls(facts) if call.is_over and call.id]


def has_answer(ctx: Ralph) -> bool:
    """Return whether the journal has the answer to this step's turn.

    A process was killed after the turn and before it recorded the step.
    """
    return ctx.remembered(_ANSWER) is not None


async def ask_once(ctx: Ralph, kind: type[AnswerT], ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Return the answer to the one turn of this step.

    The answer is in the journal before anything else is done with it. A step that is
    killed while it looks at the files does not pay for its turn again.
    """
    kept = ctx.remembered(_ANSWER)
    if kept is not None:
        return msgspec.convert(kept, kind)
    answer = await ask()
    await ctx.remember(_ANSWER, answer)
    return answer


def read_notes(session: Path) -> str:
    """Return the notes of a run; empty if there is no regular file."""
    try:
        return read_start(notes_of(session) / NOTES, MAX_NOTES, follow_links=False).decode("utf-8", "replace")
    except OSError:
        return ""
