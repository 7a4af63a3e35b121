"""`atomic schema`: JSON Schemas of the files and events that users and programs read and
write.

They are made from the types that Atomic itself uses. `docs/schemas/` has a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode, did_you_mean
from atomic.cli.streams import put, put_table

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TIMES = ("reset_at",)
_REFERENCE = "#/$defs/{name}"


class CommandFailed(msgspec.Struct, tag_field="type", tag="error"):
    """The last line of `--json` if the command fails before or outside of a run."""

    exit_code: int
    message: str


def print_schema(arguments: Arguments) -> int:
    """Print one schema, or list them."""
    if not arguments.words:
        put_table([(name, title) for name, (title, _) in SCHEMAS.items()], empty="")
        return ExitCode.DONE
    name = arguments.words[0]
    if name not in SCHEMAS:
        raise UsageError(
            f'there is no schema "{name}"{did_you_mean(name, SCHEMAS, otherwise="atomic schema lists them")}'
        )
    put(schema_text(name))
    return ExitCode.DONE


def schema_text(name: str) -> str:
    """Return a schema as JSON."""
    title, make = SCHEMAS[name]
    schema = {"$schema": _DIALECT, "title": title, **make()}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _config() -> dict[str, Any]:
    from atomic.config.json_schema import config_schema

    return config_schema()


def _tasks() -> dict[str, Any]:
    from atomic.tasks import TaskDocument

    return msgspec.json.schema(TaskDocument, ref_template=_REFERENCE)


def _events() -> dict[str, Any]:
    from atomic.runs.events import WorkflowEvent

    return _any_of(WorkflowEvent, CommandFailed)


def _recording() -> dict[str, Any]:
    from atomic.providers.recording import RecordedCall, RecordingHeader

    return _with_lenient_times(_any_of(RecordingHeader, RecordedCall))


def _any_of(*types: Any) -> dict[str, Any]:
    schemas, definitions = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    return {"anyOf": list(schemas), "$defs": definitions}


def _with_lenient_times(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow times as seconds too: a recording that is written by hand may have them."""
    for definition in schema["$defs"].values():
        for name, value in definition.get("properties", {}).items():
            if name in _TIMES:
                value["anyOf"].append({"type": "number"})
    return schema


SCHEMAS: Mapping[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "config": ("config.toml of Atomic", _config),
    "tasks": ("tasks.json: a task list", _tasks),
    "events": ("One line of `atomic run --json`, or of a run's logs/events.jsonl", _events),
    "recording": ("One line of a recording of agents", _recording),
}
