"""`atomic models`: list the values of --model."""

from __future__ import annotations

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.cli import signals
from atomic.cli.signals import Stop
from atomic.cli.streams import json_line, put, tell
from atomic.config import load_settings
from atomic.providers.selection import choose_provider, list_models


def run_models(arguments: Arguments) -> int:
    """Print the models of an agent."""

    async def work(stop: Stop) -> int:
        settings = load_settings()
        for warning in settings.warnings:
            tell(f"warning: {warning}")
        models = await list_models(await choose_provider(arguments.value("--agent"), settings))
        if arguments.has("--json"):
            put(json_line(models))
            return ExitCode.DONE
        if not models:
            tell("this agent lists no models: leave --model out, or give a name that it knows")
        for model in models:
            name = "" if model.name in ("", model.id) else f"  {one_line(model.name)}"
            context = f"  ({model.context:,} tokens)" if model.context else ""
            put(f"{one_line(model.id)}{name}{context}\n")
        return ExitCode.DONE

    return signals.run(work)
