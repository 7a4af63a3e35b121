"""Read the flags of a run, show its events and handle signals, for all verbs that run a
workflow.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import AtomicError, ExitCode, is_debugging, message_of
from atomic.base.redaction import EventRedactor
from atomic.cli import signals
from atomic.cli.errors import CliError, exit_code_of
from atomic.cli.output import Output
from atomic.cli.progress import TerminalUser, View, view_for
from atomic.cli.streams import STDERR, STDIN, claimed_stdout, tell
from atomic.cli.turn import recordable
from atomic.cli.workflow_flags import config_of
from atomic.config import read_duration, read_limit
from atomic.graph import RunOwnedError
from atomic.questions import Question
from atomic.runs.ended_run import EndedRun
from atomic.runs.endings import Stop
from atomic.runs.events import RunEnded, WorkflowEvent, as_line
from atomic.runs.executor import WorkflowRun
from atomic.runs.host import Person
from atomic.wiring import RunFlags
from atomic.workflows.errors import UntrustedError

MOST_UNWRITTEN = 1_000  # lines; with more the host stops reading, and the run joins its events
_STOPS = {signal.SIGINT: Stop.INTERRUPT, signal.SIGTERM: Stop.TERMINATE, signal.SIGHUP: Stop.HANG_UP}


def read_flags(arguments: Arguments) -> RunFlags:
    """Read the flags of a command line. Raises UsageError."""
    record = arguments.value("--record")
    return RunFlags(
        agents=_by_role(arguments, "--agent"),
        models=_by_role(arguments, "--model"),
        caps=_caps(arguments),
        on_limit=arguments.value("--on-limit"),
        record=None if record is None else recordable(record),
        park=arguments.has("--park"),
        trust=arguments.value("--trust"),
        config=config_of(arguments),
    )


def is_quiet(arguments: Arguments) -> bool:
    """Return whether only the result is wanted. Raises UsageError."""
    if arguments.has("--quiet") and arguments.has("--json"):
        raise UsageError("--quiet and --json exclude each other: choose one")
    return arguments.has("--quiet")


def _by_role(arguments: Arguments, flag: str) -> dict[str, str]:
    """Read `X` for all roles and `ROLE=X` for one.

    A name may contain `=` after a slash or a colon.
    """
    chosen: dict[str, str] = {}
    for value in arguments.values(flag):
        role, equals, name = value.partition("=")
        is_for_role = bool(equals) and not any(sign in role for sign in "/:")
        if not value.strip() or (is_for_role and not (role.strip() and name.strip())):
            raise UsageError(f'{flag} cannot be "{value}": give NAME, or ROLE=NAME')
        if is_for_role:
            chosen[role.strip()] = name.strip()
        else:
            chosen[""] = value
    return chosen


_CAPS: dict[str, tuple[Callable[[str], float], str]] = {
    "max_cost": (float, "dollars, such as 2.50"),
    "max_tokens": (int, "a number, such as 200000"),
    "max_time": (read_duration, "a time, such as 90s, 30m or 6h"),
    "turn_limit": (read_limit, "a time, such as 90s, 30m or 2h, or 0 for no limit"),
    "idle_limit": (read_limit, "a time, such as 90s, 10m or 1h, or 0 for no limit"),
}


def _caps(arguments: Arguments) -> dict[str, float]:
    """Read the flags that limit money, tokens and time. Raises UsageError."""
    caps: dict[str, float] = {}
    for name, (read, example) in _CAPS.items():
        flag = f"--{name.replace('_', '-')}"
        text = arguments.value(flag)
        if text is None:
            continue
        written = text.replace(",", "_").removeprefix("$") if read in (float, int) else text
        try:
            caps[name] = read(written)
        except ValueError:
            caps[name] = -1
        least = 0 if read is read_limit else 1e-9
        if not least <= caps[name] < float("inf"):
            raise UsageError(f'{flag} cannot be "{text}": give {example}')
    return caps


class RemoteUser:
    """The user of another process, such as the screen.

    The run reads the answers from its inbox.
    """

    async def ask(self, question: Question) -> None:
        """Wait until the run has read the answer and cancels this."""
        await asyncio.get_running_loop().create_future()


HostedRun: TypeAlias = WorkflowRun | EndedRun
Start = Callable[["Person | None"], Awaitable[HostedRun]]


def host_run(start: Start, *, as_json: bool, quiet: bool = False) -> int:
    """Show a run until it ends, and return its exit code. With `quiet` show its result
    and what goes wrong.

    Errors are shown, not raised. At a terminal the user is asked about code that is not
    trusted, and the run starts after a yes.
    """
    with claimed_stdout() as stdout:
        while True:
            refused: list[UntrustedError] = []
            code = signals.run(
                lambda stop: RunHost(stop, stdout, as_json=as_json, quiet=quiet, refused=refused).run(start)  # noqa: B023
            )
            if not refused:
                return code
            from atomic.cli.trust import may_run_now

            try:
                if not may_run_now(refused[0]):
                    return code
            except CliError as error:
                tell(str(error))
                return error.exit_code


class RunHost:
    """Shows the events of a run and handles signals.

    It adds a refusal that the user can lift at the terminal to `refused`, instead of
    showing it.
    """

    def __init__(
        self,
        stop: signals.Stop,
        stdout: int,
        *,
        as_json: bool,
        quiet: bool = False,
        refused: list[UntrustedError] | None = None,
    ) -> None:
        self._refused = refused
        self._stop = stop
        self._as_json = as_json
        self._out = Output(stdout)
        self._view: View = view_for(self._out, as_json=as_json, quiet=quiet)

    async def run(self, start: Start) -> int:
        """Start a run, show it until it ends, and return its exit code."""
        cancel = self._stop.act
        code = await self._attempt(start)
        self._stop.act = cancel  # the reader of the output may have stopped reading
        await self._out.drain()
        if self._out.failure is not None:
            tell(f"standard output could not take all of it: {self._out.failure.strerror}")
        return code

    def _stop_run(self, run: HostedRun) -> None:
        number = signal.Signals(self._stop.number or signal.SIGINT)
        by = "Ctrl+C" if number is signal.SIGINT else f"the signal {number.name}"
        run.stop(_STOPS[number], by=by if self._stop.number else "")

    async def _attempt(self, start: Start) -> int:
        user = self._user()
        try:
            run = await start(user)
            self._stop.act = lambda: self._stop_run(run)
            return await self._watch(run)
        except UntrustedError as error:
            if self._refused is None or error.given is not None or not isinstance(user, TerminalUser):
                self._view.refuse(str(error), error.exit_code)
            else:
                self._refused.append(error)
            return error.exit_code
        except Exception as error:  # a program that reads JSON gets internal errors too
            if is_debugging() and not isinstance(error, AtomicError):
                raise
            code = exit_code_of(error)
            why = message_of(error)
            if isinstance(error, RunOwnedError):
                id = error.execution_id
                code = ExitCode.OWNED
                why = f"{why} (watch it: atomic attach {id}; pause it: atomic stop {id})"
            self._view.refuse(why, code)
            return code
        finally:
            self._view.close()

    def _user(self) -> Person | None:
        if os.environ.pop("ATOMIC_ANSWERS", "") == "inbox":  # processes of the run must not inherit it
            return RemoteUser()
        has_user = not self._as_json and os.isatty(STDIN) and os.isatty(STDERR)
        return TerminalUser(self._out, self._view) if has_user else None

    async def _watch(self, run: HostedRun) -> int:
        code = ExitCode.DONE
        async for event in _redacted(run):
            self._view.show(event)
            if isinstance(event, RunEnded):
                code = event.exit_code
            while self._out.backlog > MOST_UNWRITTEN:  # noqa: ASYNC110  # a thread writes it
                await asyncio.sleep(0.05)
        return code


async def _redacted(run: HostedRun) -> AsyncIterator[WorkflowEvent]:
    """Yield the events of a run as its log has them: without secrets, because standard
    output often ends up in the log of a CI service.
    """
    redactor = EventRedactor(run.session.redactor)
    seq = 0
    async for event in run:
        held = redactor.rest() if isinstance(event, RunEnded) else ()
        for line in (*held, *redactor.add(as_line(event))):
            seq += 1
            yield msgspec.convert({**line, "seq": seq}, WorkflowEvent)
