"""Measure the CPU time of the transcript: a stream of 100 KB, and 5,000 messages.

    PYTHONPATH=src python bench/tui_transcript.py [stream|long]

Each runs in its own process and terminal (pty), which is read without delay.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pty
import random
import resource
import select
import struct
import sys
import time
from fcntl import ioctl
from termios import TIOCSWINSZ
from typing import Any

from textual.app import App, ComposeResult
from textual.widgets import Static

from atomic.chat.protocol import Activity, RunEnded, RunKind, RunStarted
from atomic.providers.events import TextDelta
from atomic.tui.state.store import Store
from atomic.tui.widgets.transcript import TranscriptView

WORDS = [
    "graph",
    "node",
    "edge",
    "state",
    "worker",
    "review",
    "plan",
    "task",
    "loop",
    "retry",
    "stream",
    "token",
    "buffer",
    "render",
    "session",
    "checkpoint",
    "resume",
    "cancel",
    "signal",
    "queue",
    "event",
    "store",
    "reducer",
    "path",
    "file",
    "diff",
    "patch",
    "test",
    "agent",
    "model",
    "prompt",
    "reply",
    "cost",
    "limit",
    "cache",
]
FRAME = 1 / 15


def sentence(random: random.Random) -> str:
    words = [random.choice(WORDS) for _ in range(random.randint(7, 16))]
    words[0] = f"**{words[0]}**"
    words[-1] = f"`{words[-1]}_{random.randint(1, 99)}()`"
    return " ".join(words).capitalize() + "."


def part(random: random.Random, number: int) -> str:
    match number % 7:
        case 1:
            return f"## Step {number}: {random.choice(WORDS)}"
        case 3:
            return "\n".join(f"- {sentence(random)}" for _ in range(random.randint(3, 6)))
        case 4:
            name = random.choice(WORDS)
            body = [f'async def {name}(value: int = {number}) -> str:\n    """{sentence(random)}"""']
            body += [f"    for item in range(value):\n        await emit('{name}', item * 2)  # {name}"] * 3
            return "```python\n" + "\n".join(body) + "\n    return str(value)\n```"
        case 0:
            rows = [f"| {random.choice(WORDS)} | {random.randint(1, 999)} | {sentence(random)} |" for _ in range(5)]
            return "| name | count | note |\n|---|---:|---|\n" + "\n".join(rows)
        case _:
            return " ".join(sentence(random) for _ in range(random.randint(2, 5)))


def markdown(size: int, seed: int = 1) -> str:
    chance = random.Random(seed)
    parts = [""]
    have = 0
    number = 0
    while have < size:
        number += 1
        parts.append(part(chance, number))
        have += len(parts[-1]) + 2
    return "\n\n".join(parts).strip()[:size]


class Bench(App[None]):
    """The transcript with a line above and below, and frames at the rate of the real one."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Static { height: 1; }"

    def __init__(self, what: str) -> None:
        super().__init__()
        self.store = Store()
        self.what = what
        self.numbers: dict[str, Any] = {}
        self.syncs: list[float] = []

    def compose(self) -> ComposeResult:
        yield Static("atomic", markup=False)
        yield TranscriptView()
        yield Static("ready", markup=False)

    def on_mount(self) -> None:
        self.run_worker(self.work(), exit_on_error=True)

    async def work(self) -> None:
        await asyncio.sleep(0.3)
        gc.freeze()  # as the app does after its first paint
        await {"stream": self.stream, "long": self.long}[self.what]()
        self.numbers["rss MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.exit()

    def frame(self) -> None:
        before = time.process_time()
        self.query_one(TranscriptView).sync(self.store.screen, time.time())
        self.syncs.append(time.process_time() - before)

    async def stream(self) -> None:
        text = markdown(100_000)
        news = [Activity(run="r", event=TextDelta(text[at : at + 20])) for at in range(0, len(text), 20)]
        self.store.apply(RunStarted(run="r", kind=RunKind.TURN, prompt="go"), time.time())
        cpu = time.process_time()
        wall = time.perf_counter()
        due = 0.0
        folded = 0.0
        for number, one in enumerate(news):  # 250 a second
            before = time.process_time()
            self.store.apply(one, time.time())
            folded += time.process_time() - before
            late = wall + number / 250 - time.perf_counter()
            if time.perf_counter() >= due:
                due = time.perf_counter() + FRAME
                self.frame()
            if late > 0:
                await asyncio.sleep(late)
        self.store.apply(RunEnded(run="r", status="done"), time.time())
        self.frame()
        await asyncio.sleep(0.2)
        self.numbers |= {
            "cpu s": round(time.process_time() - cpu, 2),
            "wall s": round(time.perf_counter() - wall, 2),
            "fold µs a delta": round(folded / len(news) * 1e6, 1),
            "frames": len(self.syncs),
            "sync ms": spread(self.syncs),
        }

    async def long(self) -> None:
        answers = [markdown(random.Random(at).choice((200, 400, 600, 900)), at) for at in range(2500)]
        cpu = time.process_time()
        wall = time.perf_counter()
        for at, answer in enumerate(answers):
            self.store.apply(RunStarted(run=f"r{at}", kind=RunKind.TURN, prompt=f"message {at}"), 1.0)
            self.store.apply(Activity(run=f"r{at}", event=TextDelta(answer)), 1.0)
            self.store.apply(RunEnded(run=f"r{at}", status="done"), 1.0)
        self.frame()
        painted = asyncio.Event()
        self.call_after_refresh(painted.set)
        await painted.wait()
        self.numbers |= {
            "rss MB when open": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "open cpu s": round(time.process_time() - cpu, 2),
            "open wall s": round(time.perf_counter() - wall, 2),
            "blocks": len(self.store.screen.blocks),
            "first sync ms": round(self.syncs[0] * 1000, 1),
        }
        cpu = time.process_time()
        self.numbers["PageUp ms"] = spread([await self.page() for _ in range(150)])
        self.numbers["PageUp cpu ms"] = round((time.process_time() - cpu) / 150 * 1000, 1)
        self.syncs.clear()
        for _ in range(50):
            self.frame()
        self.numbers["idle sync ms"] = spread(self.syncs)

    async def page(self) -> float:
        painted = asyncio.Event()
        before = time.perf_counter()
        self.query_one(TranscriptView).action_page_up()
        self.call_after_refresh(painted.set)
        await painted.wait()
        return time.perf_counter() - before


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    at = [ordered[int(len(ordered) * part)] * 1000 for part in (0.5, 0.95, 0.99)]
    return "p50 {:.1f} p95 {:.1f} p99 {:.1f}".format(*at)


def in_terminal(what: str, size: tuple[int, int]) -> dict[str, Any]:
    """Run one in a terminal that only reads."""
    told, tell = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.set_inheritable(tell, True)
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "TELL": str(tell)}
        os.execve(sys.executable, [sys.executable, __file__, "child", what], environment)
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    os.close(tell)
    written = 0
    result = b""
    while True:
        ready, _, _ = select.select([terminal, told], [], [], 120)
        if not ready:
            os.kill(pid, 9)
            raise TimeoutError(what)
        if terminal in ready:
            try:
                written += len(os.read(terminal, 1 << 16))
            except OSError:
                break
        elif told in ready:
            result += os.read(told, 1 << 16) or b""
            if result.endswith(b"\n"):
                os.waitpid(pid, 0)
                break
    return {**json.loads(result), "KB written": written // 1024}


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        bench = Bench(sys.argv[2])
        bench.run()
        os.write(int(os.environ["TELL"]), json.dumps(bench.numbers).encode() + b"\n")
        return
    for what in sys.argv[1:] or ["stream", "long"]:
        for size in ((80, 24), (120, 40)):
            print(what, size, in_terminal(what, size))


if __name__ == "__main__":
    main()
