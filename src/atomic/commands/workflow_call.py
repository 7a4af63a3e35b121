"""Parse what follows the name of a workflow's slash command: flags, then the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atomic.base.arguments import Arguments, parse
from atomic.base.flags import HELP, RUN, config_flags
from atomic.base.text import collapse_spaces, table
from atomic.commands.parse import split_words

if TYPE_CHECKING:
    from atomic.workflows import WorkflowDefinition


class WorkflowCall:
    """The flags and the prompt of a call; `prompt` is as it was typed, with its quotes and line breaks."""

    def __init__(self, definition: WorkflowDefinition, typed: str) -> None:
        """Raise UsageError for a flag that neither a run nor the workflow has."""
        words = split_words(typed)
        own_flags = config_flags(definition.default_config, definition.config_descriptions)
        self.definition = definition
        self.arguments: Arguments = parse([word.text for word in words], (*RUN, HELP, *own_flags))
        prompt_start = len(words) - len(self.arguments.words)
        self.prompt_words: Sequence[str] = self.arguments.words
        self.prompt = typed[words[prompt_start].start :] if self.prompt_words else ""
        self.flag_words: Sequence[str] = [word.text for word in words[:prompt_start]]
        if self.arguments.is_marked:
            self.flag_words = self.flag_words[:-1]  # without the `--`

    def help(self) -> str:
        """Return the text of `--help`: the flags of every run and those of the workflow."""
        definition = self.definition
        own_flags = config_flags(definition.default_config, definition.config_descriptions)
        lines = [f"/{definition.name} [flags] [PROMPT...]: {collapse_spaces(definition.description)}"]
        for title, flags in (("flags:", (*RUN, HELP)), ("the workflow's own flags:", own_flags)):
            if flags:
                rows = table((f"{', '.join(flag.names)} {flag.value}".strip(), flag.help) for flag in flags)
                lines += ["", title, *(f"  {row}" for row in rows)]
        return "\n".join(lines)
