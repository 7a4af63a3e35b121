"""Common input of authors: it works, or is refused in one sentence at build time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import pydantic
import pytest

import atomic.graph as engine
from atomic.graph.engine.errors import AtomicError, GraphError, JournalError
from atomic.workflows import (
    Edge,
    GraphConfig,
    MemoryJournal,
    NodeContext,
    Retry,
    RunStatus,
    SqliteJournal,
    State,
    StreamEvent,
    compile_graph,
    graph,
    node,
    reducers,
    tool_node,
)
from tests.graph.engine.small import RUN, S, say, within


def problems(build: Callable[[], Any]) -> list[str]:
    with pytest.raises(GraphError) as caught:
        build()
    return [str(problem) for problem in caught.value.problems]


# Retry and timeout


async def attempts(**options: Any) -> int:
    calls: list[int] = []

    async def run(ctx: NodeContext[S]) -> None:
        calls.append(ctx.attempt)
        raise KeyError("broken")

    result = await within(graph(S).node("n", run, **options).compile().run())
    assert result.status is RunStatus.FAILED
    return len(calls)


def _is_broken(error: Exception) -> bool:
    return "broken" in str(error)


RETRY_ON: list[tuple[Any, int]] = [
    (KeyError, 2),
    (LookupError, 2),
    (ValueError, 1),
    ((ValueError, KeyError), 2),
    ((ValueError, TypeError), 1),
    (_is_broken, 2),
    (None, 2),
]


@pytest.mark.parametrize(("retry_on", "expected"), RETRY_ON)
async def test_retry_on_takes_classes_and_functions(retry_on: Any, expected: int) -> None:
    assert await attempts(retry=Retry(0, attempts=2, retry_on=retry_on)) == expected


async def test_a_number_of_attempts_is_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_wait(seconds: float) -> None:
        waited.append(seconds)

    waited: list[float] = []
    monkeypatch.setattr(asyncio, "sleep", no_wait)
    assert await attempts(retry=3) == 3
    assert len(waited) == 2


@pytest.mark.parametrize(
    ("given", "seconds"), [("5s", 5.0), ("2m", 120.0), ("1h30m", 5400.0), (timedelta(minutes=2), 120.0), (3, 3.0)]
)
def test_a_timeout_is_seconds_a_text_or_a_timedelta(given: Any, seconds: float) -> None:
    async def run(ctx: NodeContext[S]) -> None: ...

    compiled = graph(S).node("n", run, timeout=given).tool("t", run=print).compile(timeout=given)
    assert [cast("Any", op).timeout for op in compiled.program.ops] == [seconds, seconds]
    assert f"timeout {seconds:g} s" in compiled.draw() or seconds >= 60


async def test_a_timeout_that_is_a_timedelta_ends_a_node() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await asyncio.Event().wait()

    result = await within(graph(S).node("n", run, timeout=timedelta(milliseconds=20)).compile().run())
    assert str(result.error) == "n: TimeoutError: timed out after 0.02 s"


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"retry": "3"}, "n: retry is '3'; give Retry(…), or how often to try: retry=3"),
    ({"retry": True}, "n: retry is True; give Retry(…), or how often to try: retry=3"),
    ({"retry": 0}, "n: Retry(attempts=0) never runs the node; give 1 or more"),
    ({"retry": Retry(attempts=cast("Any", "3"))}, "n: Retry(attempts='3'): give a whole number"),
    ({"retry": Retry(cast("Any", "1s"))}, "n: Retry(delay='1s'): give a number"),
    (
        {"retry": Retry(retry_on=cast("Any", "ValueError"))},
        "n: Retry(retry_on='ValueError'): give an exception class, a tuple of them, or a function of the error",
    ),
    ({"timeout": "soon"}, 'n: timeout is \'soon\'; give seconds, a text such as "90s" or "30m", or a timedelta'),
    ({"timeout": -1}, "n: timeout is -1; give more than 0 seconds"),
    ({"timeout": timedelta(0)}, "n: timeout is datetime.timedelta(0); give more than 0 seconds"),
    ({"timeout": []}, 'n: timeout is []; give seconds, a text such as "90s" or "30m", or a timedelta'),
]


@pytest.mark.parametrize(("options", "problem"), BAD_OPTIONS)
def test_an_impossible_policy_is_a_problem(options: dict[str, Any], problem: str) -> None:
    async def run(ctx: NodeContext[S]) -> None: ...

    assert problems(lambda: graph(S).node("n", run, **options).compile()) == [problem]


# Numbers, ids, edges


NUMBERS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: graph(S).then(say("a")).compile(max_concurrency=cast("Any", "2")),
        "max_concurrency is '2'; give a whole number, or 0 for no limit",
    ),
    (
        lambda: graph(S).then(say("a")).compile(max_steps=cast("Any", 2.5)),
        "max_steps is 2.5; give a whole number, or 0 for no limit",
    ),
    (
        lambda: graph(S).parallel({"x": say("x")}, id="p", max_concurrency=cast("Any", "2")).compile(),
        "p: max_concurrency is '2'; give a whole number, or 0 for no limit",
    ),
    (
        lambda: graph(S).map("m", lambda s: [1], say("x"), max_concurrency=cast("Any", "2")).compile(),
        "m: max_concurrency is '2'; give a whole number, or 0 for no limit",
    ),
    (
        lambda: graph(S).loop(say("x"), until=lambda s: True, max_iterations=cast("Any", "3"), id="l").compile(),
        "l: max_iterations is '3'; give a whole number, or 0 for no limit",
    ),
    (
        lambda: graph(S).then(say("a")).compile(state_version=cast("Any", "2")),
        "state_version is '2'; give a whole number, versions begin with 1",
    ),
    (lambda: graph(S).then(say(cast("Any", 1))).compile(), "1: an id must be text, not 1; write '1' in quotes"),
]


@pytest.mark.parametrize(("build", "problem"), NUMBERS)
def test_a_number_or_an_id_of_another_type_is_a_problem(build: Callable[[], Any], problem: str) -> None:
    assert problems(build) == [problem]


async def test_a_pair_of_ids_is_an_edge() -> None:
    config = GraphConfig(start_node="a", nodes=[say("a"), say("b")], edges=[("a", "b")], state=S)
    compiled = compile_graph(config)
    assert (await within(compiled.run())).state.log == ["a", "b"]
    assert compiled.edges[0].to == "b"
    assert "a" in compiled.draw()


@pytest.mark.parametrize("edge", [("a", "b", "c"), ("a",), (1, 2), "ab", Edge(cast("Any", 1), "b")])
def test_a_value_that_is_not_an_edge_is_a_problem(edge: Any) -> None:
    config = GraphConfig(start_node="a", nodes=[say("a")], edges=[edge], state=S)
    (problem,) = problems(lambda: compile_graph(config))
    assert problem.endswith("is not an edge; give Edge('a', 'b') or ('a', 'b')")


# States


class Model(pydantic.BaseModel):
    x: int = 0


def a_state(**annotations: Any) -> type[State]:
    body = {"__annotations__": annotations, "__module__": __name__, **dict.fromkeys(annotations)}
    return cast("Any", type(State))("Mine", (State,), body)


def two(current: Any, update: Any) -> Any:
    return update


def one(current: Any) -> Any:
    return current


async def later(current: Any, update: Any) -> Any:
    return update


STATES: list[tuple[dict[str, Any], str]] = [
    (
        {"outputs": list[str]},
        "outputs: Mine declares it, but every state already has it; give the field another name",
    ),
    (
        {"execution_id": int},
        "execution_id: Mine declares it, but every state already has it; give the field another name",
    ),
    (
        {"m": Model},
        "m: Model is a pydantic model; use a msgspec.Struct or a dataclass, or dict and model_dump()",
    ),
    (
        {"m": dict[str, list[Model]]},
        "m: Model is a pydantic model; use a msgspec.Struct or a dataclass, or dict and model_dump()",
    ),
    ({"n": Annotated[list[str], "concat"]}, 'n: "concat" is a text, not a reducer; write reducers.concat'),
    (
        {"n": Annotated[list[str], "reducers.merge"]},
        'n: "reducers.merge" is a text, not a reducer; write reducers.merge',
    ),
    ({"n": Annotated[list[str], list]}, "n: list is a type, not a reducer; give a function (current, update) -> new"),
    (
        {"n": Annotated[int, one]},
        "n: its reducer custom:one does not take two arguments; give a function (current, update) -> new",
    ),
    (
        {"n": Annotated[int, later]},
        "n: its reducer custom:later is async; give a plain function (current, update) -> new",
    ),
    ({"n": Annotated[int, reducers.sum, two]}, "n: it has two reducers, sum and custom:two; give one"),
    (
        {"n": Annotated[list[Any], reducers.merge_by_id]},
        'n: reducers.merge_by_id needs the name of the id: merge_by_id("id")',
    ),
]


@pytest.mark.parametrize(("annotations", "problem"), STATES)
def test_an_impossible_field_is_a_problem(annotations: dict[str, Any], problem: str) -> None:
    nothing = cast("Any", tool_node)("a", lambda: None)
    assert problems(lambda: graph(a_state(**annotations)).then(nothing).compile()) == [problem]


def test_other_metadata_of_annotated_is_allowed() -> None:
    import operator

    nothing = cast("Any", tool_node)("a", lambda: None)
    fine = a_state(a=Annotated[int, "how many there are"], b=Annotated[int, operator.add], c=Annotated[int, max])
    graph(fine).then(nothing).compile()


# What functions return


async def failure(compiled: Any) -> str:
    result = await within(compiled.run())
    assert result.status is RunStatus.FAILED
    return str(result.error)


async def test_a_mapper_that_does_not_return_a_mapping_is_reported() -> None:
    def wrong(result: Any, state: Any) -> Any:
        return "text"

    words = "output_mapper returned 'text'; return a mapping of fields to values, or None"
    assert await failure(graph(S).tool("a", lambda: 1, output_mapper=wrong).compile()) == f"a: {words}"
    child = graph(S).then(say("b")).compile()
    assert await failure(graph(S).subgraph("sub", child, output_mapper=wrong).compile()) == f"sub: {words}"
    merged = graph(S).parallel({"x": say("x")}, id="p", merge=wrong).compile()
    assert "an update is a mapping of fields to values, not 'text'" in await failure(merged)


@pytest.mark.parametrize("answer", [{"a": 1}, 7, None, [1, 2], [["a"]]])
async def test_an_answer_that_is_not_text_is_refused(answer: Any) -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("ask", "Go on?").compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    before = list(journal.history(RUN).rows)
    with pytest.raises(AtomicError) as caught:
        await within(compiled.resume(journal, RUN, answers={"ask": answer}))
    assert str(caught.value) == f'The answer to "ask" is {answer!r}; give a text, or a list of texts'
    assert journal.history(RUN).rows == before


# Journals and streams


async def test_a_path_is_a_sqlite_journal_that_is_closed_in_the_end(tmp_path: Path) -> None:
    compiled = graph(S).then(say("a")).ask_user("ask", "Go on?").then(say("b")).compile()
    for name, path in {"text": str(tmp_path / "text.db"), "path": tmp_path / "path.db"}.items():
        paused = await within(compiled.run(journal=path, execution_id=RUN))
        assert paused.status is RunStatus.PAUSED
        assert compiled.load(path, RUN).log == ["a"]
        seen: list[str] = []
        async for step in compiled.resume_stream(path, RUN, answers={"ask": "yes"}):
            seen.append(step.node_id)
        assert seen == ["ask", "b"]
        with pytest.raises(AtomicError, match="Run not found"):
            compiled.load(path, "other")
        _nobody_has_it_open(path)
        with SqliteJournal(path) as journal:
            assert [info.status for info in journal.list()] == ["completed"], name


async def test_graphs_of_the_engine_take_a_path_as_their_journal_too(tmp_path: Path) -> None:
    """This holds for graphs of the engine, not only for `atomic.workflows`."""
    built = engine.GraphBuilder(S).then(say("a")).compile()
    from_data = engine.compile_graph(GraphConfig(start_node="a", nodes=[say("a")], edges=[], state=S))
    for name, compiled in {"built": built, "data": from_data}.items():
        path = str(tmp_path / f"{name}.db")
        result = await within(compiled.run(journal=path, execution_id=RUN))
        assert result.status is RunStatus.COMPLETED, name
        assert compiled.load(path, RUN).log == ["a"], name
        with pytest.raises(JournalError, match="There is no journal"):
            compiled.load(f"{path}.other", RUN)
        _nobody_has_it_open(path)


async def test_a_journal_at_a_path_is_closed_when_the_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    compiled = graph(S).then(say("a")).compile()
    await within(compiled.run(journal=path, execution_id=RUN))
    with pytest.raises(JournalError, match="exists already"):
        await within(compiled.run(journal=path, execution_id=RUN))
    _nobody_has_it_open(path)


async def test_resuming_from_a_missing_journal_is_refused_and_creates_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    config = GraphConfig(start_node="a", nodes=[say("a"), say("b")], edges=[Edge("a", "b")], state=S)
    for compiled in (graph(S).then(say("a")).compile(), compile_graph(config)):
        for look in (lambda: compiled.load(path, RUN), lambda: compiled.resume_stream(path, RUN)):  # noqa: B023
            with pytest.raises(JournalError) as caught:
                look()
            text = f'There is no journal "{path}": a run continues only with the journal that it was recorded in'
            assert str(caught.value) == text
        assert list(tmp_path.iterdir()) == []
    await within(compile_graph(config).run(journal=path, execution_id=RUN))
    assert path.exists()


def _nobody_has_it_open(path: str | Path) -> None:
    opened = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in opened if str(name).startswith(str(path))]


async def test_a_value_that_is_not_a_journal_is_refused() -> None:
    compiled = graph(S).then(say("a")).compile()
    with pytest.raises(JournalError) as caught:
        await within(compiled.run(journal=cast("Any", 7)))
    assert str(caught.value) == "7 is not a journal; give SqliteJournal(path), MemoryJournal() or a path"


async def test_a_text_is_one_stream_mode() -> None:
    compiled = graph(S).then(say("a")).compile()
    found = [event async for event in compiled.stream(modes="updates")]
    assert found == [StreamEvent("updates", "a", {"log": ["a"]})]
    with pytest.raises(AtomicError, match='Unknown stream mode "update" \\(did you mean "updates"\\?\\)'):
        compiled.stream(modes=cast("Any", "update"))


def test_a_bad_id_and_other_mistakes_are_reported_together() -> None:
    async def run(ctx: NodeContext[S]) -> None: ...

    wrong = node(cast("Any", 1), run, retry=cast("Any", "x"), timeout=cast("Any", "x"))
    assert len(problems(lambda: graph(S).then(wrong).compile(max_steps=-1))) == 4
