"""What the code that calls agents needs of the step that it works for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from atomic.graph import Suspend
from atomic.questions import Question

Answer = str | list[str]


class CallingStep(Protocol):
    """A step of a run (the engine's `StepContext`), or what stands for one outside of a
    run.
    """

    attempt: int

    @property
    def n(self) -> int: ...

    @property
    def node_id(self) -> str: ...

    @property
    def step_id(self) -> str: ...

    @property
    def item(self) -> Any: ...

    @property
    def model(self) -> str | None: ...

    def hold(self, pause: Suspend) -> None: ...

    def resting(self) -> AbstractContextManager[None]: ...

    def answers_for_agent(self) -> Mapping[str, Answer]: ...

    async def ask_for_agent(self, question: Question) -> Answer: ...

    async def remember(self, key: str, value: Any) -> None: ...

    def remembered(self, key: str, default: Any = None) -> Any: ...
