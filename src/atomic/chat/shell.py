"""`!command`: a command line of the person, run by their own shell."""

from __future__ import annotations

import codecs
import os

from atomic.chat.conversation import Conversation
from atomic.chat.protocol import RunKind, ShellOutput
from atomic.chat.runs import End, Run
from atomic.processes import execute

_KEPT = 1024 * 1024  # bytes of what it says that are shown
_ALONG = 16 * 1024  # characters of it that go along with the next prompt


class ShellRun:
    """One command line: what it says as it comes, and how it ended."""

    def __init__(self, run: Run, conversation: Conversation) -> None:
        self._run, self._conversation = run, conversation
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._said: list[str] = []
        self._room, self._left_out = _KEPT, 0

    async def work(self, command: str) -> End:
        """Run it in the folder of the conversation; what it leaves running ends with it."""
        self._run.start(RunKind.SHELL, command)
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            result = await execute(shell, "-c", command, cwd=self._conversation.project.cwd, on_output=self._hear)
        finally:
            self._finish()
        self._conversation.add_context(self._context(command, result.exit_code))
        return End() if result.exit_code == 0 else End("failed", f"exit code {result.exit_code}")

    def _hear(self, data: bytes) -> None:
        kept, self._left_out = data[: self._room], self._left_out + len(data[self._room :])
        self._room -= len(kept)
        self._tell(self._decoder.decode(kept))

    def _finish(self) -> None:
        self._tell(self._decoder.decode(b"", final=True))
        if self._left_out:
            self._tell(f"\n… {self._left_out:,} bytes more were left out\n")

    def _tell(self, text: str) -> None:
        if text:
            self._said.append(text)
            self._run.tell(ShellOutput(run=self._run.id, text=text))

    def _context(self, command: str, exit_code: int) -> str:
        said = "".join(self._said)
        cut = "" if len(said) <= _ALONG else "…"
        fence = "`" * 3
        while fence in said:
            fence += "`"
        return (
            f"I ran this command myself (exit code {exit_code}):\n{fence}\n$ {command}\n{cut}{said[-_ALONG:]}\n{fence}"
        )
