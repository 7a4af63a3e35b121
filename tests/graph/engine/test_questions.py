"""Questions to users: live answers, and answers days later in a new process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from atomic.workflows import (
    CompiledGraph,
    Edge,
    GraphConfig,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    Option,
    Question,
    QuestionError,
    Retry,
    RunResult,
    RunStatus,
    Signal,
    StateError,
    ask_user_node,
    compile_graph,
    graph,
    node,
    wait_node,
)
from tests.graph.engine.small import RUN, S, ended, fail, running, say, within
from tests.support.waits import skip_time


async def paused(compiled: CompiledGraph[S], journal: MemoryJournal, **options: Any) -> RunResult[S]:
    result = await within(compiled.run(journal=journal, execution_id=RUN, **options))
    assert result.status is RunStatus.PAUSED, result
    assert result.error is None
    assert journal.list()[0].status == "paused"
    return result


async def answered(compiled: CompiledGraph[S], journal: MemoryJournal, **answers: Any) -> RunResult[S]:
    return await within(compiled.resume(journal, RUN, answers=answers))


def ids(result: RunResult[S]) -> list[str]:
    return [question.id for question in result.questions]


@dataclass
class Broker:
    """A host that knows all answers."""

    answers: dict[str, str | list[str]]
    asked: list[Question] = field(default_factory=list[Question])

    async def ask(self, question: Question) -> str | list[str]:
        self.asked.append(question)
        await asyncio.sleep(0)
        return self.answers[question.id]


@dataclass
class Deps:
    broker: Broker | None = None


# Days later


async def test_without_a_host_a_question_pauses_and_an_answer_resumes() -> None:
    journal = MemoryJournal()
    compiled = (
        graph(S).then(say("a")).ask_user("auth", "Which auth?", options=["JWT", "session"]).then(say("b")).compile()
    )
    result = await paused(compiled, journal)
    (question,) = result.questions
    assert (question.id, question.text) == ("auth", "Which auth?")
    assert [option.label for option in question.options] == ["JWT", "session"]
    result = await answered(compiled, journal, auth="JWT")
    assert result.status is RunStatus.COMPLETED
    assert result.state.outputs == {"auth": "JWT"}
    assert result.state.log == ["a", "b"]
    assert list(result.questions) == []


async def test_no_finished_step_runs_again() -> None:
    ran: list[str] = []
    journal = MemoryJournal()
    compiled = (
        graph(S)
        .tool("a", run=lambda: ran.append("a"))
        .ask_user("q", "?")
        .tool("b", run=lambda: ran.append("b"))
        .compile()
    )
    await paused(compiled, journal)
    await answered(compiled, journal, q="yes")
    assert ran == ["a", "b"]


async def test_everything_about_a_question_is_kept() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user(
        "q",
        lambda s: f"{s.text}?",
        options=[Option("a", "first"), "b"],
        header="Choose",
        multi_select=True,
        default="a",
    )
    result = await within(compiled.compile().run({"text": "Which"}, journal=journal, execution_id=RUN))
    expected = Question(
        "Which?", options=[Option("a", "first"), Option("b")], header="Choose", multi_select=True, default="a", id="q"
    )
    assert list(result.questions) == [expected]
    again = await within(compiled.compile().resume(journal, RUN))
    assert (again.status, list(again.questions)) == (RunStatus.PAUSED, [expected])


async def test_the_default_is_never_taken_by_the_engine() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("q", "?", options=["a", "b"], default="a").compile()
    await paused(compiled, journal)
    assert (await answered(compiled, journal)).status is RunStatus.PAUSED


async def test_several_answers_are_a_list() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("q", "?", options=["a", "b", "c"], multi_select=True).compile()
    await paused(compiled, journal)
    assert (await answered(compiled, journal, q=["a", "c"])).state.outputs["q"] == ["a", "c"]


async def test_an_output_mapper_takes_the_answer() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("q", "?", output_mapper=lambda answer, s: {"text": answer + s.text}).compile()
    await within(compiled.run({"text": "!"}, journal=journal, execution_id=RUN))
    assert (await answered(compiled, journal, q="yes")).state.text == "yes!"


async def test_without_a_journal_a_run_pauses_too() -> None:
    result = await within(graph(S).ask_user("q", "?").compile().run())
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["q"])


async def test_an_unknown_answer_is_refused_and_names_the_open_ones() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("auth", "?").compile()
    await paused(compiled, journal)
    with pytest.raises(QuestionError, match="auth"):
        await answered(compiled, journal, aut="JWT")
    assert (await answered(compiled, journal, auth="JWT")).state.outputs == {"auth": "JWT"}


async def test_a_question_is_closed_by_its_answer() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("one", "?").ask_user("two", "?").compile()
    await paused(compiled, journal)
    assert ids(await answered(compiled, journal, one="1")) == ["two"]
    with pytest.raises(QuestionError, match='open: "two"'):
        await answered(compiled, journal, one="again")
    assert (await answered(compiled, journal, two="2")).state.outputs == {"one": "1", "two": "2"}


async def test_a_resume_without_answers_asks_the_same_once() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("q", "?").compile()
    await paused(compiled, journal)
    for _ in range(3):
        assert ids(await answered(compiled, journal)) == ["q"]
    assert (await answered(compiled, journal, q="yes")).state.outputs == {"q": "yes"}


async def test_each_iteration_of_a_loop_asks_again() -> None:
    journal = MemoryJournal()
    compiled = graph(S).loop(
        [ask_user_node("q", "again?", output_mapper=lambda answer, s: {"log": [answer]})],
        until=lambda s: s.log[-1:] == ["no"],
    )
    built = compiled.compile()
    await paused(built, journal)
    for answer in ("yes", "yes"):
        result = await answered(built, journal, q=answer)
        assert (result.status, ids(result)) == (RunStatus.PAUSED, ["q"])
    assert (await answered(built, journal, q="no")).state.log == ["yes", "yes", "no"]


async def test_a_paused_run_that_lost_its_answered_step_asks_for_nothing_twice() -> None:
    """Killed after the answer was recorded and before the step was: the answer is kept."""
    from tests.graph.engine.law_journals import KeptJournal

    journal = KeptJournal()
    compiled = graph(S).ask_user("q", "?").then(say("a")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    asked = len(journal.rows(RUN))
    await within(compiled.resume(journal, RUN, answers={"q": "yes"}))
    for rows in range(asked + 1, len(journal.rows(RUN)) + 1):
        result = await within(compiled.resume(journal.cut(RUN, rows), RUN))
        assert result.state.outputs == {"q": "yes"}
        assert result.state.log == ["a"]


# Waiting


async def test_a_wait_pauses_until_it_is_approved() -> None:
    journal = MemoryJournal()
    compiled = graph(S).wait("Deploy now?").then(say("deployed")).compile()
    result = await paused(compiled, journal)
    (question,) = result.questions
    assert (question.id, question.text) == ("wait-1", "Deploy now?")
    assert (await answered(compiled, journal, **{"wait-1": "go"})).state.log == ["deployed"]


async def test_a_wait_maps_its_answer() -> None:
    journal = MemoryJournal()
    compiled = graph(S).then(
        wait_node("w", lambda s: f"go {s.count}?", input_mapper=lambda answer, s: {"text": f"{answer}{s.count}"})
    )
    result = await within(compiled.compile().run({"count": 7}, journal=journal, execution_id=RUN))
    assert result.questions[0].text == "go 7?"
    assert (await answered(compiled.compile(), journal, w="yes")).state.text == "yes7"


def is_done(state: S) -> bool:
    return state.done


@pytest.mark.parametrize("approve", [True, is_done])
async def test_auto_approve_skips_the_wait(approve: Any) -> None:
    compiled = graph(S).wait("?", auto_approve=approve).then(say("a")).compile()
    assert (await ended(compiled, {"done": True})).state.log == ["a"]


# Live


async def test_a_live_host_answers_the_running_node() -> None:
    broker = Broker({"q": "yes", "n-1": "one", "mine": "two", "n-3": "three"})
    answers: list[Any] = []

    async def run(ctx: NodeContext[S]) -> None:
        answers.append(await ctx.ask(Question("first?")))
        answers.append(await ctx.ask(Question("second?", id="mine")))
        answers.append(await ctx.ask(Question("third?")))

    result = await ended(graph(S).ask_user("q", "?").node("n", run).compile(), deps=Deps(broker))
    assert answers == ["one", "two", "three"]
    assert result.state.outputs == {"q": "yes"}
    assert [question.id for question in broker.asked] == ["q", "n-1", "mine", "n-3"]


async def test_a_live_answer_is_recorded_and_not_asked_for_again() -> None:
    broker = Broker({"n-1": "yes"})
    broken = True

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        answer = await ctx.ask("go on?")
        if broken:
            raise ValueError("not yet")
        return {"text": answer}

    journal = MemoryJournal()
    compiled = graph(S).node("n", run).compile()
    await within(compiled.run(journal=journal, execution_id=RUN, deps=Deps(broker)))
    broken = False
    assert (await answered(compiled, journal)).state.text == "yes"
    assert len(broker.asked) == 1


async def test_a_later_host_receives_the_question() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("q", "?").compile()
    await paused(compiled, journal, deps=Deps())
    result = await within(compiled.resume(journal, RUN, deps=Deps(Broker({"q": "late"}))))
    assert result.state.outputs == {"q": "late"}


async def test_a_run_that_is_cancelled_before_the_answer_asks_again() -> None:
    asked = asyncio.Event()

    class Thinking(Broker):
        async def ask(self, question: Question) -> str | list[str]:
            asked.set()
            await asyncio.sleep(1000)
            return "never"

    journal = MemoryJournal()
    compiled = graph(S).ask_user("q", "?").then(say("a")).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Deps(Thinking({})))) as task:
        await within(asked.wait())
        task.cancel()
        await asyncio.wait([task])
    assert journal.list()[0].status == "cancelled"
    assert ids(await answered(compiled, journal)) == ["q"]
    assert (await answered(compiled, journal, q="yes")).state.outputs == {"q": "yes"}


async def test_two_branches_ask_at_once() -> None:
    both = asyncio.Event()

    class Patient(Broker):
        async def ask(self, question: Question) -> str | list[str]:
            self.asked.append(question)
            if len(self.asked) == 2:
                both.set()
            await within(both.wait())
            return self.answers[question.id]

    broker = Patient({"a": "1", "b": "2"})
    compiled = graph(S).parallel([ask_user_node("a", "?"), ask_user_node("b", "?")]).compile()
    assert (await ended(compiled, deps=Deps(broker))).state.outputs == {"a": "1", "b": "2"}


# Asking from a node


async def test_after_a_restart_a_node_starts_from_its_top_and_finds_its_answers_in_order() -> None:
    tops: list[str] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        tops.append(ctx.step_id)
        one = await ctx.ask(Question("one?"))
        two = await ctx.ask(Question("two?", options=["x", "y"]))
        return {"log": [one, two]}

    journal = MemoryJournal()
    compiled = graph(S).node("n", run).compile()
    assert ids(await paused(compiled, journal)) == ["n-1"]
    result = await answered(compiled, journal, **{"n-1": "1"})
    assert ids(result) == ["n-2"]
    result = await answered(compiled, journal, **{"n-2": "y"})
    assert result.state.log == ["1", "y"]
    assert len(tops) == 3
    assert len(set(tops)) == 1


async def test_a_node_cannot_swallow_a_pause() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        try:
            return {"text": await ctx.ask("?")}
        except Exception:
            return {"text": "swallowed"}

    journal = MemoryJournal()
    compiled = graph(S).node("n", run).compile()
    await paused(compiled, journal)
    assert (await answered(compiled, journal, **{"n-1": "yes"})).state.text == "yes"


async def test_a_pause_is_not_a_failure_and_is_not_retried() -> None:
    from atomic.workflows import Retry, Skip

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"text": await ctx.ask("?")}

    journal = MemoryJournal()
    compiled = graph(S).node("n", run, retry=Retry(0), on_error=lambda error, ctx: Skip(), timeout=1000).compile()
    await paused(compiled, journal)


async def test_the_timeout_of_the_graph_excludes_waiting_for_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Broker):
        async def ask(self, question: Question) -> str | list[str]:
            await skip_time(monkeypatch, 100)
            return "yes"

    compiled = graph(S).ask_user("q", "?").compile(timeout=50)
    assert (await ended(compiled, deps=Deps(Slow({})))).state.outputs == {"q": "yes"}


# Branches


async def test_branches_that_do_not_need_the_answer_continue() -> None:
    journal = MemoryJournal()
    asking = graph(S).then(say("before")).ask_user("q", "?").then(say("behind"))
    free = graph(S).then(say("x")).then(say("y")).then(say("z"))
    compiled = graph(S).parallel({"asks": asking, "free": free}).then(say("join")).compile()
    await paused(compiled, journal)
    assert {record.node_id for record in journal.records(RUN)} == {"before", "x", "y", "z"}
    result = await answered(compiled, journal, q="yes")
    assert result.state.log == ["before", "behind", "x", "y", "z", "join"]


async def test_questions_of_several_branches_are_answered_one_by_one() -> None:
    journal = MemoryJournal()
    branches = {name: graph(S).ask_user(name, f"{name}?").then(say(f"after-{name}")) for name in ("a", "b", "c")}
    compiled = graph(S).parallel(branches).then(say("join")).compile()
    assert ids(await paused(compiled, journal)) == ["a", "b", "c"]
    result = await answered(compiled, journal, b="2")
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["a", "c"])
    assert [record.node_id for record in journal.records(RUN)] == ["b", "after-b"]
    result = await answered(compiled, journal, a="1", c="3")
    assert result.state.outputs == {"a": "1", "b": "2", "c": "3"}
    assert result.state.log == ["after-a", "after-b", "after-c", "join"]


async def test_branches_made_by_edges_pause_one_by_one_too() -> None:
    journal = MemoryJournal()
    config = GraphConfig(
        start_node="start",
        nodes=[say("start"), ask_user_node("a", "?"), ask_user_node("b", "?"), say("free"), say("join")],
        edges=[*(Edge("start", name) for name in ("a", "b", "free")), *(Edge(n, "join") for n in ("a", "b", "free"))],
        state=S,
    )
    compiled = compile_graph(config)
    assert ids(await paused(compiled, journal)) == ["a", "b"]
    assert ids(await answered(compiled, journal, a="1")) == ["b"]
    result = await answered(compiled, journal, b="2")
    assert (result.state.outputs, result.state.log) == ({"a": "1", "b": "2"}, ["start", "free", "join"])


async def test_every_item_of_a_map_asks_for_itself() -> None:
    journal = MemoryJournal()
    compiled = graph(S).map("m", over=lambda s: [1, 2], node=ask_user_node("q", "?")).compile()
    assert ids(await paused(compiled, journal)) == ["q[0]", "q[1]"]
    await answered(compiled, journal, **{"q[1]": "two"})
    result = await answered(compiled, journal, **{"q[0]": "one"})
    assert result.state.outputs["m"] == ["one", "two"]


async def test_a_subgraph_asks_under_its_own_name() -> None:
    journal = MemoryJournal()
    child = graph(S).ask_user("q", "?").then(say("a")).compile()
    compiled = graph(S).subgraph("sub", child).then(say("b")).compile()
    assert ids(await paused(compiled, journal)) == ["sub/q"]
    result = await answered(compiled, journal, **{"sub/q": "yes"})
    assert result.state.log == ["a", "b"] or result.state.log == ["sub/a", "b"]
    assert result.state.outputs["sub"]["outputs"] == {"q": "yes"}


async def test_a_race_is_not_held_up_by_a_question() -> None:
    journal = MemoryJournal()
    branches: dict[str, Node[S]] = {"asks": ask_user_node("q", "?"), "fast": say("fast")}
    compiled = graph(S).parallel(branches, strategy="race").then(say("join")).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, result.state.log, ids(result)) == (RunStatus.COMPLETED, ["fast", "join"], [])


async def test_a_question_of_a_loser_is_closed() -> None:
    journal = MemoryJournal()
    branches: dict[str, Node[S]] = {"asks": ask_user_node("q", "?"), "fast": say("fast")}
    compiled = graph(S).parallel(branches, strategy="race").ask_user("later", "?").compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert ids(result) == ["later"]
    with pytest.raises(QuestionError, match="later"):
        await answered(compiled, journal, q="too late")


async def test_a_race_where_all_ask_is_decided_by_the_first_answer() -> None:
    journal = MemoryJournal()
    compiled = graph(S).parallel([ask_user_node("a", "?"), ask_user_node("b", "?")], strategy="race").compile()
    assert ids(await paused(compiled, journal)) == ["a", "b"]
    result = await answered(compiled, journal, b="2")
    assert (result.status, result.state.outputs) == (RunStatus.COMPLETED, {"b": "2"})


async def test_a_failure_next_to_a_question_fails_the_run_which_can_be_resumed() -> None:
    journal = MemoryJournal()
    compiled = graph(S).parallel([ask_user_node("q", "?"), fail("n")]).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, ids(result)) == (RunStatus.FAILED, [])
    assert (await answered(compiled, journal)).status is RunStatus.FAILED


# Signals


async def signal_answer(compiled: CompiledGraph[S]) -> RunResult[S]:
    journal = MemoryJournal()
    result = await paused(compiled, journal)
    (question,) = result.questions
    assert question.text == "is that right?"
    return await answered(compiled, journal, **{question.id: "yes"})


async def test_human_input_required_is_a_question_after_a_finished_step() -> None:
    calls: list[int] = []

    async def run(ctx: NodeContext[S]) -> NodeResult:
        calls.append(1)
        return NodeResult({"log": ["n"]}, signals=[Signal("human_input_required", "is that right?")])

    async def look(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"text": str(ctx.output_of("n"))}

    result = await signal_answer(graph(S).node("n", run).node("look", look).compile())
    assert (result.state.log, result.state.text, calls) == (["n"], "yes", [1])


async def test_human_input_required_in_a_branch() -> None:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": ["n"]}, signals=[Signal("human_input_required", "is that right?")])

    compiled = graph(S).parallel({"a": graph(S).node("n", run).then(say("m")), "b": say("b")}).then(say("c")).compile()
    assert (await signal_answer(compiled)).state.log == ["n", "m", "b", "c"]


async def test_human_input_required_at_the_very_end() -> None:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": ["n"]}, signals=[Signal("human_input_required", "is that right?")])

    result = await signal_answer(graph(S).node("n", run).compile())
    assert (result.status, result.state.outputs) == (RunStatus.COMPLETED, {"n": "yes"})


async def test_human_input_required_is_shown_to_a_live_host() -> None:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": ["n"]}, signals=[Signal("human_input_required", "is that right?")])

    broker = Broker({"n": "yes"})
    result = await ended(graph(S).node("n", run).then(say("a")).compile(), deps=Deps(broker))
    assert result.state.outputs == {"n": "yes"}


async def test_a_stream_yields_the_step_before_it_pauses() -> None:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": ["n"]}, signals=[Signal("human_input_required", "is that right?")])

    journal = MemoryJournal()
    compiled = graph(S).node("n", run).then(node("m", run)).compile()
    steps = [step.node_id async for step in compiled.stream(journal=journal, execution_id=RUN)]
    assert steps == ["n"]
    assert journal.list()[0].status == "paused"


# Answers belong to their questions


async def name_and_age(ctx: NodeContext[S]) -> dict[str, Any]:
    name, age = await asyncio.gather(
        ctx.ask(Question("What is your name?", id="name")), ctx.ask(Question("How old are you?", id="age"))
    )
    return {"outputs": {"name": name, "age": age}}


@pytest.mark.parametrize("place", ["plain", "branch", "item"])
async def test_answers_in_another_order_reach_their_questions(place: str) -> None:
    journal = MemoryJournal()
    both = node("n", name_and_age)
    compiled = {
        "plain": graph(S).then(both),
        "branch": graph(S).parallel([both, say("b")]),
        "item": graph(S).map("m", over=lambda s: [1], node=[both, say("b")]),
    }[place].compile()
    result = await paused(compiled, journal)
    assert ids(result) == ["name", "age"]
    result = await answered(compiled, journal, age="42")
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["name"])
    result = await answered(compiled, journal, name="Bob")
    assert result.status is RunStatus.COMPLETED
    updates = [record.update for record in journal.records(RUN) if record.node_id.startswith("n")]
    assert updates == [{"outputs": {"name": "Bob", "age": "42"}}]


async def test_questions_with_the_same_text_differ_by_their_ids() -> None:
    journal = MemoryJournal()

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": await asyncio.gather(ctx.ask("Well?"), ctx.ask("Well?"))}

    compiled = graph(S).node("n", run).compile()
    assert ids(await paused(compiled, journal)) == ["n-1", "n-2"]
    await answered(compiled, journal, **{"n-2": "second"})
    assert (await answered(compiled, journal, **{"n-1": "first"})).state.log == ["first", "second"]


async def test_a_question_in_a_loop_takes_its_answers_in_order() -> None:
    journal = MemoryJournal()

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        said: list[str] = []
        while said[-1:] != ["no"]:
            said.append(await ctx.ask(Question("Again?", id="again")))
        return {"log": said}

    compiled = graph(S).node("n", run).compile()
    await paused(compiled, journal)
    for answer in ("yes", "maybe", "no"):
        result = await answered(compiled, journal, again=answer)
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["yes", "maybe", "no"])


@pytest.mark.parametrize("how", ["gather", "group", "branches"])
async def test_two_open_questions_with_one_id_are_refused(how: str) -> None:
    def ask(ctx: NodeContext[S], text: str) -> Any:
        return ctx.ask(Question(text, id="q"))

    async def gathered(ctx: NodeContext[S]) -> None:
        await asyncio.gather(ask(ctx, "One?"), ask(ctx, "Two?"))

    async def grouped(ctx: NodeContext[S]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(ctx, "One?"))
            group.create_task(ask(ctx, "Two?"))

    async def one(ctx: NodeContext[S]) -> None:
        await ask(ctx, "One?")

    async def two(ctx: NodeContext[S]) -> None:
        await ask(ctx, "Two?")

    compiled = {
        "gather": graph(S).node("n", gathered),
        "group": graph(S).node("n", grouped),
        "branches": graph(S).parallel([node("n", one), node("m", two)]),
    }[how].compile()
    result = await within(compiled.run())
    asker = "m" if how == "branches" else "n"
    assert result.status is RunStatus.FAILED
    assert str(result.error) == (
        f"{asker}: question \"q\" ('Two?') is asked while another one with this id is open ('One?', of 'n'); "
        "give each open question its own id"
    )


async def test_an_id_is_free_again_when_its_question_is_closed() -> None:
    """The question was answered, lost in a race, or belongs to a failed attempt."""
    journal = MemoryJournal()

    async def ask(ctx: NodeContext[S]) -> None:
        await ctx.ask(Question("One?", id="q"))

    asking = node("one", ask)
    raced = graph(S).parallel([asking, say("fast")], strategy="race").ask_user("q", "Two?").compile()
    result = await within(raced.run(journal=journal, execution_id=RUN))
    assert [(question.id, question.text) for question in result.questions] == [("q", "Two?")]
    assert (await answered(raced, journal, q="yes")).state.outputs == {"q": "yes"}

    async def flaky(ctx: NodeContext[S]) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ctx.ask(Question("One?", id="q")))
            if ctx.attempt == 1:
                group.create_task(broken())
        return {"log": [asked.result()]}

    async def broken() -> None:
        raise ValueError("no")

    retried = graph(S).node("n", flaky, retry=Retry(0, jitter=False)).compile()
    result = await within(retried.run())
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["q"])


def asks(*texts: str | Question) -> CompiledGraph[S]:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [f"{getattr(text, 'text', text)} {await ctx.ask(text)}" for text in texts]}

    return graph(S).node("n", run).compile()


@pytest.mark.parametrize("named", [True, False])
async def test_a_question_that_is_inserted_does_not_shift_the_answers(named: bool) -> None:
    def question(text: str) -> str | Question:
        return Question(text, id=text.lower().strip("?")) if named else text

    journal = MemoryJournal()
    old = asks(question("Name?"), question("Town?"))
    new = asks(*map(question, ("Age?", "Name?", "Town?")))
    first = await paused(old, journal)
    await answered(old, journal, **{first.questions[0].id: "Bob"})
    result = await answered(new, journal)
    assert [question.text for question in result.questions] == ["Age?"]
    result = await answered(new, journal, **{result.questions[0].id: "42"})
    assert [question.text for question in result.questions] == ["Town?"]
    result = await answered(new, journal, **{result.questions[0].id: "Rome"})
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["Age? 42", "Name? Bob", "Town? Rome"])


async def test_a_question_with_another_text_is_asked_again_with_a_reason() -> None:
    journal = MemoryJournal()
    old = asks(Question("Delete the file?", id="sure"), "Well?")
    new = asks(Question("Delete the disk?", id="sure"), "Well?")
    await paused(old, journal)
    await answered(old, journal, sure="yes")
    result = await answered(new, journal)
    assert [question.text for question in result.questions] == ["Delete the disk?"]
    (warning,) = [event.data["text"] for event in result.warnings]
    assert warning == (
        "n: question \"sure\" was 'Delete the file?' when it was answered and is 'Delete the disk?' now; "
        "it is asked again"
    )
    result = await answered(new, journal, sure="no")
    result = await answered(new, journal, **{"n-2": "ok"})
    assert result.state.log == ["Delete the disk? no", "Well? ok"]


async def test_the_same_answer_may_be_given_twice_and_another_one_may_not() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("one", "?").ask_user("two", "?", options=["a", "b"], multi_select=True).compile()
    await paused(compiled, journal)
    for _ in range(3):
        assert ids(await answered(compiled, journal, one="1")) == ["two"]
    with pytest.raises(
        QuestionError, match="Question \"one\" is already answered: '1'; to answer it differently, fork"
    ):
        await answered(compiled, journal, one="2")
    with pytest.raises(QuestionError, match='No open question "three"; open: "two"'):
        await answered(compiled, journal, one="1", two="a", three="3")
    assert (await answered(compiled, journal, one="1", two="a")).state.outputs == {"one": "1", "two": ["a"]}
    assert (await answered(compiled, journal, two="a")).status is RunStatus.COMPLETED


class Newer(S):
    more: int


async def test_a_refused_resume_has_recorded_nothing() -> None:
    journal = MemoryJournal()
    compiled = graph(S).ask_user("one", "?").ask_user("two", "?").compile()
    await paused(compiled, journal)
    before = journal.history(RUN).rows
    with pytest.raises(QuestionError):
        await answered(compiled, journal, one="1", three="3")
    newer = graph(Newer).ask_user("one", "?").ask_user("two", "?").compile()
    with pytest.raises(StateError, match="more"):
        await newer.resume(journal, RUN, answers={"one": "1"})
    assert journal.history(RUN).rows == before
    assert ids(await answered(compiled, journal)) == ["one"]
