"""`at_end` is called at every end of a run: after the session is saved, before RunEnded."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

from atomic.runs.endings import Stop
from atomic.runs.events import NodeStarted, RunEnded, Warning, WorkflowEvent
from atomic.runs.executor import WorkflowRun, run_workflow
from atomic.runs.limits import Caps
from atomic.sessions.store import read_record
from atomic.workflows import (
    CompiledGraph,
    LoadedWorkflow,
    RunEnd,
    RunStatus,
    State,
    Suspend,
    WorkflowDefinition,
    WorkflowStateParams,
    graph,
    reducers,
)
from tests.runs.memory_workflows import all_events, ending, runtime
from tests.support.user import User
from tests.support.user_workflows import call, end, ledger, recording, session, started, workflow
from tests.support.waits import HANG as LIMIT


class S(State):
    prompt: str = ""
    said: Annotated[list[str], reducers.concat] = []


class Listener:
    """Remembers each end, and the status in session.json at that moment."""

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []
        self.saved: list[tuple[str, str]] = []

    def __call__(self, end: RunEnd) -> None:
        self.ends.append(end)
        record = read_record(Path(end.session_dir))
        assert record.owner is None
        self.saved.append((str(record.status), record.reason))


def heard_by(
    at_end: Callable[[RunEnd], None],
    made: CompiledGraph[Any] | None,
    create_state: Callable[[WorkflowStateParams], Any] = lambda params: {"prompt": params.prompt},
) -> WorkflowDefinition:
    loaded = LoadedWorkflow(graph=made, create_state=create_state, at_end=at_end)
    return WorkflowDefinition(name="flow", loader=lambda _: loaded)


async def first(ctx: Any) -> dict[str, Any]:
    return {"said": ["one"]}


async def forever(ctx: Any) -> None:
    await asyncio.sleep(600)


async def broken(ctx: Any) -> None:
    raise ValueError("no way")


async def stuck(ctx: Any) -> None:
    raise Suspend("the same error three times", status=RunStatus.BLOCKED, code="stuck")


async def calls(ctx: Any) -> dict[str, Any]:
    return {"said": [await ctx.deps.turn("again") for _ in range(3)]}


def check(listener: Listener, events: list[WorkflowEvent], said: list[str] | None) -> RunEnd:
    """Check that it was called once, after the session was saved, with this state."""
    (end,) = listener.ends
    last = ending(events)
    assert (end.status, end.reason, end.message) == (last.status, last.reason, last.message)
    assert listener.saved == [(end.status, end.reason)]
    assert (None if end.state is None else end.state.said) == said
    return end


@pytest.mark.parametrize(
    ("then", "status", "reason"),
    [(None, "completed", "done"), (broken, "failed", "error"), (stuck, "blocked", "stuck")],
    ids=["completed", "failed", "blocked"],
)
async def test_at_end_gets_the_result_of_the_graph(tmp_path: Path, then: Any, status: str, reason: str) -> None:
    listener = Listener()
    made = graph(S).node("first", first)
    made = made if then is None else made.node("then", then)
    run = run_workflow(heard_by(listener, made.compile(name="flow")), "x", runtime(tmp_path))
    heard = check(listener, await all_events(run), ["one"])
    assert (heard.status, heard.reason, heard.session_dir) == (status, reason, str(run.session.dir))


async def test_at_end_is_called_for_a_question_and_again_for_the_end(tmp_path: Path) -> None:
    listener = Listener()
    made = graph(S).node("first", first).ask_user("q", "Well?").node("more", first).compile(name="flow")
    flow = heard_by(listener, made)
    host = runtime(tmp_path)
    run = run_workflow(flow, "x", host)
    assert check(listener, await all_events(run), ["one"]).reason == "question"
    await all_events(run_workflow(flow, "x", host, session=run.session, resume=True, answers={"q": "yes"}))
    assert [(one.status, one.state.said) for one in listener.ends] == [
        ("paused", ["one"]),
        ("completed", ["one", "one"]),
    ]
    await all_events(run_workflow(flow, "x", host, session=host.store.find(run.id), resume=True))
    assert len(listener.ends) == 2  # no work was left


async def test_at_end_is_called_for_a_cap(tmp_path: Path) -> None:
    listener = Listener()
    made = graph(S).node("first", first).node("calls", calls).compile(name="flow")
    costly = call(end("x", usage={"input": 1, "output": 1, "cost": 1.0}))
    host = runtime(tmp_path, *[costly] * 3, caps=Caps(max_cost=1.5))
    events = await all_events(run_workflow(heard_by(listener, made), "x", host))
    assert check(listener, events, ["one"]).reason == "max_cost"


@pytest.mark.parametrize(
    ("stop", "status"),
    [(Stop.INTERRUPT, "paused"), (Stop.TERMINATE, "paused"), (Stop.HANG_UP, "paused"), (Stop.CANCEL, "cancelled")],
)
async def test_at_end_is_called_for_a_stopped_run(tmp_path: Path, stop: Stop, status: str) -> None:
    listener = Listener()
    run = run_workflow(heard_by(listener, slow()), "x", runtime(tmp_path))
    assert check(listener, await stopped(run, stop), ["one"]).status == status


def slow() -> CompiledGraph[Any]:
    return graph(S).node("first", first).node("forever", forever).compile(name="flow")


async def stopped(run: WorkflowRun, stop: Stop) -> list[WorkflowEvent]:
    """Return all events of a run that is stopped in its second node."""
    events: list[WorkflowEvent] = []
    async with asyncio.timeout(LIMIT):
        async for event in run:
            events.append(event)
            if isinstance(event, NodeStarted) and event.node == "forever":
                run.stop(stop)
    return events


async def test_at_end_is_called_when_the_host_has_left(tmp_path: Path) -> None:
    listener = Listener()
    run = run_workflow(heard_by(listener, slow()), "x", runtime(tmp_path))
    async with asyncio.timeout(LIMIT):
        async for event in run:
            if isinstance(event, NodeStarted) and event.node == "forever":
                break
        await run.aclose()
    assert [(one.status, one.reason, one.state.said) for one in listener.ends] == [("paused", "stopped", ["one"])]


async def test_a_run_that_fails_before_its_first_state_has_none(tmp_path: Path) -> None:
    def create_state(params: WorkflowStateParams) -> Any:
        raise ValueError("no state")

    listener = Listener()
    run = run_workflow(heard_by(listener, slow(), create_state), "x", runtime(tmp_path))
    assert "no state" in check(listener, await all_events(run), None).message


async def test_at_end_is_called_without_a_graph_too(tmp_path: Path) -> None:
    listener = Listener()
    events = await all_events(run_workflow(heard_by(listener, None), "hey", runtime(tmp_path, call(end("Hi.")))))
    assert (ending(events).status, listener.saved, listener.ends[0].state.prompt) == ("chat", [("chat", "done")], "hey")


@pytest.mark.parametrize("error", [ValueError("no ink"), SystemExit(3)])
async def test_a_failure_of_at_end_is_a_warning_and_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    def fails(end: RunEnd) -> None:
        raise error

    run = run_workflow(heard_by(fails, graph(S).node("first", first).compile(name="flow")), "x", runtime(tmp_path))
    *_, warning, last = await all_events(run)
    assert isinstance(warning, Warning)
    assert warning.text == f"at_end of flow failed: {type(error).__name__}: {error}"
    assert isinstance(last, RunEnded)
    assert (last.status, last.exit_code, read_record(run.session.dir).status) == ("completed", 0, "completed")
    assert type(error).__name__ in (run.session.dir / "logs" / "errors.log").read_text()


# -- as a file

FILE = """
from pathlib import Path

async def work(ctx):
    note("work")
    await ctx.deps.turn("go")

def at_end(end: RunEnd):
    Path(end.session_dir, "report.md").write_text(f"{end.status} {end.reason} {end.state.prompt}")

workflow = graph(S).node("work", work).compile()
"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


async def test_a_file_leaves_a_report_after_a_signal(user: User) -> None:
    workflow(user, "flow", FILE)
    slow_agent = recording(user, call({"type": "text_delta", "text": ".\n"}, end("done."), pause=60))
    async with started(user, "run", "flow", "-a", slow_agent, "--json", "hello") as run:
        await run.until("agent_activity")
        run.signal(signal.SIGTERM)
        assert await run.over() == 143
    shown = await user.atomic("sessions", "report", session(user)["id"])
    assert (shown.exit_code, shown.stdout.strip()) == (0, "paused stopped hello")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("async def at_end(end): ...", "at_end is async"),
        ("at_end = 3", "at_end is an int, not a function"),
        ("async def create_state(params): ...", "create_state is async"),
        ("create_state = 3", "create_state is an int, not a function"),
        ("raise BaseException('panic')", "BaseException: panic"),
    ],
)
async def test_a_hook_that_cannot_be_called_does_not_load(user: User, code: str, message: str) -> None:
    workflow(user, "flow", f"{code}\n")
    done = await user.atomic("run", "flow", "x")
    assert (done.exit_code, message in done.stderr, ledger(user)) == (2, True, [])
