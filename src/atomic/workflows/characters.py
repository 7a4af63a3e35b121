"""An estimate of the tokens of a turn whose agent tells none: by the characters that go in and come out."""

from __future__ import annotations

from atomic.providers.events import AgentEvent, TextDelta, ThinkingDelta, ToolEnded, ToolStarted
from atomic.usage import Usage
from atomic.workflows.limits import CHARACTERS_PER_TOKEN

STEP = 3_000  # characters, or a quarter more, after which a new estimate is worth writing to the disk


class Characters:
    """Counts the characters of one turn after the other."""

    def __init__(self, prompt: str) -> None:
        self._prompt = len(prompt)
        self.begin_turn()

    def begin_turn(self) -> None:
        """Begin to count again: the prompt is read once more."""
        self._read, self._written, self._told = self._prompt, 0, 0
        self.has_any = False

    def count(self, event: AgentEvent) -> None:
        """Count what an agent writes, and what its tools answer."""
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
        """Whether there is enough new to tell; then it counts as told."""
        now = self._read + self._written
        if not self.has_any or now - self._told < max(STEP, self._told // 4):
            return False
        self._told = now
        return True

    @property
    def usage(self) -> Usage:
        return Usage(-(-self._read // CHARACTERS_PER_TOKEN), -(-self._written // CHARACTERS_PER_TOKEN))
