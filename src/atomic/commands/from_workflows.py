"""Commands made from workflows. Lists, hints and completion run no code of workflow files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from atomic.base.flags import Flag, config_flags
from atomic.base.lazy_types import deferred
from atomic.base.text import collapse_spaces
from atomic.commands.context import CommandContext
from atomic.commands.parse import CommandCall, is_callable
from atomic.commands.registry import Category, Command, Run

if TYPE_CHECKING:
    from atomic.workflows import WorkflowDefinition
else:
    WorkflowDefinition = deferred("atomic.workflows", "WorkflowDefinition")

_FLAG = re.compile(r"--[A-Za-z0-9-]+")


def workflow_commands(definitions: Iterable[WorkflowDefinition]) -> list[Command]:
    """Return a command for each workflow whose name can be typed."""
    return [workflow_command(definition) for definition in definitions if is_callable(definition.name)]


def workflow_command(definition: WorkflowDefinition) -> Command:
    """Return the command that runs a workflow; flags and the prompt follow its name."""
    flags = config_flags(definition.default_config, definition.config_descriptions)
    return Command(
        definition.name,
        collapse_spaces(definition.description),
        Category.WORKFLOW,
        _running(definition.name),
        tuple(alias for alias in definition.aliases if is_callable(alias)),
        _hint(collapse_spaces(definition.argument_hint), flags),
        origin=f"{definition.path or 'Atomic'} ({definition.source})",
        flags=[(flag.usage, flag.help) for flag in flags],
    )


def _hint(written: str, flags: Iterable[Flag]) -> str:
    """Return the author's hint with the flags that it does not name.

    Flags are typed before the prompt, but the prompt must be seen first: a long hint is cut at the end.
    """
    named = set(_FLAG.findall(written))
    more = ", ".join(flag.usage for flag in flags if flag.name not in named)
    return f"{f'[flags] {written}'.rstrip()} (flags: {more})" if more else written


def _running(name: str) -> Run:
    async def run(call: CommandCall, context: CommandContext) -> None:
        await context.run_workflow(name, call.args, call.attached)

    return run
