"""Test replays: the same events, files and commits, and calls found by role, task and content."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import (
    AgentEvent,
    AnswerError,
    CustomTool,
    EndReason,
    LimitReached,
    ModelInfo,
    Notice,
    Option,
    ProviderError,
    Question,
    QuestionAsked,
    SessionOptions,
    TextDelta,
    ToolStarted,
    TurnEnded,
    Usage,
    UsageReported,
    require_provider,
)
from atomic.providers.recording import RecordingError, read_recording
from atomic.providers.replay import ReplayProvider, find_call
from atomic.providers.session import STOP_SECONDS, LiveProvider
from atomic.providers.turn import Turn
from tests.providers.scripted import ScriptedProvider, ScriptedSession, end_of, read
from tests.support.repositories import commit, content, copy, git, new_repository, state, write
from tests.support.timing import judge

DONE = {"type": "turn_ended", "reason": "done"}


def call(prompt: str = "go", text: str = "", **fields: Any) -> dict[str, Any]:
    """Return a recorded call as written by hand."""
    deltas = [[0, {"type": "text_delta", "text": text}]] if text else []
    return {"prompt": prompt, "events": [*deltas, [0, {**DONE, "text": text}]], **fields}


def recording(folder: Path, *calls: dict[str, Any]) -> Path:
    file = folder / "rec.jsonl"
    lines = [{"atomic_recording": 1, "command": ["atomic"]}, *calls]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


async def answers(provider: LiveProvider, *prompts: str, cwd: Path) -> list[str | None]:
    """Send each prompt in its own session and return the answers, or the errors."""
    received: list[str | None] = []
    for prompt in prompts:
        async with provider.open(SessionOptions(cwd=cwd)) as session:
            end = await end_of(session, prompt)
            received.append(end.text if end.reason is EndReason.DONE else end.error)
    return received


async def test_a_replay_has_the_recorded_events_and_files(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n"})
    other = copy(one, "other")
    events: list[AgentEvent] = [
        TextDelta("hi"),
        ToolStarted("1", "write", {"path": "b"}),
        UsageReported(Usage(3, 4, 1, 0.25)),
        LimitReached(None, "slow down"),
        TextDelta("of the child", agent="c"),
        TextDelta("done"),
    ]

    async def play(session: ScriptedSession, turn: Turn) -> None:
        for event in events:
            turn.emit(event)
        write(one, {"b": "new\n"})
        commit(one, "Add b")
        write(one, {"a": "2\n"})
        turn.end(EndReason.DONE)

    file = tmp_path / "rec.jsonl"
    async with ScriptedProvider(play).open(SessionOptions(cwd=one, record=file)) as session:
        recorded = await read(session, "[atomic role=worker task=1 attempt=1]\nDo it.")
    provider = require_provider(f"replay:{file}", Settings(providers={"replay": ProviderSettings(env=QUICK)}))
    async with provider.open(SessionOptions(cwd=other)) as session:
        played = [event async for event in session.send("[atomic role=worker task=1 attempt=2]\nDo it, please.")]
    assert played == recorded
    assert (content(other), state(other)) == (content(one), state(one))


QUICK = {"ATOMIC_REPLAY_SPEED": "max"}


@pytest.mark.parametrize("reason", list(EndReason))
async def test_every_recorded_end_is_replayed(tmp_path: Path, reason: EndReason) -> None:
    end = TurnEnded(reason, "text", Usage(1, 2, 3, 0.5), "why" if reason is EndReason.ERROR else None)
    file = recording(tmp_path, {"prompt": "go", "events": [[0, msgspec.to_builtins(end)]]})
    async with ReplayProvider(file).open(SessionOptions(cwd=tmp_path)) as session:
        assert await read(session) == [end]


async def test_a_replay_can_be_recorded_again(tmp_path: Path) -> None:
    file = recording(tmp_path, call("go", "hello"))
    async with ReplayProvider(file).open(SessionOptions(cwd=tmp_path, record=tmp_path / "again.jsonl")) as session:
        await read(session)
    events = [event for _, event in read_recording(tmp_path / "again.jsonl").calls[0].events]
    assert events == [event for _, event in read_recording(file).calls[0].events]


async def test_a_call_without_an_end_is_an_error(tmp_path: Path) -> None:
    file = recording(tmp_path, {"prompt": "go", "events": [[0, {"type": "text_delta", "text": "x"}]]})
    async with ReplayProvider(file).open(SessionOptions(cwd=tmp_path)) as session:
        end = await end_of(session)
    assert end.reason is EndReason.ERROR
    assert end.error is not None
    assert "turn_ended" in end.error


def head(role: str, task: str | None = None, attempt: int = 1) -> str:
    return f"[atomic role={role}{'' if task is None else f' task={task}'} attempt={attempt}]\n"


async def test_a_call_is_found_by_role_and_task_first(tmp_path: Path) -> None:
    same = "Do exactly this."
    provider = ReplayProvider(
        recording(
            tmp_path,
            call(same, "planner", role="planner"),
            call(same, "worker 1", role="worker", task="1"),
            call(same, "worker 2", role="worker", task=2),
            call(same, "no role"),
        )
    )
    prompts = [head("worker", "2") + same, same, head("worker", "1") + same, head("planner") + "Something else"]
    assert await answers(provider, *prompts, cwd=tmp_path) == ["worker 2", "no role", "worker 1", "planner"]


async def test_a_call_with_a_match_is_used_before_the_most_similar_one(tmp_path: Path) -> None:
    provider = ReplayProvider(
        recording(
            tmp_path,
            call("fix the login page", "similar"),
            call("whatever", "first match", match="log(in|out)"),
            call("whatever", "second match", match="(?i)LOGIN"),
            call("whatever", "never", match="^nothing like it$"),
        )
    )
    prompt = "fix the login page"
    answer = await answers(provider, prompt, prompt, prompt, prompt, cwd=tmp_path)
    assert answer[:3] == ["first match", "second match", "similar"]
    assert answer[3] is not None
    assert "the prompt does not contain the match of any other call" in answer[3]


async def test_the_most_similar_call_is_used_and_the_first_of_equals(tmp_path: Path) -> None:
    provider = ReplayProvider(
        recording(
            tmp_path,
            call("write the documentation of the parser", "docs"),
            call("write the tests of the parser", "tests 1"),
            call("write the tests of the parser", "tests 2"),
            call("", "anything"),
        )
    )
    prompts = [
        "please write more tests of the new parser",
        "write the tests of the parser",
        "document the parser: write its documentation",
        "completely different",
    ]
    assert await answers(provider, *prompts, cwd=tmp_path) == ["tests 1", "tests 2", "docs", "anything"]


async def test_a_prompt_without_a_call_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    recorded = head("worker", "1") + "Write the file.\nUse tabs.\nThen stop."
    provider = ReplayProvider(recording(tmp_path, call(recorded, "ok", role="worker", task="1")))
    asked = head("worker", "1", 2) + "Write the file.\nUse spaces.\nThen stop."
    first, second, third = await answers(provider, asked, asked, head("reviewer") + "Look.", cwd=tmp_path)
    assert first == "ok"
    assert second is not None
    todo = " Record the run again (--record FILE), or add such a call to the recording"
    assert second == (
        "The recording has no call left for role worker, task 1: its call was already played. Its nearest call, for"
        f' role worker, task 1, has "Use tabs." where the prompt has "Use spaces.".{todo}'
    )
    assert third == (
        "The recording has no call left for role reviewer: it was never recorded. Its nearest call, for role worker,"
        f' task 1, has "Write the file." where the prompt has "Look.".{todo}'
    )


async def test_the_error_for_a_long_prompt_is_short(tmp_path: Path) -> None:
    recorded = "\n".join(f"{number} {'x' * 500}" for number in range(200))
    provider = ReplayProvider(recording(tmp_path, call(recorded, "ok", role="worker", match="y" * 5000)))
    (answer,) = await answers(provider, head("worker") + "\n".join(["z\x1b[31m" * 500] * 200), cwd=tmp_path)
    assert answer is not None
    assert len(answer) < 600
    assert "\n" not in answer
    assert "\x1b" not in answer


async def test_a_call_of_another_role_is_named_in_the_error(tmp_path: Path) -> None:
    provider = ReplayProvider(recording(tmp_path, call("Look.", "ok", role="worker")))
    (answer,) = await answers(provider, "Look.", cwd=tmp_path)
    assert answer is not None
    assert "it was never recorded. Its nearest call, for role worker, has the same prompt." in answer


async def test_every_prompt_to_an_empty_recording_is_an_error(tmp_path: Path) -> None:
    (answer,) = await answers(ReplayProvider(recording(tmp_path)), "hello", cwd=tmp_path)
    assert answer is not None
    assert "a prompt without a role: it was never recorded" in answer


async def test_sessions_of_a_provider_use_each_call_once(tmp_path: Path) -> None:
    file = recording(tmp_path, *(call("go", f"{number}") for number in range(8)))
    provider = ReplayProvider(file)

    async def ask() -> str:
        async with provider.open(SessionOptions(cwd=tmp_path)) as session:
            return (await end_of(session)).text

    answer = await asyncio.gather(*(ask() for _ in range(8)))
    assert sorted(answer) == [f"{number}" for number in range(8)]
    assert provider.unused == []
    assert len(provider.used) == 8
    assert await answers(ReplayProvider(file), "go", cwd=tmp_path) == ["0"]


@pytest.mark.ci
async def test_a_pattern_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    provider = ReplayProvider(recording(tmp_path, call(text="never", match="(a+)+$")), speed=math.inf)
    (answer,) = await answers(provider, "a" * 60 + "!", cwd=tmp_path)
    assert answer == (
        "searching for the match '(a+)+$' of the recording takes more than 5 s: use plain text or a simpler pattern"
    )


async def test_parallel_sessions_read_the_recording_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count_calls(name: str, function: Callable[..., Any]) -> None:
        def call(*given: Any) -> Any:
            calls.append(name)
            return function(*given)

        monkeypatch.setattr(f"atomic.providers.replay.{name}", call)

    count_calls("read_recording", read_recording)
    count_calls("find_call", find_call)
    provider = ReplayProvider(recording(tmp_path, *[call(text=str(n), match="go") for n in range(20)]), speed=math.inf)
    answer = await asyncio.gather(*(answers(provider, "go", cwd=tmp_path) for _ in range(20)))
    assert sorted(int(one or -1) for (one,) in answer) == list(range(20))
    assert (calls.count("read_recording"), calls.count("find_call")) == (1, 20)


async def test_a_prompt_with_a_secret_finds_the_call_where_it_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "open-sesame-42")
    provider = ReplayProvider(recording(tmp_path, call("use open-sesame-43", "other"), call("use [redacted]", "right")))
    assert await answers(provider, "use open-sesame-42", cwd=tmp_path) == ["right"]


PATCH = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"


async def test_a_patch_that_does_not_apply_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {"a": "other\n", "b": "1\n"})
    patch = PATCH + PATCH.replace("a/a", "a/b").replace("b/a", "b/b")
    provider = ReplayProvider(recording(tmp_path, call("go", "ok", patch=patch)))
    before = content(project), state(project)
    async with provider.open(SessionOptions(cwd=project)) as session:
        end = await end_of(session)
    assert (end.reason, end.text) == (EndReason.ERROR, "ok")
    assert end.error is not None
    assert "a: patch does not apply" in end.error
    assert (content(project), state(project)) == before


async def test_parallel_sessions_change_one_repository(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {"a": "1\n"})

    def patch(name: str) -> str:
        return (
            f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{name}\n"
        )

    names = [f"f{number}" for number in range(4)]
    provider = ReplayProvider(
        recording(
            tmp_path, *(call(f"write {name}", commits=[f"Subject: Add {name}\n\n{patch(name)}"]) for name in names)
        )
    )

    async def ask(name: str) -> EndReason:
        async with provider.open(SessionOptions(cwd=project)) as session:
            return (await end_of(session, f"write {name}")).reason

    assert set(await asyncio.gather(*map(ask, names))) == {EndReason.DONE}
    assert sorted(git(project, "log", "--format=%s").splitlines()) == sorted(["first", *(f"Add {n}" for n in names)])
    assert git(project, "status", "--porcelain") == ""


def slow(tmp_path: Path, seconds: float, **fields: Any) -> Path:
    events = [
        [0.0, {"type": "text_delta", "text": "a"}],
        [seconds, {"type": "text_delta", "text": "b"}],
        [seconds, DONE],
    ]
    return recording(tmp_path, *({"prompt": "go", "events": events, **fields} for _ in range(3)))


@pytest.mark.timed
async def test_a_replay_takes_the_recorded_time_or_the_chosen_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def seconds(provider: ReplayProvider, **options: Any) -> float:
        began = time.monotonic()
        async with asyncio.timeout(240), provider.open(SessionOptions(cwd=tmp_path, **options)) as session:
            await read(session)
        return time.monotonic() - began

    file = slow(tmp_path, 0.5)
    assert await seconds(ReplayProvider(file)) >= 0.5
    file = slow(tmp_path, 3600)
    await seconds(ReplayProvider(file, speed=math.inf))
    await seconds(ReplayProvider(file), env=QUICK)
    await seconds(ReplayProvider(file, Settings(providers={"replay": ProviderSettings(env=QUICK)})))
    monkeypatch.setenv("ATOMIC_REPLAY_SPEED", "100000")
    await seconds(ReplayProvider(file))


@pytest.mark.parametrize("speed", ["fast", "0", "-1", "nan"])
async def test_an_invalid_speed_is_refused(tmp_path: Path, speed: str) -> None:
    provider = ReplayProvider(recording(tmp_path))
    with pytest.raises(ProviderError, match="ATOMIC_REPLAY_SPEED"):
        async with provider.open(SessionOptions(env={"ATOMIC_REPLAY_SPEED": speed})):
            pass


@pytest.mark.timed
async def test_an_interrupt_stops_a_replay_and_changes_nothing(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {"a": "1\n"})
    provider = ReplayProvider(slow(tmp_path, 3600, patch=PATCH))
    async with provider.open(SessionOptions(cwd=project)) as session:
        for _ in range(2):  # the session continues after an interrupt
            events: list[AgentEvent] = []
            async with asyncio.timeout(60), aclosing(session.send("go")) as turn:
                async for event in turn:
                    events.append(event)
                    if event == TextDelta("a"):
                        began = time.monotonic()
                        await session.interrupt()
                        judge(time.monotonic() - began, STOP_SECONDS)  # it stops without being killed
            assert events == [TextDelta("a"), TurnEnded(EndReason.INTERRUPTED, "a")]
    assert content(project)["a"] == ("file", b"1\n")


async def test_recorded_questions_are_asked_again(tmp_path: Path) -> None:
    question = Question("Which colour?", options=[Option("red"), Option("blue")], multi_select=True)
    asked = QuestionAsked((question,))
    events: list[list[Any]] = [[0, msgspec.to_builtins(asked)], [0, {"type": "text_delta", "text": "ok"}], [0, DONE]]
    questions_seen: list[Sequence[Question]] = []

    async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        questions_seen.append(questions)
        return [["red"]]

    provider = ReplayProvider(recording(tmp_path, {"events": events}, {"events": events}))
    async with provider.open(SessionOptions(cwd=tmp_path, ask=ask)) as session:
        assert (await read(session))[0] == asked
    assert questions_seen == [(question,)]
    async with provider.open(SessionOptions(cwd=tmp_path)) as session:
        assert (await end_of(session)).reason is EndReason.DONE


async def test_a_replay_can_be_interrupted_during_a_question(tmp_path: Path) -> None:
    asked = msgspec.to_builtins(QuestionAsked((Question("Well?"),)))
    is_asked = asyncio.Event()

    async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        is_asked.set()
        await asyncio.Event().wait()
        return []

    provider = ReplayProvider(recording(tmp_path, {"events": [[0, asked], [0, DONE]]}))
    async with provider.open(SessionOptions(cwd=tmp_path, ask=ask)) as session:
        reading = asyncio.create_task(read(session))
        await is_asked.wait()
        await session.interrupt()
        assert (await reading)[-1] == TurnEnded(EndReason.INTERRUPTED)


class Plan(msgspec.Struct):
    tasks: list[str]


async def test_a_typed_answer_is_read_from_the_text(tmp_path: Path) -> None:
    provider = ReplayProvider(
        recording(tmp_path, call("plan", '{"tasks": ["a"]}'), call("other", "no"), call("x", "n"))
    )
    async with provider.open(SessionOptions(cwd=tmp_path)) as session:
        assert await session.ask_for(Plan, "plan") == Plan(["a"])
        with pytest.raises(AnswerError):
            await session.ask_for(Plan, "other")


async def test_a_replay_accepts_all_options_and_resumes_by_id(tmp_path: Path) -> None:
    provider = ReplayProvider(recording(tmp_path, call("go", "1"), call("go", "2"), call("go", "3"), call("go", "4")))
    async with provider.open(SessionOptions(cwd=tmp_path, system_prompt="x", tools=["bash"], max_turns=3)) as session:
        assert (await end_of(session)).text == "1"
        await session.set_model("another")
    async with provider.open(SessionOptions(cwd=tmp_path, resume=session.id)) as resumed:
        assert resumed.id == session.id
        assert (await end_of(resumed)).text == "2"
    async with provider.open(SessionOptions(cwd=tmp_path, resume=session.id, fork=True)) as fork:
        assert fork.id != session.id


async def test_models_and_health_come_from_the_file(tmp_path: Path) -> None:
    file = recording(tmp_path, call(model="big"), call(model="small"), call(model="big"), call())
    provider = ReplayProvider(file)
    assert await provider.models() == [ModelInfo("big"), ModelInfo("small")]
    health = await provider.check()
    assert (health.ok, health.version, health.program, health.remedy) == (True, "4 calls", str(file), "")


def _damage(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(change(file.read_bytes()))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "No such file"),
        (_damage(lambda text: b"x" + text), ":1: this is not a recording"),
        (_damage(lambda text: text + b"{}\n"), ":3: Object missing required field `events`"),
    ],
)
async def test_an_invalid_file_is_reported_by_check_and_by_open(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    file = recording(tmp_path, call())
    damage(file)
    health = await ReplayProvider(file).check()
    assert not health.ok
    assert message in health.remedy
    with pytest.raises(RecordingError, match=message):
        async with ReplayProvider(file).open(SessionOptions(cwd=tmp_path)):
            pass
    with pytest.raises(RecordingError):
        await ReplayProvider(file).models()


async def test_a_truncated_line_is_reported_once_and_the_rest_is_replayed(tmp_path: Path) -> None:
    file = recording(tmp_path, call("go", "1"), call("go", "2"))
    file.write_bytes(file.read_bytes() + b'{"prompt": "ha')
    provider = ReplayProvider(file)
    health = await provider.check()
    assert health.ok
    assert ":4:" in health.remedy
    async with provider.open(SessionOptions(cwd=tmp_path)) as session:
        first = await read(session)
        second = await read(session)
    assert [type(event) for event in first] == [Notice, TextDelta, TurnEnded]
    assert [type(event) for event in second] == [TextDelta, TurnEnded]


async def test_only_a_replayed_tool_is_called_with_the_recorded_input(tmp_path: Path) -> None:
    given: list[str] = []

    def recording_tool(name: str, *, replayed: bool) -> CustomTool:
        async def run(arguments: Mapping[str, Any]) -> str:
            given.append(f"{name} {arguments['n']}")
            raise ValueError("the agent saw this error")

        return CustomTool(name=name, description=name, schema={"type": "object"}, run=run, replayed=replayed)

    calls = [
        [0, {"type": "tool_started", "id": str(n), "name": name, "input": {"n": n}}]
        for n, name in enumerate(("hand_in", "act", "hand_in"))
    ]
    file = recording(tmp_path, {"events": [*calls, [0, DONE]]})
    tools = [recording_tool("hand_in", replayed=True), recording_tool("act", replayed=False)]
    async with ReplayProvider(file).open(SessionOptions(cwd=tmp_path, custom_tools=tools)) as session:
        assert (await end_of(session, "go")).reason is EndReason.DONE
    assert given == ["hand_in 0", "hand_in 2"]


async def test_a_replay_needs_a_file() -> None:
    with pytest.raises(ProviderError, match="replay:FILE"):
        require_provider("replay")
