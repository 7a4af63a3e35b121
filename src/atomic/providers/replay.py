"""Play a recording as a provider: the same events and file changes, without a program.

A replay starts nothing that a session's options name: no tool, no custom tool and no
MCP server. Their effects are in the recorded events and changes, and are played
whatever the options are now. Only a custom tool with `replayed` is called again, with
the recorded input.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from atomic.base.errors import AtomicError
from atomic.base.redaction import Redactor
from atomic.base.terminal import one_line
from atomic.base.text import cut
from atomic.config import Settings
from atomic.processes import execute
from atomic.providers.base import ALL_FEATURES, CustomTool, Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import AgentEvent, EndReason, Notice, QuestionAsked, ToolStarted, TurnEnded
from atomic.providers.prompt_title import role_and_task
from atomic.providers.recording import RecordedCall, Recording, RecordingError, read_recording
from atomic.providers.session import LiveProvider, LiveSession, undisturbed
from atomic.providers.turn import Turn

CHANGES = "ATOMIC_REPLAY_CHANGES"  # none: the recorded changes of files and commits are not made
SPEED = "ATOMIC_REPLAY_SPEED"  # 1: recorded speed; 10: ten times as fast; max: no pauses
_WORDS = 4000  # of a prompt that are compared
_SHOWN = 60  # characters of a line of a prompt, or of a match, in a message
_TITLE = re.compile(r"^\[atomic[^\]]*\]")
_SEARCH_SECONDS = 5  # of CPU time
_SEARCH_WALL_SECONDS = 300.0  # ends a hang only
_SEARCH = """
import json, re, resource, sys
seconds, prompt, patterns = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
for at, pattern in enumerate(patterns):
    print(at, flush=True)
    if re.search(pattern, prompt):
        print("found")
        break
"""


class ReplayProvider(LiveProvider):
    """Plays a recording. Each call is played once, for any session of this provider."""

    name = "replay"
    capabilities = replace(ALL_FEATURES, context_meter=False, compact=False, structured="text")

    def __init__(self, file: str | os.PathLike[str], settings: Settings | None = None, *, speed: float | None = None):
        super().__init__(Settings() if settings is None else settings)
        self.path = Path(file).expanduser()
        self._speed = speed
        self._recording: Recording | None = None
        self._used: list[int] = []
        self._commits: set[str] = set()  # made by this replay, which may remove them
        self._applying = asyncio.Lock()  # one call at a time changes files
        self._loading = asyncio.Lock()
        self._taking = asyncio.Lock()

    @property
    def used(self) -> Sequence[RecordedCall]:
        """Return the calls that were played, in that order."""
        return [self._calls[at] for at in self._used]

    @property
    def unused(self) -> Sequence[RecordedCall]:
        """Return the calls that were not played."""
        return [call for at, call in enumerate(self._calls) if at not in self._used]

    @property
    def _calls(self) -> Sequence[RecordedCall]:
        return () if self._recording is None else self._recording.calls

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[ReplaySession]:
        """Open a session. Raise RecordingError with the line and the reason."""
        speed = self._speed_for(options)
        await self.load()
        yield ReplaySession(self, options, speed)

    async def load(self) -> Recording:
        """Return the recording, read on first use. Raise RecordingError."""
        # Only once: a recording may be long.
        async with self._loading:
            if self._recording is None:
                self._recording = await asyncio.to_thread(read_recording, self.path)
            return self._recording

    async def take(self, prompt: str) -> RecordedCall:
        """Return the call that answers a prompt and mark it as used.

        Raise NoRecordedCallError.
        """
        async with self._taking:  # concurrent sessions must not find the same call
            calls = self._calls
            used = frozenset(self._used)
            at = await find_call(prompt, calls, used)
            if at is None:
                raise await asyncio.to_thread(NoRecordedCallError, prompt, calls, used)
            self._used.append(at)
            return calls[at]

    async def make_changes(self, folder: Path, call: RecordedCall, launcher: Sequence[str] = ()) -> None:
        """Change the files as the call did, in a workspace by a program in it.

        Raise PatchError and change nothing on failure.
        """
        if not call.has_changed_files or os.environ.get(CHANGES) == "none":
            return
        from atomic.git import apply_changes, apply_changes_in

        async with self._applying:
            if launcher:
                made = await apply_changes_in(launcher, folder, call.changes, own_commits=self._commits)
            else:
                made = await apply_changes(folder, call.changes, own_commits=self._commits)
            self._commits.update(made)

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models of the recorded sessions. Raise RecordingError."""
        calls = (await self.load()).calls
        return [ModelInfo(model) for model in dict.fromkeys(call.model for call in calls) if model]

    async def check(self) -> Health:
        """Report whether the file can be played."""
        try:
            recording = await self.load()
        except RecordingError as error:
            return Health(False, program=str(self.path), remedy=str(error))
        note = "" if recording.cut_off is None else _cut_off(self.path, recording.cut_off)
        return Health(True, version=f"{len(recording.calls)} calls", program=str(self.path), remedy=note)

    def _speed_for(self, options: SessionOptions) -> float:
        if self._speed is not None:
            return self._speed
        for environment in (options.env, self.settings.provider(self.name).env, os.environ):
            if environment and environment.get(SPEED):
                return _as_speed(environment[SPEED])
        return 1.0


class ReplaySession(LiveSession):
    """A session that plays recorded calls."""

    def __init__(self, provider: ReplayProvider, options: SessionOptions, speed: float) -> None:
        super().__init__(provider.name, provider.capabilities, options)
        self._player = provider
        self._speed = speed
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
        """Stop playing. Files change only at the end of a call, so nothing is half
        changed.
        """
        if self._playing is None:
            turn.end(EndReason.INTERRUPTED)
        else:
            self._playing.cancel()

    async def break_off(self) -> None:
        """Stop playing; a replay has no processes."""
        if self._playing is not None:
            self._playing.cancel()

    async def set_model(self, id: str) -> None:
        """Do nothing: the recorded answers are played for every model."""

    async def _play(self, prompt: str, turn: Turn) -> None:
        recording = await self._player.load()
        if recording.cut_off is not None and not self._player.used:
            turn.emit(Notice(_cut_off(self._player.path, recording.cut_off)))
        call = await self._player.take(self._redactor.text(prompt))
        clock = asyncio.get_running_loop().time
        start = clock()
        for seconds, event in call.events:
            await asyncio.sleep(max(0.0, start + seconds / self._speed - clock()))
            if isinstance(event, TurnEnded):
                await self._end(call, event, turn)
                return
            start += await self._report(event, turn)
        raise ProgramFailedError("The recorded call has no turn_ended event", provider="replay")

    async def _report(self, event: AgentEvent, turn: Turn) -> float:
        """Report an event and return the seconds spent waiting for an answer to its
        question.
        """
        turn.emit(event)
        if isinstance(event, ToolStarted):
            for tool in self.options.custom_tools:
                if isinstance(tool, CustomTool) and tool.replayed and tool.name == event.name:
                    with suppress(Exception):  # the agent's reaction to the error is played too
                        await tool.run(event.input)
        if not isinstance(event, QuestionAsked) or self.options.ask is None:
            return 0.0
        clock = asyncio.get_running_loop().time
        asked = clock()
        await self.options.ask(event.questions)
        return clock() - asked

    async def _end(self, call: RecordedCall, end: TurnEnded, turn: Turn) -> None:
        try:
            folder = Path(self.options.cwd or Path.cwd())
            await undisturbed(self._player.make_changes(folder, call, self.options.launcher))
        except AtomicError as error:
            reason = f"The recorded file changes cannot be applied: {error}"
            turn.end(EndReason.ERROR, text=end.text, usage=end.usage, error=reason)
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
        raise ProviderError(f'{SPEED} is "{text}"', provider="replay", remedy='use a number above 0, or "max"')
    return speed


def _cut_off(path: Path, line: int) -> str:
    return f"{path}:{line}: the line is incomplete and is ignored"


class NoRecordedCallError(ProviderError):
    """No recorded call answers a prompt; the text names the nearest one."""

    def __init__(self, prompt: str, calls: Sequence[RecordedCall], used: frozenset[int]) -> None:
        self.role, self.task = role_and_task(prompt)
        same_role = [at for at, call in enumerate(calls) if _is_for(call, self.role, self.task)]
        nearest = nearest_prompt(prompt, [calls[at] for at in same_role] or calls)
        found = ""
        if nearest is not None:
            asked, recorded = _differing_lines(prompt, nearest.prompt)
            who = _who(nearest.role, None if nearest.task is None else str(nearest.task))
            match = "" if nearest.match is None else f" with the match {nearest.match[:_SHOWN]!r}"
            found = f" Its nearest call, for {who}{match}, has "
            found += f'"{recorded}" where the prompt has "{asked}".' if asked or recorded else "the same prompt."
        super().__init__(
            f"The recording has no call left for {_who(self.role, self.task)}: {_reason(same_role, used)}.{found}"
            " Record the run again (--record FILE), or add such a call to the recording",
            provider="replay",
        )


class SlowPatternError(ProviderError):
    """Searching for the `match` of a recorded call takes too long."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"searching for the match {pattern[:100]!r} of the recording takes more than {_SEARCH_SECONDS} s:"
            " use plain text or a simpler pattern",
            provider="replay",
        )


async def find_call(prompt: str, calls: Sequence[RecordedCall], used: frozenset[int]) -> int | None:
    """Return the index of the unused call of the same role and task that answers the
    prompt.

    The first call whose `match` is found wins. Otherwise take, of the calls without a
    `match`, the one with the most similar prompt; of equal ones the first. Raise
    SlowPatternError.
    """
    role, task = role_and_task(prompt)
    free = [at for at, call in enumerate(calls) if at not in used and _is_for(call, role, task)]
    patterns = {at: match for at in free if (match := calls[at].match) is not None}
    found = await _first_found(list(patterns.values()), prompt)
    if found is not None:
        return list(patterns)[found]
    plain = [at for at in free if calls[at].match is None]
    if len(plain) < 2:
        return plain[0] if plain else None
    return await asyncio.to_thread(max, plain, key=lambda at: (_similarity(prompt, calls[at].prompt), -at))


async def _first_found(patterns: Sequence[str], prompt: str) -> int | None:
    """Return the index of the first pattern that is found in the prompt.

    A recording may not be trusted, and a pattern such as (a+)+$ never ends. So a child
    process with a CPU limit searches for it.
    """
    if not any(set(pattern) & set(r".^$*+?{}[]\|()") for pattern in patterns):  # all are plain text
        return next((at for at, pattern in enumerate(patterns) if pattern in prompt), None)
    question = json.dumps([_SEARCH_SECONDS, prompt, patterns])
    words = (sys.executable, "-I", "-S", "-c", _SEARCH)
    done = await execute(*words, cwd="/", env={}, input=question, timeout=_SEARCH_WALL_SECONDS)
    tried = done.stdout.split()
    if done.exit_code == -signal.SIGXCPU and tried:
        raise SlowPatternError(patterns[int(tried[-1])])
    if done.exit_code != 0:
        raise ProviderError(f"could not search for the recording's matches: {done.stderr[-300:]}", provider="replay")
    return int(tried[-2]) if tried[-1:] == ["found"] else None


def nearest_prompt(prompt: str, calls: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the call with the most similar prompt."""
    return max(calls, key=lambda call: _similarity(prompt, call.prompt), default=None)


def _is_for(call: RecordedCall, role: str | None, task: str | None) -> bool:
    return call.role == role and (None if call.task is None else str(call.task)) == task


def _similarity(one: str, other: str) -> float:
    if one == other:
        return 2.0
    from difflib import SequenceMatcher  # not needed for calls with a `match`

    words = SequenceMatcher(None, one.split()[:_WORDS], other.split()[:_WORDS]).ratio()
    letters = SequenceMatcher(None, one[:500], other[:500], autojunk=False).ratio()  # decides between short prompts
    return words + letters / 100


def _who(role: str | None, task: str | None) -> str:
    if role is None:
        return "a prompt without a role"
    return f"role {role}" if task is None else f"role {role}, task {task}"


def _reason(same_role: Sequence[int], used: frozenset[int]) -> str:
    if not same_role:
        return "it was never recorded"
    taken = sum(at in used for at in same_role)
    if taken == len(same_role):
        return "its call was already played" if taken == 1 else f"all {taken} were already played"
    return "the prompt does not contain the match of any other call"


def _differing_lines(one: str, other: str) -> tuple[str, str]:
    """Return the first line that differs, of each of two prompts, without their titles."""
    lines = [_TITLE.sub("", text).strip().splitlines() for text in (one, other)]
    for mine, theirs in zip_longest(*lines, fillvalue=""):
        if mine != theirs:
            return cut(one_line(mine), _SHOWN), cut(one_line(theirs), _SHOWN)
    return "", ""
