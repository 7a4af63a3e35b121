"""`atomic replay`: play what agents did once more, call by call, with the changes that they made in the files.

Whoever wants to run a workflow against recorded agents takes `--agent replay:FILE`: that matches calls by role and
content. This plays the file as it is, from its first call to its last.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless, one_line
from atomic.cli import signals
from atomic.cli.output import Output
from atomic.cli.signals import Stop
from atomic.cli.streams import json_line
from atomic.cli.turn_output import TextReport
from atomic.config import current_folder
from atomic.git import PatchError
from atomic.providers import AgentEvent, TurnEnded
from atomic.providers.recording import RecordedCall, Recording, RecordingError, read_recording
from atomic.providers.replay import SPEED, ReplayProvider

_TITLE = 100  # characters of a prompt
_FILE = re.compile(r"^diff --git .* \"?b/(.+?)\"?$", re.MULTILINE)


class ReplayRequest(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    file: str
    speed: str | None = None
    as_json: bool = False
    changes: bool = True


def run_replay(arguments: Arguments) -> int:
    """Play a recording; its exit code is 1 if a change could not be made."""
    request = ReplayRequest(
        arguments.words[0],
        speed=arguments.value("--speed"),
        as_json=arguments.has("--json"),
        changes=not arguments.has("--no-changes"),
    )
    speed = _speed(request.speed or os.environ.get(SPEED) or "1")
    try:
        recording = read_recording(Path(request.file).expanduser())
    except RecordingError as error:
        raise UsageError(str(error)) from error
    return signals.run(lambda stop: _Player(request, recording, speed, stop).run())


class _Player:
    """Plays the calls one behind the other; a signal ends it between two events."""

    def __init__(self, request: ReplayRequest, recording: Recording, speed: float, stop: Stop) -> None:
        self._request, self._recording, self._speed = request, recording, speed
        self._stop = stop
        self._out = Output()
        self._provider = ReplayProvider(request.file)  # it knows how to make the changes

    async def run(self) -> int:
        code = ExitCode.DONE
        try:
            self._introduce()
            for number, call in enumerate(self._recording.calls, 1):
                code = max(code, await self._play(number, call))
        except asyncio.CancelledError:
            if self._stop.number is None:
                raise
            code = self._stop.exit_code
        await self._out.drain()
        return code

    def _introduce(self) -> None:
        recording = self._recording
        if recording.cut_off is not None:
            self._out.tell(f"line {recording.cut_off} was not written to its end and is passed over")
        if not self._request.as_json:
            made = f", made by: {one_line(' '.join(recording.command))}" if recording.command else ""
            calls = len(recording.calls)
            self._out.put(f"{one_line(self._request.file)}: {calls} call{'' if calls == 1 else 's'}{made}\n")

    async def _play(self, number: int, call: RecordedCall) -> int:
        report = _JsonCalls(self._out, number, call) if self._request.as_json else _TextCalls(self._out, number, call)
        clock = asyncio.get_running_loop().time
        start = clock()
        for seconds, event in call.events:
            await asyncio.sleep(max(0.0, start + seconds / self._speed - clock()))
            if isinstance(event, TurnEnded):
                problem = await self._change(call)
                report.end(event, problem)
                return ExitCode.FAILED if problem else ExitCode.DONE
            report.tell(event)
        report.end(None, "the recorded call has no end (an event turn_ended)")
        return ExitCode.FAILED

    async def _change(self, call: RecordedCall) -> str:
        """Change the files as the call did; why that cannot be done, empty if it was."""
        if not self._request.changes:
            return ""
        try:
            await self._provider.make_changes(current_folder(), call)
        except PatchError as error:
            return f"the recorded change cannot be made: {error}"
        return ""


class _TextCalls:
    """A call for people: who was asked what, the answer as it came, and which files changed."""

    def __init__(self, out: Output, number: int, call: RecordedCall) -> None:
        self._out, self._call = out, call
        self._report = TextReport(out)
        who = " ".join(part for part in (call.role or "", f"task {call.task}" if call.task is not None else "") if part)
        agent = ", ".join(part for part in (call.provider, call.model or "") if part)
        prompt = one_line(re.sub(r"^\[atomic[^\]]*\]", "", call.prompt))
        shown = prompt if len(prompt) <= _TITLE else f"{prompt[: _TITLE - 1]}…"
        out.put(f"\n[{number}] {one_line(who or 'turn')}{f' ({one_line(agent)})' if agent else ''}: {shown}\n\n")

    def tell(self, event: AgentEvent) -> None:
        self._report.tell(event)

    def end(self, ended: TurnEnded | None, problem: str) -> None:
        if ended is not None:
            self._report.end(ended, None, "")
            self._out.put(f"\n{_outcome(ended)}{_changed(self._call)}\n")
        if problem:
            self._out.tell(problem)


class _JsonCalls:
    """A call for programs: each event on a line of its own, with the number and the role of its call."""

    def __init__(self, out: Output, number: int, call: RecordedCall) -> None:
        self._out, self._of = out, {"call": number, "role": call.role, "task": call.task}

    def tell(self, event: AgentEvent) -> None:
        data: dict[str, Any] = msgspec.to_builtins(event)
        self._out.put(json_line({**data, **self._of}))

    def end(self, ended: TurnEnded | None, problem: str) -> None:
        if ended is not None:
            self.tell(ended)
        if problem:
            self._out.tell(problem)


def _outcome(ended: TurnEnded) -> str:
    usage = ended.usage
    cost = "" if usage.cost is None else f", ${usage.cost:.4f} then"
    tokens = f", {usage.input + usage.output:,} tokens{cost}" if usage.input + usage.output else ""
    why = f": {one_line(ended.error)}" if ended.error else ""
    return f"({ended.reason}{why}{tokens})"


def _changed(call: RecordedCall) -> str:
    names = dict.fromkeys(_FILE.findall("\n".join((*call.commits, call.patch or ""))))
    commits = f"{len(call.commits)} commit{'' if len(call.commits) == 1 else 's'}" if call.commits else ""
    parts = [part for part in (commits, ", ".join(harmless(name) for name in names)) if part]
    return f" changed {': '.join(parts)}" if parts else ""


def _speed(text: str) -> float:
    try:
        speed = math.inf if text.strip().lower() == "max" else float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise UsageError(f'--speed cannot be "{text}": give how many times as fast, or max')
    return speed
