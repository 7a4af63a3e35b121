"""One run of an agent's program: our child, the SDK's connection over its streams."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    EnvVarAuthMethod,
    FileSystemCapabilities,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    ResumeSessionResponse,
    TextContentBlock,
)
from pydantic import ValidationError

import atomic
from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.acp.agent import Agent
from atomic.providers.acp.client import Client
from atomic.providers.acp.errors import RefusedError
from atomic.providers.acp.loose import word_in
from atomic.providers.acp.options import ConfigOption
from atomic.providers.acp.servers import Server
from atomic.providers.acp.translate import Translator
from atomic.providers.acp.wire import Wire
from atomic.providers.errors import NotLoggedInError, ProgramFailedError, ProviderError, UnsupportedError

STARTING = 120.0  # seconds; at its first start a program may unpack itself
ANSWERING = 60.0

_AUTH_REQUIRED = -32000
_GENERIC = ("Internal error: ", "Internal error")

T = TypeVar("T")
Opened = NewSessionResponse | LoadSessionResponse | ResumeSessionResponse | ForkSessionResponse


class AcpProgram:
    """An agent as it runs."""

    def __init__(self, program: Program, agent: Agent, client: Client, translator: Translator) -> None:
        self.can = AgentCapabilities()
        self._program, self._agent = program, agent
        self._wire = Wire(program, agent.provider, update=translator.hear, unknown=translator.note_unknown)
        # The SDK refuses in our name what the client does not have: it need not be a whole `acp.Client`.
        self._connection = ClientSideConnection(cast("Any", client), self._wire, use_unstable_protocol=True)
        self._said = InitializeResponse(protocol_version=PROTOCOL_VERSION)

    @property
    def usable(self) -> bool:
        return self._wire.is_open and self._wire.fault is None and self._program.exit_code is None

    # before a turn --------------------------------------------------------------------------------------------

    async def shake_hands(self, *, may_ask: bool) -> None:
        """Learn what the agent can do. Raises ProgramFailedError."""
        form = ElicitationCapabilities(form=ElicitationFormCapabilities()) if may_ask else None
        capabilities = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False, elicitation=form
        )
        info = Implementation(name="atomic", title="Atomic", version=atomic.__version__)
        self._said = await self._answer(
            self._connection.initialize(PROTOCOL_VERSION, capabilities, info), within=STARTING
        )
        if self._said.protocol_version != PROTOCOL_VERSION:
            raise ProgramFailedError(
                f"{self._agent.provider} speaks version {self._said.protocol_version} of the protocol, "
                f"Atomic version {PROTOCOL_VERSION}",
                provider=self._agent.provider,
            )
        if isinstance(self._said.agent_capabilities, AgentCapabilities):  # the SDK gives a dict for what it cannot read
            self.can = self._said.agent_capabilities

    async def begin(self, cwd: str, servers: Sequence[Server], env: Mapping[str, str]) -> tuple[str, Opened]:
        """Begin a session, after a login with what the environment has, if need be. Raises ProviderError."""
        try:
            opened = await self._new(cwd, servers)
        except NotLoggedInError:
            method = self._login_by(env)
            if method is None:
                raise
            await self._answer(self._connection.authenticate(method_id=method))
            opened = await self._new(cwd, servers)
        return opened.session_id, opened

    async def take_up(self, session: str, cwd: str, servers: Sequence[Server]) -> Opened:
        """Go on with a session. Raises ProviderError."""
        sessions, given = self.can.session_capabilities, list(servers)
        if sessions is not None and sessions.resume is not None:
            return await self._answer(self._connection.resume_session(session, cwd, mcp_servers=given), within=STARTING)
        if self.can.load_session:
            return await self._answer(self._connection.load_session(cwd, session, given), within=STARTING)
        raise self._cannot("take up a session again")

    async def fork(self, session: str, cwd: str, servers: Sequence[Server]) -> tuple[str, Opened]:
        """Begin a copy of a session. Raises ProviderError."""
        sessions = self.can.session_capabilities
        if sessions is None or sessions.fork is None:
            raise self._cannot("fork a session")
        request = self._connection.fork_session(session, cwd, mcp_servers=list(servers))
        opened = await self._answer(request, within=STARTING)
        return opened.session_id, opened

    async def choose(self, session: str, option: str, value: str) -> Sequence[ConfigOption]:
        """Set an option of a session. Raises ProviderError."""
        return (await self._answer(self._connection.set_config_option(option, session, value))).config_options

    # a turn ---------------------------------------------------------------------------------------------------

    async def prompt(self, session: str, texts: Sequence[str]) -> PromptResponse:
        """One turn, up to its end. Raises ProviderError."""
        blocks = [TextContentBlock(type="text", text=text) for text in texts]
        return await self._answer(self._connection.prompt(session, list(blocks)), within=None)

    async def cancel(self, session: str) -> None:
        """Ask it to stop the turn. Raises ProgramFailedError."""
        await self._answer(self._connection.cancel(session))

    async def kill(self, *, grace: float) -> None:
        await self._program.stop(grace=grace)

    async def close(self) -> None:
        await self._connection.close()

    # how it is asked ------------------------------------------------------------------------------------------

    async def _new(self, cwd: str, servers: Sequence[Server]) -> NewSessionResponse:
        return await self._answer(self._connection.new_session(cwd, mcp_servers=list(servers)), within=STARTING)

    def _login_by(self, env: Mapping[str, str]) -> str | None:
        """A way to log in for which all variables are there."""
        for method in self._said.auth_methods or ():
            if isinstance(method, EnvVarAuthMethod):
                needed = [variable.name for variable in method.vars if not variable.optional]
                if needed and all(env.get(name) for name in needed):
                    return method.id
        return None

    async def _answer(self, request: Awaitable[T], *, within: float | None = ANSWERING) -> T:
        provider = self._agent.provider
        try:
            async with asyncio.timeout(within):
                return await request
        except TimeoutError:
            raise self._failed(f"did not answer within {within:g} s") from None
        except RequestError as error:
            raise self._refusal(error) from error
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in problem["loc"])
            raise ProviderError(
                f"{provider} gave an answer that is not understood: {where}: {problem['msg']}", provider=provider
            ) from error
        except ConnectionError:
            raise await self._gone() from None

    def _refusal(self, error: RequestError) -> ProviderError:
        provider, words = self._agent.provider, str(error)
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
        if self._wire.fault is not None:
            return self._wire.fault
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
