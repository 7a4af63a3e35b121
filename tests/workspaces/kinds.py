"""The kinds of workspaces that work on this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atomic.workspaces import Isolation, IsolationKind
from atomic.workspaces.isolation import try_guard, try_overlay

_WAYS = (False, True) if os.geteuid() == 0 else (True,)


def _overlays() -> list[Isolation]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            Isolation(IsolationKind.OVERLAY, own_user)
            for own_user in _WAYS
            if not asyncio.run(try_overlay(Path(folder, "layers"), Path(folder, "project"), own_user=own_user))
        ]


def _guarded() -> list[Isolation]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        return [
            Isolation(IsolationKind.CLONE, own_user, guarded=True)
            for own_user in _WAYS
            if not asyncio.run(try_guard(Path(folder, "layers"), project, own_user=own_user))
        ]


def kind_name(isolation: Isolation) -> str:
    """Return a short name for the id of a test."""
    guarded = "guarded-" if isolation.guarded else ""
    return f"{guarded}{isolation.kind}{'-own-user' if isolation.own_user else ''}"


OVERLAYS = _overlays()  # with and without a user namespace
GUARDED = _guarded()  # clones whose programs cannot write to the user's checkout
KINDS = [*OVERLAYS, *GUARDED, Isolation(IsolationKind.CLONE)]
_QUICK = (*OVERLAYS[:1], KINDS[-1])


def each(isolations: Sequence[Isolation], *, guarded: pytest.MarkDecorator = pytest.mark.ci) -> list[Any]:
    """Return parameters. `make test` has the first overlay and the plain clone, `make test-ci` also guarded clones.

    Root in a user namespace of its own is left to `make test-full`. A user who is not root has no other way.
    """

    def marks(one: Isolation) -> list[pytest.MarkDecorator]:
        if one in _QUICK:
            return []
        if one.own_user and len(_WAYS) == 2:
            return [pytest.mark.full]
        return [guarded]

    return [pytest.param(one, id=kind_name(one), marks=marks(one)) for one in isolations]
