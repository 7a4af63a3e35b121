"""One run of an agent's program: the child process and the protocol on its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import atomic
from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.acp.agents import Agent
from atomic.providers.acp.launch import Launch, Server
from atomic.providers.acp.messages import (
    VERSION,
    Begun,
    Capabilities,
    ConfigOption,
    Greeting,
    Login,
    Opened,
    OptionsUpdate,
    StructT,
    TurnDone,
    read,
    text_at,
)
from atomic.providers.acp.questions import Client
from atomic.providers.acp.translate import Translator
from atomic.providers.errors import NotLoggedInError, ProgramFailedError, ProviderError, UnsupportedError
from atomic.providers.jsonrpc import Json, JsonRpc, JsonRpcError, LineFraming, ProcessExitedError
from atomic.providers.programs import describe_exit

START_SECONDS = 3600.0  # ends a hang only; the caller limits the whole start
ANSWER_SECONDS = 60.0

_AUTH_REQUIRED = -32000
_GENERIC = ("Internal error: ", "Internal error")

_HARMLESS = frozenset({"elicitation/complete"})


class BrokenProtocolError(ProgramFailedError):
    """The agent sent something that is not a message of the protocol."""


class RefusedError(ProviderError):
    """The agent answered a request with an error."""

    def __init__(self, message: str, *, provider: str, code: int) -> None:
        self.code = code
        super().__init__(message, provider=provider)


class AcpProgram:
    """A running agent."""

    def __init__(self, program: Program, agent: Agent, client: Client, translator: Translator) -> None:
        self.can = Capabilities()
        self._program = program
        self._agent = agent
        self._translator = translator
        framing = LineFraming(printed=lambda text: translator.note_unknown(f"a printed line: {text[:80]}"))
        self._rpc = JsonRpc(program, framing, on_notification=self._receive, on_request=client.answer)
        self._logins: Sequence[Login] = ()
        self._is_killed = False  # it may still answer, but cannot run another turn

    @property
    def usable(self) -> bool:
        return self._rpc.is_open and self._program.exit_code is None and not self._is_killed

    # Before a turn

    async def initialize(self, *, may_ask: bool) -> None:
        """Read the agent's capabilities. Raise ProgramFailedError."""
        self._rpc.start()
        capabilities: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        if may_ask:
            capabilities["elicitation"] = {"form": {}}
        if self._agent.features.extensions:
            capabilities["_meta"] = self._agent.features.extensions
        info = {"name": "atomic", "title": "Atomic", "version": atomic.__version__}
        params = {"protocolVersion": VERSION, "clientCapabilities": capabilities, "clientInfo": info}
        answer = await self._ask("initialize", params, Greeting, within=START_SECONDS)
        if answer.protocol_version != VERSION:
            raise ProgramFailedError(
                f"{self._agent.provider} uses version {answer.protocol_version} of the protocol, "
                f"Atomic supports version {VERSION}",
                provider=self._agent.provider,
            )
        self.can = answer.agent_capabilities
        self._logins = answer.auth_methods

    async def begin(self, cwd: str, servers: Sequence[Server], env: Mapping[str, str]) -> tuple[str, Opened]:
        """Create a session; log in with variables of the environment if needed.

        Raise ProviderError.
        """
        params = {"cwd": cwd, "mcpServers": servers}
        try:
            opened = await self._ask("session/new", params, Begun, within=START_SECONDS)
        except NotLoggedInError:
            method = self._login_by(env)
            if method is None:
                raise
            await self._request("authenticate", {"methodId": method}, within=ANSWER_SECONDS)
            opened = await self._ask("session/new", params, Begun, within=START_SECONDS)
        return opened.session_id, opened

    async def resume(self, session: str, cwd: str, servers: Sequence[Server]) -> Opened:
        """Resume a session. Raise ProviderError."""
        if self.can.session_capabilities.resume is not None:
            method = "session/resume"
        elif self.can.load_session:
            method = "session/load"
        else:
            raise self._cannot("resume a session")
        params = {"sessionId": session, "cwd": cwd, "mcpServers": servers}
        return await self._ask(method, params, Opened, within=START_SECONDS)

    async def fork(self, session: str, cwd: str, servers: Sequence[Server]) -> tuple[str, Opened]:
        """Create a copy of a session. Raise ProviderError."""
        if self.can.session_capabilities.fork is None:
            raise self._cannot("fork a session")
        params = {"sessionId": session, "cwd": cwd, "mcpServers": servers}
        opened = await self._ask("session/fork", params, Begun, within=START_SECONDS)
        return opened.session_id, opened

    async def choose(self, session: str, option: str, value: str) -> Sequence[ConfigOption]:
        """Set an option of a session. Raise ProviderError."""
        params = {"sessionId": session, "configId": option, "value": value}
        answer = await self._ask("session/set_config_option", params, OptionsUpdate, within=ANSWER_SECONDS)
        return answer.config_options

    # Turns

    async def prompt(self, session: str, texts: Sequence[str]) -> TurnDone:
        """Run one turn and return its end. Raise ProviderError."""
        blocks = [{"type": "text", "text": text} for text in texts]
        return await self._ask("session/prompt", {"sessionId": session, "prompt": blocks}, TurnDone, within=None)

    async def cancel(self, session: str) -> None:
        """Ask it to stop the turn. Raise ProgramFailedError."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._rpc.notify("session/cancel", {"sessionId": session})
        except TimeoutError:
            raise self._failed(f"did not accept input within {ANSWER_SECONDS:g} s") from None
        except ProcessExitedError:
            raise await self._exited() from None

    async def kill(self, *, grace: float) -> None:
        self._is_killed = True
        await self._program.stop(grace=grace)

    async def close(self) -> None:
        await self._rpc.stop()

    # Requests

    def _receive(self, method: str, params: Json) -> None:
        if method == "session/update":
            self._translator.receive(params)
        elif method not in _HARMLESS:
            self._translator.note_unknown(method)

    def _login_by(self, env: Mapping[str, str]) -> str | None:
        """Return a login method whose variables are all set."""
        for login in self._logins:
            needed = [variable.name for variable in login.vars if not variable.optional]
            if login.type == "env_var" and needed and all(env.get(name) for name in needed):
                return login.id
        return None

    async def _ask(
        self, method: str, params: Mapping[str, Any], answer: type[StructT], *, within: float | None
    ) -> StructT:
        result = await self._request(method, params, within=within)
        provider = self._agent.provider
        try:
            return read({} if result is None else result, answer)  # some send null for an empty object
        except msgspec.ValidationError as error:
            raise ProviderError(f"{provider} sent an answer of an unknown shape: {error}", provider=provider) from error

    async def _request(self, method: str, params: Mapping[str, Any], *, within: float | None) -> Any:
        try:
            return await self._rpc.request(method, params, within)
        except TimeoutError:
            raise self._failed(f"did not answer within {within:g} s") from None
        except JsonRpcError as error:
            raise self._refusal(error) from error
        except ProcessExitedError:
            raise await self._exited() from None

    def _refusal(self, error: JsonRpcError) -> ProviderError:
        provider = self._agent.provider
        message = error.message
        for generic in _GENERIC:
            message = message.removeprefix(generic)
        parts = [part for part in (message, text_at(error.data, "details")) if part]
        reason = ": ".join(parts) or f"error {error.code}"
        if error.code == _AUTH_REQUIRED:
            return NotLoggedInError(
                f"{provider} is not logged in: {reason}", provider=provider, remedy=self._agent.login
            )
        return RefusedError(f"{provider}: {reason}", provider=provider, code=error.code)

    def _cannot(self, feature: str) -> UnsupportedError:
        provider = self._agent.provider
        return UnsupportedError(f"{provider} cannot {feature}", provider=provider, remedy="choose another agent")

    async def _exited(self) -> ProviderError:
        """Return the error that describes how the connection ended."""
        if self._rpc.fault:
            provider = self._agent.provider
            return BrokenProtocolError(f"{provider} sent something unreadable: {self._rpc.fault}", provider=provider)
        try:
            async with asyncio.timeout(1):  # the stream may end before the process does
                code = await self._program.wait()
        except TimeoutError:
            return self._failed("closed its stream")
        return self._failed(f"(process {self._program.pid}) {describe_exit(code)}")

    def _failed(self, problem: str) -> ProgramFailedError:
        message = f"{self._agent.provider} {problem}"
        if output := self._program.stderr_tail[-500:]:
            message += f": {output}"
        return ProgramFailedError(message, provider=self._agent.provider)


@asynccontextmanager
async def running_agent(launch: Launch, client: Client, translator: Translator) -> AsyncGenerator[AcpProgram]:
    """Run the program in this context; leaving it ends all its processes.

    Raise ProgramFailedError.
    """
    mark = new_mark()
    try:
        async with running(*launch.argv, cwd=str(launch.cwd), env={**launch.env, **mark}) as child:
            program = AcpProgram(child, launch.agent, client, translator)
            try:
                yield program
            finally:
                await program.close()
    except ExecError as error:
        raise ProgramFailedError(str(error), provider=launch.agent.provider) from error
    finally:
        await end_marked(mark)
