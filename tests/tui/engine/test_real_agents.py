"""The engine with the real agents, each on a scripted model: stream, tool, question, interrupt, model, compaction."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import TextDelta, ToolEnded, ToolStarted
from atomic.testing import Call, ModelServer, Pause, Say, Script, Turn, claude_env, copilot_env, opencode_env
from atomic.tui.protocol import Activity, Cleared, History, StatusChanged
from tests.cli.command import User, processes
from tests.tui.engine.screen import EngineScreen, engine

COPILOT_CACHE = Path(__file__).parents[3] / ".programs" / "cache" / "copilot"
