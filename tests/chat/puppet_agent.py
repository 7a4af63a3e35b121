"""Use the puppet of the ACP tests as agent. A prompt is a JSON list of its actions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tests.providers.acp.sandbox import PUPPET
from tests.support.user import User

AGENT = "acp:puppet"


def use_puppet(user: User, *flags: str) -> str:
    """Configure the puppet as an agent of the user and return its name."""
    command = json.dumps([sys.executable, str(PUPPET), *flags])
    user.sets(f"[acp.puppet]\ncommand = {command}\n")
    return AGENT


def steps(*given: Mapping[str, Any]) -> str:
    return json.dumps(given)


def form(text: str, *choices: str, default: str | None = None) -> dict[str, Any]:
    """Return an ACP form that asks one question."""
    field: dict[str, Any] = {"type": "string", "title": text}
    if choices:
        field["enum"] = list(choices)
    if default is not None:
        field["default"] = default
    schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
    return {"mode": "form", "message": text, "requestedSchema": schema}
