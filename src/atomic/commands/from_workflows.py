"""Make commands from workflows, and parse their flags.

Nothing here runs code of workflow files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from atomic.base.arguments import Arguments, parse
from atomic.base.flags import HELP, RUN, Flag
from atomic.base.lazy_types import deferred
from atomic.base.text import collapse_spaces, table
from atomic.commands.context import CommandContext
from atomic.commands.parse import CommandCall, is_callable, split_words
from atomic.commands.registry import Category, Command

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
    flags = definition.flags

    async def run(call: CommandCall, context: CommandContext) -> None:
        await context.run_workflow(definition.name, call.args, call.attached)

    return Command(
        definition.name,
        collapse_spaces(definition.description),
        Category.WORKFLOW,
        run,
        tuple(alias for alias in definition.aliases if is_callable(alias)),
        _hint(collapse_spaces(definition.argument_hint), flags),
        origin=f"{definition.path or 'Atomic'} ({definition.source})",
        flags=[(flag.usage, flag.help) for flag in flags],
    )


def _hint(written: str, flags: Iterable[Flag]) -> str:
    """Return the author's hint with the flags that it does not name.

    Flags are typed before the prompt, but the prompt must be seen first: a long hint is
    cut at the end.
    """
    named = set(_FLAG.findall(written))
    more = ", ".join(flag.usage for flag in flags if flag.name not in named)
    return f"{f'[flags] {written}'.rstrip()} (flags: {more})" if more else written


class WorkflowCall:
    """The flags and the prompt of a call.

    `prompt` is as it was typed, with its quotes and line breaks.
    """

    def __init__(self, definition: WorkflowDefinition, typed: str) -> None:
        """Raise UsageError for a flag that neither a run nor the workflow has."""
        words = split_words(typed)
        own_flags = definition.flags
        self.definition = definition
        self.arguments: Arguments = parse([word.text for word in words], (*RUN, HELP, *own_flags))
        prompt_start = len(words) - len(self.arguments.words)
        self.prompt_words: Sequence[str] = self.arguments.words
        self.prompt = typed[words[prompt_start].start :] if self.prompt_words else ""
        self.flag_words: Sequence[str] = [word.text for word in words[:prompt_start]]
        if self.arguments.is_marked:
            self.flag_words = self.flag_words[:-1]  # without the `--`

    def help(self) -> str:
        """Return the text of `--help`: flags of every run and of the workflow."""
        definition = self.definition
        own_flags = definition.flags
        lines = [f"/{definition.name} [flags] [PROMPT...]: {collapse_spaces(definition.description)}"]
        for title, flags in (("flags:", (*RUN, HELP)), ("the workflow's own flags:", own_flags)):
            if flags:
                rows = table((f"{', '.join(flag.names)} {flag.value}".strip(), flag.help) for flag in flags)
                lines += ["", title, *(f"  {row}" for row in rows)]
        return "\n".join(lines)
