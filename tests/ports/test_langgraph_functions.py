"""LangGraph's tests of its functional API, with its expected values.

All are of `libs/langgraph/tests/test_pregel.py`.
"""

import asyncio
from typing import Any

from atomic.workflows import Flow, Journal, RunStatus, current_step, step, workflow
from tests.ports.source import port, results

Values = dict[str, Any]


@port("LangGraph", "test_imp_task", lines=35)
async def test_tasks_before_a_question_run_once(journal: Journal) -> None:
    calls = 0

    @step
    async def mapper(number: int) -> str:
        nonlocal calls
        calls += 1
        return str(number) * 2

    @workflow
    async def graph(flow: Flow, numbers: list[int]) -> list[str]:
        mapped = await asyncio.gather(*(mapper(number) for number in numbers))
        answer = await flow.ask("question")
        return [text + answer for text in mapped]

    steps = await results(graph.stream([0, 1], journal=journal, execution_id="1"))
    assert steps == [("mapper", "00"), ("mapper", "11")]
    done = await graph.resume(journal, "1", answers={"ask-1": "answer"})
    assert done.result == ["00answer", "11answer"]
    assert calls == 2


@port("LangGraph", "test_imp_nested", lines=44)
async def test_a_task_calls_a_task_and_a_workflow_another_one(journal: Journal) -> None:
    @workflow
    async def add_a(flow: Flow, texts: list[str]) -> list[str]:
        return [text + "a" for text in texts]

    @step
    async def submapper(number: int) -> str:
        return str(number)

    @step
    async def mapper(number: int) -> str:
        return await submapper(number) * 2

    @workflow
    async def graph(flow: Flow, numbers: list[int]) -> list[str]:
        mapped = await asyncio.gather(*(mapper(number) for number in numbers))
        answer = await flow.ask("question")
        return await flow.run(add_a, [text + answer for text in mapped])

    steps = await results(graph.stream([0, 1], journal=journal, execution_id="1"))
    assert steps == [("mapper", "00"), ("mapper", "11")]  # a step in a step is a part of it
    done = await graph.resume(journal, "1", answers={"ask-1": "answer"})
    assert done.result == ["00answera", "11answera"]


@port("LangGraph", "test_imp_stream_order", lines=31)
async def test_steps_are_streamed_in_their_order(journal: Journal) -> None:
    @step
    async def foo(state: Values) -> tuple[str, str]:
        return state["a"] + "foo", "bar"

    @step
    async def bar(a: str, b: str, c: str | None = None) -> Values:
        return {"a": a + b, "c": (c or "") + "bark"}

    @step
    async def baz(state: Values) -> Values:
        return {"a": state["a"] + "baz", "c": "something else"}

    @workflow
    async def graph(flow: Flow, state: Values) -> Values:
        return await baz(await bar(*await foo(state)))

    assert await results(graph.stream({"a": "0"}, journal=journal, execution_id="1")) == [
        ("foo", ["0foo", "bar"]),
        ("bar", {"a": "0foobar", "c": "bark"}),
        ("baz", {"a": "0foobarbaz", "c": "something else"}),
    ]
    assert (await graph.resume(journal, "1")).result == {"a": "0foobarbaz", "c": "something else"}


@port("LangGraph", "test_imp_exception", lines=27)
async def test_a_caught_failure_of_a_task_ends_nothing(journal: Journal) -> None:
    @step
    async def my_task(number: int) -> int:
        return number * 2

    @step
    async def task_with_exception(number: int) -> None:
        raise RuntimeError("This is a test exception")

    @workflow
    async def my_workflow(flow: Flow, number: int) -> str:
        await my_task(number)
        try:
            await task_with_exception(number)
        except RuntimeError as error:
            flow.emit("caught", str(error))
        await my_task(number)
        return "done"

    assert (await my_workflow.run(1, journal=journal, execution_id="1")).result == "done"
    records = [(record.node_id, record.update.get("outputs")) for record in journal.records("1")]
    completed = [(name, value) for name, value in records if name == "my_task"]
    assert completed == [("my_task", {"my_task": 2}), ("my_task", {"my_task": 2})]


@port("LangGraph", "test_interrupt_functional", lines=27)
async def test_a_question_between_two_tasks(journal: Journal) -> None:
    @step
    async def foo(state: Values) -> Values:
        return {"a": state["a"] + "foo"}

    @step
    async def bar(state: Values) -> Values:
        return {"a": state["a"] + "bar", "b": state["b"]}

    @workflow
    async def graph(flow: Flow, inputs: Values) -> Values:
        first = await foo(inputs)
        value = await flow.ask("Provide value for bar:")
        return await bar({**first, "b": value})

    paused = await graph.run({"a": ""}, journal=journal, execution_id="1")
    assert [question.text for question in paused.questions] == ["Provide value for bar:"]
    done = await graph.resume(journal, "1", answers={"ask-1": "bar"})
    assert done.result == {"a": "foobar", "b": "bar"}


@port("LangGraph", "test_interrupt_task_functional", lines=43)
async def test_a_task_asks_and_is_called_twice(journal: Journal) -> None:
    @step
    async def foo(state: Values) -> Values:
        return {"a": state["a"] + "foo"}

    @step
    async def bar(state: Values) -> Values:
        context = current_step()
        assert context is not None
        return {"a": state["a"] + await context.ask("Provide value for bar:")}

    @workflow
    async def once(flow: Flow, inputs: Values) -> Values:
        return await bar(await foo(inputs))

    @workflow
    async def twice(flow: Flow, inputs: Values) -> Values:
        return await bar(await bar(await foo(inputs)))

    paused = await once.run({"a": ""}, journal=journal, execution_id="1")
    (question,) = paused.questions
    assert question.text == "Provide value for bar:"
    assert (await once.resume(journal, "1", answers={question.id: "bar"})).result == {"a": "foobar"}

    paused = await twice.run({"a": ""}, journal=journal, execution_id="2")
    paused = await twice.resume(journal, "2", answers={paused.questions[0].id: "bar"})
    done = await twice.resume(journal, "2", answers={paused.questions[0].id: "baz"})
    assert done.result == {"a": "foobarbaz"}


@port("LangGraph", "test_multiple_interrupts_functional", lines=22)
async def test_questions_in_a_loop_repeat_no_task(journal: Journal) -> None:
    counter = 0

    @step
    async def double(x: int) -> int:
        nonlocal counter
        counter += 1
        return 2 * x

    @workflow
    async def graph(flow: Flow) -> list[Any]:
        values: list[Any] = []
        for number in (1, 2, 3):
            values += [await double(number), await flow.ask("boo")]
        return values

    ended = await graph.run(journal=journal, execution_id="1")
    for answer in ("a", "b", "c"):
        ended = await graph.resume(journal, "1", answers={ended.questions[0].id: answer})
    assert ended.result == [2, "a", 4, "b", 6, "c"]
    assert counter == 3


@port("LangGraph", "test_falsy_return_from_task", lines=21)
async def test_a_false_result_is_recorded_as_one(journal: Journal) -> None:
    calls = 0

    @step
    async def falsy_task() -> bool:
        nonlocal calls
        calls += 1
        return False

    @workflow
    async def graph(flow: Flow, state: Values) -> None:
        assert await falsy_task() is False
        await flow.ask("test")

    steps = await results(graph.stream({"a": 5}, journal=journal, execution_id="1"))
    assert steps == [("falsy_task", False)]
    done = await graph.resume(journal, "1", answers={"ask-1": "123"})
    assert (done.status, done.result, calls) == (RunStatus.COMPLETED, None, 1)


@port("LangGraph", "test_multiple_subgraphs_functional", lines=31)
async def test_the_same_workflow_and_two_workflows_are_called(journal: Journal) -> None:
    @step
    async def multiply_task(a: int, b: int) -> int:
        return a * b

    @workflow
    async def add(flow: Flow, a: int, b: int) -> int:
        return a + b

    @workflow
    async def multiply(flow: Flow, a: int, b: int) -> int:
        return await multiply_task(a, b)

    @workflow
    async def same(flow: Flow, a: int, b: int) -> int:
        return await flow.run(add, await flow.run(add, a, b), 10)

    @workflow
    async def several(flow: Flow, a: int, b: int) -> list[int]:
        return [await flow.run(add, a, b), await flow.run(multiply, a, b)]

    assert (await same.run(2, 3, journal=journal, execution_id="1")).result == 15
    assert (await several.run(2, 3, journal=journal, execution_id="2")).result == [5, 6]


@port("LangGraph", "test_named_tasks_functional", lines=33)
async def test_tasks_have_the_names_that_they_are_given() -> None:
    @step(name="custom_foo")
    async def foo(value: str) -> str:
        return value + "foo"

    @step(name="custom_bar")
    async def bar(value: str) -> str:
        return value + "|bar"

    async def append(value: str, update: str) -> str:
        return f"{value}|{update}"

    baz = step(name="baz")(append)
    custom_baz = step(name="custom_baz")(append)
    qux = step(name="qux")(append)

    @workflow(name="workflow")
    async def chain(flow: Flow, value: str) -> str:
        value = await baz(await bar(await foo(value)), "baz")
        return await qux(await custom_baz(value, "custom_baz"), "qux")

    assert await results(chain.stream("")) == [
        ("custom_foo", "foo"),
        ("custom_bar", "foo|bar"),
        ("baz", "foo|bar|baz"),
        ("custom_baz", "foo|bar|baz|custom_baz"),
        ("qux", "foo|bar|baz|custom_baz|qux"),
    ]


@port("LangGraph", "test_concurrent_emit_sends", lines=41)
async def test_a_fan_out_of_two_branches_joins_once() -> None:
    @step
    async def visit(name: str) -> list[str]:
        return [name]

    @workflow
    async def graph(flow: Flow, start: list[str]) -> list[str]:
        first = await asyncio.gather(visit("1"), visit("1.1"))
        direct = visit("3.1")
        items = [visit(f"2|{number}") for number in (1, 2, 3, 4)]
        second = await asyncio.gather(direct, *items)
        return sum([*first, *second, await visit("3")], start)

    assert (await graph.run(["0"])).result == ["0", "1", "1.1", "3.1", "2|1", "2|2", "2|3", "2|4", "3"]


@port("LangGraph", "test_batch_two_processes_in_out", lines=17)
async def test_many_runs_at_once_do_not_mix() -> None:
    @step
    async def add_one(number: int) -> int:
        await asyncio.sleep(number / 1000)
        return number + 1

    @workflow
    async def app(flow: Flow, number: int) -> int:
        return await add_one(await add_one(number))

    ended = await asyncio.gather(*(app.run(number) for number in (3, 2, 1, 3, 5)))
    assert [one.result for one in ended] == [5, 4, 3, 5, 7]


@port("LangGraph", "test_invoke_many_processes_in_out", lines=17)
async def test_a_chain_of_a_hundred_steps() -> None:
    @step
    async def add_one(number: int) -> int:
        return number + 1

    @workflow
    async def app(flow: Flow, number: int) -> int:
        for _ in range(100):
            number = await add_one(number)
        return number

    ended = await asyncio.gather(*(app.run(2) for _ in range(10)))
    assert [one.result for one in ended] == [2 + 100] * 10


@port("LangGraph", "test_invoke_join_then_call_other_pregel", lines=38)
async def test_a_workflow_is_called_for_each_of_a_list(journal: Journal) -> None:
    @workflow
    async def inner(flow: Flow, number: int) -> int:
        return number + 1

    @step
    async def add_10_each(numbers: list[int]) -> list[int]:
        return [number + 10 for number in numbers]

    @workflow
    async def app(flow: Flow, numbers: list[int]) -> int:
        return sum([await flow.run(inner, number) for number in await add_10_each(numbers)])

    assert (await app.run([2, 3], journal=journal, execution_id="1")).result == 27


@port("LangGraph", "test_multistep_plan", lines=41)
async def test_a_planner_decides_what_runs_next(journal: Journal) -> None:
    @step
    async def planner() -> list[str | list[str]]:
        return ["step1", ["step2", "step3"], "step4"]

    @step
    async def act(name: str) -> str:
        return name

    @workflow
    async def graph(flow: Flow, messages: list[str]) -> list[str]:
        for part in await planner():
            names = [part] if isinstance(part, str) else part
            messages += await asyncio.gather(*(act(name) for name in names))
        return messages

    done = await graph.run(["start"], journal=journal, execution_id="1")
    assert done.result == ["start", "step1", "step2", "step3", "step4"]


@port("LangGraph", "test_double_interrupt_subgraph", lines=58)
async def test_two_questions_come_out_of_a_called_workflow(journal: Journal) -> None:
    @workflow
    async def sub_agent(flow: Flow, input: str) -> str:
        for number in (1, 2):
            input = await flow.ask(f"interrupt node {number}")
        return input

    @workflow
    async def parent(flow: Flow, input: str) -> str:
        return await flow.run(sub_agent, input)

    for app, id in ((sub_agent, "alone"), (parent, "called")):
        ended = await app.run("test", journal=journal, execution_id=id)
        asked: list[str] = []
        while ended.questions:
            asked.append(ended.questions[0].text)
            ended = await app.resume(journal, id, answers={ended.questions[0].id: "123"})
        assert (asked, ended.result) == (["interrupt node 1", "interrupt node 2"], "123")
