"""Map the model that a file names to a model of the provider in use. Pure.

A file names a family such as `opus`, or a model of the provider it was written for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

FAMILIES_KNOWN = ("claude", "replay")  # providers with models called opus, sonnet and haiku
_ALL = "atomic"  # a file in Atomic's own format may name any model


def fitting_model(known: Iterable[str], original: str | None, family: str | None) -> str | None:
    """Return the known model of that name, else the newest of the family, else None."""
    models = list(known)
    for model in models:
        if original and original.casefold() in (model.casefold(), model.casefold().rpartition("/")[2]):
            return model
    of_family = [model for model in models if family and family.casefold() in re.split(r"[^a-z]+", model.casefold())]
    return max(of_family, key=_version, default=None)


def original_model(entity: object, provider: str) -> str | None:
    """Return the model as an entity's file spells it.

    None if the file was written for another provider.
    """
    original: str | None = getattr(entity, "original_model", None)
    written_for = str(getattr(getattr(entity, "source", entity), "provider", ""))
    return original if written_for in (provider, _ALL) and original != "inherit" else None


def named_model(name: str | None) -> str | None:
    """Return the name for a provider other than Claude.

    None for a family such as "opus".
    """
    return None if name in (None, "inherit", "opus", "sonnet", "haiku") else name


def _version(model: str) -> tuple[Sequence[int], int]:
    """Return a sort key: the version numbers without dates, then shorter names first."""
    numbers = [int(number) for number in re.findall(r"\d+", model.rpartition("/")[2]) if len(number) < 4]
    return numbers, -len(model)
