"""One execution of a workflow: its session, its journal, its graph, and its events.

Other runs of this process must not wait for a slow disk. So the writes at the start and
at the end of a run happen in a thread, in which no code of the workflow's author runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from atomic import __version__
from atomic.base.errors import AtomicError, ExitCode
from atomic.graph import (
    CompiledGraph,
    Journal,
    JournalError,
    Node,
    NodeError,
    NodeKind,
    RunNotFoundError,
    RunOwnedError,
    RunResult,
    RunStatus,
    State,
    StreamEvent,
)
from atomic.loading.run_changes import RunChanges
from atomic.runs.budget import Budget, CapReached
from atomic.runs.endings import SAVED_END, Ending, Stop, ending_of
from atomic.runs.event_log import EventLog
from atomic.runs.events import RunEnded, RunStarted, TasksChanged, WorkflowEvent
from atomic.runs.host import Answer, Runtime
from atomic.runs.kept_tasks import CleanTasks, KeptTasks, RunTasks
from atomic.runs.runtime import RunRuntime
from atomic.runs.spending import CALLS, Amount, is_copy_changed, read_calls
from atomic.sessions.errors import FactsLostError, JournalLostError, RunNotStartedError
from atomic.sessions.facts import CHANGED_COPIES, Facts, find_facts
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import COPY as SESSION_COPY
from atomic.sessions.started import keep_cancelled, keep_started
from atomic.sessions.store import Session, now, this_owner
from atomic.workflows.builder import graph
from atomic.workflows.capabilities import all_nodes
from atomic.workflows.definition import EndNote, RunEnd, WorkflowStateParams
from atomic.workflows.nodes import agent_node
from atomic.workflows.runtime import WorkflowRuntime

_LEASE_SKEW = 5.0  # seconds between the renewals of two leases of one process, at most
_MODES = ("live", "debug", "values", "events", "result")


class RunRequest(msgspec.Struct, frozen=True, eq=False):
    """What to run."""

    definition: Any
    loaded: Any
    prompt: str
    config: Mapping[str, Any] | None
    resume: bool
    answers: Mapping[str, Answer]
    model: str | None
    max_iterations: int | None


class ChatState(State):
    """The state of a workflow without a graph."""

    prompt: str = ""


def chat_graph(name: str) -> CompiledGraph[ChatState]:
    """Return the graph of a workflow without one: a single turn with the prompt."""

    def prompt_of(state: ChatState) -> str:
        return state.prompt

    chat: Node[ChatState, WorkflowRuntime] = agent_node("chat", prompt_of)
    return graph(ChatState).then(chat).compile(name=name)


class Execution:
    """Executes a run in its own task."""

    def __init__(self, request: RunRequest, host: Runtime, session: Session) -> None:
        self._request = request
        self._host = host
        self._session = session
        self._dir = os.fspath(session.dir)
        self._graph: CompiledGraph[Any] = request.loaded.graph or chat_graph(request.definition.name)
        self.events = EventLog(session, self._graph, request.definition.node_descriptions)
        self._changes = RunChanges(session, approved=host.approved)
        self._facts = Facts(session.dir, session.redactor)
        clean = CleanTasks(session.dir, session.redactor)
        self._kept_tasks = KeptTasks(session.dir, self._facts, clean)
        self._tasks = RunTasks(
            self._kept_tasks, clean, lambda tasks: self.events.emit(TasksChanged, tasks=tasks)
        )  # fmt: skip
        self._budget = Budget(
            host.caps, on_limit=host.on_limit, run=session.id, warn=self.events.warn, clock=host.clock
        )
        self._budget.parked_until = session.record.parked_until
        self._config = self._current_config()
        self.runtime = RunRuntime(
            host, session, self.events, self._budget,
            tasks=self._tasks, facts=self._facts, config=self._config, changes=self._changes,
        )  # fmt: skip
        self._stopped: Stop | None = None
        self._reported_copies: set[str] = set()  # changed copies of facts that the user knows of
        self._streaming: asyncio.Task[RunResult[Any]] | None = None
        self._overtime: CapReached | None = None  # the cap that has interrupted a function
        self._damage = ""  # the message about a journal that another program has damaged
        self._last: Any = None  # the state after the end of the run
        self._is_new = not request.resume  # nothing of it has run, and a resume would find nothing
        self._is_ours = not request.resume  # the run may belong to another process until the journal is acquired
        owner = this_owner()
        self._address = f"{owner.pid}|{owner.mark}"  # on messages of other processes to this one
        self._task = asyncio.create_task(self._run(), name=f"run-{session.id}")

    async def next_event(self) -> WorkflowEvent | None:
        """Return the next event; None after the last one.

        Raises what could not be published as an event.
        """
        event = await self.events.queue.get()
        if event is None:
            await self._task
        return event

    def stop(self, stop: Stop) -> None:
        """Interrupt the run.

        A second call only turns an interruption into a cancellation.
        """
        if self._stopped is None or stop is Stop.CANCEL:
            self._stopped = stop
        if self._streaming is not None:
            self._streaming.cancel()

    async def wait(self) -> None:
        """Wait for the end of the run."""
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            if self._request.resume and await asyncio.to_thread(self._is_completed):
                self._repeat_end()
            else:
                await self._execute()
        except RunNotStartedError:
            self._session.remove()
            raise
        finally:
            self.events.queue.close()

    def _is_completed(self) -> bool:
        """Return whether `session.json` and the journal call the run completed."""
        from atomic.graph.engine.history import RunHistory

        session = self._session
        if session.record.status not in SAVED_END:
            return False
        if not session.journal_path.is_file():  # opening it would create one
            return True
        try:
            journal = session.journal()
            try:
                ended = RunHistory(journal.history(session.id)).ended
            finally:
                journal.close()
        except (JournalError, RunNotFoundError):  # without a journal only the file is known
            return True
        is_completed = ended is not None and ended.status == RunStatus.COMPLETED
        session.is_copy_changed = session.is_copy_changed or not is_completed
        return is_completed

    def _repeat_end(self) -> None:
        """Report the end of a completed run again.

        Nothing runs, and nothing is logged.
        """
        self.events.is_logging = False
        record = self._session.record
        self.events.emit(
            RunStarted, workflow=record.workflow, prompt=record.prompt, session_dir=self._dir, resumed=True
        )
        ended = Ending(str(record.status), "done", "it is completed already: nothing is left to do", ExitCode.DONE)
        self.events.emit(RunEnded, **msgspec.to_builtins(ended))

    async def _execute(self) -> None:
        ending: Ending | None = None
        journal: Journal | None = None
        try:
            if self._request.resume:
                self._session.require_journal()
            journal = await asyncio.to_thread(self._session.journal)
            ending = await self._stream_to_end(journal, await self._start(journal))
        except RunOwnedError as error:
            if not self._is_ours:
                raise
            self.events.emit(RunEnded, status="failed", reason="error", message=str(error), exit_code=ExitCode.OWNED)
        except Exception as error:  # any failure becomes a RunEnded and a reason in session.json
            if not self._is_ours:
                raise
            if self._is_new and isinstance(error, OSError | JournalError):
                raise RunNotStartedError(str(error)) from error
            self._session.logs.error("the run failed", error)
            ending = Ending("failed", "error", _message_of(error), ExitCode.FAILED, f"atomic resume {self._session.id}")
        finally:
            try:
                await self._release(journal, ending)
            finally:  # the report is written and RunEnded is published even if something cannot be released
                try:
                    if ending is not None:
                        await self._end(ending)
                finally:
                    self._session.logs.close()

    async def _start(self, journal: Journal) -> AsyncIterator[StreamEvent]:
        """Acquire the run and return the stream of its graph.

        Raises RunOwnedError before anything is changed.
        """
        request = self._request
        session = self._session
        stream: AsyncIterator[StreamEvent] | None = None
        if request.resume:
            stream = self._resume_stream(journal, self._open_answers(journal))
            if stream is None:
                self._check_not_begun(journal)
        self._is_ours = True
        await self._open_facts(journal)
        if any(node.kind is NodeKind.TASKS for node in all_nodes(self._graph)):
            self._tasks.resume_loop()
        session.inbox.orders(self._address)  # discards messages for an earlier owner
        started: dict[str, Any] = {
            "config": self._config,
            "state_version": request.definition.state_version,
            "options": {**self._host.options(request.model), "given": sorted(self._given_config())},
        }
        keep_started(self._facts, msgspec.structs.replace(session.record, **started))
        if session.is_copy_changed:
            self._facts.note_changed(SESSION_COPY)
        await asyncio.to_thread(
            session.save, status=SessionStatus.RUNNING, reason="", ended_at=None, owner=this_owner(), questions=(),
            begun=True, atomic_version=__version__, **started,
        )  # fmt: skip
        self._is_new = False
        self.events.emit(
            RunStarted, workflow=request.definition.name, prompt=request.prompt, session_dir=self._dir,
            resumed=request.resume,
        )  # fmt: skip
        recovered = getattr(journal, "recovered", None)
        recovery = session.recovery or (recovered.message if recovered is not None else "")
        if recovery:
            self.events.warn(recovery)
        await self._restore_copies()
        if stream is None:
            stream = self._graph.stream(
                self._first_state(), modes=_MODES, deps=self.runtime, journal=journal, execution_id=session.id,
                model=request.model,
            )  # fmt: skip
        return stream

    async def _open_facts(self, journal: Journal) -> None:
        """Open the facts, whose lease may outlive the lease of the run by a moment."""
        deadline = time.monotonic() + _LEASE_SKEW
        while True:
            try:
                self._facts.open(journal, self._session.id)
                break
            except RunOwnedError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL_SECONDS)
        self._reported_copies = set(self._facts.get(CHANGED_COPIES, ()))
        cost = self._session.record.cost  # a run of an older version has its cost only there
        unpriced = cost.input_tokens + cost.output_tokens if cost.usd is None else 0
        before = Amount(cost.usd or 0.0, cost.input_tokens, cost.output_tokens, unpriced)
        self._budget.open(self._facts, before=before)

    def _resume_stream(self, journal: Journal, answers: Mapping[str, Answer]) -> AsyncIterator[StreamEvent] | None:
        """Return the stream that continues the run.

        None if it was killed before it started.
        """
        try:
            stream = self._graph.resume_stream(
                journal, self._session.id, answers=answers, modes=_MODES, deps=self.runtime, model=self._request.model
            )
        except RunNotFoundError:
            return None
        self._session.inbox.forget(answers)
        return stream

    def _check_not_begun(self, journal: Journal) -> None:
        """Raise JournalLostError if a run without a journal has already worked: no work
        is done twice.
        """
        session = self._session
        facts = find_facts(journal, session.id)
        path = session.journal_path
        if facts is None and session.record.begun:
            raise JournalLostError(session.id, f"its journal {path} was replaced by one without this run")
        if facts is not None and next(iter(read_calls(facts)), None) is not None:
            raise JournalLostError(session.id, f"its journal {path} was damaged and has lost this run")

    def _open_answers(self, journal: Journal) -> Mapping[str, Answer]:
        """Return the caller's answers, and answers in the inbox to open questions."""
        answers = self._session.inbox.answers()
        if not answers:
            return self._request.answers
        from atomic.graph.engine.code_changes import current_names
        from atomic.graph.engine.history import RunHistory

        try:
            past = RunHistory(journal.history(self._session.id), current_names(self._graph.program))
        except RunNotFoundError:
            return {}
        # An answer may name its question by the id that a node had before it was
        # renamed.
        current = {past.current_id(id): answer for id, answer in answers.items()}
        open_answers = {id: answer for id, answer in current.items() if id in past.asked}
        return {**open_answers, **self._request.answers}

    def _current_config(self) -> dict[str, Any]:
        """Return the config of the run's start, overridden by the request."""
        if self._request.resume:
            config = self._session.record.config
        else:
            config = self._request.definition.config(self._host.settings.workflows)
        return {**config, **(self._request.config or {})}

    def _given_config(self) -> dict[str, Any]:
        """Return the part of the config that flags have set, now or when the run was
        started.
        """
        names = {*self._session.record.options.get("given", ()), *(self._request.config or {})}
        return {name: value for name, value in self._config.items() if name in names}

    def _first_state(self) -> Any:
        request = self._request
        if request.loaded.graph is None:
            return {"prompt": request.prompt}
        params: WorkflowStateParams = WorkflowStateParams(
            prompt=request.prompt,
            session_id=self._session.id,
            session_dir=self._dir,
            cwd=os.fspath(self._host.folder),
            project=os.fspath(self._host.project),
            given=self._given_config(),
            max_iterations=request.loaded.iteration_limit(request.max_iterations, self._config),
            config=self._config,
        )
        return request.loaded.create_state(params)

    async def _stream_to_end(self, journal: Journal, stream: AsyncIterator[StreamEvent]) -> Ending:
        watching = asyncio.gather(self._watch_inbox(), self._watch_time())
        self._streaming = asyncio.create_task(self._stream(journal, stream))
        if self._stopped is not None:
            self._streaming.cancel()
        try:
            await asyncio.wait({self._streaming})
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            if not self._streaming.done():  # the task of the run itself was cancelled
                self._streaming.cancel()
                await asyncio.wait({self._streaming})
        result = None if self._streaming.cancelled() else self._streaming.result()
        overtime = self._overtime
        if overtime is not None and (result is None or result.status is RunStatus.CANCELLED):
            self.events.cap_reached(overtime)
            return Ending("paused", overtime.kind, str(overtime), ExitCode.CAP_REACHED, overtime.raise_with)
        if result is None:
            return ending_of(None, self._stopped or Stop.INTERRUPT, self._session.id)
        if result.status is RunStatus.PAUSED:
            self.events.keep_questions({question.id for question in result.questions})
        self._warn_of_unused_roles(result)
        ending = ending_of(result, None, self._session.id)
        if result.status is RunStatus.FAILED and isinstance(result.error, NodeError):
            self._session.logs.error(str(result.error), result.error.__cause__)
        if self._request.loaded.graph is None and result.status is RunStatus.COMPLETED:
            return msgspec.structs.replace(ending, status="chat")
        return ending

    async def _stream(self, journal: Journal, stream: AsyncIterator[StreamEvent]) -> RunResult[Any]:
        """Stream the whole graph.

        Continue if its last questions were answered during it.
        """
        while True:
            result = await self._publish(stream)
            if result.status is not RunStatus.PAUSED or not result.questions:
                return result
            asked = {question.id for question in result.questions}
            answers = {id: answer for id, answer in self._session.inbox.answers().items() if id in asked}
            resumed = self._resume_stream(journal, answers) if answers else None
            if resumed is None:
                return result
            for id in answers:
                self.events.close_question(id)
            stream = resumed

    async def _publish(self, stream: AsyncIterator[StreamEvent]) -> RunResult[Any]:
        """Publish the events of the engine, and return the result."""
        result: RunResult[Any] | None = None
        async for item in stream:
            match item.mode:
                case "live" if item.data.type == "tasks_changed":
                    self._tasks.handle_loop(item.data.data)
                case "live":
                    self.events.handle_live(item.node_id, item.data)
                case "debug":
                    self.events.handle_step(item.node_id, item.data)
                    self._changes.note()
                case "values":
                    self._tasks.handle_state(item.data)
                case "events" if item.data.type == "progress":
                    self.events.handle_progress(item.data.data)
                case "events" if item.data.type == "warning":
                    self.events.handle_warning(item.node_id, item.data.data)
                case "result":
                    result = item.data
                case _:
                    pass
        assert result is not None
        return result

    async def _watch_time(self) -> None:
        """Interrupt functions of the workflow that run after `--max-time` and its grace."""
        while self._host.caps.max_time is not None and self._overtime is None:
            await asyncio.sleep(POLL_SECONDS)
            self._overtime = self._budget.overtime(f"the step {self.events.running}")
            if self._overtime is not None and self._streaming is not None:
                self._streaming.cancel()

    async def _watch_inbox(self) -> None:
        """Obey orders to stop, and deliver answers, which other processes put into the
        inbox.
        """
        inbox = self._session.inbox
        delivered: set[str] = set()
        while True:
            orders = inbox.orders(self._address)
            if orders:
                self.stop(Stop.CANCEL if "cancel" in orders else Stop.INTERRUPT)
            if delivered:  # one interval later the journal has them
                inbox.forget(delivered)
            if self.runtime.broker is not None:
                delivered = self.runtime.broker.deliver(inbox.answers())
            await asyncio.sleep(POLL_SECONDS)

    def _warn_of_unused_roles(self, result: RunResult[Any]) -> None:
        if result.status is not RunStatus.COMPLETED:
            return
        choices = self._host.choices
        for flag, chosen in (("--agent", choices.agents), ("--model", choices.models)):
            for role in chosen:
                if role and role not in self.runtime.roles:
                    self.events.warn(f"{flag} {role}={chosen[role]} had no effect: no agent was called as {role}")

    async def _restore_copies(self) -> None:
        """Write copies that differ from the journal again, and warn once of each."""
        await self._compare_calls()
        self._kept_tasks.restore_copy()
        changed = [name for name in self._facts.restore_copies() if name not in self._reported_copies]
        if not changed:
            return
        self._reported_copies.update(changed)
        unwritten = [name for name in changed if self._facts.is_unwritten(name)]
        if unwritten:
            outcome = f"{' and '.join(unwritten)} cannot be written again"
        else:
            outcome = f"{'the copy was' if len(changed) == 1 else 'the copies were'} written again"
        self.events.warn(
            f"Another program changed {' and '.join(changed)} in {self._dir}. "
            f"Only the journal counts, so the run is not affected; {outcome}."
        )

    async def _compare_calls(self) -> None:
        """Warn once if the log of calls differs from the journal."""
        if CALLS in self._reported_copies:
            return
        if not await asyncio.to_thread(is_copy_changed, dict(self._facts), self._session.dir):
            return
        self._reported_copies.add(CALLS)
        self._facts.set(CHANGED_COPIES, sorted({*self._facts.get(CHANGED_COPIES, ()), CALLS}))
        self.events.warn(
            f"{CALLS} in {self._dir} has other figures than the journal: another program changed it, or the machine"
            " lost power. Only the journal counts, so the caps are not affected."
        )

    def _find_damage(self) -> str:
        """Return a message about facts that another program has damaged during the run,
        or an empty text.
        """
        try:
            self._facts.check_rows()
        except FactsLostError as error:
            return str(error)
        except (JournalError, RunNotFoundError):
            return (
                f"The journal {self._session.journal_path} was changed or damaged during the run, so its checks, its"
                " caps and the list of your uncommitted files cannot be trusted later, and the run cannot continue."
                " Look at the work before you keep it; copies of your files were not deleted"
            )
        return ""

    async def _release(self, journal: Journal | None, ending: Ending | None) -> None:
        """Close the parts of the run, the journal last."""
        has_ended = ending is not None
        try:
            self._changes.close()
            await self.runtime.close()
            if journal is not None:
                self._last = self._last_state(journal) if has_ended else None
                with suppress(JournalError, RunOwnedError):  # the journal may have failed
                    if ending is not None and ending.status == SessionStatus.CANCELLED:
                        keep_cancelled(self._facts)
                    self._budget.stop()
                    if has_ended:
                        self._tasks.close()
                    await self._restore_copies()
                self._damage = await asyncio.to_thread(self._find_damage) if has_ended else ""
        finally:
            if journal is not None:
                await asyncio.to_thread(journal.close)

    async def _end(self, ending: Ending) -> None:
        """Save how the run ended, call the workflow's `at_end`, and publish RunEnded."""
        self.events.end_nodes()
        if self._damage and ending.status == "completed":
            ending = Ending("failed", "error", self._damage, ExitCode.FAILED)
        elif self._damage:
            self.events.warn(self._damage)
        questions = ()
        if ending.status in ("paused", "blocked", "failed"):
            questions = tuple(self.events.questions.values())
        trust = self._changes.now()
        with suppress(OSError):
            await asyncio.to_thread(
                self._session.save, status=SessionStatus(ending.status), reason=ending.reason,
                ended_at=None if ending.status == "paused" else now(), owner=None, questions=questions, trust=trust,
                parked_until=self._budget.parked_until, cost=self.runtime.cost,
            )  # fmt: skip
        if not questions:
            self._session.inbox.forget()
        note = self._call_at_end(ending)
        message = ending.message or note.message
        ending = msgspec.structs.replace(ending, message=message, verified=note.verified)
        self.events.emit(RunEnded, **msgspec.to_builtins(ending))

    def _last_state(self, journal: Journal) -> Any:
        """Return the state that the journal has, for `at_end`, or None."""
        if self._request.loaded.at_end is None:
            return None
        try:
            return self._graph.load(journal, self._session.id)
        except RunNotFoundError:  # stopped before it started
            return None
        except Exception as error:  # the journal may have failed; the run must still end
            self._session.logs.error("the last state cannot be read", error)
            return None

    def _call_at_end(self, ending: Ending) -> EndNote:
        at_end = self._request.loaded.at_end
        if at_end is None:
            return EndNote()
        end = RunEnd(
            session_dir=self._dir, status=ending.status, reason=ending.reason,
            message=ending.message, plain=ending.plain,
            save=self._session.write, state=self._last, facts=self._facts,
        )  # fmt: skip
        try:
            note: object = at_end(end)  # a user's function may return anything
        except (Exception, SystemExit) as error:  # and raise anything; the run has still ended
            self._session.logs.error("at_end failed", error)
            self.events.warn(f"at_end of {self._request.definition.name} failed: {_message_of(error)}")
            return EndNote()
        if isinstance(note, EndNote):
            return note
        return EndNote(note) if isinstance(note, str) else EndNote()


def _message_of(error: BaseException) -> str:
    if isinstance(error, AtomicError | OSError | JournalError):
        return str(error)
    return f"{type(error).__name__}: {error}"
