"""A question to a person, asked by a node or by an agent: one shape, whoever asks and whoever shows it.

A question can outlive the process that asked it, so it is plain data that a journal keeps as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec


class Option(msgspec.Struct, frozen=True):
    """One answer to choose from; the label is what comes back."""

    label: str
    description: str = ""


class _Text(msgspec.Struct, frozen=True):
    # A class of its own, because msgspec makes all fields of a class keyword-only or none.
    text: str


class Question(_Text, frozen=True, kw_only=True):
    """What to ask, the answers to choose from (none: free text), and what Enter alone means."""

    options: tuple[Option, ...] = ()
    default: str | None = None
    header: str = ""
    multi_select: bool = False
    id: str = ""

    if TYPE_CHECKING:
        # msgspec derives the real one from the fields and would not show that labels are options too.
        def __init__(
            self,
            text: str,
            *,
            options: Sequence[Option | str] = (),
            default: str | None = None,
            header: str = "",
            multi_select: bool = False,
            id: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        """Turn labels into options; also called by msgspec after reading, where there is nothing to turn."""
        if isinstance(self.options, str):  # a str is a sequence of str: it would become one option a letter
            raise TypeError(f"the options of a question are a list, not the text {self.options!r}")
        msgspec.structs.force_setattr(self, "options", tuple(_option(item) for item in self.options))


def _option(item: Option | str) -> Option:
    return Option(item) if isinstance(item, str) else item
