"""The schemas are current, and what Atomic writes and reads is valid by them.

Another reader of JSON Schema judges.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from atomic.cli.schema import SCHEMAS, schema_text
from atomic.config.json_schema import config_schema
from atomic.config.schema import SHAPE, Each, Key, Shape
from tests.support.user import User
from tests.support.user_workflows import call, end, recording, sessions, workflow

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted([*(ROOT / "src").rglob("*.jsonl"), *(ROOT / "tests/providers/recordings").glob("*.jsonl")])


class Judge:
    """A validator that names what is wrong."""

    def __init__(self, schema: dict[str, Any]) -> None:
        Draft202012Validator.check_schema(schema)
        self._validator: Any = Draft202012Validator(schema)

    def problems(self, value: object) -> list[str]:
        return [f"{error.json_path}: {error.message[:200]}" for error in self._validator.iter_errors(value)]


def judge(name: str) -> Judge:
    return Judge(json.loads(schema_text(name)))


def problems(name: str, value: object) -> list[str]:
    return judge(name).problems(value)


@pytest.mark.parametrize("name", SCHEMAS)
async def test_the_copy_in_the_documentation_is_current(name: str, user: User) -> None:
    done = await user.atomic("schema", name)
    assert (done.exit_code, done.stdout) == (0, (ROOT / f"docs/schemas/{name}.json").read_text("utf-8"))


async def test_the_schemas_are_listed_and_completed(user: User) -> None:
    listed = await user.atomic("schema")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(SCHEMAS)
    completed = await user.atomic("complete", "schema", "")
    assert completed.stdout.split() == list(SCHEMAS)
    wrong = await user.atomic("schema", "confg")
    assert (wrong.exit_code, 'did you mean "config"?' in wrong.stderr) == (2, True)


async def test_a_new_project_names_its_schema_and_is_valid_by_it(user: User) -> None:
    assert (await user.atomic("init")).exit_code == 0
    file = user.project / ".atomic" / "config.toml"
    first, *lines = file.read_text("utf-8").splitlines()
    schema = file.parent / first.removeprefix("#:schema ")
    assert schema.read_text("utf-8") == schema_text("config")
    # The commented settings too.
    text = "\n".join(line.removeprefix("# ") if "=" in line or line.startswith("# [") else "" for line in lines)
    settings = tomllib.loads(text)
    assert {"agent", "caps", "workflows"} <= settings.keys()
    assert problems("config", settings) == []


VALUES: tuple[Any, ...] = (
    "x", "", "  ", "90s", "1h30m", "m", "0", "soon", 0, 1, -1, 2.5, True, [], ["x"], [""], ["x", 1], {},
    {"A": "b"}, {"A": 1},
)  # fmt: skip


def keys(shape: Shape, schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, Key, dict[str, Any]]]:
    if isinstance(shape, Key):
        yield path, shape, schema
    elif isinstance(shape, Each):
        yield from keys(shape.shape, schema["additionalProperties"], f"{path}.*")
    else:
        for name, inner in shape.items():
            yield from keys(inner, schema["properties"][name], f"{path}.{name}")


def test_an_editor_accepts_the_values_that_atomic_accepts() -> None:
    wrong: list[str] = []
    for path, key, schema in keys(SHAPE, config_schema()):
        editor = Judge(schema)
        for value in VALUES:
            try:
                key.read(value)
                is_read = True
            except ValueError:
                is_read = False
            if (editor.problems(value) == []) != is_read:
                wrong.append(f"{path} = {value!r}: Atomic {'accepts' if is_read else 'refuses'} it")
    assert wrong == []


@pytest.mark.parametrize("wrong", [{"modle": "x"}, {"caps": {"max_coast": 1}}, {"acp": {"me": {"program": "x"}}}])
def test_an_unknown_key_of_the_configuration_is_a_problem(wrong: dict[str, Any]) -> None:
    assert problems("config", wrong)


async def test_events_and_tasks_of_a_run_are_valid(user: User) -> None:
    code = """
workflow = graph(S).agent("work", "hi").compile()
"""
    workflow(user, "mine", code)
    agent = recording(user, call({"type": "tool_started", "id": "1", "name": "Bash"}, end("Done.")))
    done = await user.atomic("run", "mine", "--json", "--agent", agent)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, lines[-1]["type"]) == (0, "run_ended"), done.stderr
    assert {"run_started", "agent_activity"} <= {line["type"] for line in lines}
    logged = (sessions(user)[0] / "logs/events.jsonl").read_text("utf-8").splitlines()
    events = judge("events")
    for line in [*lines, *map(json.loads, logged)]:
        assert events.problems(line) == []
    refused = await user.atomic("run", "mine", "--json", "--max-cost", "much")
    assert events.problems(json.loads(refused.stdout)) == []
    assert problems("events", {**lines[0], "seq": "first"})


async def test_a_task_list_is_valid_as_it_is_written(user: User) -> None:
    (user.project / "old.json").write_text('[{"category": "ui", "description": "Add a button", "passes": false}]')
    done = await user.atomic("tasks", "convert", "old.json")
    assert (done.exit_code, problems("tasks", json.loads(done.stdout))) == (0, [])
    assert problems("tasks", {"tasks": [{"id": "1", "title": "x"}]}) == []
    assert problems("tasks", {"tasks": [{"id": "1"}]})


@pytest.mark.parametrize("file", RECORDINGS, ids=[str(file.relative_to(ROOT)) for file in RECORDINGS])
def test_recordings_are_valid(file: Path) -> None:
    schema = judge("recording")
    for line in file.read_text("utf-8").splitlines():
        assert schema.problems(json.loads(line)) == []


def test_a_recording_that_is_written_by_hand_is_valid() -> None:
    limit = {"type": "limit_reached", "reset_at": 1790000000}
    ended = {"type": "turn_ended", "reason": "done", "text": "Hello"}
    assert problems("recording", {"events": [[0, limit], [0.5, ended]]}) == []
    assert problems("recording", {"events": [[0, {"type": "turn_begun"}]]})
