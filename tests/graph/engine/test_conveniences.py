"""Several retry policies, programs without async, typed updates, notebooks, and forgotten builders."""

from __future__ import annotations

from typing import Any, cast

import pytest

from atomic.workflows import (
    AtomicError,
    GraphBuilder,
    GraphError,
    MemoryJournal,
    NodeContext,
    Retry,
    RunStatus,
    State,
    StateError,
    ask_user_node,
    graph,
    node,
)
from tests.graph.engine.small import RUN, S, ended, failed, say, within


def raises(*errors: type[Exception], retry: Any) -> Any:
    """Return a node that raises these errors one after the other, then logs its attempt."""
    left = list(errors)

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        if left:
            raise left.pop(0)("no")
        return {"total": ctx.attempt}

    return node("n", run, retry=retry)


POLICIES = (Retry(0, retry_on=ValueError, attempts=3), Retry(0, retry_on=KeyError, attempts=2))


async def test_each_policy_counts_its_own_failures() -> None:
    errors = [ValueError, KeyError, ValueError]
    assert (await ended(graph(S).then(raises(*errors, retry=POLICIES)).compile())).state.total == 4
    text = await failed(graph(S).then(raises(KeyError, ValueError, KeyError, retry=POLICIES)).compile(), "n")
    assert text == "n: KeyError: 'no'"


async def test_a_failure_that_no_policy_names_is_not_tried_again() -> None:
    assert await failed(graph(S).then(raises(TypeError, retry=POLICIES)).compile(), "n") == "n: TypeError: no"


async def test_a_policy_without_a_filter_takes_the_rest() -> None:
    policies = (*POLICIES, Retry(0, attempts=2))
    assert (await ended(graph(S).then(raises(TypeError, KeyError, retry=policies)).compile())).state.total == 3


@pytest.mark.parametrize(
    ("retry", "problem"),
    [
        ((), "n: retry is (); several policies are a tuple of Retry(…)"),
        ((3,), "n: retry is (3,); several policies are a tuple of Retry(…)"),
        ((Retry(0), POLICIES[0]), "n: retry: a policy without retry_on fits every failure, so it must be the last one"),
        ((Retry(-1, retry_on=KeyError),), "n: Retry takes no negative delay, factor or max_delay"),
    ],
)
def test_wrong_policies_are_problems(retry: Any, problem: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph(S).then(raises(retry=retry)).compile()
    assert [str(one) for one in caught.value.problems] == [problem]


def test_several_policies_are_drawn() -> None:
    assert "5 attempts" in graph(S).then(raises(retry=POLICIES)).compile().draw()


def test_a_program_without_async_runs_and_resumes() -> None:
    flow = graph(S).then([say("a"), ask_user_node("q", "go?")]).compile()
    journal = MemoryJournal()
    assert flow.run_sync({"text": "x"}, journal=journal, execution_id=RUN).status is RunStatus.PAUSED
    result = flow.resume_sync(journal, RUN, answers={"q": "yes"})
    assert (result.status, result.state.text) == (RunStatus.COMPLETED, "x")


async def test_inside_of_a_loop_it_says_what_to_write() -> None:
    flow = graph(S).then(say("a")).compile()
    with pytest.raises(AtomicError, match=r"^run_sync was called inside a running event loop; write: await graph\.run"):
        flow.run_sync()
    with pytest.raises(AtomicError, match=r"^resume_sync was called .*: await graph\.resume"):
        flow.resume_sync(MemoryJournal(), RUN)


async def test_an_update_by_names_is_a_dict_whose_names_are_checked() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return S.update(log=["x"], total=2)

    result = await within(graph(S).node("n", run).compile().run())
    assert (result.state.log, result.state.total) == (["x"], 2)
    assert S.update() == {}
    with pytest.raises(StateError, match='lgo: S has no such field \\(did you mean "log"\\?\\)'):
        cast("Any", S).update(lgo=[])
    with pytest.raises(StateError, match="named fields only"):
        cast("Any", S).update(["x"])


class Named(State):
    update: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]  # an older state may have such a field


async def test_a_field_with_that_name_still_works() -> None:
    async def run(ctx: NodeContext[Named]) -> dict[str, Any]:
        return {"update": "x"}

    assert (await ended(graph(Named).node("n", run).compile())).state.update == "x"


def test_a_notebook_shows_the_drawing() -> None:
    flow = graph(S).then(say("a")).compile()
    assert flow._repr_svg_() == flow.svg()  # pyright: ignore[reportPrivateUsage]  # the protocol of notebooks


def problems_of(builder: GraphBuilder[S]) -> list[str]:
    with pytest.raises(GraphError) as raised:
        builder.compile()
    return [str(problem) for problem in raised.value.problems]


def test_a_forgotten_result_of_a_builder_is_reported() -> None:
    lost = "the builder that the call returned was thrown away"
    empty = graph(S)
    empty.then(say("a"))
    assert [lost in problem for problem in problems_of(empty)] == [False, True]
    builder = graph(S).then(say("a"))
    builder.then(say("b"))
    builder = builder.then(say("c"))
    builder.loop(say("d"), until=lambda state: True, id="again").then(say("e"))
    builder.catch(say("f"))
    found = problems_of(builder)
    assert [problem.partition(":")[0] for problem in found] == ["b", "e", "f"]
    assert all(lost in problem for problem in found)


def test_builders_that_share_a_prefix_or_are_kept_for_later_are_no_forgotten_results() -> None:
    base = graph(S).then(say("a"))
    kept = base.then(say("b"))
    inner = graph(S).then(say("c"))
    looped = base.loop(inner, until=lambda state: True)
    flows = [base.then(say("d")).compile(), looped.compile(), base.compile()]
    assert [len(flow.block.nodes) for flow in flows] == [2, 2, 1]
    assert [node.id for node in kept.compile().block.nodes] == ["a", "b"]
