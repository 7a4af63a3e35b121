"""The built-in commands, and the text of `/help`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from atomic.base.errors import did_you_mean
from atomic.base.text import collapse_spaces, cut, table
from atomic.commands.context import CommandContext
from atomic.commands.hints import short_hint
from atomic.commands.parse import CommandCall
from atomic.commands.registry import (
    BusyError,
    Category,
    Command,
    CommandError,
    CommandRegistry,
    CommandUsageError,
    Run,
)

if TYPE_CHECKING:
    from atomic.mcp import McpAnswer, McpEntry
    from atomic.providers import ModelInfo

MIN_COLUMNS_FOR_HINTS = 100  # in a narrower list, descriptions need the room
_TITLES = {
    Category.BUILTIN: "Slash Commands",
    Category.COMMAND: "Slash Commands",
    Category.WORKFLOW: "Workflows",
    Category.SKILL: "Skills",
    Category.AGENT: "Sub-Agents",
}


def builtin_commands() -> list[Command]:
    """Return the built-in commands, without the workflows that come with Atomic."""
    return [
        _command("help", "commands by category, or one in detail", _help, "[command]", "h", "?"),
        _command("clear", "new conversation, new session", _clear, "", "cls"),
        _command("compact", "summarise the context, keep the transcript", _compact, "[focus]"),
        _command("model", "pick a model, or switch to it", _model, "select | refresh | list [provider] | <model>", "m"),
        _command("agent", "switch to another agent", _agent, "[claude | opencode | copilot | acp:NAME]"),
        _command("theme", "set a theme, or pick one", _theme, "[name]"),
        _command("mcp", "MCP servers, their state, tools and origin", _mcp, "[enable | disable <server>]"),
        _command("sessions", "list runs and conversations, or open one", _sessions, "[id]"),
        _command("resume", "open a run or conversation again", _sessions, "[id]"),
        _command("diff", "what the last run, or a task of it, changed", _branch_verb("diff"), "[run] [task]"),
        _command("accept", "merge the last run's branch", _branch_verb("accept"), "[run] [--squash] [--fix]"),
        _command("undo", "take a task out of the last run's branch", _branch_verb("undo"), "[run] <task>"),
        _command("discard", "remove the last run's branch", _branch_verb("discard"), "[run]"),
        _command("exit", "leave; a running workflow is paused", _exit, "", "quit", "q"),
    ]


def _command(name: str, description: str, run: Run, hint: str, *aliases: str) -> Command:
    return Command(name, description, Category.BUILTIN, run, aliases, hint)


async def _help(call: CommandCall, context: CommandContext) -> None:
    if call.text:
        command = context.commands.require(call.text.removeprefix("/"))
        context.show(_command_help(command, context.commands))
    else:
        context.show(_commands_help(context.commands, context.width))


def _commands_help(registry: CommandRegistry, width: int) -> str:
    """Return all commands that are not hidden, by category, one per line."""
    sections: dict[str, list[Command]] = {title: [] for title in _TITLES.values()}
    for command in registry.all():
        if not command.hidden:
            sections[_TITLES[command.category]].append(command)
    rows: list[list[str]] = []
    for command in (command for section in sections.values() for command in section):
        hint = [short_hint(command.argument_hint)] if width >= MIN_COLUMNS_FOR_HINTS else []
        rows.append([f"/{command.name}", *hint, command.description])
    lines = iter(table(rows, width - 2))
    texts = [
        "\n".join([title, *(f"  {next(lines)}" for _ in section)]) for title, section in sections.items() if section
    ]
    return "\n\n".join(texts)


def _command_help(command: Command, registry: CommandRegistry) -> str:
    """Return one command in detail: arguments, file, hidden definitions and flags."""
    lines = [f"/{command.name} {command.argument_hint}".rstrip()]
    if command.description.strip():
        lines.append(collapse_spaces(command.description))
    lines += ["", f"category: {_TITLES[command.category]}"]
    if command.aliases:
        lines.append(f"aliases: {', '.join(f'/{alias}' for alias in command.aliases)}")
    if command.origin:
        lines.append(f"from: {command.origin}")
    lines += [f"hides: {what}" for what in command.hides]
    for shadowed in registry.shadowed():
        hidden = shadowed.command
        if shadowed.by is command and shadowed.word == hidden.name:
            origin = f", {hidden.origin}" if hidden.origin else ""
            lines.append(f"hides: the {hidden.category} /{hidden.name}{origin}")
    if command.flags:
        lines += ["flags, before the prompt:", *(f"  {line}" for line in table(command.flags))]
        lines.append(f"flags of every run: /{command.name} --help")
    return "\n".join(lines)


async def _clear(call: CommandCall, context: CommandContext) -> None:
    _require_no_arguments(call)
    await context.new_conversation()


async def _compact(call: CommandCall, context: CommandContext) -> None:
    _require_idle(call, context)
    await context.compact(call.text)


async def _model(call: CommandCall, context: CommandContext) -> None:
    match call.text.split():
        case ["list"]:
            _show_models(context, await context.models(None))
        case ["list", provider]:
            _show_models(context, await context.models(provider))
        case ["refresh"]:
            _show_models(context, await context.models(None, refresh=True))
        case [] | ["select"]:
            _require_idle(call, context)
            await context.pick_model()
        case [model]:
            _require_idle(call, context)
            await context.set_model(model)
        case _:
            raise CommandUsageError(f'/model takes select, refresh, list [provider] or a model, not "{call.text}"')


async def _agent(call: CommandCall, context: CommandContext) -> None:
    _require_idle(call, context)
    if call.text:
        await context.switch_provider(call.text)
    else:
        await context.pick_provider()


async def _theme(call: CommandCall, context: CommandContext) -> None:
    if call.text:
        await context.set_theme(_require_known(call.text, context.themes(), "Theme"))
    else:
        await context.pick_theme()


async def _mcp(call: CommandCall, context: CommandContext) -> None:
    servers = context.mcp_servers()
    match call.text.split(maxsplit=1):
        case []:
            _show_servers(context, servers.entries, await context.mcp_tools())
            for diagnostic in servers.diagnostics:
                context.show(str(diagnostic))
        case [("enable" | "disable") as verb, name]:
            name = _require_known(name, [entry.name for entry in servers.winners], "MCP server")
            await context.set_mcp_server(name, verb == "enable")
            context.show(f"{name} is {'on' if verb == 'enable' else 'off'}.")
        case _:
            raise CommandUsageError(f'/mcp takes nothing, or enable or disable and a server, not "{call.text}"')


async def _sessions(call: CommandCall, context: CommandContext) -> None:
    if call.text:
        await context.open_session(call.text)
        return
    rows = [(session.id, session.status, session.updated, session.title) for session in await context.sessions()]
    context.show("\n".join(table(rows)) or "There are no sessions.")


def _branch_verb(verb: str) -> Run:
    """Return the function of a command that does what `atomic VERB` does."""

    async def run(call: CommandCall, context: CommandContext) -> None:
        await context.run_branch_verb(verb, call.text.split())

    return run


async def _exit(call: CommandCall, context: CommandContext) -> None:
    _require_no_arguments(call)
    await context.leave()


def _require_no_arguments(call: CommandCall) -> None:
    if call.text:
        raise CommandUsageError(f"/{call.name} takes no arguments")


def _require_idle(call: CommandCall, context: CommandContext) -> None:
    if context.is_streaming:
        raise BusyError(call.name)


def _require_known(name: str, names: Sequence[str], what: str) -> str:
    """Return the name in its own spelling. Raise CommandError with the nearest name."""
    for known in names:
        if known.casefold() == name.casefold():
            return known
    hint = did_you_mean(name, names, otherwise=f"there are: {', '.join(names) or 'none'}")
    raise CommandError(f'{what} not found: "{name}"{hint}')


def _show_models(context: CommandContext, models: Iterable[ModelInfo]) -> None:
    rows: list[tuple[str, str, str]] = []
    for model in models:
        name = "" if model.name == model.id else model.name
        rows.append((model.id, name, f"{model.context:,} tokens" if model.context else ""))
    context.show("\n".join(table(rows)) or "There are no models.")


def _show_servers(context: CommandContext, entries: Sequence[McpEntry], answers: Sequence[McpAnswer]) -> None:
    """Show a line for each server, followed by its tools or its error."""
    answered = [next((answer for answer in answers if answer.entry == entry), None) for entry in entries]
    rows: list[tuple[str, ...]] = []
    for entry, answer in zip(entries, answered, strict=True):
        if not entry.enabled:
            state = "off"
        elif answer is not None:
            state = "failed" if answer.error else "on"
        else:
            state = "needs trust" if entry.needs_trust and entry.hidden_by is None else "on"
        origin = f"{entry.origin}, {entry.location}"
        target = entry.shown_url or " ".join(entry.shown_command)
        hidden = "" if entry.hidden_by is None else f"(hidden by {entry.hidden_by})"
        rows.append((entry.name, state, entry.transport, origin, target, str(entry.path), hidden))
    lines: list[str] = []
    for row, answer in zip(table(rows), answered, strict=True):
        lines.append(row)
        if answer is not None:
            tools = f"failed: {answer.error}" if answer.error else f"tools: {', '.join(answer.tools) or 'none'}"
            lines.append(cut(f"  {collapse_spaces(tools)}", context.width))
    context.show("\n".join(lines) or "There are no MCP servers.")
