"""Loops until a criterion holds, and the ready-made builders."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from atomic.workflows import (
    GraphError,
    MemoryJournal,
    Node,
    NodeContext,
    RunStatus,
    State,
    Task,
    WorkflowTask,
    criteria_loop_node,
    graph,
    map_reduce,
    node,
    reducers,
    review_cycle,
    sequential,
    task_loop,
    tool_node,
)
from tests.graph.engine.small import S, ended, say, within, write

# Criteria


async def test_a_loop_repeats_until_the_criterion_holds() -> None:
    loop = criteria_loop_node("c", task_nodes=[say("a"), write("b", total=1)], criteria=lambda s: s.total == 3)
    assert (await ended(graph(S).then(loop).compile())).state.log == ["a"] * 3


def saying(*texts: str) -> Node[S]:
    left = list(texts)
    return tool_node("say", lambda: left.pop(0))


@pytest.mark.parametrize("text", ["DONE", "All is well.\nDONE", "```\ncode\n```\nDONE\n\n"])
async def test_a_loop_repeats_until_the_answer_ends_with_the_signal(text: str) -> None:
    loop = criteria_loop_node("c", task_nodes=[saying("working", text, "never")], completion_signal="DONE")
    assert (await ended(graph(S).then(loop).compile())).state.outputs == {"say": text}


async def test_a_criterion_or_a_signal_is_enough() -> None:
    nodes = [say("a"), saying("x", "y", "z")]
    loop = criteria_loop_node("c", task_nodes=nodes, completion_signal="DONE", criteria=lambda s: len(s.log) == 2)
    assert (await ended(graph(S).then(loop).compile())).state.log == ["a", "a"]


async def test_a_loop_stops_at_its_bound() -> None:
    loop = criteria_loop_node("c", task_nodes=[say("a")], criteria=lambda s: False, max_iterations=3)
    assert (await ended(graph(S).then(loop).then(say("b")).compile())).state.log == ["a"] * 3 + ["b"]


def test_a_criterion_must_be_given() -> None:
    with pytest.raises(GraphError, match="c: "):
        graph(S).criteria_loop("c", task_nodes=[say("a")]).compile()


async def test_the_chained_method_is_the_same() -> None:
    compiled = graph(S).criteria_loop("c", task_nodes=[say("a")], criteria=lambda s: True).compile()
    assert (await ended(compiled)).state.log == ["a"]


# Templates


async def test_sequential_is_one_after_the_other() -> None:
    builder = sequential(S, [say("a"), graph(S).then(say("b")), say("c")])
    assert (await ended(builder.then(say("d")).compile())).state.log == ["a", "b", "c", "d"]


async def test_map_reduce_splits_works_and_merges() -> None:
    def join(state: S) -> int:
        return sum(state.outputs["map"])

    def square(item: int) -> int:
        return item * item

    compiled = map_reduce(
        S,
        splitter=lambda s: range(s.count),
        worker=tool_node("square", square),
        merger=tool_node("join", join, output_mapper=lambda result, s: {"total": result}),
    ).compile()
    assert (await ended(compiled, {"count": 5})).state.total == 30


async def test_a_review_cycle_fixes_until_the_reviewer_is_content() -> None:
    def cycle(rounds: int) -> Any:
        return review_cycle(
            S,
            executor=say("execute"),
            reviewer=graph(S).then(say("review")).then(write("count", total=1)),
            fixer=say("fix"),
            until=lambda s: s.total >= rounds,
            max_iterations=5,
        ).compile()

    assert (await ended(cycle(1))).state.log == ["execute", "review"]
    assert (await ended(cycle(3))).state.log == ["execute", "review", "fix", "review", "fix", "review"]


async def test_a_review_cycle_gives_up_at_its_bound() -> None:
    compiled = review_cycle(
        S, executor=say("execute"), reviewer=say("review"), fixer=say("fix"), until=lambda s: False, max_iterations=2
    ).compile()
    log = (await ended(compiled)).state.log
    assert log[0] == "execute"
    assert log.count("fix") in (1, 2)  # the bound may or may not count the first review
    assert log[-1] == "review"


class Planned(State):
    tasks: Annotated[list[WorkflowTask], reducers.merge_by_id("id")] = []
    log: Annotated[list[str], reducers.concat] = []


def planner(*ids: str) -> Node[Planned]:
    async def plan(ctx: NodeContext[Planned]) -> dict[str, Any]:
        return {"tasks": [{"id": id, "title": id} for id in ids]}

    return node("plan", plan)


async def do_next(ctx: NodeContext[Planned]) -> dict[str, Any]:
    task = next(task for task in ctx.state.tasks if task.status == "pending")
    return {"tasks": [Task(task.id, task.title, status="completed")], "log": [task.id]}  # pyright: ignore[reportArgumentType]  # a status by its word


async def test_a_task_loop_works_until_all_tasks_are_done() -> None:
    compiled = task_loop(Planned, decomposer=planner("1", "2", "3"), worker=node("work", do_next)).compile()
    result = await within(compiled.run(journal=MemoryJournal()))
    assert result.error is None
    assert result.state.log == ["1", "2", "3"]
    assert {str(task.status) for task in result.state.tasks} == {"completed"}


async def test_a_task_loop_reviews_each_round_and_stops_at_until() -> None:
    async def review(ctx: NodeContext[Planned]) -> dict[str, Any]:
        return {"log": ["review"]}

    compiled = task_loop(
        Planned,
        decomposer=planner("1", "2", "3"),
        worker=node("work", do_next),
        reviewer=node("review", review),
        until=lambda s: len(s.log) >= 4,
    ).compile()
    assert (await within(compiled.run())).state.log == ["1", "review", "2", "review"]


async def test_a_task_loop_in_which_nothing_can_run_is_not_a_success() -> None:
    async def give_up(ctx: NodeContext[Planned]) -> dict[str, Any]:
        return {"tasks": [Task(task.id, task.title, status="failed") for task in ctx.state.tasks]}  # pyright: ignore[reportArgumentType]  # a status by its word

    compiled = task_loop(Planned, decomposer=planner("1", "2"), worker=node("work", give_up)).compile()
    result = await within(compiled.run())
    assert result.status is not RunStatus.COMPLETED
    for name in ("1", "2"):
        assert name in str(result.error)


async def test_templates_are_builders_that_can_be_extended() -> None:
    builder = sequential(S, [say("a")]).parallel([say("b"), sequential(S, [say("c")])])
    assert (await ended(builder.compile())).state.log == ["a", "b", "c"]
