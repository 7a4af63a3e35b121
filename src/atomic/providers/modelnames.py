"""The model that a file names, as the provider in use calls it. Pure.

A file says `opus`, or a name that only the provider knows which it was written for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_ALL = "atomic"  # files in Atomic's own format may name any agent's model


def fitting_model(known: Iterable[str], original: str | None, family: str | None) -> str | None:
    """The known model that is called so, else the newest of the family; None if there is none."""
    models = list(known)
    for model in models:
        if original and original.casefold() in (model.casefold(), model.casefold().rpartition("/")[2]):
            return model
    of_family = [model for model in models if family and family.casefold() in re.split(r"[^a-z]+", model.casefold())]
    return max(of_family, key=_version, default=None)


def original_model(entity: object, provider: str) -> str | None:
    """The model as an entity's file spells it, if the file was written for this provider or for all of them."""
    original: str | None = getattr(entity, "original_model", None)
    written_for = str(getattr(getattr(entity, "source", entity), "provider", ""))
    return original if written_for in (provider, _ALL) and original != "inherit" else None


def named_model(name: str | None) -> str | None:
    """The name for a provider that is not Claude's: "opus" is a family there and no model; None: none is named."""
    return None if name in (None, "inherit", "opus", "sonnet", "haiku") else name


def _version(model: str) -> tuple[Sequence[int], int]:
    """The numbers of a version; a date among them says nothing about which is newer. The plain name comes first."""
    numbers = [int(number) for number in re.findall(r"\d+", model.rpartition("/")[2]) if len(number) < 4]
    return numbers, -len(model)
