"""A recording as a provider: the same events, the same changes of files, no program, no network, no tokens.

A replay starts nothing that a session's options name: no tool, no custom tool and no server of tools. What they did
when the call was recorded is in its events and in its changes, and that is played whatever the options are now. Only a
custom tool that says so (`replayed`) is given what the agent gave: it takes it, and does nothing else.
"""

from __future__ import annotations

import asyncio
import math
import os
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from atomic.config import Settings
from atomic.errors import AtomicError
from atomic.providers.base import Capabilities, CustomTool, Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import AgentEvent, EndReason, Notice, QuestionAsked, ToolStarted, TurnEnded
from atomic.providers.live import LiveProvider, LiveSession, undisturbed
from atomic.providers.matching import NoRecordedCallError, find_call
from atomic.providers.recording import RecordedCall, Recording, RecordingError, read_recording
from atomic.providers.turns import Turn
from atomic.redact import Redactor

SPEED = "ATOMIC_REPLAY_SPEED"  # 1: as it was; 10: ten times as fast; max: without any pause

_CAPABILITIES = Capabilities(
    resume=True,
    fork=True,
    subagents=True,
    custom_tools=True,
    mcp_servers=True,
    mcp_switching=True,
    questions=True,
    multi_select=True,
    system_prompt=True,
    tool_selection=True,
    max_turns=True,
    models=True,
    thinking=True,
    usage=True,
    cost=True,
)


class ReplayProvider(LiveProvider):
    """Plays a recording. Each call is played once, whichever session asks; another provider starts from the top."""

    name = "replay"
    capabilities = _CAPABILITIES

    def __init__(self, file: str | os.PathLike[str], settings: Settings | None = None, *, speed: float | None = None):
        super().__init__(Settings() if settings is None else settings)
        self.path = Path(file).expanduser()
        self._speed = speed
        self._recording: Recording | None = None
        self._used: list[int] = []
        self._commits: set[str] = set()  # that this replay has made: it may take them back
        self._applying = asyncio.Lock()  # the changes of one call at a time
        self._loading, self._taking = asyncio.Lock(), asyncio.Lock()

    @property
    def used(self) -> Sequence[RecordedCall]:
        """The calls that were played, in that order."""
        return [self._calls[at] for at in self._used]

    @property
    def unused(self) -> Sequence[RecordedCall]:
        """The calls that nobody has asked for."""
        return [call for at, call in enumerate(self._calls) if at not in self._used]

    @property
    def _calls(self) -> Sequence[RecordedCall]:
        return () if self._recording is None else self._recording.calls

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[ReplaySession]:
        """Open a session. Raises RecordingError with the line and the reason."""
        speed = self._speed_for(options)
        await self.load()
        yield ReplaySession(self, options, speed)

    async def load(self) -> Recording:
        """The recording, read when it is first needed. Raises RecordingError."""
        async with (
            self._loading
        ):  # once for all: it may be long, and msgspec cannot learn a type in two threads at once
            if self._recording is None:
                self._recording = await asyncio.to_thread(read_recording, self.path)
            return self._recording

    async def take(self, prompt: str) -> RecordedCall:
        """The call that answers a prompt; it will not answer another. Raises NoRecordedCallError with a diff."""
        async with self._taking:  # sessions that look at the same time would all find the same one
            calls, used = self._calls, frozenset(self._used)
            at = await find_call(prompt, calls, used)
            if at is None:
                raise await asyncio.to_thread(NoRecordedCallError, prompt, calls, used)
            self._used.append(at)
            return calls[at]

    async def make_changes(self, folder: Path, call: RecordedCall) -> None:
        """Change the files as the call did. Raises PatchError; then nothing has changed."""
        if not call.has_changed_files:
            return
        from atomic.git import apply_changes

        async with self._applying:
            self._commits.update(await apply_changes(folder, call.changes, own_commits=self._commits))

    async def models(self) -> Sequence[ModelInfo]:
        """The models of the recorded sessions. Raises RecordingError."""
        calls = (await self.load()).calls
        return [ModelInfo(model) for model in dict.fromkeys(call.model for call in calls) if model]

    async def check(self) -> Health:
        """Whether the file can be played."""
        try:
            recording = await self.load()
        except RecordingError as error:
            return Health(False, program=str(self.path), remedy=str(error))
        note = "" if recording.cut_off is None else _cut_off(self.path, recording.cut_off)
        return Health(True, version=f"{len(recording.calls)} calls", program=str(self.path), remedy=note)

    def _speed_for(self, options: SessionOptions) -> float:
        if self._speed is not None:
            return self._speed
        places: tuple[Mapping[str, str] | None, ...] = (options.env, self.settings.provider(self.name).env, os.environ)
        return _as_speed(next((place[SPEED] for place in places if place and place.get(SPEED)), "1"))


class ReplaySession(LiveSession):
    """A session that plays what was recorded."""

    def __init__(self, provider: ReplayProvider, options: SessionOptions, speed: float) -> None:
        super().__init__(provider.name, provider.capabilities, options)
        self._player, self._speed = provider, speed
        self._id = str(uuid.uuid4()) if options.resume is None or options.fork else options.resume
        self._redactor = Redactor.of_environment(options.env)
        self._playing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self._id

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Find the call and play it."""
        playing = self._playing = asyncio.create_task(self._play(prompt, turn))
        try:
            await asyncio.wait({playing})
        finally:
            self._playing = None
            if not playing.done():
                playing.cancel()
                await asyncio.wait({playing})
        if playing.cancelled():
            turn.end(EndReason.INTERRUPTED)
        else:
            playing.result()

    async def stop_turn(self, turn: Turn) -> None:
        """Play no more of it; what it changed in the files is changed at its end, so nothing is half changed."""
        if self._playing is None:
            turn.end(EndReason.INTERRUPTED)
        else:
            self._playing.cancel()

    async def break_off(self) -> None:
        """Nothing but the playing belongs to this session, and that was stopped."""
        if self._playing is not None:
            self._playing.cancel()

    async def set_model(self, id: str) -> None:
        """What was recorded was said by the model that it was said by; it is played for any."""

    async def _play(self, prompt: str, turn: Turn) -> None:
        recording = await self._player.load()
        if recording.cut_off is not None and not self._player.used:
            turn.tell(Notice(_cut_off(self._player.path, recording.cut_off)))
        call = await self._player.take(self._redactor.text(prompt))
        clock = asyncio.get_running_loop().time
        start = clock()
        for seconds, event in call.events:
            await asyncio.sleep(max(0.0, start + seconds / self._speed - clock()))
            if isinstance(event, TurnEnded):
                await self._end(call, event, turn)
                return
            start += await self._tell(event, turn)
        raise ProgramFailedError("The recorded call has no end (an event turn_ended)", provider="replay")

    async def _tell(self, event: AgentEvent, turn: Turn) -> float:
        """Tell an event; a question is put to whoever answers here. The seconds that took."""
        turn.tell(event)
        if isinstance(event, ToolStarted):
            await self._hand_in(event)
        if not isinstance(event, QuestionAsked) or self.options.ask is None:
            return 0.0
        clock = asyncio.get_running_loop().time
        asked = clock()
        await self.options.ask(event.questions)
        return clock() - asked

    async def _hand_in(self, event: ToolStarted) -> None:
        """Give a custom tool that takes part in replays what the agent gave it."""
        for tool in self.options.custom_tools:
            if isinstance(tool, CustomTool) and tool.replayed and tool.name == event.name:
                with suppress(Exception):  # the agent was told of it then, and what it did about it is played too
                    await tool.run(event.input)

    async def _end(self, call: RecordedCall, end: TurnEnded, turn: Turn) -> None:
        try:
            await undisturbed(self._player.make_changes(Path(self.options.cwd or Path.cwd()), call))
        except AtomicError as error:
            why = f"The recorded change cannot be made: {error}"
            turn.end(EndReason.ERROR, text=end.text, usage=end.usage, error=why)
        else:
            turn.end(end.reason, text=end.text, usage=end.usage, error=end.error)


def _as_speed(text: str) -> float:
    if text.strip().lower() == "max":
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise ProviderError(f'{SPEED} is "{text}"', provider="replay", remedy='give a number above 0, or "max"')
    return speed


def _cut_off(path: Path, line: int) -> str:
    return f"{path}:{line}: the line was not written to its end and is passed over"
