"""What the code of a workflow function names, without running it.

The steps of a function are known only when it runs. So the features that it may use are
read from the names in its compiled code, and in that of the functions of its module that
it names. That may find too much, for example a method of another class that is called
`ask`, and too little, for example a call through a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any, cast

from atomic.graph import CompiledGraph, FunctionWorkflow
from atomic.workflows.steps import StepFunction

AGENT_CALLS = frozenset({"agent", "subagent", "isolated", "skill", "command"})
QUESTIONS = frozenset({"ask", "wait"})


def codes_of(workflow: FunctionWorkflow[..., Any]) -> Iterator[CodeType]:
    """Yield the code of a workflow function, and of the functions of its module that it
    names, also indirectly.
    """
    seen: set[int] = set()
    left: list[object] = [workflow.function]
    while left:
        function = _plain(left.pop())
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        for code in _with_inner(function.__code__):
            yield code
            known = function.__globals__
            named = (known[name] for name in code.co_names if name in known)
            left += [one for one in named if getattr(_plain(one), "__module__", None) == function.__module__]


def graphs_of(workflow: FunctionWorkflow[..., Any]) -> Iterator[CompiledGraph[Any]]:
    """Yield the graphs of its module that a function names."""
    known = getattr(workflow.function, "__globals__", {})
    for code in codes_of(workflow):
        for name in code.co_names:
            if isinstance(known.get(name), CompiledGraph):
                yield known[name]


def names_of(workflow: FunctionWorkflow[..., Any]) -> set[str]:
    """Return the names of attributes and globals that a function uses."""
    return {name for code in codes_of(workflow) for name in code.co_names}


def called_workflows(workflow: FunctionWorkflow[..., Any]) -> list[str]:
    """Return the names of workflows in calls such as `flow.run("release")`."""
    return list(dict.fromkeys(name for code in codes_of(workflow) for name in _literal_runs(code)))


def _literal_runs(code: CodeType) -> Iterator[str]:
    """Yield the texts that are the first argument of a method `run` of a local
    variable `flow`, or whatever the first parameter of the function is called.
    """
    from dis import get_instructions

    flow = code.co_varnames[0] if code.co_argcount else ""
    steps = [one for one in get_instructions(code) if one.opname not in ("PUSH_NULL", "PRECALL", "CACHE")]
    for at in range(len(steps) - 2):
        variable, method, first = steps[at : at + 3]
        is_flow = variable.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and variable.argval in (flow, "flow")
        is_run = method.opname in ("LOAD_METHOD", "LOAD_ATTR") and method.argval == "run"
        if is_flow and is_run and first.opname.startswith("LOAD_CONST") and isinstance(first.argval, str):
            yield first.argval


def _plain(value: object) -> FunctionType | None:
    """Return the function of a step, a workflow or a plain function."""
    if isinstance(value, FunctionWorkflow):
        value = cast("FunctionWorkflow[..., Any]", value).function
    elif isinstance(value, StepFunction):
        value = unwrap(cast("Any", value))
    return value if isinstance(value, FunctionType) else None


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
