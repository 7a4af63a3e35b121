"""Plain async workflows: `@workflow`, `@step`, and the `Flow` that a workflow gets.

    @step(retry=Retry(attempts=3))
    async def charge(amount: int) -> Receipt: ...

    @workflow
    async def pay(flow: Flow, amount: int) -> Receipt:
        receipt = await charge(amount)
        await flow.sleep(hours=1)
        return receipt

    result = await pay.run(5, journal="runs.db")

Outside of a workflow a step is a plain function. Inside, each call of it is recorded,
and a resume returns the recorded result instead of running it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from inspect import Signature, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.lazy_types import deferred
from atomic.graph import State
from atomic.graph.engine.context import StepContext
from atomic.graph.engine.control import Blocked, Duration, Failed, RetryLike
from atomic.graph.engine.errors import WorkflowEndedError
from atomic.graph.engine.function import FunctionWorkflow
from atomic.graph.engine.function_state import FlowState, FunctionScope, FunctionState
from atomic.graph.engine.function_step import CURRENT, StateUpdate, StepPolicy, Work, report_event
from atomic.graph.engine.function_values import ResultType
from atomic.graph.engine.nodes import checked
from atomic.graph.engine.run_deps import find_workflow
from atomic.graph.engine.sent_signals import check_name
from atomic.graph.engine.state import StateSpec
from atomic.questions import Option, Question
from atomic.workflows.agent_turns import run_entity, run_subagent, run_turn
from atomic.workflows.errors import SubagentError, TurnCutError, TurnFailedError
from atomic.workflows.runtime import IsolatedResult, SubagentRequest
from atomic.workflows.steps import StepFunction, checked_name, read_retry, read_timeout, refuse_in_step, step

if TYPE_CHECKING:
    from atomic.processes import ExecResult
    from atomic.workspaces import Work as IsolatedWork
else:
    ExecResult = deferred("atomic.processes", "ExecResult")
    IsolatedWork = deferred("atomic.workspaces", "Work")

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
_TEXT = ResultType(str, "")


@overload
def workflow(
    function: Callable[Concatenate[Flow, P], Awaitable[ResultT | Failed | Blocked]], /
) -> FunctionWorkflow[P, ResultT]: ...


@overload
def workflow(
    *, name: str = "", description: str = "", state: type[State] = FlowState, model: str | None = None
) -> Callable[
    [Callable[Concatenate[Flow, P], Awaitable[ResultT | Failed | Blocked]]], FunctionWorkflow[P, ResultT]
]: ...


def workflow(function: Any = None, /, **options: Any) -> Any:
    """Make a workflow of an async function whose first parameter is a `Flow`.

    By default it has the function's name, and its description is the first line of the
    docstring. Raises AtomicError.
    """
    if function is None:
        return partial(_workflow_of, options)
    return _workflow_of(options, function)


def _workflow_of(options: Mapping[str, Any], function: Any) -> FunctionWorkflow[Any, Any]:
    name = getattr(function, "__name__", repr(function))
    if not iscoroutinefunction(function):
        raise AtomicError(f"@workflow: {name} is not async; write: async def {name}(flow: Flow, …)")
    if not Signature.from_callable(function).parameters:
        raise AtomicError(f"@workflow: {name} takes no parameter; the first one is the flow: {name}(flow: Flow, …)")
    return FunctionWorkflow(function, Flow, **options)


class Flow:
    """The operations of a workflow function besides calls of its steps.

    Everything that returns something from outside is a recorded step.
    """

    def __init__(self, scope: FunctionScope) -> None:
        self._scope = scope

    @property
    def state(self) -> Any:
        """Return the state: what `update` has set, and the last result of each step in
        `outputs`.
        """
        return self._scope.state.state

    @property
    def execution_id(self) -> str:
        return self._scope.run.run.execution_id

    @property
    def is_replaying(self) -> bool:
        """Return whether the function is still where it was before a resume."""
        return self._scope.run.replay is not None

    # Agents.

    @overload
    async def agent(
        self, name: str, prompt: str, *, returns: type[ResultT], agent: str | None = None,
        provider: str | None = None, model: str | None = None, session: str | None = None,
        tools: Sequence[str] | None = None, retry: RetryLike | None = None, timeout: Duration | None = None,
    ) -> ResultT: ...  # fmt: skip

    @overload
    async def agent(
        self, name: str, prompt: str, *, returns: None = None, agent: str | None = None,
        provider: str | None = None, model: str | None = None, session: str | None = None,
        tools: Sequence[str] | None = None, retry: RetryLike | None = None, timeout: Duration | None = None,
    ) -> str: ...  # fmt: skip

    async def agent(
        self,
        name: str,
        prompt: str,
        *,
        returns: Any = None,
        agent: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        session: str | None = None,
        tools: Sequence[str] | None = None,
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Run one turn of an agent in a new session, or in the named one.

        `name` is the name of the step, and the role for `--agent` and `--model`. With
        `agent` the turn has the prompt, model and tools of that sub-agent. With `returns`
        the answer is JSON, and is returned as that type.
        """

        async def work(ctx: StepContext) -> Any:
            return await run_turn(
                ctx, prompt, returns, agent=agent, provider=provider, model=model, session=session, tools=tools
            )

        given = [prompt, *_named(agent=agent, provider=provider, model=model, session=session, tools=tools)]
        return await self._call(name, given, work, _TEXT if returns is None else returns, retry, timeout)

    @overload
    async def subagent(
        self, agent: str, task: str, *, name: str = "", returns: type[ResultT], system_prompt: str | None = None,
        model: str | None = None, tools: Sequence[str] | None = None, retry: RetryLike | None = None,
        timeout: Duration | None = None,
    ) -> ResultT: ...  # fmt: skip

    @overload
    async def subagent(
        self, agent: str, task: str, *, name: str = "", returns: None = None, system_prompt: str | None = None,
        model: str | None = None, tools: Sequence[str] | None = None, retry: RetryLike | None = None,
        timeout: Duration | None = None,
    ) -> str: ...  # fmt: skip

    async def subagent(
        self,
        agent: str,
        task: str,
        *,
        name: str = "",
        returns: Any = None,
        system_prompt: str | None = None,
        model: str | None = None,
        tools: Sequence[str] | None = None,
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Run a sub-agent, and return its answer. Raises SubagentError if it fails."""

        async def work(ctx: StepContext) -> Any:
            request = SubagentRequest(
                agent, task, id=ctx.step_id, model=model, tools=tools, schema=returns, system_prompt=system_prompt
            )
            return await run_subagent(ctx, request)

        given = [agent, task, *_named(system_prompt=system_prompt, model=model, tools=tools)]
        return await self._call(name or agent, given, work, _TEXT if returns is None else returns, retry, timeout)

    async def isolated(
        self,
        agent: str,
        task: str,
        *,
        name: str = "",
        returns: Any = None,
        continues: IsolatedWork | None = None,
        model: str | None = None,
        tools: Sequence[str] | None = None,
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
    ) -> IsolatedResult:
        """Run a sub-agent in a workspace of its own, and return its answer and its work.

        `continues` is the work of another one, with which the workspace begins. With
        `returns` the answer is JSON of that type, in `value`. `merge` of
        `current_step().deps` puts the work on the run's branch. Raises SubagentError.
        """

        async def work(ctx: StepContext) -> IsolatedResult:
            request = SubagentRequest(
                agent, task, id=ctx.step_id, model=model, tools=tools, schema=returns, isolate=continues or True
            )
            return await run_subagent(ctx, request)

        given = [agent, task, *_named(model=model, tools=tools, continues=continues)]
        result = await self._call(name or agent, given, work, IsolatedResult, retry, timeout)
        if returns is None:
            return result
        return msgspec.structs.replace(result, value=checked(result.value, returns, "value"))

    async def skill(self, skill: str, args: str = "", *, name: str = "", session: str | None = None) -> str:
        """Run a skill's prompt in a new session, or in the named one."""
        return await self._entity("skill", skill, args, name, session)

    async def command(self, command: str, args: str = "", *, name: str = "", session: str | None = None) -> str:
        """Run a command's prompt in a new session, or in the named one."""
        return await self._entity("command", command, args, name, session)

    async def _entity(self, kind: Any, entity_name: str, args: str, name: str, session: str | None) -> str:
        async def work(ctx: StepContext) -> str:
            return await run_entity(ctx, kind, entity_name, args, session)

        given = [entity_name, args, *_named(session=session)]
        return await self._call(name or f"{kind}-{entity_name.replace(':', '-')}", given, work, _TEXT)

    # Programs, people, time and other workflows.

    async def exec(
        self,
        *argv: str,
        name: str = "",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: Duration | None = None,
        retry: RetryLike | None = None,
    ) -> ExecResult:
        """Run a program in its own process group, and return its output and exit code."""
        if not argv:
            raise AtomicError('flow.exec needs a program: flow.exec("git", "status")')
        from atomic.processes import ExecResult

        async def work(ctx: StepContext) -> ExecResult:
            return await ctx.exec(*argv, cwd=cwd, env=env, input=input)

        given = [list(argv), *_named(cwd=cwd, env=None if env is None else dict(env), input=input)]
        program = argv[0].rpartition("/")[2] or "exec"
        return await self._call(name or program, given, work, ExecResult, retry, timeout)

    @overload
    async def ask(self, question: Question) -> Any: ...

    @overload
    async def ask(
        self, question: str, *, id: str = "", options: Sequence[Option | str] = (), default: str | None = None,
        header: str = "", multi_select: Literal[False] = False,
    ) -> str: ...  # fmt: skip

    @overload
    async def ask(
        self, question: str, *, id: str = "", options: Sequence[Option | str] = (), default: str | None = None,
        header: str = "", multi_select: Literal[True],
    ) -> list[str]: ...  # fmt: skip

    @overload
    async def ask(
        self, question: str, *, id: str = "", default: str | None = None, header: str = "", returns: type[ResultT]
    ) -> ResultT: ...

    async def ask(
        self,
        question: Question | str,
        *,
        id: str = "",
        options: Sequence[Option | str] = (),
        default: str | None = None,
        header: str = "",
        multi_select: bool = False,
        returns: Any = None,
    ) -> Any:
        """Ask the user. The answer is a text, a list of texts with `multi_select`, or a
        value of the type `returns`, given as JSON or plain data.

        Without a host that can answer, the run pauses.
        """
        if isinstance(question, str):
            question = Question(
                question, options=options, default=default, header=header, multi_select=multi_select, id=id,
                returns=returns,
            )  # fmt: skip
        elif not isinstance(cast("object", question), Question):
            raise AtomicError(f'flow.ask takes a text or a Question, not {question!r:.60}: flow.ask("Deploy?")')
        elif options or default is not None or header or multi_select or id or returns is not None:
            raise AtomicError("flow.ask takes a Question, or a text with options: not both")
        asked = question
        if not asked.text.strip():
            raise AtomicError('flow.ask: the text of the question is empty; give one: flow.ask("Deploy?")')

        async def work(ctx: StepContext) -> Any:
            named = asked if asked.id else msgspec.structs.replace(asked, id=f"{ctx.node_id}-{ctx.n}")
            return await ctx.ask(named)

        given = [msgspec.to_builtins(asked.described())]
        return await self._call(asked.id or "ask", given, work, Any if asked.returns is None else asked.returns)

    async def wait(self, prompt: str, *, id: str = "wait") -> str:
        """Pause until the user answers, and return the answer."""
        if not isinstance(cast("object", prompt), str) or not prompt.strip():
            raise AtomicError(
                f'flow.wait takes a text for the user, not {prompt!r:.60}: flow.wait("Look at the draft")'
            )

        async def work(ctx: StepContext) -> Any:
            return await ctx.ask(Question(prompt, id=ctx.node_id if ctx.n == 1 else f"{ctx.node_id}-{ctx.n}"))

        return await self._call(id, [prompt], work, _TEXT)

    @overload
    async def signal(self, name: str, *, timeout: Duration | None = None) -> Any: ...

    @overload
    async def signal(self, name: str, *, timeout: Duration | None = None, returns: type[ResultT]) -> ResultT: ...

    async def signal(self, name: str, *, timeout: Duration | None = None, returns: Any = Any) -> Any:
        """Wait for a signal of that name, and return its data.

        `journal.signal(id, name, data)` or `atomic signal` sends it, before the workflow
        waits or after. Without a host the run pauses until then. Raises TimeoutError.
        """

        async def work(ctx: StepContext) -> Any:
            return await ctx.wait_for(name, timeout=timeout, returns=returns)

        given = [name] if timeout is None else [name, str(timeout)]
        # A name of a signal may have signs that separate the parts of a step's name.
        shown = check_name(name).replace("/", "-").replace("#", "-")
        return await self._call(f"signal-{shown}", given, work, returns)

    async def sleep(
        self,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> None:
        """Sleep for a duration. A resume sleeps only for the rest of it."""
        amounts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}

        async def work(ctx: StepContext) -> None:
            await ctx.sleep(**amounts)

        await self._call("sleep", _named(**amounts), work, type(None))

    async def sleep_until(self, when: datetime) -> None:
        """Sleep until a time, which must have a time zone."""

        async def work(ctx: StepContext) -> None:
            await ctx.sleep_until(when)

        await self._call("sleep", [when], work, type(None))

    @overload
    async def run(self, workflow: FunctionWorkflow[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT: ...

    @overload
    async def run(self, workflow: str, *args: Any, **kwargs: Any) -> Any: ...

    async def run(self, workflow: Any, *args: Any, **kwargs: Any) -> Any:
        """Run another workflow function as a part of this one, and return its result.

        It is given itself, or by the name of its file. Its steps belong to the same run.
        Raises WorkflowEndedError if it ends with `Failed` or `Blocked`.
        """
        if not isinstance(workflow, str | FunctionWorkflow):
            raise AtomicError(f"flow.run takes a workflow function or the name of one, not {workflow!r:.60}")
        workflow = cast("str | FunctionWorkflow[..., Any]", workflow)
        refuse_in_step(f"flow.run({workflow if isinstance(workflow, str) else workflow.name})")
        called = self._find_workflow(workflow) if isinstance(workflow, str) else workflow
        return await self._run(called, args, kwargs)

    async def _run(self, workflow: FunctionWorkflow[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        outer = self._scope
        if workflow.name in outer.names:
            circle = " -> ".join([*outer.names, workflow.name])
            raise AtomicError(f"workflows call each other in a circle: {circle}")
        given = workflow.parameters.convert(workflow.parameters.bind(args, kwargs))
        spec = StateSpec(workflow.state_type)
        first = {"input": given} if "input" in workflow.state_type.__struct_fields__ else {}
        state = FunctionState(spec, spec.start(first, self.execution_id))
        scope = FunctionScope(outer.run, f"{outer.prefix}{workflow.name}/", state, (*outer.names, workflow.name))
        args_, kwargs_ = workflow.parameters.call_with(given)
        variable = CURRENT.set(scope)
        try:
            value: Any = await workflow.function(Flow(scope), *args_, **kwargs_)
        finally:
            CURRENT.reset(variable)
        if isinstance(value, Failed | Blocked):
            status = "failed" if isinstance(value, Failed) else "blocked"
            raise WorkflowEndedError(workflow.name, status, value.reason, value.value)
        return workflow.parameters.result.convert(value)[0]

    def _find_workflow(self, name: str) -> FunctionWorkflow[..., Any]:
        """Return the workflow function of that name. Raise AtomicError."""
        found = find_workflow(self._scope.run.run.deps, name)
        if not isinstance(found, FunctionWorkflow):
            raise AtomicError(f'workflow "{name}" is a graph: call it in a step, with current_step().run("{name}")')
        return cast("FunctionWorkflow[..., Any]", found)

    async def map(
        self,
        function: Callable[[ItemT], Awaitable[ResultT]],
        items: Iterable[ItemT],
        *,
        max_concurrency: int = 4,
    ) -> list[ResultT]:
        """Call an async function for each item, and return the results in their order.

        At most `max_concurrency` run at the same time; 0 means no limit. If one fails, the
        others are cancelled.
        """
        if max_concurrency < 0:
            raise AtomicError(f"flow.map: max_concurrency is {max_concurrency}; give 0 (no limit) or more")
        try:
            left = iter(items)
        except TypeError as error:
            raise AtomicError(f"flow.map takes an async function and a list of items, not {items!r:.60}") from error
        waiting = list(left)
        numbered = iter(enumerate(waiting))
        results: dict[int, ResultT] = {}

        async def work() -> None:
            for index, item in numbered:
                results[index] = await function(item)

        workers = [asyncio.create_task(work()) for _ in range(min(max_concurrency or len(waiting), len(waiting)))]
        if not workers:
            return []
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            unfinished = [worker for worker in workers if not worker.done()]
            for worker in unfinished:
                worker.cancel()
            if unfinished:
                await asyncio.wait(unfinished)
        failures = [error for worker in workers if not worker.cancelled() and (error := worker.exception()) is not None]
        if failures:
            raise failures[0]
        if any(worker.cancelled() for worker in workers):  # the run has ended them
            raise asyncio.CancelledError
        return [results[index] for index in range(len(waiting))]

    # What has no result from outside.

    def emit(self, type: str, data: Any = None) -> None:
        """Send an event to the host. A resume does not send it again."""
        if not isinstance(cast("object", type), str):
            raise AtomicError(f"flow.emit takes the type of an event, a text, and its data, not {type!r:.60}")
        report_event(self._scope, type, data)

    async def update(self, **fields: Any) -> None:
        """Change fields of the state, through their reducers."""
        changed = self._scope.state.convert(fields)

        async def work(ctx: StepContext) -> StateUpdate:
            return StateUpdate(changed)

        await self._call("update", [fields], work, Any)

    def patched(self, id: str) -> bool:
        """Return whether this run takes the new code path.

        False for a run that was already past this place before the change, True for
        others; the run remembers it.
        """
        refuse_in_step(f'flow.patched("{id}")')
        policy = StepPolicy(id, ResultType(bool, id))
        return self._scope.run.calls.patched(self._scope, checked_name(f"patched:{id}"), policy)

    def compensate(self, function: Callable[P, Awaitable[Any]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call an async function if the run fails, returns `Failed` or is cancelled for
        good. Later ones are called first, each as a step.
        """
        refuse_in_step("flow.compensate")
        if not (isinstance(function, StepFunction) or iscoroutinefunction(function)):
            name = getattr(function, "__name__", repr(function))
            raise AtomicError(f"flow.compensate: {name} is not async; write: async def {name}(…)")
        made = cast("StepFunction[P, Any]", function if isinstance(function, StepFunction) else step(function))
        scope = self._scope

        async def compensation() -> None:
            variable = CURRENT.set(scope)
            try:
                await made(*args, **kwargs)
            finally:
                CURRENT.reset(variable)

        scope.run.compensations.append((made.name, compensation))

    async def _call(
        self,
        name: str,
        given: Sequence[Any],
        work: Work,
        returns: Any,
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        refuse_in_step(name)
        name = checked_name(name)
        result = returns if isinstance(returns, ResultType) else ResultType(returns, name)
        options = StepPolicy(name, result, read_retry(name, retry), read_timeout(name, timeout), _ERRORS)
        return await self._scope.run.calls.call(self._scope, f"{self._scope.prefix}{name}", given, work, options)


# The exceptions of Atomic that a replay raises again; others become a StepError.
_ERRORS: Mapping[str, Any] = {one.__name__: one for one in (AtomicError, SubagentError, TurnCutError, TurnFailedError)}


def _named(**given: Any) -> list[Any]:
    """Return the options of a call that were given, as a part of its arguments."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return [chosen] if chosen else []
