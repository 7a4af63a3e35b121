"""A question to the user, from a node or an agent.

A question can outlive the process that asked it, so it is plain data for the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec


class Option(msgspec.Struct, frozen=True):
    """One answer to choose from. The label is the answer."""

    label: str
    description: str = ""


class _Text(msgspec.Struct, frozen=True):
    # A separate class, because msgspec makes all fields of a class keyword-only or
    # none.
    text: str


class Question(_Text, frozen=True, kw_only=True):
    """A text, options to choose from (without options: free text), and the default
    answer.
    """

    options: tuple[Option, ...] = ()
    default: str | None = None
    header: str = ""
    multi_select: bool = False
    id: str = ""

    if TYPE_CHECKING:
        # msgspec derives the real one from the fields. It would not show that labels
        # are accepted, too.
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
        """Turn labels into options."""
        if isinstance(self.options, str):  # a str is a sequence of letters, which would become the options
            raise TypeError(f"the options of a question are a list, not the text {self.options!r}")
        options = tuple(Option(item) if isinstance(item, str) else item for item in self.options)
        msgspec.structs.force_setattr(self, "options", options)
