"""One run of an agent's program: our child, and the protocol on its streams."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import atomic
from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.acp.agent import Agent
from atomic.providers.acp.client import Client
from atomic.providers.acp.errors import BrokenProtocolError, RefusedError
from atomic.providers.acp.lines import Lines
from atomic.providers.acp.loose import StructT, read, word_in
from atomic.providers.acp.messages import (
    VERSION,
    Begun,
    Capabilities,
    ConfigOption,
    Greeting,
    Login,
    Opened,
    OptionsUpdate,
    TurnDone,
)
from atomic.providers.acp.servers import Server
from atomic.providers.acp.translate import Translator
from atomic.providers.errors import NotLoggedInError, ProgramFailedError, ProviderError, UnsupportedError
from atomic.providers.jsonrpc import Json, JsonRpc, JsonRpcError, ProcessExitedError

STARTING = 3600.0  # seconds; who starts it has a shorter limit for all of the start
ANSWERING = 60.0

_AUTH_REQUIRED = -32000
_GENERIC = ("Internal error: ", "Internal error")

_HARMLESS = frozenset({"elicitation/complete"})


class AcpProgram:
    """An agent as it runs."""

    def __init__(self, program: Program, agent: Agent, client: Client, translator: Translator) -> None:
        self.can = Capabilities()
        self._program, self._agent, self._translator = program, agent, translator
        lines = Lines(printed=lambda text: translator.note_unknown(f"a printed line: {text[:80]}"))
        self._rpc = JsonRpc(program, lines, hear=self._hear, answer=client.answer)
        self._logins: Sequence[Login] = ()
        self._is_killed = False  # it may still answer, but it will not do another turn

    @property
    def usable(self) -> bool:
        return self._rpc.is_open and self._program.exit_code is None and not self._is_killed

    # before a turn --------------------------------------------------------------------------------------------

    async def shake_hands(self, *, may_ask: bool) -> None:
        """Learn what the agent can do. Raises ProgramFailedError."""
        self._rpc.start()
        capabilities: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        if may_ask:
            capabilities["elicitation"] = {"form": {}}
        info = {"name": "atomic", "title": "Atomic", "version": atomic.__version__}
        params = {"protocolVersion": VERSION, "clientCapabilities": capabilities, "clientInfo": info}
        said = await self._ask("initialize", params, Greeting, within=STARTING)
        if said.protocol_version != VERSION:
            raise ProgramFailedError(
                f"{self._agent.provider} speaks version {said.protocol_version} of the protocol, "
                f"Atomic version {VERSION}",
                provider=self._agent.provider,
            )
        self.can, self._logins = said.agent_capabilities, said.auth_methods

    async def begin(self, cwd: str, servers: Sequence[Server], env: Mapping[str, str]) -> tuple[str, Opened]:
        """Begin a session, after a login with what the environment has, if need be. Raises ProviderError."""
        params = {"cwd": cwd, "mcpServers": servers}
        try:
            opened = await self._ask("session/new", params, Begun, within=STARTING)
        except NotLoggedInError:
            method = self._login_by(env)
            if method is None:
                raise
            await self._request("authenticate", {"methodId": method}, within=ANSWERING)
            opened = await self._ask("session/new", params, Begun, within=STARTING)
        return opened.session_id, opened

    async def take_up(self, session: str, cwd: str, servers: Sequence[Server]) -> Opened:
        """Go on with a session. Raises ProviderError."""
        if self.can.session_capabilities.resume is not None:
            method = "session/resume"
        elif self.can.load_session:
            method = "session/load"
        else:
            raise self._cannot("take up a session again")
        params = {"sessionId": session, "cwd": cwd, "mcpServers": servers}
        return await self._ask(method, params, Opened, within=STARTING)

    async def fork(self, session: str, cwd: str, servers: Sequence[Server]) -> tuple[str, Opened]:
        """Begin a copy of a session. Raises ProviderError."""
        if self.can.session_capabilities.fork is None:
            raise self._cannot("fork a session")
        params = {"sessionId": session, "cwd": cwd, "mcpServers": servers}
        opened = await self._ask("session/fork", params, Begun, within=STARTING)
        return opened.session_id, opened

    async def choose(self, session: str, option: str, value: str) -> Sequence[ConfigOption]:
        """Set an option of a session. Raises ProviderError."""
        params = {"sessionId": session, "configId": option, "value": value}
        answer = await self._ask("session/set_config_option", params, OptionsUpdate, within=ANSWERING)
        return answer.config_options

    # a turn ---------------------------------------------------------------------------------------------------

    async def prompt(self, session: str, texts: Sequence[str]) -> TurnDone:
        """One turn, up to its end. Raises ProviderError."""
        blocks = [{"type": "text", "text": text} for text in texts]
        return await self._ask("session/prompt", {"sessionId": session, "prompt": blocks}, TurnDone, within=None)

    async def cancel(self, session: str) -> None:
        """Ask it to stop the turn. Raises ProgramFailedError."""
        try:
            async with asyncio.timeout(ANSWERING):
                await self._rpc.tell("session/cancel", {"sessionId": session})
        except TimeoutError:
            raise self._failed(f"did not listen within {ANSWERING:g} s") from None
        except ProcessExitedError:
            raise await self._gone() from None

    async def kill(self, *, grace: float) -> None:
        self._is_killed = True
        await self._program.stop(grace=grace)

    async def close(self) -> None:
        await self._rpc.stop()

    # how it is asked ------------------------------------------------------------------------------------------

    def _hear(self, method: str, params: Json) -> None:
        if method == "session/update":
            self._translator.hear(params)
        elif method not in _HARMLESS:
            self._translator.note_unknown(method)

    def _login_by(self, env: Mapping[str, str]) -> str | None:
        """A way to log in for which all variables are there."""
        for login in self._logins:
            needed = [variable.name for variable in login.vars if not variable.optional]
            if login.type == "env_var" and needed and all(env.get(name) for name in needed):
                return login.id
        return None

    async def _ask(
        self, method: str, params: Mapping[str, Any], answer: type[StructT], *, within: float | None
    ) -> StructT:
        said, provider = await self._request(method, params, within=within), self._agent.provider
        try:
            return read({} if said is None else said, answer)  # some say nothing instead of an empty object
        except msgspec.ValidationError as error:
            raise ProviderError(
                f"{provider} gave an answer that is not understood: {error}", provider=provider
            ) from error

    async def _request(self, method: str, params: Mapping[str, Any], *, within: float | None) -> Any:
        try:
            return await self._rpc.ask(method, params, within)
        except TimeoutError:
            raise self._failed(f"did not answer within {within:g} s") from None
        except JsonRpcError as error:
            raise self._refusal(error) from error
        except ProcessExitedError:
            raise await self._gone() from None

    def _refusal(self, error: JsonRpcError) -> ProviderError:
        provider, words = self._agent.provider, error.message
        for generic in _GENERIC:
            words = words.removeprefix(generic)
        words = ": ".join(part for part in (words, word_in(error.data, "details")) if part) or f"error {error.code}"
        if error.code == _AUTH_REQUIRED:
            return NotLoggedInError(
                f"{provider} is not logged in: {words}", provider=provider, remedy=self._agent.known.login
            )
        return RefusedError(f"{provider}: {words}", provider=provider, code=error.code)

    def _cannot(self, what: str) -> UnsupportedError:
        provider = self._agent.provider
        return UnsupportedError(f"{provider} cannot {what}", provider=provider, remedy="choose another agent")

    async def _gone(self) -> ProviderError:
        """Why nobody answers any more."""
        if self._rpc.fault:
            provider = self._agent.provider
            return BrokenProtocolError(
                f"{provider} cannot be understood any more: {self._rpc.fault}", provider=provider
            )
        try:
            async with asyncio.timeout(1):  # its end can be heard before it can be seen
                code = await self._program.wait()
        except TimeoutError:
            return self._failed("closed its stream")
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return self._failed(f"(process {self._program.pid}) {how}")

    def _failed(self, what: str) -> ProgramFailedError:
        said = self._program.last_words[-500:]
        return ProgramFailedError(
            f"{self._agent.provider} {what}" + (f": {said}" if said else ""), provider=self._agent.provider
        )


@asynccontextmanager
async def running_agent(
    argv: Sequence[str], agent: Agent, client: Client, translator: Translator, *, cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[tuple[AcpProgram, Program]]:
    """The program, from its start to its end; what it started elsewhere ends with it. Raises ProgramFailedError."""
    mark = new_mark()
    try:
        async with running(*argv, cwd=cwd, env={**env, **mark}) as program:
            spoken = AcpProgram(program, agent, client, translator)
            try:
                yield spoken, program
            finally:
                await spoken.close()
    except ExecError as error:
        raise ProgramFailedError(str(error), provider=agent.provider) from error
    finally:
        await end_marked(mark)
