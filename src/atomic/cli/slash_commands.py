"""Run slash commands and `@agent` mentions of `atomic -p`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from atomic.base.arguments import UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless, one_line
from atomic.cli import signals
from atomic.cli.parallel_agents import ParallelHost
from atomic.cli.signals import Stop
from atomic.cli.streams import claimed_stdout, screen_width, tell
from atomic.cli.turn import Host, Prompt, TurnHost, TurnRequest, recordable
from atomic.cli.verbs import VERBS
from atomic.commands import (
    AgentTask,
    CommandError,
    CommandRegistry,
    LimitedContext,
    SessionSummary,
    TurnPrompt,
    UnsupportedError,
    agent_prompt,
    dispatch,
)
from atomic.commands.from_workflows import WorkflowCall
from atomic.mcp import McpAnswer, McpList
from atomic.providers import EndReason, ModelInfo, TurnEnded
from atomic.providers.selection import choose_provider, list_models
from atomic.wiring import Project, RunFlags

if TYPE_CHECKING:
    from atomic.cli.run_host import HostedRun
    from atomic.runs.host import Person


def run_prompt(request: TurnRequest, prompt: Prompt) -> int:
    """Run the command or the agents that the prompt names, else one turn, and return
    the exit code.
    """
    return signals.run(lambda stop: _PromptHost(request, prompt, stop).run())


class _PromptHost(Host):
    """Runs a command and prints its output; a turn prints its own."""

    def __init__(self, request: TurnRequest, prompt: Prompt, stop: Stop) -> None:
        super().__init__(request, stop)
        self._prompt = prompt

    async def _turn(self) -> int:
        context = HeadlessContext(self._request, self._stop, self._project)
        try:
            is_ours = await dispatch(self._prompt.typed, context, attached=self._prompt.piped)
        except CommandError as error:
            raise UsageError(str(error)) from error
        if not is_ours:
            return await TurnHost(self._request, self._stop, self._project).run()
        if context.exit_code is not None:
            return context.exit_code
        # The text may come from untrusted files, and may reach a terminal through a
        # pipe.
        self._report.end(TurnEnded(EndReason.DONE, harmless("\n".join(context.shown))), None, "")
        return ExitCode.DONE

    def _interrupt(self) -> None:
        """Do nothing: a turn has its own host."""


class HeadlessContext(LimitedContext):
    """`atomic -p` as a host of commands.

    `exit_code` comes from a turn or run, if there was one.
    """

    name = "atomic -p"
    reason = "it is one turn without a screen"

    def __init__(self, request: TurnRequest, stop: Stop, project: Project) -> None:
        self.shown: list[str] = []
        self.exit_code: int | None = None
        self._request = request
        self._stop = stop
        self._project = project

    @property
    def commands(self) -> CommandRegistry:
        return self._project.commands

    @property
    def width(self) -> int:
        return screen_width() or sys.maxsize  # a file or a pipe takes whole lines

    def is_agent(self, name: str) -> bool:
        return self._project.entities.find("agent", name) is not None

    def show(self, text: str) -> None:
        self.shown.append(text)

    async def turn(self, prompt: TurnPrompt) -> None:
        for notice in self._project.entity_notices:
            tell(notice)
        request = msgspec.structs.replace(self._request, prompt=prompt.text, entity=prompt)
        self.exit_code = await TurnHost(request, self._stop, self._project).run()

    async def spawn(self, tasks: Sequence[AgentTask]) -> None:
        prompts = [agent_prompt(self._project.entities.require("agent", task.agent), task.task) for task in tasks]
        if len(tasks) == 1:
            await self.turn(prompts[0])  # its answer is printed as it arrives
        else:
            host = ParallelHost(self._request, self._stop, self._project, tasks, prompts)
            self.exit_code = await host.run()

    async def run_workflow(self, name: str, arguments: str, attached: str = "") -> None:
        """Run it as `atomic run` does."""
        from atomic.cli.help import verb_help
        from atomic.cli.prompt_flags import check_prompt
        from atomic.cli.run import start_run
        from atomic.cli.run_host import RunHost, is_quiet, read_flags

        call = WorkflowCall(self._project.workflows.definition(name), arguments)
        typed = call.arguments
        if typed.has("--help"):
            self.show(
                verb_help(VERBS["run"], typed.flags, (call.definition.name, one_line(call.definition.description)))
            )
            return
        if not typed.is_marked:
            check_prompt(call.prompt_words, typed.flags)

        async def start(person: Person | None) -> HostedRun:
            text = "\n\n".join(part for part in (call.prompt, attached) if part)
            return await start_run(name, text, typed.value("--resume"), self._over_request(read_flags(typed)), person)

        as_json = self._request.output != "text" or typed.has("--json")
        with claimed_stdout() as stdout:
            host = RunHost(self._stop, stdout, as_json=as_json, quiet=is_quiet(typed))
            self.exit_code = await host.run(start)

    async def sessions(self) -> Sequence[SessionSummary]:
        from atomic.config import atomic_home
        from atomic.sessions import SessionStore

        records = SessionStore(atomic_home()).list()
        return [SessionSummary(one.id, f"{one.workflow} {one.prompt}", one.status, one.updated_at) for one in records]

    async def open_session(self, id: str) -> None:
        """Resume it as `atomic resume` does."""
        from atomic.cli.resume import require_session, resume_run
        from atomic.cli.run_host import RunHost

        async def start(person: Person | None) -> HostedRun:
            return await resume_run(require_session(id), self._over_request(RunFlags()), person)

        with claimed_stdout() as stdout:
            host = RunHost(self._stop, stdout, as_json=self._request.output != "text")
            self.exit_code = await host.run(start)

    async def run_branch_verb(self, verb: str, words: Sequence[str]) -> None:
        command = " ".join(("atomic", verb, *(words or ("ID",))))
        raise UnsupportedError(f"atomic -p has no last run (the command is: {command})")

    def _over_request(self, flags: RunFlags) -> RunFlags:
        """Add the flags of the command line; flags after the command's name win."""
        request = self._request
        record = None if request.record is None else recordable(request.record)
        return msgspec.structs.replace(
            flags,
            agents={**({"": request.agent} if request.agent else {}), **flags.agents},
            models={**({"": request.model} if request.model else {}), **flags.models},
            record=flags.record or record,
        )

    async def models(self, provider: str | None, *, refresh: bool = False) -> Sequence[ModelInfo]:
        chosen = await choose_provider(provider or self._request.agent, self._project.settings)
        return await list_models(chosen)  # never cached, so `refresh` changes nothing

    async def set_model(self, model: str) -> None:
        raise UnsupportedError(f"atomic -p has no conversation to switch (name its model with --model {model})")

    async def switch_provider(self, name: str) -> None:
        raise UnsupportedError(f"atomic -p has no conversation to switch (name its agent with --agent {name})")

    def mcp_servers(self) -> McpList:
        return self._project.mcp

    async def mcp_tools(self) -> Sequence[McpAnswer]:
        return await self._project.mcp_tools()

    async def set_mcp_server(self, name: str, enabled: bool) -> None:
        self._project.switch_mcp_server(name, enabled)

    async def leave(self) -> None:
        """Do nothing: the program ends after the command."""
