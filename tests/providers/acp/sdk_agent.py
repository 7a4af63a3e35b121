"""An agent built with the protocol's own SDK, which validates every message of Atomic.

`tests/support/fake_acp.py` validates nothing and can send anything.

Prompts are commands: `servers` lists the MCP servers of the session, `permission` requests
permission for a tool, `form` asks a question, `wait` waits for the cancellation. Any other
prompt is echoed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import acp
from acp import schema

SESSION = "sdk-1"


class SdkAgent:
    """Reports the requests that it received."""

    def __init__(self) -> None:
        self._client: Any = None
        self._servers: list[str] = []
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> schema.InitializeResponse:
        takes = schema.McpCapabilities(http=True, sse=True)
        sessions = schema.SessionCapabilities(fork=schema.SessionForkCapabilities())
        can = schema.AgentCapabilities(load_session=True, mcp_capabilities=takes, session_capabilities=sessions)
        return schema.InitializeResponse(protocol_version=protocol_version, agent_capabilities=can)

    async def new_session(self, mcp_servers: Any, **more: Any) -> schema.NewSessionResponse:
        self._servers = [f"{type(server).__name__} {server.name}" for server in mcp_servers]
        return schema.NewSessionResponse(session_id=SESSION, config_options=[models("fast")])

    async def load_session(self, session_id: str, **more: Any) -> schema.LoadSessionResponse:
        self._servers = [f"loaded {session_id}"]
        return schema.LoadSessionResponse(config_options=[models("fast")])

    async def fork_session(self, session_id: str, **more: Any) -> schema.ForkSessionResponse:
        self._servers = [f"forked {session_id}"]
        return schema.ForkSessionResponse(session_id="sdk-2")

    async def set_config_option(self, value: Any, **more: Any) -> schema.SetSessionConfigOptionResponse:
        return schema.SetSessionConfigOptionResponse(config_options=[models(value)])

    async def cancel(self, session_id: str, **more: Any) -> None:
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: Any, **more: Any) -> schema.PromptResponse:
        text = await self._answer(session_id, prompt[0].text)
        await self._client.session_update(session_id, acp.update_agent_message_text(text))
        usage = schema.Usage(total_tokens=3, input_tokens=2, output_tokens=1)
        stopped = self._cancelled.is_set()
        return schema.PromptResponse(stop_reason="cancelled" if stopped else "end_turn", usage=usage)

    async def _answer(self, session: str, prompt: str) -> str:
        match prompt:
            case "servers":
                return ", ".join(self._servers)
            case "permission":
                call = schema.ToolCallUpdate(tool_call_id="t1")
                option = schema.PermissionOption(option_id="y", name="Yes", kind="allow_once")
                given = await self._client.request_permission(session_id=session, tool_call=call, options=[option])
                return str(given.outcome.option_id)
            case "form":
                colour = schema.ElicitationStringPropertySchema(type="string", enum=["Red", "Blue"])
                form = schema.ElicitationSchema(properties={"colour": colour}, required=["colour"])
                mode = schema.ElicitationFormSessionMode(session_id=session, requested_schema=form)
                filled = await self._client.create_elicitation(message="Which colour?", mode=mode)
                return str(filled.content)
            case "wait":
                await self._client.session_update(session, acp.update_agent_message_text("I wait."))
                await self._cancelled.wait()
                return " Stopped."
            case _:
                return prompt


def models(current: str) -> schema.SessionConfigOptionSelect:
    options = [schema.SessionConfigSelectOption(value=name, name=name.title()) for name in ("fast", "slow")]
    return schema.SessionConfigOptionSelect(
        type="select", id="model", name="Model", category="model", current_value=current, options=options
    )


if __name__ == "__main__":
    agent: Any = SdkAgent()
    asyncio.run(acp.run_agent(agent, use_unstable_protocol=True))
