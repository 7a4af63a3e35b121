"""`atomic replay FILE`: play a recording of agents, call by call, and make their
changes to files again.

To run a workflow with recorded agents, use `--agent replay:FILE`, which matches calls
by role and content. This verb plays the file from its first call to its last.
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
from atomic.base.redaction import Redactor
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

_PROMPT_LENGTH = 100  # characters of a prompt that are shown
_FILE = re.compile(r"^diff --git .* \"?b/(.+?)\"?$", re.MULTILINE)


def run_replay(arguments: Arguments) -> int:
    """Play a recording and return its exit code: 1 if a change could not be made."""
    speed = _speed(arguments.value("--speed") or os.environ.get(SPEED) or "1")
    try:
        recording = read_recording(Path(arguments.words[0]).expanduser())
    except RecordingError as error:
        raise UsageError(str(error)) from error
    return signals.run(lambda stop: _Player(arguments, recording, speed, stop).run())


class _Player:
    """Plays the calls one after the other; a signal ends it between two events."""

    def __init__(self, arguments: Arguments, recording: Recording, speed: float, stop: Stop) -> None:
        self._file = arguments.words[0]
        self._as_json = arguments.has("--json")
        self._makes_changes = not arguments.has("--no-changes")
        self._recording = recording
        self._speed = speed
        self._stop = stop
        self._out = Output()
        self._provider = ReplayProvider(self._file)  # it makes the changes

    async def run(self) -> int:
        """Play all calls and return the exit code."""
        code = ExitCode.DONE
        try:
            self._show_title()
            for number, call in enumerate(self._recording.calls, 1):
                code = max(code, await self._play(number, call))
        except asyncio.CancelledError:
            if self._stop.number is None:
                raise
            code = self._stop.exit_code
        await self._out.drain()
        return code

    def _show_title(self) -> None:
        recording = self._recording
        if recording.cut_off is not None:
            self._out.tell(f"line {recording.cut_off} is incomplete and left out")
        if not self._as_json:
            made = f", made by: {one_line(' '.join(recording.command))}" if recording.command else ""
            calls = len(recording.calls)
            self._out.put(f"{one_line(self._file)}: {calls} call{'' if calls == 1 else 's'}{made}\n")

    async def _play(self, number: int, call: RecordedCall) -> int:
        report = _JsonCall(self._out, number, call) if self._as_json else _TextCall(self._out, number, call)
        clock = asyncio.get_running_loop().time
        start = clock()
        for seconds, event in call.events:
            await asyncio.sleep(max(0.0, start + seconds / self._speed - clock()))
            if isinstance(event, TurnEnded):
                problem = await self._make_changes(call)
                report.end(event, problem)
                return ExitCode.FAILED if problem else ExitCode.DONE
            report.tell(event)
        report.end(None, "the recorded call has no end (an event turn_ended)")
        return ExitCode.FAILED

    async def _make_changes(self, call: RecordedCall) -> str:
        """Change the files as the call did.

        Return why that failed, or an empty text.
        """
        if not self._makes_changes:
            return ""
        try:
            await self._provider.make_changes(current_folder(), call)
        except PatchError as error:
            return f"the recorded change cannot be made: {error}"
        return ""


class _TextCall:
    """Shows a call as text: role, agent and prompt, the answer as it arrives, and the
    changed files.
    """

    def __init__(self, out: Output, number: int, call: RecordedCall) -> None:
        self._out = out
        self._call = call
        self._report = TextReport(out, Redactor.of_environment())
        task = "" if call.task is None else f"task {call.task}"
        title = " ".join(part for part in (call.role, task) if part) or "turn"
        agent = ", ".join(part for part in (call.provider, call.model) if part)
        if agent:
            title = f"{title} ({agent})"
        prompt = one_line(re.sub(r"^\[atomic[^\]]*\]", "", call.prompt))
        if len(prompt) > _PROMPT_LENGTH:
            prompt = f"{prompt[: _PROMPT_LENGTH - 1]}…"
        out.put(f"\n[{number}] {one_line(title)}: {prompt}\n\n")

    def tell(self, event: AgentEvent) -> None:
        self._report.tell(event)

    def end(self, ended: TurnEnded | None, problem: str) -> None:
        if ended is not None:
            self._report.end(ended, None, "")
            self._out.put(f"\n{_outcome(ended)}{_changed_files(self._call)}\n")
        if problem:
            self._out.tell(problem)


class _JsonCall:
    """Prints each event of a call as a JSON line, with the number and the role of the
    call.
    """

    def __init__(self, out: Output, number: int, call: RecordedCall) -> None:
        self._out = out
        self._call = {"call": number, "role": call.role, "task": call.task}

    def tell(self, event: AgentEvent) -> None:
        data: dict[str, Any] = msgspec.to_builtins(event)
        self._out.put(json_line({**data, **self._call}))

    def end(self, ended: TurnEnded | None, problem: str) -> None:
        if ended is not None:
            self.tell(ended)
        if problem:
            self._out.tell(problem)


def _outcome(ended: TurnEnded) -> str:
    """Return how a call ended, its tokens, and its cost when it was recorded."""
    parts = [str(ended.reason)]
    if ended.error:
        parts[0] += f": {one_line(ended.error)}"
    tokens = ended.usage.input + ended.usage.output
    if tokens:
        parts.append(f"{tokens:,} tokens")
        if ended.usage.cost is not None:
            parts.append(f"${ended.usage.cost:.4f} then")
    return f"({', '.join(parts)})"


def _changed_files(call: RecordedCall) -> str:
    """Return the commits and files that a call changed; empty without changes."""
    names = dict.fromkeys(_FILE.findall("\n".join((*call.commits, call.patch or ""))))
    parts: list[str] = []
    if call.commits:
        parts.append(f"{len(call.commits)} commit{'' if len(call.commits) == 1 else 's'}")
    if names:
        parts.append(", ".join(harmless(name) for name in names))
    return f" changed {': '.join(parts)}" if parts else ""


def _speed(text: str) -> float:
    try:
        speed = math.inf if text.strip().lower() == "max" else float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise UsageError(f'--speed cannot be "{text}": give a factor, such as 2, or max')
    return speed
