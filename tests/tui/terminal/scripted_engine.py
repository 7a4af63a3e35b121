"""An engine without an agent: `python -m tests.tui.terminal.scripted_engine --fd N`.

The prompt selects its action:

    stream DELTAS RATE  stream Markdown, at once if the rate is 0
    ask, pick, tool     open a question, open a picker, call a tool
    hang, deaf          work until an interrupt, or until a forced interrupt
    die                 kill the engine

It repeats any other prompt. `--resume many-5000` starts with 5,000 messages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from itertools import islice

import msgspec

from atomic.chat.protocol import (
    Activity,
    Answer,
    ChatEvent,
    ChatNotice,
    CommandInfo,
    CommandsListed,
    History,
    Intent,
    Interrupt,
    Leave,
    Left,
    Picked,
    PickKind,
    PickOpened,
    PickRow,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    Shell,
    ShellOutput,
    StatusChanged,
    Submit,
    decode_intent,
    encode,
)
from atomic.providers.events import EndReason, TextDelta, ToolEnded, ToolStarted, TurnEnded
from atomic.questions import Question
from tests.tui.terminal.markdown import pieces

SESSION = "0f5e2c1a-scripted"
COMMANDS = (
    CommandInfo("help", "list commands", "builtin", ("h", "?"), "[command]"),
    CommandInfo("ralph", "build it, task by task", "workflow", ("loop",), '"<prompt-or-spec-path>"'),
)


class ScriptedEngine:
    """The state of the engine: its runs and open questions."""

    def __init__(self, wire: asyncio.StreamWriter) -> None:
        self._wire = wire
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[str, asyncio.Future[tuple[str, ...] | None]] = {}

    def emit(self, *events: ChatEvent) -> None:
        self._wire.write(b"".join(map(encode, events)))

    def begin(self, session: str) -> None:
        self.emit(
            StatusChanged(session=session, provider="claude", model="opus", project="~/shop", branch="main", ready=True)
        )
        self.emit(CommandsListed(commands=COMMANDS))
        if session.startswith("many-"):
            self._remember(int(session.removeprefix("many-")))

    def _remember(self, messages: int) -> None:
        events = [
            msgspec.Raw(msgspec.json.encode(event)) for number in range(messages // 2) for event in _exchange(number)
        ]
        for at in range(0, len(events), 2_000):
            self.emit(History(events=tuple(events[at : at + 2_000]), last=at + 2_000 >= len(events)))

    async def handle(self, intent: Intent) -> bool:
        """Handle an intent and return whether to continue."""
        match intent:
            case Submit(run=run, text=text):
                self._runs[run] = asyncio.create_task(self._run(run, text))
            case Shell(run=run, command=command):
                self.emit(
                    RunStarted(run=run, kind=RunKind.SHELL, title=command), ShellOutput(run=run, text=f"$ {command}\n")
                )
                self.emit(RunEnded(run=run, status="done"))
            case Interrupt(run=run, force=force):
                if run in self._runs and (force or not self._runs[run].get_name().startswith("deaf")):
                    self._runs[run].cancel()
            case Answer(question=id, answers=answers):
                self._answers.pop(id).set_result(answers)
            case Picked(value=str(value)):
                self.emit(
                    RunStarted(run="picked", kind=RunKind.COMMAND), ChatNotice(text=f"Picked: {value}", run="picked")
                )
                self.emit(RunEnded(run="picked", status="done"))
            case Leave():
                self.emit(Left(message=f"Resume with: atomic chat --resume {SESSION}"))
                return False
            case _:
                pass
        return True

    async def _run(self, run: str, text: str) -> None:
        status = "done"
        task = asyncio.current_task()
        assert task is not None
        task.set_name(text)
        self.emit(RunStarted(run=run, kind=RunKind.TURN, prompt=text))
        try:
            await self._turn(run, text)
        except asyncio.CancelledError:
            status = "interrupted"
        finally:
            reason = EndReason.DONE if status == "done" else EndReason.INTERRUPTED
            self.emit(Activity(run=run, event=TurnEnded(reason)), RunEnded(run=run, status=status))

    async def _turn(self, run: str, text: str) -> None:
        match text.split():
            case ["stream", deltas, rate]:
                await self._stream(run, int(deltas), float(rate))
            case ["ask"]:
                await self._ask(run)
            case ["pick"]:
                rows = (PickRow("dark", "dark"), PickRow("light", "light"))
                self.emit(PickOpened(request=run, kind=PickKind.THEME, title="Theme", rows=rows))
            case ["tool"]:
                self.emit(Activity(run=run, event=ToolStarted("t1", "Bash", {"command": "pytest -q"})))
                self.emit(Activity(run=run, event=ToolEnded("t1", "41 passed in 7.90s")))
                self.emit(Activity(run=run, event=TextDelta("All tests pass.")))
            case ["hang"] | ["deaf"]:
                self.emit(Activity(run=run, event=TextDelta("I work and work.\n\n")))
                await asyncio.Event().wait()
            case ["die"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                self.emit(Activity(run=run, event=TextDelta(f"You said: {text}")))

    async def _stream(self, run: str, deltas: int, rate: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, piece in enumerate(islice(pieces(), deltas)):
            if rate and (wait := began + number / rate - loop.time()) > 0:
                await asyncio.sleep(wait)
            self.emit(Activity(run=run, event=TextDelta(piece)))
            await self._wire.drain()
        self.emit(Activity(run=run, event=TextDelta("\n\nSTREAM-DONE")))

    async def _ask(self, run: str) -> None:
        question = Question("Which branch?", options=("main", "develop"))
        self._answers["q1"] = asyncio.get_running_loop().create_future()
        self.emit(QuestionOpened(id="q1", run=run, question=question, who="worker"))
        answers = await self._answers["q1"]
        self.emit(QuestionClosed(id="q1", answers=answers))
        self.emit(Activity(run=run, event=TextDelta(f"Answered: {', '.join(answers or ('nothing',))}")))


def _exchange(number: int) -> list[ChatEvent]:
    run = f"old-{number}"
    text = "".join(islice(pieces(number), 12))
    return [
        RunStarted(run=run, kind=RunKind.TURN, prompt=f"question {number}"),
        Activity(run=run, event=TextDelta(f"answer {number}: {text}")),
        RunEnded(run=run, status="done"),
    ]


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while line := await reader.readline():
        yield line


async def main(fd: int, session: str) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd), limit=64 * 1024 * 1024)
    engine = ScriptedEngine(writer)
    engine.begin(session or SESSION)
    async for line in _lines(reader):
        if not await engine.handle(decode_intent(line)):
            break
    await writer.drain()
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--resume", default="")
    arguments, _ = parser.parse_known_args(sys.argv[1:])
    asyncio.run(main(arguments.fd, arguments.resume))
