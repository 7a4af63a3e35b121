"""What a case is, and how it says what it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import msgspec

from atomic.providers import Capabilities
from atomic.testing.conformance.case_setup import Stage, World
from atomic.testing.model_server import Script

Scripts: TypeAlias = Callable[[Stage], Mapping[str, Script]]
Play: TypeAlias = Callable[[World], Awaitable[None]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that users rely on."""

    name: str
    title: str
    play: Play
    scripts: Scripts
    needs: Callable[[Capabilities], bool]
    long: bool = False  # left to `make test-full`


class Cases:
    """A group of cases under one heading."""

    def __init__(self, heading: str) -> None:
        self.heading = heading
        self.cases: list[Case] = []

    def case(
        self,
        scripts: Scripts = lambda stage: {},
        *,
        needs: Callable[[Capabilities], bool] = lambda can: True,
        long: bool = False,
    ) -> Callable[[Play], Play]:
        """Make a case of a function: its name is the case's, the first line of its docstring the title."""

        def add(play: Play) -> Play:
            name = getattr(play, "__name__", "")
            title = (play.__doc__ or name).partition("\n")[0].rstrip(".")
            self.cases.append(Case(name=name, title=title, play=play, scripts=scripts, needs=needs, long=long))
            return play

        return add
