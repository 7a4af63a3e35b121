"""The kinds of workspaces that work on this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from atomic.workspaces import Isolation, IsolationKind
from atomic.workspaces.isolation import try_overlay


def _overlays() -> list[Isolation]:
    ways = (False, True) if os.geteuid() == 0 else (True,)
    with tempfile.TemporaryDirectory() as folder:
        return [
            Isolation(IsolationKind.OVERLAY, own_user)
            for own_user in ways
            if not asyncio.run(try_overlay(Path(folder, "layers"), Path(folder, "project"), own_user=own_user))
        ]


def kind_name(isolation: Isolation) -> str:
    """Return a short name for the id of a test."""
    return f"{isolation.kind}-own-user" if isolation.own_user else str(isolation.kind)


OVERLAYS = _overlays()  # with and without a user namespace
KINDS = [*OVERLAYS, Isolation(IsolationKind.CLONE)]
