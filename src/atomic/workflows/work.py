"""The work of one run: the session, the journal, the graph; what it comes to is told in events.

A disk may be busy, and other runs of this process are not to wait for it: what is written at the beginning and at the
end is written in a thread, where nothing of the author's runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atomic import __version__
from atomic.errors import AtomicError
from atomic.graph import (
    CompiledGraph,
    Journal,
    JournalError,
    Node,
    NodeError,
    RunNotFoundError,
    RunOwnedError,
    RunResult,
    RunStatus,
    State,
    StreamEvent,
)
from atomic.sessions.errors import FactsLostError, JournalLostError
from atomic.sessions.facts import CHANGED_COPIES, Facts, find_facts
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import COPY as SESSION_COPY
from atomic.sessions.started import keep_cancelled, keep_started
from atomic.sessions.store import Session, now, this_owner
from atomic.workflows.builder import graph
from atomic.workflows.clean_tasks import CleanTasks
from atomic.workflows.definition import EndNote, RunEnd
from atomic.workflows.endings import SAVED_END, Ending, Stop, ending_of
from atomic.workflows.events import (
    RunEnded,
    RunStarted,
    WorkflowEvent,
)
from atomic.workflows.governor import Governor
from atomic.workflows.host_runtime import Answer, Runtime
from atomic.workflows.kept_tasks import KeptTasks
from atomic.workflows.ledger import CALLS, Amount, is_copy_changed, read_calls
from atomic.workflows.live_runtime import LiveRuntime
from atomic.workflows.nodes import agent_node
from atomic.workflows.own_changes import OwnChanges
from atomic.workflows.reporting import Report
from atomic.workflows.runtime import WorkflowRuntime

if TYPE_CHECKING:
    from atomic.workflows.definition import WorkflowStateParams

_LEASE_SKEW = 5.0  # seconds between the renewals of two leases of one process, at most
_MODES = ("live", "debug", "values", "events", "result")


class Order(msgspec.Struct, frozen=True, eq=False):
    """What is to be run."""

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
    """A workflow without a graph: the prompt goes to one turn."""

    def prompt_of(state: ChatState) -> str:
        return state.prompt

    chat: Node[ChatState, WorkflowRuntime] = agent_node("chat", prompt_of)
    return graph(ChatState).then(chat).compile(name=name)


class Work:
    """The work of a run, in a task of its own."""

    def __init__(self, order: Order, runtime: Runtime, session: Session) -> None:
        self._order, self._host, self._session = order, runtime, session
        self._graph: CompiledGraph[Any] = order.loaded.graph or chat_graph(order.definition.name)
        self._own = OwnChanges(session, runtime.trust_after)
        described = order.definition.node_descriptions
        facts = Facts(session.dir, session.redactor)
        self._tasks = KeptTasks(session.dir, facts, CleanTasks(session.dir, session.redactor))
        self.report = Report(session, self._graph, described, lambda: self.governor.spent, self._own, self._tasks)
        self._stopped: Stop | None = None
        self._told_copies: set[str] = set()  # copies of facts that the user knows to have been changed
        self._streaming: asyncio.Task[RunResult[Any]] | None = None
        self._damage = ""  # what to say of a journal that another program has damaged
        self._last: Any = None  # the state, once the run is over
        self._is_ours = not order.resume  # else it may be another's until the journal says so
        owner = this_owner()
        self._me = f"{owner.pid}|{owner.mark}"  # what others write on a message for this process
        self.governor = self._make_governor()
        self._config = self._config_now()
        self.runtime = LiveRuntime(
            runtime, self.report, self.governor, session, config=self._config, facts=facts, tasks=self._tasks
        )
        self._task = asyncio.create_task(self._run(), name=f"run-{session.id}")

    def _make_governor(self) -> Governor:
        host, session = self._host, self._session
        governor = Governor(host.caps, on_limit=host.on_limit, run=session.id, tell=self.report.warn, clock=host.clock)
        governor.parked_until = session.record.parked_until
        return governor

    # the host's side -------------------------------------------------------------------------------------------

    async def next_event(self) -> WorkflowEvent | None:
        event = await self.report.news.get()
        if event is None:
            await self._task  # what could not be told as an event is raised here
        return event

    def stop(self, stop: Stop) -> None:
        self._stopped = stop if self._stopped is None or stop is Stop.CANCEL else self._stopped
        if self._streaming is not None:
            self._streaming.cancel()

    async def over(self) -> None:
        await asyncio.wait({self._task})

    # the run ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            if self._order.resume and await asyncio.to_thread(self._is_over):
                self._repeat_end()
            else:
                await self._execute()
        finally:
            self.report.news.close()

    def _is_over(self) -> bool:
        """Whether nothing is left to do: `session.json` says so, and the journal does not contradict it."""
        from atomic.graph.past import Past

        session = self._session
        if session.record.status not in SAVED_END:
            return False
        if not session.journal_path.is_file():  # to open it would make one
            return True
        try:
            journal = session.journal()
            try:
                ended = Past(journal.history(session.id)).ended
            finally:
                journal.close()
        except (JournalError, RunNotFoundError):  # without a journal the file is all that is known
            return True
        is_over = ended is not None and ended.status == RunStatus.COMPLETED
        session.is_copy_changed = session.is_copy_changed or not is_over
        return is_over

    def _repeat_end(self) -> None:
        """A completed run: it says so, and runs nothing; its log stays as it is."""
        self.report.is_logging = False
        record = self._session.record
        self.report.tell(
            RunStarted, workflow=record.workflow, prompt=record.prompt, session_dir=self._dir, resumed=True
        )
        ended = Ending(str(record.status), "done", "it is completed already: nothing is left to do", 0)
        self.report.tell(RunEnded, **msgspec.to_builtins(ended))

    async def _execute(self) -> None:
        ending: Ending | None = None
        journal: Journal | None = None
        try:
            if self._order.resume:
                self._session.require_journal()
            journal = await asyncio.to_thread(self._session.journal)  # it is made on a disk that may be busy
            ending = await self._to_end(journal, await self._opened(journal))
        except RunOwnedError as error:
            if not self._is_ours:
                raise
            self.report.tell(RunEnded, status="failed", reason="error", message=str(error), exit_code=3)
        except Exception as error:  # whatever it was, the host hears RunEnded and the session says why
            if not self._is_ours:
                raise
            self._session.logs.error("the run failed", error)
            ending = Ending("failed", "error", _words_of(error), 1, f"atomic resume {self._session.id}")
        finally:
            try:
                await self._release(journal, ending)
            finally:  # whatever could not be released, the report is written and the host hears RunEnded
                try:
                    if ending is not None:
                        await self._end(ending)
                finally:
                    self._session.logs.close()

    async def _release(self, journal: Journal | None, ending: Ending | None) -> None:
        """Close what the run used, the journal last."""
        has_ended = ending is not None
        try:
            self._own.close()
            await self.runtime.close()
            if journal is not None:
                self._last = self._last_state(journal) if has_ended else None
                with suppress(JournalError, RunOwnedError):  # it may be what has failed: the end is told all the same
                    if ending is not None and ending.status == SessionStatus.CANCELLED:
                        keep_cancelled(self.runtime.facts)
                    self.governor.stop()
                    if has_ended:
                        self.report.keep_tasks()
                    await self._restore_copies()
                self._damage = await asyncio.to_thread(self._find_damage) if has_ended else ""
        finally:
            if journal is not None:
                await asyncio.to_thread(journal.close)

    def _find_damage(self) -> str:
        """Return what to say of facts that another program has damaged while the run was at work, or nothing."""
        try:
            self.runtime.facts.check_rows()
        except FactsLostError as error:
            return str(error)
        except (JournalError, RunNotFoundError):
            path = self._session.journal_path
            return (
                f"The journal {path} was changed or damaged while the run went on, so its checks, its caps and the list"
                " of your uncommitted files cannot be trusted later, and the run cannot continue. Look at the work"
                " before you keep it; copies of your files were not deleted"
            )
        return ""

    async def _opened(self, journal: Journal) -> AsyncIterator[StreamEvent]:
        """The stream of the graph; from here on the run is ours. Raises RunOwnedError before anything is changed."""
        order, session = self._order, self._session
        stream = self._resumed(journal, self._given_answers(journal)) if order.resume else None
        if order.resume and stream is None:
            self._check_not_begun(journal)
        self._is_ours = True
        await self._open_facts(journal)
        self.report.open_tasks()
        session.inbox.orders(self._me)  # what was meant for the owner before us
        started: dict[str, Any] = {
            "config": self._config,
            "state_version": order.definition.state_version,
            "options": {**self._host.options(order.model), "given": sorted(self._given())},
        }
        keep_started(self.runtime.facts, msgspec.structs.replace(session.record, **started))
        if session.is_copy_changed:
            self.runtime.facts.note_changed(SESSION_COPY)
        await asyncio.to_thread(
            session.save, status=SessionStatus.RUNNING, reason="", ended_at=None, owner=this_owner(), questions=(),
            begun=True, atomic_version=__version__, **started,
        )  # fmt: skip
        self.report.tell(
            RunStarted, workflow=order.definition.name, prompt=order.prompt, session_dir=self._dir, resumed=order.resume
        )
        recovered = getattr(journal, "recovered", None)
        if recovery := session.recovery or (recovered.message if recovered is not None else ""):
            self.report.warn(recovery)
        await self._restore_copies()
        if stream is None:
            deps, id = self.runtime, session.id
            given = self._first_state()
            stream = self._graph.stream(
                given, modes=_MODES, deps=deps, journal=journal, execution_id=id, model=order.model
            )
        return stream

    async def _open_facts(self, journal: Journal) -> None:
        """Own what the run keeps in its journal. Its lease may outlive that of the run itself by a moment."""
        give_up = time.monotonic() + _LEASE_SKEW
        while True:
            try:
                self.runtime.facts.open(journal, self._session.id)
                break
            except RunOwnedError:
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(POLL_SECONDS)
        self._told_copies = set(self.runtime.facts.get(CHANGED_COPIES, ()))
        cost = self._session.record.cost  # a run of an older version has it nowhere else
        unpriced = cost.input_tokens + cost.output_tokens if cost.usd is None else 0
        before = Amount(cost.usd or 0.0, cost.input_tokens, cost.output_tokens, unpriced)
        self.governor.open(self.runtime.facts, before=before)

    async def _restore_copies(self) -> None:
        """Write copies for people again that are not as the journal has them, and say so once."""
        await self._compare_calls()
        self._tasks.restore_copy()
        changed = [name for name in self.runtime.facts.restore_copies() if name not in self._told_copies]
        if changed:
            self._told_copies.update(changed)
            unwritten = [name for name in changed if self.runtime.facts.is_unwritten(name)]
            written = "the copy was" if len(changed) == 1 else "the copies were"
            outcome = f"{' and '.join(unwritten)} cannot be written again" if unwritten else f"{written} written again"
            self.report.warn(
                f"Another program changed {' and '.join(changed)} in {self._dir}. "
                f"Only the journal counts, so the run is not affected; {outcome}."
            )

    async def _compare_calls(self) -> None:
        """Say once that the log of calls tells other figures than the journal."""
        facts = self.runtime.facts
        if CALLS in self._told_copies:
            return
        if not await asyncio.to_thread(is_copy_changed, dict(facts), self._session.dir):
            return
        self._told_copies.add(CALLS)
        facts.set(CHANGED_COPIES, sorted({*facts.get(CHANGED_COPIES, ()), CALLS}))
        self.report.warn(
            f"{CALLS} in {self._dir} tells other figures than the journal: another program changed it, or the machine"
            " lost power. Only the journal counts, so the caps are not affected."
        )

    def _resumed(self, journal: Journal, answers: Mapping[str, Answer]) -> AsyncIterator[StreamEvent] | None:
        """The stream that goes on; None if the run was cut before it began."""
        try:
            stream = self._graph.resume_stream(
                journal, self._session.id, answers=answers, modes=_MODES, deps=self.runtime, model=self._order.model
            )
        except RunNotFoundError:
            return None
        self._session.inbox.forget(answers)
        return stream

    def _check_not_begun(self, journal: Journal) -> None:
        """Raise JournalLostError where a run that the journal does not know has begun: no work is done twice."""
        facts, path = find_facts(journal, self._session.id), self._session.journal_path
        if facts is None and self._session.record.begun:
            raise JournalLostError(self._session.id, f"its journal {path} was replaced by one without this run")
        if facts is not None and next(iter(read_calls(facts)), None) is not None:
            raise JournalLostError(self._session.id, f"its journal {path} was damaged and has lost this run")

    def _given_answers(self, journal: Journal) -> dict[str, Answer]:
        """What was answered meanwhile, by the caller or in the inbox, to questions that are open."""
        from atomic.graph.edits import current_names
        from atomic.graph.past import Past

        try:
            past = Past(journal.history(self._session.id), current_names(self._graph.program))
        except RunNotFoundError:
            return {}
        # An answer may name its question by the id that a node had before it was renamed.
        given = {past.current_id(id): answer for id, answer in self._session.inbox.answers().items()}
        waiting = {id: answer for id, answer in given.items() if id in past.asked}
        return {**waiting, **self._order.answers}

    def _first_state(self) -> Any:
        order, session = self._order, self._session
        if order.loaded.graph is None:
            return {"prompt": order.prompt}
        from atomic.workflows.definition import WorkflowStateParams

        params: WorkflowStateParams = WorkflowStateParams(
            prompt=order.prompt,
            session_id=session.id,
            session_dir=self._dir,
            cwd=os.fspath(self._host.folder),
            project=os.fspath(self._host.project),
            given=self._given(),
            max_iterations=order.loaded.iteration_limit(order.max_iterations, self._config),
            config=self._config,
        )
        return order.loaded.create_state(params)

    def _given(self) -> dict[str, Any]:
        """What of the config was said by flags: also of a run that was killed before it had a state."""
        names = {*self._session.record.options.get("given", ()), *(self._order.config or {})}
        return {name: value for name, value in self._config.items() if name in names}

    def _config_now(self) -> dict[str, Any]:
        """What the run began with, or would; what the caller says now goes over it."""
        order = self._order
        definition, settings = order.definition, self._host.settings.workflows
        begun = self._session.record.config if order.resume else definition.config(settings)
        return {**begun, **(order.config or {})}

    async def _to_end(self, journal: Journal, stream: AsyncIterator[StreamEvent]) -> Ending:
        watching = asyncio.create_task(self._watch_inbox())
        self._streaming = asyncio.create_task(self._walk(journal, stream))
        if self._stopped is not None:
            self._streaming.cancel()
        try:
            await asyncio.wait({self._streaming})
        finally:
            watching.cancel()
            await asyncio.wait({watching})
            if not self._streaming.done():  # the task of the run itself was cancelled
                self._streaming.cancel()
                await asyncio.wait({self._streaming})
        if self._streaming.cancelled():
            return ending_of(None, self._stopped or Stop.INTERRUPT, self._session.id)
        return self._ended(self._streaming.result())

    def _ended(self, result: RunResult[Any]) -> Ending:
        if result.status is RunStatus.PAUSED:
            self.report.keep_questions({question.id for question in result.questions})
        self._warn_of_unused_roles(result)
        ending = ending_of(result, None, self._session.id)
        if result.status is RunStatus.FAILED and isinstance(result.error, NodeError):
            self._session.logs.error(str(result.error), result.error.__cause__)
        if self._order.loaded.graph is None and result.status is RunStatus.COMPLETED:
            return msgspec.structs.replace(ending, status="chat")
        return ending

    async def _walk(self, journal: Journal, stream: AsyncIterator[StreamEvent]) -> RunResult[Any]:
        """Stream the graph; where it ends with questions that somebody has answered meanwhile, go on."""
        while True:
            result = await self._told(stream)
            if result.status is not RunStatus.PAUSED or not result.questions:
                return result
            asked, waiting = {question.id for question in result.questions}, self._session.inbox.answers()
            answers = {id: answer for id, answer in waiting.items() if id in asked}
            more = self._resumed(journal, answers) if answers else None
            if more is None:
                return result
            for id in answers:
                self.report.close_question(id)
            stream = more

    async def _told(self, stream: AsyncIterator[StreamEvent]) -> RunResult[Any]:
        result: RunResult[Any] | None = None
        async for news in stream:
            match news.mode:
                case "live":
                    self.report.hear_live(news.node_id, news.data)
                case "debug":
                    self.report.hear_step(news.node_id, news.data)
                case "values":
                    self.report.hear_state(news.data)
                case "events" if news.data.type == "progress":
                    self.report.progress(news.data.data)
                case "events" if news.data.type == "warning":
                    self.report.warn_of(news.node_id, news.data.data)
                case "result":
                    result = news.data
                case _:
                    pass
        assert result is not None
        return result

    async def _watch_inbox(self) -> None:
        inbox, taken = self._session.inbox, set[str]()
        while True:
            if orders := inbox.orders(self._me):
                self.stop(Stop.CANCEL if "cancel" in orders else Stop.INTERRUPT)
            if taken:  # by now the journal has them
                inbox.forget(taken)
            if self.runtime.broker is not None:
                taken = self.runtime.broker.deliver(inbox.answers())
            await asyncio.sleep(POLL_SECONDS)

    # the end ---------------------------------------------------------------------------------------------------

    async def _end(self, ending: Ending) -> None:
        self.report.end_nodes()
        if self._damage and ending.status == "completed":
            ending = Ending("failed", "error", self._damage, 1)
        elif self._damage:
            self.report.warn(self._damage)
        over, trust = ending.status != "paused", self._own.now()
        questions = tuple(self.report.questions.values()) if ending.status in ("paused", "blocked", "failed") else ()
        with suppress(OSError):
            await asyncio.to_thread(
                self._session.save, status=SessionStatus(ending.status), reason=ending.reason,
                ended_at=now() if over else None, owner=None, questions=questions, trust=trust,
                parked_until=self.governor.parked_until, cost=self.report.cost(),
            )  # fmt: skip
        if not questions:
            self._session.inbox.forget()
        note = self._call_at_end(ending)
        message = ending.message or note.message
        ending = msgspec.structs.replace(ending, message=message, verified=note.verified)
        self.report.tell(RunEnded, **msgspec.to_builtins(ending))

    def _last_state(self, journal: Journal) -> Any:
        """The state that the journal holds, for whoever wants to look at it; None if there is none."""
        if self._order.loaded.at_end is None:
            return None
        try:
            return self._graph.load(journal, self._session.id)
        except RunNotFoundError:  # it was cut before it began
            return None
        except Exception as error:  # the journal may be what has failed; the end of the run is told all the same
            self._session.logs.error("the last state cannot be read", error)
            return None

    def _call_at_end(self, ending: Ending) -> EndNote:
        if (at_end := self._order.loaded.at_end) is None:
            return EndNote()
        end = RunEnd(
            session_dir=self._dir, status=ending.status, reason=ending.reason,
            message=ending.message, plain=ending.plain,
            save=self._session.write, state=self._last, facts=self.runtime.facts,
        )  # fmt: skip
        try:
            said: object = at_end(end)  # a user's function may return anything
            if isinstance(said, EndNote):
                return said
            return EndNote(said) if isinstance(said, str) else EndNote()
        except (Exception, SystemExit) as error:  # a user's function may raise anything; the run has ended all the same
            self._session.logs.error("at_end failed", error)
            self.report.warn(f"at_end of {self._order.definition.name} failed: {_words_of(error)}")
            return EndNote()

    def _warn_of_unused_roles(self, result: RunResult[Any]) -> None:
        if result.status is not RunStatus.COMPLETED:
            return
        choices = self._host.choices
        for flag, chosen in (("--agent", choices.agents), ("--model", choices.models)):
            for role in chosen:
                if role and role not in self.runtime.roles:
                    self.report.warn(f"{flag} {role}={chosen[role]} had no effect: no agent was called as {role}")

    @property
    def _dir(self) -> str:
        return os.fspath(Path(self._session.dir))


def _words_of(error: BaseException) -> str:
    return str(error) if isinstance(error, AtomicError | OSError | JournalError) else f"{type(error).__name__}: {error}"
