"""Documentation tools and editors can read all public types at run time."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from atomic.providers import AgentProvider
from atomic.workflows import Bridge, Node, NodeContext, State, WorkflowDefinition

ROOMS = ("workflows", "providers", "tasks", "entities", "commands", "testing")
LATER = (
    "pathlib",
    "atomic.providers",
    "atomic.processes",
    "atomic.base.redaction",
    "atomic.mcp",
    "atomic.sessions.facts",
)


def public_functions(room: str) -> Iterator[tuple[str, Any]]:
    """Yield the public classes, functions and methods of a package."""
    module = importlib.import_module(f"atomic.{room}")
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield name, value
        members: Mapping[str, Any] = vars(value) if inspect.isclass(value) else {}
        for key, member in members.items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and (key == "__init__" or not key.startswith("_")):
                yield f"{name}.{key}", function


def has_signature(value: object) -> bool:
    """Return whether Python can know a signature; it cannot for some exceptions."""
    return not (isinstance(value, type) and issubclass(value, BaseException) and "__init__" not in vars(value))


@pytest.mark.parametrize("room", ROOMS)
def test_types_and_signatures_of_public_names_can_be_read(room: str) -> None:
    wrong: dict[str, Exception] = {}
    for name, value in public_functions(room):
        try:
            get_type_hints(value)
            if has_signature(value):
                inspect.signature(value)
        except (NameError, TypeError, ValueError) as error:
            wrong[name] = error
    assert wrong == {}


def test_types_that_are_imported_late_are_the_real_ones() -> None:
    assert get_type_hints(WorkflowDefinition)["path"] == Path | None
    assert get_type_hints(Bridge.__init__)["provider"] is AgentProvider


def test_a_context_needs_only_the_type_of_its_state() -> None:
    assert get_args(NodeContext[State]) == get_args(NodeContext[State, Any]) == (State, Any)
    assert get_args(Node[State]) == (State, Any)


def test_imports_for_types_are_not_loaded_with_the_workflows() -> None:
    code = f"import sys, atomic.workflows; print([name for name in {LATER!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120) == "[]\n"
