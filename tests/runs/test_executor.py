"""`run_workflow`: the one path for every workflow, its events, and how each run ends."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from atomic.providers.events import Usage
from atomic.questions import Question
from atomic.runs.endings import Stop
from atomic.runs.events import (
    AgentActivity,
    LimitReached,
    NodeEnded,
    NodeStarted,
    QuestionAsked,
    RunStarted,
    TasksChanged,
    Warning,
    WorkflowEvent,
)
from atomic.runs.executor import run_workflow
from atomic.runs.host import Choices
from atomic.runs.limits import Caps
from atomic.sessions import SessionStore
from atomic.workflows import (
    Node,
    Retry,
    State,
    SubagentRequest,
    SubagentResult,
    Suspend,
    Task,
    TaskList,
    WorkflowTask,
    agent_node,
    ask_user_node,
    graph,
    node,
    parallel_subagent_node,
    reducers,
    subgraph_node,
    task_loop_node,
)
from tests.runs.memory_workflows import all_events, definition, ending, runtime
from tests.runs.small_runtime import Entities, Entity
from tests.support.timing import judge
from tests.support.user_workflows import call, end, text
from tests.support.waits import eventually, skip_time


class S(State):
    prompt: str = ""
    said: Annotated[list[str], reducers.concat] = []


class WithTasks(State):
    prompt: str = ""
    tasks: list[WorkflowTask] = []


def asks(id: str, prompt: str = "go", **more: Any) -> Node[S, Any]:
    return agent_node(id, prompt, output_mapper=lambda answer, state: {"said": [answer]}, **more)


def flow(*nodes: Node[S, Any]) -> Any:
    built = graph(S)
    for each in nodes:
        built = built.then(each)
    return definition(built.compile(name="flow"))


async def test_one_run_has_one_id_and_ends_once(tmp_path: Path) -> None:
    events = await all_events(run_workflow(flow(asks("a"), asks("b")), "hey", runtime(tmp_path, *[call(end("x"))] * 2)))
    assert isinstance(events[0], RunStarted)
    assert ending(events).status == "completed"
    assert {event.run for event in events} == {Path(events[0].session_dir).name}
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.node for event in events if isinstance(event, NodeStarted | NodeEnded)] == ["a", "a", "b", "b"]


async def test_a_retried_node_begins_and_ends_for_each_attempt(tmp_path: Path) -> None:
    async def flaky(ctx: Any) -> None:
        if ctx.attempt < 3:
            raise ValueError("not yet")

    made: Node[S, Any] = node("flaky", flaky, retry=Retry(0.001))
    events = await all_events(run_workflow(flow(made), "", runtime(tmp_path)))
    steps = [event for event in events if isinstance(event, NodeStarted | NodeEnded)]
    assert [(type(step).__name__, step.attempt) for step in steps] == [
        (kind, attempt) for attempt in (1, 2, 3) for kind in ("NodeStarted", "NodeEnded")
    ]
    assert [step.status for step in steps if isinstance(step, NodeEnded)] == ["failed", "failed", "completed"]


async def test_a_failed_node_fails_the_run_with_its_message(tmp_path: Path) -> None:
    async def broken(ctx: Any) -> None:
        raise ValueError("no way")

    run = run_workflow(flow(node("broken", broken)), "", runtime(tmp_path))
    last = ending(await all_events(run))
    assert (last.status, last.reason, last.exit_code) == ("failed", "error", 1)
    assert last.message.startswith("broken: ")
    assert "ValueError: no way" in (run.session.dir / "logs" / "errors.log").read_text()


async def test_a_subgraph_begins_before_its_nodes(tmp_path: Path) -> None:
    inner = graph(S).then(asks("inner")).compile(name="inner")
    events = await all_events(run_workflow(flow(subgraph_node("outer", inner)), "", runtime(tmp_path, call(end("x")))))
    steps = [(type(e).__name__, e.node) for e in events if isinstance(e, NodeStarted | NodeEnded)]
    assert steps == [
        ("NodeStarted", "outer"), ("NodeStarted", "outer/inner"), ("NodeEnded", "outer/inner"), ("NodeEnded", "outer"),
    ]  # fmt: skip


# -- tasks


async def test_the_list_of_tasks_is_published_when_it_changes(tmp_path: Path) -> None:
    async def plan(ctx: Any) -> dict[str, Any]:
        return {"tasks": [Task("1", "one"), Task("2", "two")]}

    async def idle(ctx: Any) -> None:
        return None

    built = graph(WithTasks).node("plan", plan).node("idle", idle).compile(name="tasks")
    run = run_workflow(definition(built), "", runtime(tmp_path))
    changes = [event for event in await all_events(run) if isinstance(event, TasksChanged)]
    assert [[task.title for task in change.tasks] for change in changes] == [["one", "two"]]
    assert [task.id for task in TaskList.read(run.session.dir / "tasks.json").tasks] == ["1", "2"]


async def test_a_loop_over_tasks_publishes_each_task_and_names_it_in_activity(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    TaskList.parse([{"id": "a", "title": "A"}, {"id": "b", "title": "B", "blocked_by": ["a"]}]).write(path)
    loop = task_loop_node("loop", tasks_path=str(path), task_nodes=[asks("work")])
    events = await all_events(run_workflow(flow(loop), "", runtime(tmp_path, *[call(end("x"))] * 2)))
    seen = [[task.status for task in event.tasks] for event in events if isinstance(event, TasksChanged)]
    assert seen == [
        ["in_progress", "pending"], ["completed", "pending"], ["completed", "in_progress"], ["completed", "completed"],
    ]  # fmt: skip
    assert [e.task for e in events if isinstance(e, AgentActivity)] == ["a", "b"]


@pytest.mark.parametrize("place", ["tasks.json", "elsewhere"])
async def test_the_planned_list_never_replaces_the_current_one(tmp_path: Path, place: str) -> None:
    planned = [Task("1", "one"), Task("2", "two", blocked_by=["1"])]

    def path_of(folder: object) -> Path:
        return tmp_path / "list.json" if place == "elsewhere" else Path(str(folder))

    async def plan(ctx: Any) -> dict[str, Any]:
        TaskList(planned).write(path_of(ctx.deps.tasks.path))
        return {"tasks": planned, "prompt": str(path_of(ctx.deps.tasks.path))}

    async def work(ctx: Any) -> None:
        if ctx.item.id == "2" and not asked:
            asked.append("2")
            raise Suspend("wait")

    async def after(ctx: Any) -> None:
        return None

    asked: list[str] = []
    built = (
        graph(WithTasks)
        .node("plan", plan)
        .then(task_loop_node("loop", tasks_path=lambda s: s.prompt, task_nodes=[node("work", work)]))
        .node("after", after)
        .compile(name="tasks")
    )
    host = runtime(tmp_path)
    listed = definition(built)
    run = run_workflow(listed, "", host)
    events = await all_events(run)
    events += await all_events(run_workflow(listed, "", host, session=run.session, resume=True))
    seen = [[task.status for task in event.tasks] for event in events if isinstance(event, TasksChanged)]
    done = [sum(status == "completed" for status in statuses) for statuses in seen]
    assert done == sorted(done)
    assert [task.status for task in TaskList.read(run.session.dir / "tasks.json").tasks] == ["completed"] * 2


@pytest.mark.parametrize("place", ["tasks.json", "research/plan.json", "elsewhere"])
async def test_a_list_in_the_folder_of_the_session_has_no_secrets(tmp_path: Path, place: str) -> None:
    secret = "ghp_" + "a1B2" * 9
    seen: list[Any] = []

    async def plan(ctx: Any) -> dict[str, Any]:
        path = tmp_path / "list.json" if place == "elsewhere" else ctx.deps.tasks.path.parent / place
        path.parent.mkdir(exist_ok=True)
        tasks = [Task("1", f"push with {secret}", metadata={"note": secret}), Task("2", "two", blocked_by=["1"])]
        TaskList(tasks, metadata={"from": secret}).write(path)
        return {"prompt": str(path)}

    async def work(ctx: Any) -> None:
        seen.append((ctx.item.title, Path(ctx.state.prompt).read_text()))

    loop: Node[S, Any] = task_loop_node("loop", tasks_path=lambda s: s.prompt, task_nodes=[node("work", work)])
    run = run_workflow(flow(node("plan", plan), loop), "", runtime(tmp_path))
    assert ending(await all_events(run)).status == "completed"
    assert seen[0][0] == f"push with {secret}"
    is_kept = place == "elsewhere"
    assert [(title == seen[0][0], secret in content) for title, content in seen] == [(True, is_kept), (False, is_kept)]
    path = tmp_path / "list.json" if is_kept else run.session.dir / place
    written = TaskList.read(path)
    assert [task.status for task in written.tasks] == ["completed", "completed"]
    assert (written.metadata, written.tasks[1].blocked_by) == ({"from": secret if is_kept else "[redacted]"}, ["1"])
    assert (path.read_text().count(secret), path.read_text().count("[redacted]")) == ((3, 0) if is_kept else (0, 3))


async def test_tasks_that_cannot_run_make_it_blocked(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    TaskList.parse([{"id": "a", "title": "A"}, {"id": "b", "title": "B", "blocked_by": ["a"]}]).write(path)
    loop = task_loop_node("loop", tasks_path=str(path), task_nodes=[asks("work")])
    last = ending(await all_events(run_workflow(flow(loop), "", runtime(tmp_path, call(end(reason="error"))))))
    assert (last.status, last.reason, last.exit_code) == ("blocked", "nothing_runnable", 5)
    assert "b: " in last.message


async def test_a_node_can_give_the_code_of_a_pause(tmp_path: Path) -> None:
    from atomic.graph import RunStatus

    async def stuck(ctx: Any) -> None:
        raise Suspend("the same error three times", status=RunStatus.BLOCKED, code="stuck")

    last = ending(await all_events(run_workflow(flow(node("stuck", stuck)), "", runtime(tmp_path))))
    assert (last.status, last.reason, last.exit_code) == ("blocked", "stuck", 5)


# -- who answers


async def test_flags_choose_the_agent_and_the_model_for_a_role(tmp_path: Path) -> None:
    entities = Entities()
    entities.add("agent", Entity("planner", "You plan.", model="opus"))
    nodes = (asks("plan", agent="planner"), asks("work", "[atomic role=worker attempt=1]\ngo"), asks("rest"))
    choices = Choices({"": "replay", "planner": "second", "worker": "third"}, {"worker": "haiku"})
    agents = {"second": [call(end("2"))], "third": [call(end("3"), role="worker")]}
    world = runtime(tmp_path, call(end("1")), agents=agents, entities=entities, choices=choices)
    run = run_workflow(flow(*nodes), "", world)
    events = await all_events(run)
    assert ending(events).status == "completed"
    lines = [
        msgspec.json.decode(line) for line in (run.session.dir / "logs" / "agent-calls.jsonl").read_bytes().splitlines()
    ]
    assert [(line["provider"], line["model"], line["role"]) for line in lines] == [
        ("second", "opus", "planner"), ("third", "haiku", "worker"), ("replay", None, None),
    ]  # fmt: skip


async def test_an_unknown_role_is_an_error(tmp_path: Path) -> None:
    world = runtime(tmp_path, call(end("x")), choices=Choices({"reveiwer": "replay"}))
    events = await all_events(run_workflow(flow(asks("a")), "", world))
    (warning,) = [event.text for event in events if isinstance(event, Warning)]
    assert warning.startswith("--agent reveiwer=replay had no effect")


async def test_named_sessions_continue_and_are_cleared(tmp_path: Path) -> None:
    ids: list[str] = []

    async def look(ctx: Any) -> None:
        await ctx.deps.turn("one", session="s")
        await ctx.deps.turn("two", session="s")
        ids.append(SessionStore(tmp_path / "home").list()[0].named["s"][1])
        await ctx.deps.sessions.clear("s")
        assert await ctx.deps.sessions.context("s") is None
        await ctx.deps.turn("three", session="s")
        ids.append(SessionStore(tmp_path / "home").list()[0].named["s"][1])

    run = run_workflow(flow(node("look", look)), "", runtime(tmp_path, *[call(end("x"))] * 3))
    assert ending(await all_events(run)).status == "completed"
    assert len(set(ids)) == 2


async def test_a_named_session_continues_after_a_restart(tmp_path: Path) -> None:
    ask: Node[S, Any] = ask_user_node("q", "Go on?")
    made = flow(asks("one", "first", session="s"), ask, asks("two", "second", session="s"))
    run = run_workflow(made, "", runtime(tmp_path, call(end("1"), match="first")))
    assert ending(await all_events(run)).status == "paused"
    before = run.session.record.named
    reread = SessionStore(tmp_path / "home").find(run.id)  # as another process finds it
    rest = runtime(tmp_path, call(end("2"), match="second"))
    again = run_workflow(made, "", rest, session=reread, resume=True, answers={"q": "yes"})
    assert ending(await all_events(again)).status == "completed"
    assert again.session.record.named == before  # the id is the earlier one: the session was resumed


async def test_sub_agents_count_for_activity_and_cost(tmp_path: Path) -> None:
    entities = Entities()
    entities.add("agent", Entity("helper", "You help."))

    async def spawn(ctx: Any) -> dict[str, Any]:
        results = await ctx.deps.bridge.spawn_parallel([SubagentRequest("helper", f"task {n}") for n in range(3)])
        return {"said": [result.text for result in results]}

    calls = [call(end(str(n), usage={"input": 1, "output": 1, "cost": 0.5}), match=f"task {n}") for n in range(3)]
    run = run_workflow(flow(node("spawn", spawn)), "", runtime(tmp_path, *calls, entities=entities))
    events = await all_events(run)
    assert ending(events).status == "completed"
    assert {(event.node, event.role) for event in events if isinstance(event, AgentActivity)} == {("spawn", "helper")}
    assert run.session.record.cost.usd == 1.5


class Verdict(msgspec.Struct):
    good: bool


async def test_finished_agents_do_not_run_again_while_another_waits(tmp_path: Path) -> None:
    entities = Entities()
    entities.add("agent", Entity("helper", "You help."))
    asked: dict[str, Any] = {"type": "question_asked", "questions": [{"text": "Which one?", "options": []}]}
    merged: list[list[tuple[bool, str, Any]]] = []

    def merge(results: Sequence[SubagentResult], state: S) -> dict[str, Any]:
        assert [one.usage for one in results] == [Usage(1, 1, cost=0.5)] * 4
        merged.append([(one.success, one.text, one.value) for one in results])
        return {"said": [one.text for one in results]}

    requests = [
        SubagentRequest("helper", "task one", schema=Verdict), SubagentRequest("helper", "task two"),
        SubagentRequest("helper", "task three"), SubagentRequest("helper", "task three"),
    ]  # fmt: skip
    made = flow(parallel_subagent_node("all", agents=requests, merge=merge))
    paid: dict[str, Any] = {"usage": {"input": 1, "output": 1, "cost": 0.5}}
    first = [
        call(end('{"good": true}', **paid), match="task one"),
        call(end(reason="error", error="it broke", **paid), match="task two"),
        call(end("three", **paid), match="task three"),
        call(asked, end("?", **paid), match="task three"),
    ]
    run = run_workflow(made, "", runtime(tmp_path, *first, entities=entities))
    last = ending(await all_events(run))
    assert (last.status, last.reason, merged) == ("paused", "question", [])
    (question,) = run.session.record.questions
    rest = runtime(tmp_path, call(end("the other three", **paid), match="task three"), entities=entities)
    again = run_workflow(made, "", rest, session=run.session, resume=True, answers={question.id: "this"})
    assert ending(await all_events(again)).status == "completed"
    ((one, two, *threes),) = merged
    assert (one, two) == ((True, '{"good": true}', Verdict(good=True)), (False, "", None))
    assert sorted(text for _, text, _ in threes) == ["the other three", "three"]
    assert again.session.record.cost.usd == 2.0
    (record,) = again.session.journal().records(again.id)
    assert record.usage is not None
    assert record.usage["cost"] == 2.0


# -- caps and limits


COSTLY = call(end("x", usage={"input": 100, "output": 100, "cost": 1.0}))


async def test_a_cap_pauses_the_run_and_a_higher_one_continues_it(tmp_path: Path) -> None:
    made = flow(asks("a"), asks("b"), asks("c"))
    run = run_workflow(made, "", runtime(tmp_path, *[COSTLY] * 3, caps=Caps(max_cost=1.5)))
    events = await all_events(run)
    (limit,) = [event for event in events if isinstance(event, LimitReached)]
    assert (limit.kind, limit.limit, limit.spent) == ("max_cost", 1.5, 2.0)
    last = ending(events)
    assert (last.status, last.reason, last.exit_code) == ("paused", "max_cost", 6)
    assert "--max-cost" in last.message
    again = run_workflow(made, "", runtime(tmp_path, COSTLY, caps=Caps(max_cost=9)), session=run.session, resume=True)
    events = await all_events(again)
    assert ending(events).status == "completed"
    assert [event.node for event in events if isinstance(event, NodeStarted)] == ["c"]
    assert again.session.record.cost.usd == 3.0


def limited(seconds: float) -> Any:
    return limited_until(datetime.now(UTC) + timedelta(seconds=seconds))


def limited_until(moment: datetime) -> Any:
    reset = moment.isoformat()
    return call({"type": "limit_reached", "reset_at": reset, "message": "too many"}, end(reason="error", error="429"))


async def test_a_limit_pauses_the_run_until_its_reset_without_using_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atomic.runs import rate_limits

    monkeypatch.setattr(rate_limits, "LATE_SECONDS", 0.0)
    reset = datetime.now(UTC) + timedelta(seconds=2)
    run = run_workflow(flow(asks("a", timeout=50)), "", runtime(tmp_path, limited_until(reset), call(end("x"))))
    events: list[WorkflowEvent] = []
    async for event in run:
        events.append(event)
        if isinstance(event, LimitReached):
            await skip_time(monkeypatch, 100)  # the wait does not count for the time of the node
    assert ending(events).status == "completed"
    assert datetime.now(UTC) > reset
    (limit,) = [event for event in events if isinstance(event, LimitReached)]
    assert limit.kind == "provider"
    assert limit.reset_at is not None
    assert limit.reset_at == pytest.approx(reset.timestamp())
    assert [event.attempt for event in events if isinstance(event, NodeEnded)] == [1]


async def test_on_limit_stop_pauses_and_switch_continues_with_another_agent(tmp_path: Path) -> None:
    run = run_workflow(flow(asks("a")), "", runtime(tmp_path, limited(3600), on_limit="stop"))
    last = ending(await all_events(run))
    assert (last.status, last.reason, last.exit_code) == ("paused", "provider_limit", 7)
    assert run.session.record.parked_until is not None
    other = runtime(
        tmp_path, limited(3600), agents={"second": [call(end("x"))]}, on_limit="switch", others=["replay", "second"]
    )
    assert ending(await all_events(run_workflow(flow(asks("a")), "", other))).status == "completed"


# -- people


class Person:
    def __init__(self, *answers: str | list[str] | None) -> None:
        self.answers = list(answers)
        self.asked = list[Question]()

    async def ask(self, question: Question) -> str | list[str] | None:
        self.asked.append(question)
        return self.answers.pop(0)


ASKED = {"type": "question_asked", "questions": [{"text": "Sure?", "options": [{"label": "Yes"}, {"label": "No"}]}]}


async def test_questions_of_nodes_and_agents_reach_the_user(tmp_path: Path) -> None:
    async def ask(ctx: Any) -> dict[str, Any]:
        return {"said": [await ctx.ask(Question("Name?", id="name"))]}

    person = Person("Ada", "Yes")
    world = runtime(tmp_path, call(ASKED, end("x")), person=person)
    run = run_workflow(flow(node("ask", ask), asks("agent")), "", world)
    events = await all_events(run)
    assert ending(events).status == "completed"
    assert [question.text for question in person.asked] == ["Name?", "Sure?"]
    assert [(event.node, event.question.text) for event in events if isinstance(event, QuestionAsked)] == [
        ("ask", "Name?"), ("agent", "Sure?"),
    ]  # fmt: skip
    assert run.session.record.questions == ()


async def test_a_user_who_does_not_answer_leaves_the_question_open(tmp_path: Path) -> None:
    run = run_workflow(flow(asks("agent")), "", runtime(tmp_path, call(ASKED, end("x")), person=Person(None)))
    last = ending(await all_events(run))
    assert (last.status, last.reason, last.exit_code) == ("paused", "question", 5)
    assert [question.text for question in run.session.record.questions] == ["Sure?"]


async def test_a_question_to_the_user_does_not_count_for_the_time_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Person):
        async def ask(self, question: Question) -> str | list[str] | None:
            await skip_time(monkeypatch, 100)
            return await super().ask(question)

    world = runtime(tmp_path, call(ASKED, end("x")), person=Slow("Yes"))
    assert ending(await all_events(run_workflow(flow(asks("agent", timeout=50)), "", world))).status == "completed"


# -- hosts


async def test_a_host_that_does_not_read_does_not_slow_the_run_and_costs_little(tmp_path: Path) -> None:
    pieces = [{"type": "text_delta", "text": "word " * 20, "agent": f"sub-{n % 3}"} for n in range(5_000)]
    run = run_workflow(flow(asks("a")), "", runtime(tmp_path, call(*pieces, end("all"))))
    assert isinstance(await anext(run), RunStarted)
    tracemalloc.start()
    try:
        await eventually(lambda: run.session.record.status == "completed")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    events = await all_events(run)
    words = [event.event for event in events if isinstance(event, AgentActivity)]
    assert len(events) < 200
    assert sum(len(getattr(event, "text", "")) for event in words) >= 5_000 * 100
    assert peak < 60_000_000


async def test_stopping_and_leaving_both_pause(tmp_path: Path) -> None:
    slow = call(*[text(".")] * 200, end("x"), pause=0.05)

    for leave in (False, True):
        world = runtime(tmp_path, slow)
        (await world.choose(None))._speed = 1.0  # pyright: ignore[reportAttributeAccessIssue]  # as slow as it was
        run = run_workflow(flow(asks("a")), "", world)
        async for event in run:
            if isinstance(event, AgentActivity):
                if leave:
                    break
                run.stop(Stop.TERMINATE)
        await run.aclose()
        record = SessionStore(tmp_path / "home").find(run.id).record
        assert (record.status, record.reason, record.owner) == ("paused", "stopped", None)


@pytest.mark.ci
@pytest.mark.timed
async def test_fifty_runs_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    slow = call(*[text(".")] * 20, end("x"), pause=0.05)
    world = runtime(tmp_path, *[slow] * 100)
    (await world.choose(None))._speed = 1.0  # pyright: ignore[reportAttributeAccessIssue]
    began = time.monotonic()
    runs = [run_workflow(flow(asks("a"), asks("b")), f"run {n}", world) for n in range(50)]
    ends = [ending(events) for events in await asyncio.gather(*map(all_events, runs))]
    took = time.monotonic() - began
    assert {end.status for end in ends} == {"completed"}
    assert len({run.session.dir for run in runs}) == 50
    judge(took, 40)  # one after the other they would take a hundred seconds
    for number, run in enumerate(runs):
        assert run.session.record.prompt == f"run {number}"
        assert len((run.session.dir / "logs" / "agent-calls.jsonl").read_bytes().splitlines()) == 2


async def test_a_step_of_a_task_whose_id_has_a_slash_has_its_description(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    TaskList.parse([{"id": "a/b", "title": "A"}]).write(path)
    loop = task_loop_node("loop", tasks_path=str(path), task_nodes=[asks("work")])
    described = definition(graph(S).then(loop).compile(name="flow"), node_descriptions={"work": "Working"})
    events = await all_events(run_workflow(described, "", runtime(tmp_path, call(end("x")))))
    started = {event.node: event.description for event in events if isinstance(event, NodeStarted)}
    assert started["work[a/b]"] == "Working"
