"""The built-in commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from atomic.base.errors import did_you_mean
from atomic.base.text import collapse_spaces, cut, table
from atomic.commands.context import CommandContext
from atomic.commands.errors import BusyError, CommandError, CommandUsageError
from atomic.commands.help import command_help, commands_help
from atomic.commands.parse import CommandCall
from atomic.commands.registry import Category, Command, Run

if TYPE_CHECKING:
    from atomic.mcp import McpAnswer, McpEntry, McpList
    from atomic.providers import ModelInfo


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
        _command("exit", "leave; a running workflow is paused", _exit, "", "quit", "q"),
    ]


def _command(name: str, description: str, run: Run, hint: str, *aliases: str) -> Command:
    return Command(name, description, Category.BUILTIN, run, aliases, hint)


async def _help(call: CommandCall, context: CommandContext) -> None:
    if not call.text:
        context.show(commands_help(context.commands, context.width))
        return
    command = context.commands.require(call.text.removeprefix("/"))
    context.show(command_help(command, context.commands))


async def _clear(call: CommandCall, context: CommandContext) -> None:
    _takes_nothing(call)
    await context.new_conversation()


async def _compact(call: CommandCall, context: CommandContext) -> None:
    _waits_its_turn(call, context)
    await context.compact(call.text)


async def _model(call: CommandCall, context: CommandContext) -> None:
    match call.text.split():
        case ["list"] | ["list", _] as words:
            _show_rows(context, map(_model_row, await context.models(_second(words))), "There are no models.")
        case ["refresh"]:
            _show_rows(context, map(_model_row, await context.models(None, refresh=True)), "There are no models.")
        case [] | ["select"]:
            _waits_its_turn(call, context)
            await context.pick_model()
        case [model] if model != "list":
            _waits_its_turn(call, context)
            await context.set_model(model)
        case _:
            raise CommandUsageError(f'/model takes select, refresh, list [provider] or a model, not "{call.text}"')


async def _agent(call: CommandCall, context: CommandContext) -> None:
    _waits_its_turn(call, context)
    if call.text:
        await context.switch_provider(call.text)
    else:
        await context.pick_provider()


async def _theme(call: CommandCall, context: CommandContext) -> None:
    if not call.text:
        await context.pick_theme()
        return
    await context.set_theme(_known(call.text, context.themes(), "Theme"))


async def _mcp(call: CommandCall, context: CommandContext) -> None:
    servers = context.mcp_servers()
    match call.text.split(maxsplit=1):
        case []:
            _show_servers(context, servers, await context.mcp_tools())
            for diagnostic in servers.diagnostics:
                context.show(str(diagnostic))
        case [("enable" | "disable") as verb, name]:
            name = _known(name, [entry.name for entry in servers.winners], "MCP server")
            await context.set_mcp_server(name, verb == "enable")
            context.show(f"{name} is {'on' if verb == 'enable' else 'off'}.")
        case _:
            raise CommandUsageError(f'/mcp takes nothing, or enable or disable and a server, not "{call.text}"')


async def _sessions(call: CommandCall, context: CommandContext) -> None:
    if call.text:
        await context.open_session(call.text)
        return
    rows = [(session.id, session.status, session.updated, session.title) for session in await context.sessions()]
    _show_rows(context, rows, "There are no sessions.")


async def _exit(call: CommandCall, context: CommandContext) -> None:
    _takes_nothing(call)
    await context.leave()


def _takes_nothing(call: CommandCall) -> None:
    if call.text:
        raise CommandUsageError(f"/{call.name} takes no arguments")


def _waits_its_turn(call: CommandCall, context: CommandContext) -> None:
    if context.is_streaming:
        raise BusyError(call.name)


def _known(name: str, names: Sequence[str], what: str) -> str:
    """Return the name in its own spelling. Raise CommandError with the nearest name."""
    found = next((known for known in names if known.casefold() == name.casefold()), None)
    if found is None:
        hint = did_you_mean(name, names, otherwise=f"there are: {', '.join(names) or 'none'}")
        raise CommandError(f'{what} not found: "{name}"{hint}')
    return found


def _second(words: Sequence[str]) -> str | None:
    return words[1] if len(words) > 1 else None


def _model_row(model: ModelInfo) -> tuple[str, ...]:
    name = "" if model.name == model.id else model.name
    return model.id, name, f"{model.context:,} tokens" if model.context else ""


def _show_servers(context: CommandContext, servers: McpList, answers: Sequence[McpAnswer]) -> None:
    """Return a line for each server, followed by its tools or the reason why there are none."""
    asked = [next((answer for answer in answers if answer.entry == entry), None) for entry in servers.entries]
    rows = table(_server_row(entry, answer) for entry, answer in zip(servers.entries, asked, strict=True))
    lines = list[str]()
    for row, answer in zip(rows, asked, strict=True):
        more = [] if answer is None else [cut(f"  {collapse_spaces(_tools_of(answer))}", context.width)]
        lines += [row, *more]
    context.show("\n".join(lines) or "There are no MCP servers.")


def _tools_of(answer: McpAnswer) -> str:
    return f"failed: {answer.error}" if answer.error else f"tools: {', '.join(answer.tools) or 'none'}"


def _state_of(entry: McpEntry, answer: McpAnswer | None) -> str:
    if not entry.enabled:
        return "off"
    if answer is not None:
        return "failed" if answer.error else "on"
    return "needs trust" if entry.needs_trust and entry.hidden_by is None else "on"


def _server_row(entry: McpEntry, answer: McpAnswer | None) -> tuple[str, ...]:
    state = _state_of(entry, answer)
    where = entry.shown_url or " ".join(entry.shown_command)
    hidden = "" if entry.hidden_by is None else f"(hidden by {entry.hidden_by})"
    return entry.name, state, entry.transport, f"{entry.origin}, {entry.location}", where, str(entry.path), hidden


def _show_rows(context: CommandContext, rows: Iterable[Sequence[str]], nothing: str) -> None:
    context.show("\n".join(table(rows)) or nothing)
