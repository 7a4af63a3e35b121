"""Workflows that are plain async functions."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from atomic.workflows import (
    AtomicError,
    Blocked,
    Failed,
    Flow,
    JournalError,
    MemoryJournal,
    Question,
    Retry,
    RunStatus,
    StepError,
    WorkflowChangedError,
    WorkflowEndedError,
    current_step,
    step,
    workflow,
)

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@step
async def double(n: int) -> int:
    ran.append(f"double {n}")
    return n * 2


@step
async def refuse(n: int) -> int:
    ran.append(f"refuse {n}")
    raise ValueError(f"{n} is refused")


class Decision(msgspec.Struct):
    approve: bool
    reason: str = ""


class OddError(Exception):
    """An exception that takes two arguments and says only one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


@step
async def be_odd() -> None:
    raise OddError("odd", "even")


async def test_a_step_outside_of_a_workflow_is_a_plain_function() -> None:
    assert await double(4) == 8


async def test_the_result_of_a_run_is_what_the_function_returns() -> None:
    @workflow
    async def pair(flow: Flow, n: int) -> list[int]:
        return [await double(n), *await asyncio.gather(double(10), double(20))]

    ended = await pair.run(3)
    assert ended.status is RunStatus.COMPLETED
    assert ended.result == [6, 20, 40]
    assert ended.steps == 3


async def test_finished_steps_do_not_run_again_after_an_exception_of_the_workflow() -> None:
    broken = True

    @workflow
    async def fragile(flow: Flow, n: int) -> int:
        first = await double(n)
        if broken:
            raise RuntimeError("a bug")
        return first + await double(first)

    journal = MemoryJournal()
    failed = await fragile.run(2, journal=journal, execution_id="run")
    assert failed.status is RunStatus.FAILED
    assert str(failed.error) == "fragile: RuntimeError: a bug"
    broken = False
    resumed = await fragile.resume(journal, "run")
    assert resumed.result == 12
    assert ran == ["double 2", "double 4"]


async def test_a_question_pauses_the_run_and_the_rest_goes_on() -> None:
    @workflow
    async def asks(flow: Flow) -> str:
        answer, doubled = await asyncio.gather(flow.ask("Go?", id="go", options=["yes", "no"]), double(1))
        return f"{answer} {doubled}"

    journal = MemoryJournal()
    paused = await asks.run(journal=journal, execution_id="run")
    assert paused.status is RunStatus.PAUSED
    assert [question.id for question in paused.questions] == ["go"]
    assert ran == ["double 1"]
    done = await asks.resume(journal, "run", answers={"go": "yes"})
    assert done.result == "yes 2"
    assert ran == ["double 1"]


async def test_an_answer_can_be_data_of_a_type() -> None:
    @workflow
    async def asks(flow: Flow) -> str:
        decision = await flow.ask("Deploy?", id="deploy", returns=Decision)
        again = await flow.ask(Question("And now?", id="now", returns=Decision))
        return f"{decision.approve} {decision.reason} {again.approve}"

    journal = MemoryJournal()
    await asks.run(journal=journal, execution_id="run")
    with pytest.raises(AtomicError, match="does not fit at approve"):
        await asks.resume(journal, "run", answers={"deploy": {"approve": "perhaps"}})
    await asks.resume(journal, "run", answers={"deploy": {"approve": True, "reason": "green"}})
    done = await asks.resume(journal, "run", answers={"now": '{"approve": false}'})
    assert done.result == "True green False"


async def test_a_race_ends_in_a_resume_as_it_has_ended_before() -> None:
    release = asyncio.Event()

    @step
    async def slow(name: str) -> str:
        ran.append(name)
        if name == "second":
            return name
        await release.wait()
        return name

    @workflow
    async def race(flow: Flow) -> list[str]:
        tasks = [asyncio.create_task(slow(name)) for name in ("first", "second")]
        order: list[str] = []
        for done in asyncio.as_completed(tasks):
            name: str = await done
            order.append(name)
            release.set()
        await flow.ask("And now?")
        return order

    journal = MemoryJournal()
    await race.run(journal=journal, execution_id="run")
    done = await race.resume(journal, "run", answers={"ask-1": "on"})
    assert done.result == ["second", "first"]
    assert ran == ["first", "second"]


async def test_changed_code_is_refused_with_both_calls_and_nothing_is_recorded() -> None:
    amount = 2

    @step
    async def charge(n: int) -> int:
        return n

    @step
    async def refund(n: int) -> int:
        return n

    def code(second: str) -> Any:
        @workflow(name="billing")
        async def billing(flow: Flow) -> int:
            await double(1)
            await (charge if second == "charge" else refund)(amount)
            await flow.ask("Done?")
            return 1

        return billing

    journal = MemoryJournal()
    await code("charge").run(journal=journal, execution_id="run")
    before = journal.history("run")
    with pytest.raises(WorkflowChangedError, match=r"step 2 was charge\(2\), is now refund\(2\)"):
        await code("refund").resume(journal, "run", answers={"ask-1": "yes"})
    assert journal.history("run") == before
    done = await code("charge").resume(journal, "run", answers={"ask-1": "yes"})
    assert done.status is RunStatus.COMPLETED


async def test_patched_lets_new_code_continue_old_runs() -> None:
    def code(*, new: bool) -> Any:
        @workflow(name="patched")
        async def patched(flow: Flow) -> list[int]:
            results = [await double(1)]
            if new and flow.patched("one more"):
                results.append(await double(100))
            results.append(await double(2))
            await flow.ask("Done?")
            return results

        return patched

    journal = MemoryJournal()
    await code(new=False).run(journal=journal, execution_id="old")
    old = await code(new=True).resume(journal, "old", answers={"ask-1": "yes"})
    assert old.result == [2, 4]
    await code(new=True).run(journal=journal, execution_id="new")
    new = await code(new=True).resume(journal, "new", answers={"ask-1": "yes"})
    assert new.result == [2, 200, 4]


async def test_a_failure_that_the_function_caught_is_raised_again_in_a_resume() -> None:
    @workflow
    async def catches(flow: Flow) -> list[str]:
        caught: list[str] = []
        try:
            await refuse(1)
        except ValueError as error:
            caught.append(str(error))
        try:
            await be_odd()
        except StepError as error:
            caught.append(str(error))
        await flow.ask("And now?")
        return caught

    journal = MemoryJournal()
    await catches.run(journal=journal, execution_id="run")
    done = await catches.resume(journal, "run", answers={"ask-1": "on"})
    assert done.result == ["1 is refused", "be_odd: OddError: odd"]
    assert ran == ["refuse 1"]


async def test_a_failure_that_ended_the_run_is_tried_again() -> None:
    @workflow
    async def fails(flow: Flow) -> int:
        return await refuse(1)

    journal = MemoryJournal()
    failed = await fails.run(journal=journal, execution_id="run")
    assert str(failed.error) == "refuse: ValueError: 1 is refused"
    await fails.resume(journal, "run")
    assert ran == ["refuse 1", "refuse 1"]


async def test_a_step_is_tried_again_as_its_policy_says() -> None:
    attempts: list[int] = []

    @step(retry=Retry(0, attempts=3))
    async def flaky() -> str:
        context = current_step()
        assert context is not None
        attempts.append(context.attempt)
        if len(attempts) < 3:
            raise OSError("not yet")
        return context.step_id

    @workflow
    async def patient(flow: Flow) -> str:
        return await flaky()

    done = await patient.run(execution_id="run")
    assert done.result == "run:flaky#1"
    assert attempts == [1, 2, 3]


async def test_failed_and_blocked_end_a_run_for_good() -> None:
    @workflow
    async def ends(flow: Flow, how: str) -> str | Failed | Blocked:
        await double(1)
        return Failed("no money", {"missing": 3}) if how == "failed" else Blocked("needs a key")

    journal = MemoryJournal()
    failed = await ends.run("failed", journal=journal, execution_id="one")
    assert (failed.status, failed.result) == (RunStatus.FAILED, {"missing": 3})
    again = await ends.resume(journal, "one")
    assert (again.status, again.result, str(again.error)) == (failed.status, failed.result, str(failed.error))
    blocked = await ends.run("blocked", journal=journal, execution_id="two")
    assert (blocked.status, str(blocked.error)) == (RunStatus.BLOCKED, "ends: needs a key")
    assert (await ends.resume(journal, "two")).status is RunStatus.BLOCKED
    assert ran == ["double 1", "double 1"]


async def test_compensations_run_in_reverse_order_when_the_run_fails() -> None:
    @step
    async def undo(what: str) -> None:
        ran.append(f"undo {what}")

    @workflow
    async def saga(flow: Flow) -> int:
        await double(1)
        flow.compensate(undo, "first")
        await double(2)
        flow.compensate(undo, "second")
        return await refuse(3)

    journal = MemoryJournal()
    failed = await saga.run(journal=journal, execution_id="run")
    assert failed.status is RunStatus.FAILED
    assert ran[-2:] == ["undo second", "undo first"]
    again = await saga.resume(journal, "run")
    assert again.status is RunStatus.FAILED
    assert len(ran) == 5


async def test_the_end_names_a_compensation_that_failed() -> None:
    @step
    async def refund(n: int) -> None:
        raise ValueError(f"no account {n}")

    @workflow
    async def saga(flow: Flow) -> int:
        flow.compensate(refund, 7)
        return await refuse(3)

    failed = await saga.run(journal=MemoryJournal())
    assert str(failed.error).endswith("; the compensation 'refund' failed too: ValueError: no account 7")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("ask(None)", "flow.ask takes a text or a Question, not None"),
        ("ask(' ')", "flow.ask: the text of the question is empty"),
        ("wait(None)", "flow.wait takes a text for the user, not None"),
        ("run(None)", "flow.run takes a workflow function or the name of one, not None"),
        ("map(double, 5)", "flow.map takes an async function and a list of items, not 5"),
        ("emit(object())", "flow.emit takes the type of an event, a text, and its data, not <object"),
    ],
)
async def test_a_wrong_argument_is_one_sentence_that_names_the_call(call: str, sentence: str) -> None:
    @workflow
    async def wrong(flow: Flow) -> Any:
        result = eval(f"flow.{call}", {"flow": flow, "double": double})
        return await result

    failed = await wrong.run(journal=MemoryJournal())
    assert sentence in str(failed.error)


async def test_a_dict_with_keys_that_are_no_texts_is_refused_with_a_sentence() -> None:
    @step
    async def count(found: dict[int, int]) -> int:
        return len(found)

    @workflow
    async def counts(flow: Flow) -> int:
        return await count({1: 2})

    failed = await counts.run(journal=MemoryJournal())
    assert "`order`" not in str(failed.error)
    assert "count: its arguments: the keys of a dict are texts here, and one is not" in str(failed.error)


async def test_a_paused_run_can_be_cancelled_for_good() -> None:
    @step
    async def undo(what: str) -> None:
        ran.append(f"undo {what}")

    @workflow
    async def saga(flow: Flow) -> None:
        await double(1)
        flow.compensate(undo, "first")
        await flow.ask("Go on?")

    journal = MemoryJournal()
    await saga.run(journal=journal, execution_id="run")
    cancelled = await saga.cancel(journal, "run")
    assert cancelled.status is RunStatus.CANCELLED
    assert ran == ["double 1", "undo first"]
    assert (await saga.resume(journal, "run")).status is RunStatus.CANCELLED
    assert ran == ["double 1", "undo first"]


async def test_a_workflow_calls_another_one_and_gets_its_result() -> None:
    @workflow
    async def inner(flow: Flow, n: int) -> int | Failed:
        return await double(n) if n else Failed("nothing to do", 7)

    @workflow
    async def outer(flow: Flow) -> list[int]:
        results = [await flow.run(inner, 4)]
        try:
            await flow.run(inner, 0)
        except WorkflowEndedError as error:
            results.append(cast("int", error.value))
        return results

    journal = MemoryJournal()
    done = await outer.run(journal=journal, execution_id="run")
    assert done.result == [8, 7]
    assert [record.node_id for record in journal.records("run")] == ["inner/double"]


async def test_map_keeps_the_order_of_the_items_and_cancels_the_rest_of_a_failure() -> None:
    @workflow
    async def maps(flow: Flow, bad: bool) -> list[int]:
        return await flow.map(refuse if bad else double, [1, 2, 3], max_concurrency=2)

    assert (await maps.run(False)).result == [2, 4, 6]
    failed = await maps.run(True)
    assert str(failed.error) == "refuse: ValueError: 1 is refused"


async def test_load_and_fork_see_the_state_of_each_step() -> None:
    @workflow
    async def counts(flow: Flow) -> int:
        for n in range(3):
            await double(n)
        await flow.ask("Done?")
        return 1

    journal = MemoryJournal()
    await counts.run(journal=journal, execution_id="run")
    assert counts.load(journal, "run", at=2).outputs == {"double": 2}
    copy = journal.fork("run", at=2)
    ran.clear()
    await counts.resume(journal, copy)
    assert ran == ["double 2"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: step(cast("Any", print)), "is not async"),
        (lambda: workflow(name="x")(cast("Any", print)), "is not async"),
        (lambda: step(name="a/b")(_plain), "cannot be the name of a step"),
        (lambda: step(retry=cast("Any", "often"))(_plain), "retry is 'often'"),
        (lambda: step(timeout=-1)(_plain), "timeout is -1"),
    ],
)
def test_a_wrong_decorator_is_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(AtomicError, match=message):
        call()


async def _plain() -> None: ...


async def test_wrong_arguments_are_refused_before_anything_runs() -> None:
    @workflow
    async def takes(flow: Flow, n: int) -> int:
        return await double(n)

    with pytest.raises(AtomicError, match="takes, n: Expected `int`, got `str`"):
        await takes.run("three")
    with pytest.raises(AtomicError, match="missing a required argument: 'n'"):
        await takes.run()
    assert ran == []


@pytest.mark.parametrize(
    "given", [{"args": ()}, {"args": (1, 2)}, {"kwargs": {"x": 1}}, {"args": (1,), "kwargs": {"n": 2}}]
)
async def test_a_call_of_a_step_with_wrong_arguments_is_no_step(given: dict[str, Any]) -> None:
    tried = 0

    @step(retry=Retry(0, attempts=3))
    async def takes(n: int) -> int:
        return n

    @workflow
    async def calls(flow: Flow) -> str:
        nonlocal tried
        tried += 1
        try:
            cast("Any", takes)(*given.get("args", ()), **given.get("kwargs", {}))
        except AtomicError as error:
            return str(error)
        return "called"

    journal = MemoryJournal()
    ended = await calls.run(journal=journal, execution_id="run")
    assert str(ended.result).startswith("takes(n: 'int'): ")
    assert (ended.steps, tried) == (0, 1)
    assert not list(journal.records("run"))


async def test_arguments_in_every_way_that_python_allows_are_a_call_of_a_step() -> None:
    @step
    async def many(a: int, /, b: int = 2, *rest: int, c: int = 0, **named: int) -> list[Any]:
        return [a, b, list(rest), c, named]

    @step
    async def named_only(*, n: int) -> int:
        return n

    @workflow
    async def calls(flow: Flow) -> list[Any]:
        return [await many(1), await many(1, 3, 4, 5), await many(1, b=3, c=4, d=5), await named_only(n=1)]

    ended = await calls.run(journal=MemoryJournal())
    assert ended.result == [[1, 2, [], 0, {}], [1, 3, [4, 5], 0, {}], [1, 3, [], 4, {"d": 5}], 1]


def test_a_function_runs_and_resumes_in_code_that_is_not_async() -> None:
    @workflow
    async def asks(flow: Flow, n: int) -> str:
        return f"{await flow.ask('Go on?')} {await double(n)}"

    journal = MemoryJournal()
    paused = asks.run_sync(2, journal=journal, execution_id="run")
    assert paused.status is RunStatus.PAUSED
    done = asks.resume_sync(journal, "run", answers={"ask-1": "yes"})
    assert done.result == "yes 4"


async def test_a_blocking_run_inside_an_event_loop_is_refused() -> None:
    @workflow
    async def short(flow: Flow) -> int:
        return 1

    with pytest.raises(
        AtomicError, match=r"^run_sync was called inside a running event loop; write: await workflow\.run"
    ):
        short.run_sync()


async def test_start_runs_a_function_or_continues_the_run_with_that_id() -> None:
    @workflow
    async def asks(flow: Flow, n: int) -> str:
        return f"{await double(n)} {await flow.ask('Go on?')}"

    journal = MemoryJournal()
    paused = await asks.start("run", 2, journal=journal)
    assert paused.status is RunStatus.PAUSED
    again = await asks.start("run", 3, journal=journal, answers={"ask-1": "yes"})  # it keeps the first argument
    assert again.result == "4 yes"
    assert (await asks.start("run", 2, journal=journal)).result == "4 yes"
    assert (await asks.start("run", journal=journal)).result == "4 yes"
    with pytest.raises(JournalError, match="has ended with other arguments; start another run"):
        await asks.start("run", 3, journal=journal)
    assert ran == ["double 2"]
    assert (await asks.start("run", 2, journal=journal)).result == "4 yes"  # the refusal has given the run up


async def test_a_cancelled_run_can_have_another_model() -> None:
    models: list[str | None] = []

    @step
    async def undo() -> None:
        models.append(cast("Any", current_step()).model)

    @workflow
    async def asks(flow: Flow) -> None:
        flow.compensate(undo)
        await flow.ask("Go on?")

    journal = MemoryJournal()
    await asks.run(journal=journal, execution_id="run", model="large")
    await asks.cancel(journal, "run", model="small")
    assert models == ["small"]


async def test_a_result_that_does_not_fit_its_annotation_fails_the_step() -> None:
    @step
    async def lies() -> int:
        return cast("Any", "no number")

    @workflow
    async def believes(flow: Flow) -> int:
        return await lies()

    failed = await believes.run()
    assert "Expected `int`, got `str`" in str(failed.error)


async def test_only_what_had_begun_counts_as_another_attempt_after_a_kill() -> None:
    attempts: list[tuple[str, int]] = []

    @step
    async def note(name: str) -> None:
        context = current_step()
        assert context is not None
        attempts.append((name, context.attempt))

    @workflow
    async def notes(flow: Flow) -> None:
        for name in ("first", "second", "third"):
            await note(name)

    journal = MemoryJournal()
    await notes.run(journal=journal, execution_id="run")
    killed = journal.fork("run", at=1)  # nothing says how this one ended
    attempts.clear()
    await notes.resume(journal, killed)
    assert attempts == [("second", 2), ("third", 1)]


async def test_events_are_sent_again_as_soon_as_a_resume_has_caught_up() -> None:
    @workflow
    async def emits(flow: Flow) -> None:
        flow.emit("start")
        await double(1)
        flow.emit("middle")
        await flow.ask("Go on?")
        flow.emit("end")
        await double(2)

    journal = MemoryJournal()
    await emits.run(journal=journal, execution_id="run")
    sent: list[str] = []
    async for event in emits.resume_stream(journal, "run", answers={"ask-1": "yes"}, modes=["live"]):
        if event.data.type in ("start", "middle", "end"):
            sent.append(event.data.type)
    assert sent == ["end"]


async def test_a_signal_is_received_once_and_its_data_is_recorded() -> None:
    @workflow
    async def waits(flow: Flow) -> int:
        amount = await flow.signal("approved", returns=int)
        await flow.ask("Go on?")
        return await double(amount)

    journal = MemoryJournal()
    paused = await waits.run(journal=journal, execution_id="run")
    assert (paused.status, paused.signals) == (RunStatus.PAUSED, ("approved",))
    journal.signal("run", "approved", 21)
    asks = await waits.resume(journal, "run")
    assert [question.id for question in asks.questions] == ["ask-1"]
    done = await waits.resume(journal, "run", answers={"ask-1": "yes"})
    assert done.result == 42


async def test_a_timeout_of_a_signal_is_an_exception_that_a_resume_repeats() -> None:
    @workflow
    async def waits(flow: Flow) -> str:
        try:
            await flow.signal("never", timeout=0.001)
        except TimeoutError:
            return str(await flow.ask("Late. Go on?"))
        return "on time"

    journal = MemoryJournal()
    paused = await waits.run(journal=journal, execution_id="run")
    while paused.signals:  # without a host it pauses before the time is over
        paused = await waits.resume(journal, "run")
    assert [question.id for question in paused.questions] == ["ask-1"]
    done = await waits.resume(journal, "run", answers={"ask-1": "yes"})
    assert done.result == "yes"


async def test_a_run_that_only_sleeps_parks_with_the_time_to_wake_it() -> None:
    class Parks:
        park = True

    @workflow
    async def sleeps(flow: Flow) -> int:
        await asyncio.gather(flow.sleep(hours=2), flow.sleep(hours=1))
        return 1

    journal = MemoryJournal()
    parked = await sleeps.run(journal=journal, execution_id="run", deps=Parks())
    assert (parked.status, parked.codes) == (RunStatus.PAUSED, ("sleeping", "sleeping"))
    again = await sleeps.resume(journal, "run", deps=Parks())
    assert again.wake_at == parked.wake_at


async def test_wait_pauses_until_the_user_lets_it_go_on() -> None:
    @workflow
    async def waits(flow: Flow) -> str:
        return await flow.wait("Deploy now?")

    journal = MemoryJournal()
    paused = await waits.run(journal=journal, execution_id="run")
    assert [(question.id, question.text) for question in paused.questions] == [("wait", "Deploy now?")]
    assert (await waits.resume(journal, "run", answers={"wait": "yes"})).result == "yes"
