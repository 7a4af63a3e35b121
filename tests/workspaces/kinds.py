"""The kinds of workspaces that work on this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

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
