"""Commands made from workflows: one path for all. A list, a hint and a completion run nothing of their files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from atomic.columns import one_line
from atomic.commands.context import CommandContext
from atomic.commands.parse import CommandCall, is_callable
from atomic.commands.registry import Category, Command, Run

if TYPE_CHECKING:
    from atomic.workflows import WorkflowDefinition


def workflow_commands(definitions: Iterable[WorkflowDefinition]) -> list[Command]:
    """A command for each workflow that can be typed."""
    return [workflow_command(definition) for definition in definitions if is_callable(definition.name)]


def workflow_command(definition: WorkflowDefinition) -> Command:
    """The command that runs a workflow; flags and the prompt follow its name."""
    return Command(
        definition.name,
        one_line(definition.description),
        Category.WORKFLOW,
        _running(definition.name),
        tuple(alias for alias in definition.aliases if is_callable(alias)),
        one_line(definition.argument_hint),
        origin=f"{definition.path or 'Atomic'} ({definition.source})",
    )


def _running(name: str) -> Run:
    async def run(call: CommandCall, context: CommandContext) -> None:
        await context.run_workflow(name, call.args, call.attached)

    return run
