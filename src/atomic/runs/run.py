"""One run of a workflow: its session, its journal, its graph, and its events.

The run executes in its own task, and the host reads its events. A stopped run is
cancelled: the engine records the finished steps, the session becomes `paused`, and the
last event has the command that resumes the run.

Other runs of this process must not wait long for a slow disk. So the journal is opened,
checked and closed in a thread, and `session.json` is saved in one at the start and at the
end; no code of the workflow's author runs there. Rows and facts are short, and their order
matters: the event loop writes them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from atomic import __version__
from atomic.base.errors import ExitCode, describe
from atomic.graph import (
    FunctionWorkflow,
    Journal,
    JournalError,
    NodeError,
    NodeKind,
    RunNotFoundError,
    RunOwnedError,
    RunResult,
    RunStatus,
    StreamEvent,
    WorkflowChangedError,
)
from atomic.graph.engine.function_history import history_of
from atomic.graph.engine.history import ready_signals
from atomic.runs.ended_run import is_over, repeated_end
from atomic.runs.endings import SAVED_END, Ending, Stop, capped, ending_of, stopped, where_raised
from atomic.runs.event_log import EventLog
from atomic.runs.events import RunEnded, RunStarted, WorkflowEvent
from atomic.runs.host import Answer, Runtime
from atomic.runs.isolation import describe_branch
from atomic.runs.limits import CapReached
from atomic.runs.results import KeptResult, end_fields, kept_of, plain_result
from atomic.runs.runtime import RunRuntime
from atomic.runs.session_copies import SessionCopies
from atomic.runs.spending import Amount, read_calls
from atomic.sessions import SqliteJournal
from atomic.sessions.errors import FactsLostError, JournalLostError, RunNotStartedError
from atomic.sessions.facts import find_facts
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import SessionStatus
from atomic.sessions.report import next_command
from atomic.sessions.started import COPY as SESSION_COPY
from atomic.sessions.started import keep_cancelled, keep_started
from atomic.sessions.store import Session, now, this_owner
from atomic.workflows.arguments import arguments_of
from atomic.workflows.capabilities import all_nodes
from atomic.workflows.definition import (
    EndNote,
    LoadedWorkflow,
    RunEnd,
    Runnable,
    WorkflowDefinition,
    WorkflowStateParams,
)

_LEASE_SKEW = 5.0  # seconds between the renewals of two leases of one process, at most
_MODES: Final = ("live", "debug", "values", "events", "result")


class RunRequest(msgspec.Struct, frozen=True, eq=False):
    """What to run."""

    definition: WorkflowDefinition
    loaded: LoadedWorkflow
    graph: Runnable
    prompt: str
    config: Mapping[str, Any]
    given: frozenset[str]  # the names of `config` that flags have set, now or when the run was started
    arguments: Mapping[str, Any]  # of a new run of a function
    resume: bool
    cancel: bool  # the run is cancelled for good, with its compensations
    answers: Mapping[str, Answer]
    model: str | None
    max_iterations: int | None


class WorkflowRun(AsyncIterator[WorkflowEvent]):
    """A run: its events, and the way to stop it. Closing it early stops it.

    It starts when its first event is read.
    """

    def __init__(self, request: RunRequest, host: Runtime, session: Session) -> None:
        self.session = session
        self._request = request
        self._host = host
        self._dir = os.fspath(session.dir)
        self._graph = request.graph
        self._events = EventLog(session, self._graph, request.definition.node_descriptions)
        self._runtime = RunRuntime(host, session, self._events, request.config, waits_for_signals=True)
        self._copies = SessionCopies(session, self._runtime.facts, self._runtime.tasks, self._events.warn)
        self._before = session.record
        self._stopped: Stop | None = None
        self._stopped_by = ""
        self._task: asyncio.Task[None] | None = None
        self._streaming: asyncio.Task[RunResult[Any]] | None = None
        self._overtime: CapReached | None = None  # the cap that has interrupted a function
        self._damage = ""  # the message about a journal that another program has damaged
        self._result: RunResult[Any] | None = None
        self._last: Any = None  # the state after the end of the run
        self._is_new = not request.resume  # nothing of it has run, and a resume would find nothing
        self._is_ours = not request.resume  # the run may belong to another process until the journal is acquired
        owner = this_owner()
        self._address = f"{owner.pid}|{owner.mark}"  # on messages of other processes to this one

    @property
    def id(self) -> str:
        return self.session.id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkflowEvent:
        """Return the next event. Raises what could not be published as an event."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"run-{self.id}")
        event = await self._events.queue.get()
        if event is None:
            await self._task
            raise StopAsyncIteration
        return event

    def stop(self, stop: Stop = Stop.INTERRUPT, *, by: str = "") -> None:
        """Interrupt the run; its events continue to RunEnded, whose message names `by`.

        A second call only turns it into a cancellation. A function that is ending already
        keeps its end: its compensations run in the process that cancels it afterwards.
        """
        is_function = isinstance(self._graph, FunctionWorkflow)
        if self._stopped is None or (stop is Stop.CANCEL and not is_function):
            self._stopped = stop
            self._stopped_by = by
            self._runtime.cancels_for_good = stop is Stop.CANCEL
        if self._streaming is not None:
            self._streaming.cancel()

    async def aclose(self) -> None:
        """Stop the run if it has not ended, and wait for its end."""
        if self._task is not None:
            self.stop()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            if self._request.resume and await asyncio.to_thread(is_over, self.session):
                for event in repeated_end(self.session):
                    self._events.queue.put(event)
            else:
                await self._execute()
        except RunNotStartedError:
            self.session.remove()
            raise
        finally:
            self._events.queue.close()

    async def _execute(self) -> None:
        ending: Ending | None = None
        journal: SqliteJournal | None = None
        try:
            if self._request.resume:
                self.session.require_journal()
            journal = await asyncio.to_thread(self.session.journal)
            ending = await self._stream_to_end(journal, await self._start(journal))
        except RunOwnedError as error:
            if not self._is_ours:
                raise
            self._events.emit(RunEnded, status="failed", reason="error", message=str(error), exit_code=ExitCode.OWNED)
        except WorkflowChangedError as error:
            await self._refuse(error)
        except Exception as error:  # any failure becomes a RunEnded and a reason in session.json
            if not self._is_ours:
                raise
            if self._is_new and isinstance(error, OSError | JournalError):
                raise RunNotStartedError(str(error)) from error
            self.session.logs.error("the run failed", error)
            ending = Ending("failed", "error", describe(error), ExitCode.FAILED, f"atomic resume {self.session.id}")
        finally:
            try:
                await self._release(journal, ending)
            finally:  # the report is written and RunEnded is published even if something cannot be released
                try:
                    if ending is not None:
                        await self._end(ending)
                finally:
                    self.session.logs.close()

    async def _refuse(self, error: WorkflowChangedError) -> None:
        """Leave a run as it was before a resume that its changed code does not fit."""
        before = self._before
        status = SessionStatus.PAUSED if before.status is SessionStatus.RUNNING else before.status
        self._events.end_nodes()
        with suppress(OSError):
            await asyncio.to_thread(
                self.session.save, status=status, reason=before.reason, ended_at=before.ended_at, owner=None,
                questions=before.questions,
            )  # fmt: skip
        # The same command would be refused again until the code has changed.
        what_helps = f"Then: atomic workflows check --runs; if it can continue: {next_command(self.session.record)}"
        self._events.emit(
            RunEnded, status="failed", reason="error", message=f"{str(error).rstrip('.')}. {what_helps}",
            exit_code=ExitCode.FAILED,
        )  # fmt: skip

    async def _start(self, journal: SqliteJournal) -> AsyncIterator[StreamEvent]:
        """Acquire the run and return the stream of its graph.

        Raises RunOwnedError before anything is changed.
        """
        request = self._request
        session = self.session
        stream: AsyncIterator[StreamEvent] | None = None
        if request.resume:
            stream = self._resume_stream(journal, self._open_answers(journal))
            if stream is None:
                self._check_not_begun(journal)
        self._is_ours = True
        await self._open_facts(journal)
        if any(node.kind is NodeKind.TASKS for node in all_nodes(self._graph)):
            self._runtime.tasks.resume_loop()
        session.inbox.orders(self._address)  # discards messages for an earlier owner
        started: dict[str, Any] = {
            "config": request.config,
            "state_version": request.definition.state_version,
            "options": {**self._host.options(request.model), "given": sorted(request.given)},
        }
        keep_started(self._runtime.facts, msgspec.structs.replace(session.record, **started))
        if session.is_copy_changed:
            self._runtime.facts.note_changed(SESSION_COPY)
        await asyncio.to_thread(
            session.save, status=SessionStatus.RUNNING, reason="", ended_at=None, owner=this_owner(), questions=(),
            begun=True, wake_at=None, signals=(), atomic_version=__version__, cost=self._runtime.cost, **started,
        )  # fmt: skip
        self._is_new = False
        self._events.emit(
            RunStarted, workflow=request.definition.name, prompt=request.prompt, session_dir=self._dir,
            resumed=request.resume,
        )  # fmt: skip
        recovery = session.recovery
        if not recovery and journal.recovered is not None:
            recovery = journal.recovered.message
        if recovery:
            self._events.warn(recovery)
        await self._copies.restore()
        return self._first_stream(journal) if stream is None else stream

    def _first_stream(self, journal: Journal) -> AsyncIterator[StreamEvent]:
        """Return the stream of a run that has not begun."""
        options: dict[str, Any] = {
            "modes": _MODES, "deps": self._runtime, "journal": journal, "execution_id": self.session.id,
            "model": self._request.model,
        }  # fmt: skip
        request = self._request
        begin: Any = self._graph.stream
        if not isinstance(self._graph, FunctionWorkflow):
            return begin(self._first_state(), **options)
        function: FunctionWorkflow[Any, Any] = self._graph
        given = request.arguments
        if request.resume:  # it was killed before its journal had its arguments
            given = arguments_of(function, request.prompt, request.config)
        args, kwargs = function.parameters.call_with(given)
        return begin(*args, **kwargs, **options)

    async def _open_facts(self, journal: Journal) -> None:
        """Open the facts, whose lease may outlive the lease of the run by a moment."""
        deadline = time.monotonic() + _LEASE_SKEW
        while True:
            try:
                self._runtime.facts.open(journal, self.session.id)
                break
            except RunOwnedError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL_SECONDS)
        self._copies.open()
        cost = self.session.record.cost  # a run of an older version has its cost only there
        unpriced = cost.input_tokens + cost.output_tokens if cost.usd is None else 0
        before = Amount(cost.usd or 0.0, cost.input_tokens, cost.output_tokens, unpriced)
        self._runtime.budget.open(self._runtime.facts, before=before)
        await self._runtime.adopt_old_limit()

    def _resume_stream(self, journal: Journal, answers: Mapping[str, Answer]) -> AsyncIterator[StreamEvent] | None:
        """Return the stream that continues the run.

        None if it was killed before it started.
        """
        options: dict[str, Any] = {"modes": _MODES, "deps": self._runtime, "model": self._request.model}
        try:
            if self._request.cancel and isinstance(self._graph, FunctionWorkflow):
                stream = self._graph.cancel_stream(journal, self.session.id, **options)
            else:
                graph: Any = self._graph
                stream = graph.resume_stream(journal, self.session.id, answers=answers, **options)
        except RunNotFoundError:
            return None
        self.session.inbox.forget(answers)
        return stream

    def _check_not_begun(self, journal: Journal) -> None:
        """Raise JournalLostError if a run without a journal has already worked: no work
        is done twice.
        """
        session = self.session
        facts = find_facts(journal, session.id)
        path = session.journal_path
        if facts is None and session.record.begun:
            raise JournalLostError(session.id, f"its journal {path} was replaced by one without this run")
        if facts is not None and next(iter(read_calls(facts)), None) is not None:
            raise JournalLostError(session.id, f"its journal {path} was damaged and has lost this run")

    def _open_answers(self, journal: Journal) -> Mapping[str, Answer]:
        """Return the caller's answers, and answers in the inbox to open questions."""
        answers = self.session.inbox.answers()
        if not answers:
            return self._request.answers
        from atomic.graph.engine.code_changes import current_names
        from atomic.graph.engine.history import RunHistory

        try:
            recorded = journal.history(self.session.id)
            if isinstance(self._graph, FunctionWorkflow):
                past = history_of(recorded)
            else:
                past = RunHistory(recorded, current_names(self._graph.program))
        except RunNotFoundError:
            return {}
        # An answer may name its question by the id that a node had before it was
        # renamed.
        current = {past.current_id(id): answer for id, answer in answers.items()}
        open_answers = {id: answer for id, answer in current.items() if id in past.asked}
        return {**open_answers, **self._request.answers}

    def _first_state(self) -> Any:
        request = self._request
        if request.loaded.graph is None:
            return {"prompt": request.prompt}
        params: WorkflowStateParams = WorkflowStateParams(
            prompt=request.prompt,
            session_id=self.session.id,
            session_dir=self._dir,
            cwd=os.fspath(self._host.folder),
            project=os.fspath(self._host.project),
            given={name: value for name, value in request.config.items() if name in request.given},
            max_iterations=request.loaded.iteration_limit(request.max_iterations, request.config),
            config=request.config,
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
        self._result = result
        overtime = self._overtime
        if result is None and overtime is not None:
            self._events.cap_reached(overtime)
            return capped(overtime.kind, str(overtime), overtime.raise_with)
        if result is None:
            stop = self._stopped or Stop.INTERRUPT
            if stop is Stop.CANCEL and isinstance(self._graph, FunctionWorkflow) and not self._is_over(journal):
                stop = Stop.INTERRUPT  # nothing was compensated: `atomic stop` does it next
            return stopped(stop, self.session.id, by=self._stopped_by)
        if result.status is RunStatus.PAUSED:
            self._events.keep_questions({question.id for question in result.questions})
        self._warn_of_unused_roles(result)
        ending = ending_of(result, self.session.id)
        if result.status is RunStatus.FAILED and isinstance(result.error, NodeError):
            self.session.logs.error(str(result.error), result.error.__cause__)
            where = where_raised(result.error.__cause__, self._request.definition.path)
            ending = msgspec.structs.replace(ending, message=ending.message + where, plain=ending.plain + where)
        if self._request.loaded.graph is None and result.status is RunStatus.COMPLETED:
            return msgspec.structs.replace(ending, status="chat")
        return ending

    def _is_over(self, journal: Journal) -> bool:
        """Return whether the journal has an end for good."""
        try:
            ended = history_of(journal.history(self.session.id)).ended
        except RunNotFoundError:  # stopped before it started
            return False
        return ended is not None and ended.is_over

    async def _stream(self, journal: Journal, stream: AsyncIterator[StreamEvent]) -> RunResult[Any]:
        """Stream the whole graph.

        Continue if its last questions were answered, or its signals sent, during it.
        """
        while True:
            result = await self._publish(stream)
            if result.status is not RunStatus.PAUSED or not (result.questions or result.signals):
                return result
            asked = {question.id for question in result.questions}
            answers = {id: answer for id, answer in self.session.inbox.answers().items() if id in asked}
            can_continue = answers or ready_signals(journal, self.session.id)
            resumed = self._resume_stream(journal, answers) if can_continue else None
            if resumed is None:
                return result
            for id in answers:
                self._events.close_question(id)
            stream = resumed

    async def _publish(self, stream: AsyncIterator[StreamEvent]) -> RunResult[Any]:
        """Publish the events of the engine, and return the result."""
        result: RunResult[Any] | None = None
        async for item in stream:
            match item.mode:
                case "live" if item.data.type == "tasks_changed":
                    self._runtime.tasks.handle_loop(item.data.data)
                case "live":
                    self._events.handle_live(item.node_id, item.data)
                case "debug":
                    self._events.handle_step(item.node_id, item.data)
                    self._runtime.changes.note()
                case "values":
                    self._runtime.tasks.handle_state(item.data)
                case "events" if item.data.type == "progress":
                    self._events.handle_progress(item.data.data)
                case "events" if item.data.type == "warning":
                    self._events.handle_warning(item.node_id, item.data.data)
                case "result":
                    result = item.data
                case _:
                    pass
        assert result is not None
        return result

    async def _watch_time(self) -> None:
        """Keep the working time, and interrupt functions of the workflow that run after
        `--max-time` and its grace.
        """
        while self._overtime is None:
            await asyncio.sleep(POLL_SECONDS)
            self._runtime.budget.keep_time()
            self._overtime = self._runtime.budget.overtime(f"the step {self._events.running}")
            if self._overtime is not None and self._streaming is not None:
                self._streaming.cancel()

    async def _watch_inbox(self) -> None:
        """Obey orders to stop, and deliver answers, which other processes put into the
        inbox.
        """
        inbox = self.session.inbox
        delivered: set[str] = set()
        while True:
            orders = inbox.orders(self._address)
            if orders:
                self.stop(Stop.CANCEL if "cancel" in orders else Stop.INTERRUPT, by="atomic stop")
            if delivered:  # one interval later the journal has them
                inbox.forget(delivered)
            if self._runtime.broker is not None:
                delivered = self._runtime.broker.deliver(inbox.answers())
            await asyncio.sleep(POLL_SECONDS)

    def _warn_of_unused_roles(self, result: RunResult[Any]) -> None:
        if result.status is not RunStatus.COMPLETED:
            return
        choices = self._host.choices
        for flag, chosen in (("--agent", choices.agents), ("--model", choices.models)):
            for role in chosen:
                if role and role not in self._runtime.roles:
                    self._events.warn(f"{flag} {role}={chosen[role]} had no effect: no agent was called as {role}")

    def _find_damage(self) -> str:
        """Return a message about facts that another program has damaged during the run,
        or an empty text.
        """
        try:
            self._runtime.facts.check_rows()
        except FactsLostError as error:
            return str(error)
        except (JournalError, RunNotFoundError):
            return (
                f"The journal {self.session.journal_path} was changed or damaged during the run, so its checks, its"
                " caps and the list of your uncommitted files cannot be trusted later, and the run cannot continue."
                " Look at the work before you keep it; copies of your files were not deleted"
            )
        return ""

    async def _release(self, journal: Journal | None, ending: Ending | None) -> None:
        """Close the parts of the run, the journal last."""
        has_ended = ending is not None
        try:
            self._runtime.changes.close()
            await self._runtime.close(completed=ending is not None and ending.status == "completed")
            if journal is not None:
                self._last = self._last_state(journal) if has_ended else None
                with suppress(JournalError, RunOwnedError):  # the journal may have failed
                    if ending is not None and ending.status == SessionStatus.CANCELLED:
                        keep_cancelled(self._runtime.facts)
                    self._runtime.budget.stop()
                    if has_ended:
                        self._runtime.tasks.close()
                    await self._copies.restore()
                self._damage = await asyncio.to_thread(self._find_damage) if has_ended else ""
        finally:
            if journal is not None:
                await asyncio.to_thread(journal.close)

    async def _end(self, ending: Ending) -> None:
        """Save how the run ended, call the workflow's `at_end`, and publish RunEnded."""
        self._events.end_nodes()
        if self._damage and ending.status == "completed":
            ending = Ending("failed", "error", self._damage, ExitCode.FAILED)
        elif self._damage:
            self._events.warn(self._damage)
        questions = ()
        if ending.status == "paused" or (ending.status in ("blocked", "failed") and ending.resume):
            questions = tuple(self._events.questions.values())
        trust = self._runtime.changes.now()
        kept = KeptResult()
        if ending.status in SAVED_END or (ending.status in ("blocked", "failed") and not ending.resume):
            kept = kept_of(plain_result(self._result, self.session.redactor))
        with suppress(OSError):
            await asyncio.to_thread(
                self.session.save, status=SessionStatus(ending.status), reason=ending.reason,
                ended_at=None if ending.status == "paused" else now(), owner=None, questions=questions, trust=trust,
                parked_until=self._runtime.budget.rate_limits.parked_until, cost=self._runtime.cost,
                wake_at=ending.wake_at, signals=ending.signals, result=kept.result, result_omitted=kept.result_omitted,
            )  # fmt: skip
        if not questions:
            self.session.inbox.forget()
        note = self._call_at_end(ending)
        if ending.status == "completed" and note.message and kept == KeptResult():
            kept = KeptResult(self.session.redactor.data(note.message))
            with suppress(OSError):
                await asyncio.to_thread(self.session.save, result=kept.result)
        message = ending.message or note.message
        branch = self._runtime.workspaces.branch
        if not message and branch is not None and ending.status == "completed":
            message = describe_branch(branch, self.session.id)
        ending = msgspec.structs.replace(ending, message=message, verified=note.verified)
        self._events.emit(RunEnded, **msgspec.to_builtins(ending), **end_fields(self.session, kept))

    def _last_state(self, journal: Journal) -> Any:
        """Return the state that the journal has, for `at_end`, or None."""
        if self._request.loaded.at_end is None:
            return None
        try:
            return self._graph.load(journal, self.session.id)
        except RunNotFoundError:  # stopped before it started
            return None
        except Exception as error:  # the journal may have failed; the run must still end
            self.session.logs.error("the last state cannot be read", error)
            return None

    def _call_at_end(self, ending: Ending) -> EndNote:
        at_end = self._request.loaded.at_end
        if at_end is None:
            return EndNote()
        end = RunEnd(
            session_dir=self._dir, status=ending.status, reason=ending.reason,
            message=ending.message, plain=ending.plain,
            save=self.session.write, state=self._last, facts=self._runtime.facts,
        )  # fmt: skip
        try:
            note: object = at_end(end)  # a user's function may return anything
        except (Exception, SystemExit) as error:  # and raise anything; the run has still ended
            self.session.logs.error("at_end failed", error)
            self._events.warn(f"at_end of {self._request.definition.name} failed: {describe(error)}")
            return EndNote()
        if isinstance(note, EndNote):
            return note
        return EndNote(note) if isinstance(note, str) else EndNote()
