"""The arguments of a workflow function, from a prompt and the values of its flags."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

import msgspec

from atomic.base.errors import AtomicError, ExitCode
from atomic.graph import FunctionWorkflow

_MANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class ArgumentError(AtomicError):
    """Arguments of the user do not fit the parameters of a workflow function."""

    exit_code = ExitCode.USAGE


def arguments_of(workflow: FunctionWorkflow[..., Any], prompt: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run by parameter.

    The prompt goes to the parameter `prompt`, else to the only positional one without a
    default; the others take the values of the config with their names. Raises
    ArgumentError.
    """
    parameters = workflow.parameters.parameters
    takes_prompt = prompt_parameter(parameters)
    given: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind in _MANY:
            continue
        if name == takes_prompt and prompt:
            given[name] = _read_prompt(workflow, name, prompt)
        elif name in config:
            given[name] = _checked(workflow, name, config[name])
        elif parameter.default is Parameter.empty:
            raise ArgumentError(_missing(workflow.name, name, is_prompt=name == takes_prompt))
    for name, parameter in parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            given[name] = {key: value for key, value in config.items() if key not in parameters}
    if prompt and not takes_prompt:
        flags = ", ".join(_flag(name) for name, one in parameters.items() if one.kind not in _MANY)
        hint = f" (it takes {flags})" if flags else ""
        raise ArgumentError(f"{workflow.name} takes no prompt{hint}")
    return given


def prompt_parameter(parameters: Mapping[str, Parameter]) -> str:
    """Return the parameter that the prompt goes to, or an empty text."""
    if "prompt" in parameters and parameters["prompt"].kind not in _MANY:
        return "prompt"
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [name for name, one in parameters.items() if one.kind in positional and one.default is Parameter.empty]
    return needed[0] if len(needed) == 1 else ""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _missing(workflow: str, name: str, *, is_prompt: bool) -> str:
    if is_prompt:
        return f'{workflow} needs a prompt, for its parameter "{name}": atomic run {workflow} "PROMPT"'
    return f'{workflow} needs a value for its parameter "{name}": atomic run {workflow} {_flag(name)} VALUE'


def _read_prompt(workflow: FunctionWorkflow[..., Any], name: str, prompt: str) -> Any:
    """Return the prompt as the type of its parameter: as it is, or read as JSON."""
    try:
        return workflow.parameters.convert({name: prompt})[name]
    except AtomicError as error:
        try:
            return workflow.parameters.convert({name: msgspec.json.decode(prompt)})[name]
        except (AtomicError, msgspec.DecodeError, RecursionError):
            raise ArgumentError(f'{workflow.name}: its prompt, "{prompt:.60}", does not fit: {error}') from error


def _checked(workflow: FunctionWorkflow[..., Any], name: str, value: Any) -> Any:
    try:
        return workflow.parameters.convert({name: value})[name]
    except AtomicError as error:
        reason = str(error).removeprefix(f"{workflow.name}, {name}: ")
        raise ArgumentError(f"{_flag(name)} of {workflow.name} does not fit: {reason}") from error
