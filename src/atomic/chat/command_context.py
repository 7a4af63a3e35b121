"""The chat as a host of commands, for one run."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from atomic.base.arguments import UsageError
from atomic.chat.conversation import BUSY
from atomic.chat.named_agents import NamedAgents
from atomic.chat.protocol import ChatNotice, PickKind, PickRow, RunKind, ShellOutput, ThemeSet
from atomic.chat.runs import ChatRun, RunEnd
from atomic.commands import (
    AgentTask,
    CommandError,
    CommandRegistry,
    SessionSummary,
    TurnPrompt,
)
from atomic.commands.from_workflows import WorkflowCall
from atomic.mcp import McpAnswer, McpList
from atomic.processes import execute
from atomic.providers import ModelInfo
from atomic.questions import Option, Question
from atomic.sessions.model import SessionRecord
from atomic.sessions.report import RESUMABLE
from atomic.sessions.store import shown

if TYPE_CHECKING:
    from atomic.chat.engine import Engine

THEMES = ("dark", "light", "ansi", "contrast")
OnPicked = Callable[["ChatHost", str], Awaitable[None]]
_SHOWN_OUTPUT = 1024 * 1024  # bytes of a shell command
_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f-]*)?")
_YES = "Remove it"
_NO = "Keep it"
_CONTEXT_OUTPUT = 16 * 1024  # characters of it that precede the next prompt


class ChatHost:
    """Carries out the requests of the commands of one run."""

    def __init__(self, engine: Engine, run: ChatRun) -> None:
        self._engine = engine
        self._run = run
        self.end = RunEnd()

    @property
    def commands(self) -> CommandRegistry:
        return self._engine.project.commands

    @property
    def is_streaming(self) -> bool:
        return self._engine.conversation.is_busy

    @property
    def width(self) -> int:
        return self._engine.width

    def is_agent(self, name: str) -> bool:
        return self._engine.project.entities.find("agent", name) is not None

    def show(self, text: str) -> None:
        self._run.emit(ChatNotice(text=text, run=self._run.id))

    async def turn(self, prompt: TurnPrompt) -> None:
        if self.is_streaming:  # checked before the run starts as a turn
            raise CommandError(BUSY)
        self._run.start(RunKind.TURN)
        self.end = await self._engine.conversation.turn(self._run, prompt)

    async def spawn(self, tasks: Sequence[AgentTask]) -> None:
        engine = self._engine
        for task in tasks:
            engine.project.entities.require("agent", task.agent)
        agents = NamedAgents(self._run, engine.conversation, engine.agents, engine.questions)
        self.end = await agents.work(tasks)

    async def run_workflow(self, name: str, arguments: str, attached: str = "") -> None:
        """Run a workflow in its own process.

        Without a graph it is a turn of the conversation.
        """
        engine = self._engine
        definition = engine.project.workflows.definition(name)
        loaded = await asyncio.to_thread(definition.load)
        if loaded.graph is None:
            text = "\n\n".join(part for part in (arguments, attached) if part)
            await self.turn(TurnPrompt(text=text or definition.description or name))
            return
        try:
            call = WorkflowCall(definition, arguments)
        except UsageError:
            self._run.start(RunKind.WORKFLOW, definition.name)
            raise
        if call.arguments.has("--help"):
            self._run.start(RunKind.WORKFLOW, definition.name)
            self.show(call.help())
            return
        words = ["run", definition.name, "--json", *engine.conversation.flags, *call.flag_words]
        prompt = "\n\n".join(part for part in (call.prompt, attached) if part)
        self.end = await engine.workflows.start(
            self._run, words, title=definition.name, cwd=engine.project.cwd, prompt=prompt
        )

    async def run_shell(self, command: str) -> RunEnd:
        """Run `!command` in the user's shell. Its output precedes the next prompt."""
        self._run.start(RunKind.SHELL, command)
        conversation = self._engine.conversation
        output = _ShellOutput(self._run)
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            result = await execute(shell, "-c", command, cwd=conversation.project.cwd, on_output=output.add)
        finally:
            output.finish()
        conversation.add_context(output.as_context(command, result.exit_code))
        return RunEnd() if result.exit_code == 0 else RunEnd("failed", f"exit code {result.exit_code}")

    async def new_conversation(self) -> None:
        await self._engine.new_conversation()

    async def compact(self, focus: str) -> None:
        conversation = self._engine.conversation
        before = conversation.context.used
        await conversation.compact(self._run, focus)
        after = conversation.context.used
        figures = f": {before:,} → {after:,} tokens" if before and after else ""
        self.show(f"The context was summarised{figures}.")

    async def models(self, provider: str | None, *, refresh: bool = False) -> Sequence[ModelInfo]:
        engine = self._engine
        if provider is None:
            name, found = await engine.conversation.models_provider()
        else:
            name, found = await engine.agents.choose(provider)
        return await engine.agents.models(name, found, refresh=refresh)

    async def pick_model(self) -> None:
        current = self._engine.conversation.model
        rows = [
            PickRow(
                model.id,
                model.name or model.id,
                f"{model.context:,} tokens" if model.context else "",
                current=model.id == current,
            )
            for model in await self.models(None)
        ]
        self._pick(PickKind.MODEL, "Model", rows, ChatHost.set_model)

    async def set_model(self, model: str) -> None:
        await self._engine.conversation.set_model(self._run, model)
        self.show(f"The model is {model} now.")

    async def pick_provider(self) -> None:
        engine = self._engine
        rows = [
            PickRow(name, name, current=name == engine.conversation.agent)
            for name in dict.fromkeys([*engine.agents.names(), *filter(None, [engine.conversation.agent])])
        ]
        self._pick(PickKind.PROVIDER, "Agent", rows, ChatHost.switch_provider)

    async def switch_provider(self, name: str) -> None:
        summary = await self._engine.conversation.switch(self._run, name)
        more = "; your next prompt includes a summary of the conversation" if summary else ""
        self.show(f"The agent is {name} now{more}.")

    def themes(self) -> Sequence[str]:
        return THEMES

    async def pick_theme(self) -> None:
        current = self._engine.theme
        rows = [PickRow(name, name, current=name == current) for name in THEMES]
        self._pick(PickKind.THEME, "Theme", rows, ChatHost.set_theme)

    async def set_theme(self, name: str) -> None:
        self._engine.theme = name
        self._run.emit(ThemeSet(name=name))

    def mcp_servers(self) -> McpList:
        return self._engine.project.mcp

    async def mcp_tools(self) -> Sequence[McpAnswer]:
        project = self._engine.project
        return await project.mcp_tools(trusted=await asyncio.to_thread(project.is_trusted))

    async def set_mcp_server(self, name: str, enabled: bool) -> None:
        self._engine.project.switch_mcp_server(name, enabled)

    async def pick_mcp(self) -> None:
        """List the servers with state, tools and origin.

        The chosen one is switched on or off.
        """
        servers = self.mcp_servers()
        answers = {answer.entry.name: answer for answer in await self.mcp_tools()}
        rows = [
            PickRow(entry.name, entry.name, _server_state(entry.enabled, answers.get(entry.name)), str(entry.origin))
            for entry in servers.winners
        ]
        for diagnostic in servers.diagnostics:
            self.show(str(diagnostic))
        if rows:
            self._pick(PickKind.MCP, "MCP servers: choose one to switch it on or off", rows, ChatHost.toggle_mcp_server)
        else:
            self.show("There are no MCP servers.")

    async def toggle_mcp_server(self, name: str) -> None:
        """Switch a server off if it is on, or on if it is off."""
        is_on = any(entry.name == name and entry.enabled for entry in self.mcp_servers().winners)
        await self.set_mcp_server(name, not is_on)
        self.show(f"{name} is {'off' if is_on else 'on'}. Open sessions keep their servers.")

    async def sessions(self) -> Sequence[SessionSummary]:
        records = await asyncio.to_thread(self._engine.project.store.list)
        return [_summary(record) for record in records]

    async def pick_session(self) -> None:
        """List runs and conversations, starting with this project."""
        records = await asyncio.to_thread(self._engine.project.store.list)
        here = str(self._engine.project.folder)
        rows: list[PickRow] = []
        for record in sorted(records, key=lambda record: record.project != here):
            if record.id == self._engine.conversation.log.id:
                continue
            summary = _summary(record)
            detail = ", ".join(part for part in (record.workflow, summary.status, record.updated_at[:16]) if part)
            group = "This project" if record.project == here else "Elsewhere"
            rows.append(PickRow(record.id, summary.title or record.id, detail, group))
        if rows:
            self._pick(PickKind.SESSION, "Runs and conversations", rows, ChatHost.open_session)
        else:
            self.show("There are no sessions.")

    async def open_session(self, id: str) -> None:
        """Continue a conversation, resume a run that has stopped, or follow a run that
        is active.
        """
        engine = self._engine
        session = engine.project.store.find(id)
        record = shown(session.record)
        if record.is_conversation:
            await engine.open_conversation(session)
        elif record.status in RESUMABLE:
            words = ["resume", session.id, "--json"]
            self.end = await engine.workflows.start(self._run, words, title=record.workflow, cwd=engine.project.cwd)
        else:
            self.end = await engine.workflows.watch(self._run, session)

    async def run_branch_verb(self, verb: str, words: Sequence[str]) -> None:
        """Run `atomic VERB` and show its output."""
        id, arguments = await asyncio.to_thread(self._find_run, verb, words)
        self._run.start(RunKind.SHELL, f"atomic {verb} {id[:8]}")
        if verb == "discard":
            if not await self._confirm_discard(id):
                self.show("Nothing was removed.")
                return
            arguments = (*arguments, "--yes")
        output = _ShellOutput(self._run)
        program = (sys.executable, "-P", "-m", "atomic")
        try:
            result = await execute(*program, verb, id, *arguments, cwd=self._engine.project.cwd, on_output=output.add)
        finally:
            output.finish()
        if result.exit_code != 0:
            self.end = RunEnd("failed", f"exit code {result.exit_code}")

    def _find_run(self, verb: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
        """Return the id of the run that the words name, and the other words.

        By default the last run of this screen, or of this project. Raises CommandError.
        """
        if words and _RUN_ID.fullmatch(words[0]):
            return words[0], words[1:]
        if self._engine.workflows.last:
            return self._engine.workflows.last, words
        here = str(self._engine.project.folder)
        for record in self._engine.project.store.list():
            if record.project == here and not record.is_conversation:
                return record.id, words
        raise CommandError(f"There is no run in this project yet: /{verb} ID names another one")

    async def _confirm_discard(self, id: str) -> bool:
        ask = self._engine.questions.asker(lambda: self._run, [_NO])
        question = Question(
            f"Remove the branch of run {id[:8]}? atomic salvage can still restore its files.",
            header="Discard",
            options=[Option(_NO), Option(_YES)],
            default=_NO,
        )
        [answers] = await ask([question])
        return list(answers) == [_YES]

    async def leave(self) -> None:
        self._engine.leave(pause=True)

    def _pick(self, kind: PickKind, title: str, rows: Sequence[PickRow], on_picked: OnPicked) -> None:
        self._engine.pick(self._run, kind, title, rows, on_picked)


def _server_state(enabled: bool, answer: McpAnswer | None) -> str:
    if not enabled:
        return "off"
    if answer is None:
        return "on, needs trust"
    if answer.error:
        return f"failed: {answer.error}"
    return f"on: {', '.join(answer.tools) or 'no tools'}"


def _summary(record: SessionRecord) -> SessionSummary:
    title = record.prompt or record.workflow or record.reason
    return SessionSummary(record.id, " ".join(title.split())[:200], str(record.status), record.updated_at)


class _ShellOutput:
    """Shows the output of a shell command as it arrives, up to a limit."""

    def __init__(self, run: ChatRun) -> None:
        self._run = run
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown: list[str] = []
        self._room = _SHOWN_OUTPUT
        self._omitted = 0  # bytes

    def add(self, data: bytes) -> None:
        """Show bytes of the output."""
        kept = data[: self._room]
        self._room -= len(kept)
        self._omitted += len(data) - len(kept)
        self._show(self._decoder.decode(kept))

    def finish(self) -> None:
        """Show an incomplete last character, and how much was omitted."""
        self._show(self._decoder.decode(b"", final=True))
        if self._omitted:
            self._show(f"\n… {self._omitted:,} more bytes omitted\n")

    def _show(self, text: str) -> None:
        if text:
            self._shown.append(text)
            self._run.emit(ShellOutput(run=self._run.id, text=text))

    def as_context(self, command: str, exit_code: int) -> str:
        """Return the command and the end of its output for the agent."""
        output = "".join(self._shown)
        if len(output) > _CONTEXT_OUTPUT:
            output = f"…{output[-_CONTEXT_OUTPUT:]}"
        fence = "```"
        while fence in output:
            fence += "`"
        return f"I ran this command myself (exit code {exit_code}):\n{fence}\n$ {command}\n{output}\n{fence}"
