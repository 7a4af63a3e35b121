"""Find the graph that a workflow file defines under a name which Atomic does not look for."""

from __future__ import annotations

import ast
import re
from inspect import isclass, iscoroutinefunction, isroutine
from types import ModuleType
from typing import NamedTuple

from atomic.graph import CompiledGraph, GraphBuilder, GraphConfig

_CONFIGS = ("graphconfig", "workflowconfig", "graphdefinition", "workflowdefinition")
_GRAPHS = ("workflow", "workflows", "graph", "workflowgraph", "graphworkflow", "compiledgraph", "graphbuilder")
_FACTORY = re.compile(r"(create|build|make|get|define|new|default|main|my)(?=graph|workflow)")
_SIMILAR = 0.85  # of difflib's ratio: "wrokflow" and "workflw", not "work" or "flow"


class NearMiss(NamedTuple):
    """A name in a workflow file that looks like its graph, its line, and what to do."""

    name: str
    line: int
    reason: str


def find_near_miss(module: ModuleType, tree: ast.Module) -> NearMiss | None:
    """Return the graph under another name, else the first name that looks like one; None in a file for the chat."""
    names = _defined_names(tree)
    for name, line in names.items():
        if isinstance(getattr(module, name, None), CompiledGraph | GraphBuilder | GraphConfig):
            return NearMiss(name, line, _reason(name, getattr(module, name)))
    for name, line in names.items():
        if hasattr(module, name) and _looks_like_graph(name):
            return NearMiss(name, line, _reason(name, getattr(module, name)))
    return None


def _defined_names(tree: ast.Module) -> dict[str, int]:
    """Return the names that the top level assigns or defines, each with its first line. Imports do not count."""
    found: dict[str, int] = {}
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.setdefault(name, statement.lineno)
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, statement.lineno)
            case _:
                pass
    return found


def _looks_like_graph(name: str) -> bool:
    word = _FACTORY.sub("", _folded(name))
    if word in (*_CONFIGS, *_GRAPHS):
        return True
    if not 6 <= len(word) <= 14:  # too short or too long to be similar; every run of a chat would import difflib
        return False
    from difflib import get_close_matches

    return bool(get_close_matches(word, ("workflow", "graphconfig"), 1, _SIMILAR))


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()


def _reason(name: str, value: object) -> str:
    if isinstance(value, GraphConfig):
        what = f'rename "{name}" to "graph_config"'
    elif isinstance(value, CompiledGraph | GraphBuilder):
        what = f'rename "{name}" to "workflow"'
    elif iscoroutinefunction(value):
        what = f'"{name}" is async: make it a plain function and add "workflow = {name}()"'
    elif isroutine(value):
        what = f'Atomic does not call "{name}": add "workflow = {name}()"'
    elif "config" in _folded(name) and not isclass(value):
        what = f'"{name}" must be "graph_config = GraphConfig(…)"'
    else:
        what = f'"{name}" must be "workflow = graph(…).compile()"'
    return f"no graph found: {what}"
