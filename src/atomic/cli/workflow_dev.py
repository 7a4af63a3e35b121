"""`atomic workflows dev NAME`: check a workflow and run it on a recording at each save.

Each check is a process of its own, so code of an earlier save is never left. A project
must be trusted when this begins; then the user who saves the file consents to its code.
A path needs no trust, as in `atomic run ./flow.py`. A recording costs nothing, and its
changes of files are not made.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.cli import signals
from atomic.cli.output import Output
from atomic.cli.progress import view_for
from atomic.cli.prompt_flags import check_prompt
from atomic.cli.streams import STDERR, has_terminal, tell, write
from atomic.cli.trust import may_run_now
from atomic.config import atomic_home
from atomic.loading import trust
from atomic.loading.catalog import WorkflowCatalog
from atomic.loading.typed_files import read_typed_file
from atomic.processes import running
from atomic.providers.replay import CHANGES, SPEED
from atomic.runs.events import RunStarted, WorkflowEvent
from atomic.sessions.errors import SessionError
from atomic.sessions.store import SessionStore
from atomic.workflows.errors import WorkflowFileError

POLL_SECONDS = 0.3
_ATOMIC = (sys.executable, "-P", "-m", "atomic")

_Stamp = tuple[int, int, int] | None  # None: there is no such file


def dev_workflow(arguments: Arguments) -> int:
    """Check and run a workflow now and at each save, until Ctrl+C."""
    if not arguments.is_marked:
        check_prompt(arguments.words[1:], arguments.flags)
    word, *words = arguments.words
    catalog = WorkflowCatalog()
    definition = catalog.typed(word)
    path = definition.path
    if path is None:
        raise UsageError(f'"{definition.name}" comes with Atomic: it has no file to watch')
    if not catalog.is_trusted(definition):
        refusal = trust.refusal(catalog.snapshot)
        if not has_terminal():
            raise refusal
        if not may_run_now(refusal):
            return refusal.exit_code
    given = arguments.value("--recording")
    recording = path.with_suffix(".jsonl") if given is None else Path(given)
    if given is not None and not recording.is_file():
        raise UsageError(f"--recording {given}: there is no such file")
    if not recording.is_file():
        tell(
            "there is no recording to run it on, so it is only checked and drawn"
            f' (make one: atomic run {word} --record {recording.name} "PROMPT")'
        )
        recording = None
    watch = Watch(path, None if recording is None else recording.absolute(), " ".join(words))
    return signals.run(lambda stop: watch.run())


class Watch:
    """Checks a file again whenever it, a file that it imports, or its recording
    changes.
    """

    def __init__(self, path: Path, recording: Path | None, prompt: str) -> None:
        self._path = path
        self._recording = recording
        self._prompt = prompt
        self._last_run = ""

    async def run(self) -> int:
        """Check it at each save, until the task is cancelled."""
        try:
            while True:
                before = self._stamps()
                write(STDERR, f"--- {time.strftime('%H:%M:%S')} {self._path.name}\n")
                checking = asyncio.create_task(self._check())
                changed = asyncio.create_task(self._wait_for_change(before))
                try:
                    await asyncio.wait({checking, changed}, return_when=asyncio.FIRST_COMPLETED)
                    if not changed.done():
                        checking.result()
                        tell(f"waiting for a change of {', '.join(sorted(path.name for path in before))} (Ctrl+C ends)")
                    await changed
                finally:
                    for task in (checking, changed):
                        task.cancel()
                    await asyncio.gather(checking, changed, return_exceptions=True)
        finally:
            self._remove_last_run()

    def _stamps(self) -> Mapping[Path, _Stamp]:
        try:
            files = read_typed_file(self._path)
            watched = {self._path, *(files.root / name for name in files.files)}
        except WorkflowFileError:  # the check reports it
            watched = {self._path}
        if self._recording is not None:
            watched.add(self._recording)
        return {path: _stamp(path) for path in watched}

    async def _wait_for_change(self, before: Mapping[Path, _Stamp]) -> None:
        """Wait for a change, and until the editor has written all of it."""
        last = before
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = {path: _stamp(path) for path in before}
            if now == last != before:
                return
            last = now

    async def _check(self) -> None:
        if self._recording is None:
            words = ("workflows", "graph", str(self._path))
        else:
            words = ("run", str(self._path), "--agent", f"replay:{self._recording}", "--json", "--", self._prompt)
        environment = {**os.environ, CHANGES: "none", SPEED: "max"}
        out = Output()
        view = view_for(out, as_json=False)
        decode = msgspec.json.Decoder(WorkflowEvent).decode
        try:
            async with running(*_ATOMIC, *words, env=environment, stdin=False) as program:
                program.on_stderr = lambda data: write(STDERR, data.decode("utf-8", "replace"))
                async for line in program.stdout:
                    if self._recording is None:
                        out.put(line.decode("utf-8", "replace"))
                        continue
                    try:
                        event = decode(line)
                    except msgspec.DecodeError:  # a refusal, which is on standard error too
                        continue
                    if isinstance(event, RunStarted):
                        self._remove_last_run()
                        self._last_run = event.run
                    view.show(event)
                await program.wait()
        finally:
            view.close()
            await out.drain()

    def _remove_last_run(self) -> None:
        """Remove the run of the save before, which only this command has started."""
        if not self._last_run:
            return
        try:
            SessionStore(atomic_home()).find(self._last_run).remove()
        except SessionError:
            return


def _stamp(path: Path) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
