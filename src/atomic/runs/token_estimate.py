"""Estimates the tokens of an agent that reports none, from the characters it reads and writes."""

from __future__ import annotations

from atomic.base.usage import Usage
from atomic.providers.events import AgentEvent, TextDelta, ThinkingDelta, ToolEnded, ToolStarted
from atomic.runs.limits import CHARACTERS_PER_TOKEN

STEP = 3_000  # characters, or a quarter more, after which a new estimate is written to the disk


class CharacterCount:
    """Counts the characters of a turn, then of the next one."""

    def __init__(self, prompt: str) -> None:
        self._prompt = len(prompt)
        self.begin_turn()

    def begin_turn(self) -> None:
        """Start a new count; the agent reads the prompt again."""
        self._read = self._prompt
        self._written = 0
        self._reported = 0
        self.has_any = False

    def count(self, event: AgentEvent) -> None:
        """Count what an agent writes and what its tools return."""
        match event:
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._written += len(text)
            case ToolStarted(name=name, input=input):
                self._written += len(name) + len(str(input))
            case ToolEnded(output=text):
                self._read += len(text)
            case _:
                return
        self.has_any = True

    def has_grown(self) -> bool:
        """Return whether the count has grown enough to report it, and note it as reported."""
        total = self._read + self._written
        if not self.has_any or total - self._reported < max(STEP, self._reported // 4):
            return False
        self._reported = total
        return True

    @property
    def usage(self) -> Usage:
        """The tokens, rounded up."""
        return Usage(-(-self._read // CHARACTERS_PER_TOKEN), -(-self._written // CHARACTERS_PER_TOKEN))
