"""Test real programs of the configuration over ACP: a turn, a tool, an interrupt, a resume."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from atomic.config import AcpSettings, EnvSettings, Settings
from atomic.providers import (
    EndReason,
    SessionOptions,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    require_provider,
)
from atomic.testing.conformance import AGENTS
from atomic.testing.model_server import Drip, ModelServer, Say, Script, Think
from tests.providers.turns import LIMIT, all_of, end_of, text_of, turn
from tests.support.programs import CACHE

pytestmark = pytest.mark.ci

COMMANDS = {
    "opencode": [os.environ.get("ATOMIC_OPENCODE_PATH", "opencode"), "acp"],
    "copilot": [os.environ.get("ATOMIC_COPILOT_PATH", "copilot"), "--acp"],
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_program_of_the_configuration_works(name: str, tmp_path: Path) -> None:
    agent = AGENTS[name]
    home = tmp_path / "home"
    work = tmp_path / "wörk 日本"
    home.mkdir()
    work.mkdir()
    scripts: dict[str, Script] = {
        "think": [[Think("Hm."), Say("Hello.")]],
        "write": [[agent.words.write(work / "a.txt", "alpha\n")], "Written."],
        "slow": Drip("word", times=400, every=0.05),
        "recall": "You said it.",
    }
    settings = Settings(acp={"mine": AcpSettings(COMMANDS[name])}, env=EnvSettings(["COPILOT_PROVIDER_API_KEY"]))
    provider = require_provider("acp:mine", settings)
    async with ModelServer(scripts) as server:
        options = SessionOptions(cwd=work, env=agent.environment(server, home, CACHE))
        async with provider.open(options) as session:
            thought = await turn(session, "@@think@@ My number is 4711.")
            assert "".join(event.text for event in all_of(ThinkingDelta, thought)) == "Hm."
            assert text_of(thought) == end_of(thought).text == "Hello."
            written = await turn(session, "@@write@@ go")
            assert (work / "a.txt").read_text() == "alpha\n"
            assert len(all_of(ToolStarted, written)) == 1
            assert [event.error for event in all_of(ToolEnded, written)] == [None]
            stopping: list[asyncio.Task[None]] = []
            async with asyncio.timeout(LIMIT):
                async for event in session.send("@@slow@@ go"):
                    if isinstance(event, TextDelta) and not stopping:
                        stopping.append(asyncio.create_task(session.interrupt()))
                    if isinstance(event, TurnEnded):
                        assert event.reason is EndReason.INTERRUPTED
                await stopping[0]
            id = session.id
        resumed = SessionOptions(cwd=work, env=options.env, resume=id)
        # The agent's own adapter resumes it too: older versions used ACP for `acp:opencode`.
        for one in (provider, require_provider(f"acp:{name}", Settings())):
            async with one.open(resumed) as session:
                assert end_of(await turn(session, "@@recall@@ go")).text.endswith("You said it.")
            assert "4711" in str(server.calls[-1].body)
