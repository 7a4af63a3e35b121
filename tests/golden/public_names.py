"""Describe what a public package exports: the kind of each name, its signature and its public members."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterable, Iterator
from inspect import Parameter
from types import ModuleType
from typing import Any, get_args

import msgspec

INDENT = "    "
WIDTH = 100
_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")  # modules may move
_OPTIONAL = re.compile(r"\bOptional\[(\w+(?:\[[^\[\]]*\])?)\]")  # how older versions of Python show `X | None`


def describe_package(package: ModuleType) -> list[str]:
    """Describe all public names of a package."""
    names = getattr(package, "__all__", None) or _own_names(package)
    lines: list[str] = []
    for name in sorted(names):
        lines += _describe(name, getattr(package, name))
    return lines


def _own_names(module: ModuleType) -> list[str]:
    """Return the public names that a module without `__all__` defines itself."""
    return [name for name, value in vars(module).items() if _is_public(name) and _home(value) == module.__name__]


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _home(value: Any) -> str:
    return str(getattr(value, "__module__", ""))


def _describe(name: str, value: Any) -> list[str]:
    if inspect.ismodule(value):
        return [f"module {name}", *_indented(describe_package(value))]
    if inspect.isclass(value):
        head = f"{_kind(value)} {name}"
        is_called = not issubclass(value, enum.Enum) and not getattr(value, "_is_protocol", False)
        return [*(_signature(head, value) if is_called else [head]), *_indented(_members(value))]
    if inspect.isfunction(value):
        return describe_function(name, value)
    if isinstance(value, str | int | float | tuple):
        return [f"value {name} = {value!r}"]
    if get_args(value):
        return [f"alias {name} = {_type(value)}"]
    return [f"value {name}: {type(value).__name__}"]


def _kind(one: Any) -> str:
    if issubclass(one, enum.Enum):
        return "enum"
    if issubclass(one, BaseException):
        parents = [base.__name__ for base in one.__mro__[1:] if _is_ours(base) and _is_public(base.__name__)]
        return f"exception ({', '.join(parents)})" if parents else "exception"
    if issubclass(one, msgspec.Struct):
        return "struct"
    return "protocol" if getattr(one, "_is_protocol", False) else "class"


def _members(one: Any) -> Iterator[str]:
    """Yield the public members of a class, also those that it inherits from classes of Atomic."""
    if issubclass(one, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in one)
    found: dict[str, Any] = {}
    for base in reversed(one.__mro__):
        if _is_ours(base):
            found |= vars(base)
            found |= {name: None for name in getattr(base, "__annotations__", {}) if name not in found}
    shown = {*getattr(one, "__struct_fields__", ()), *getattr(one, "__members__", ())}
    for name, member in sorted(found.items()):
        if _is_public(name) and name not in shown:
            yield from _member(name, member)


def _member(name: str, member: Any) -> list[str]:
    if isinstance(member, property):
        return [f"property {name}"]
    wrapped = getattr(member, "__func__", None)  # of a class method or a static one
    if wrapped is not None:
        first, *others = describe_function(name, wrapped)
        return [f"{type(member).__name__} {first}", *others]
    if inspect.isfunction(member):
        return describe_function(name, member)
    if isinstance(member, int):
        return [f"{name} = {member}"]
    return [f"attribute {name}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]


def _is_ours(one: type) -> bool:
    return _home(one).partition(".")[0] == "atomic"


def describe_function(name: str, function: Any) -> list[str]:
    """Describe a function: one line, or one for each parameter."""
    word = "async def" if inspect.iscoroutinefunction(function) else "def"
    return _signature(f"{word} {name}", function)


def _signature(head: str, value: Any) -> list[str]:
    """Return a head with the parameters of a function or class: on its line if they fit, else one a line."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a class that has no constructor in Python
        return [head]
    expanded = [one for parameter in signature.parameters.values() for one in _expanded(parameter, value)]
    parameters = [_parameter(parameter) for parameter in expanded]
    kinds = [parameter.kind for parameter in expanded]
    if Parameter.KEYWORD_ONLY in kinds and Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(Parameter.KEYWORD_ONLY), "*")
    returned = ""
    if inspect.isroutine(value) and signature.return_annotation is not inspect.Signature.empty:
        returned = f" -> {_type(signature.return_annotation)}"
    line = f"{head}({', '.join(parameters)}){returned}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{head}(", *(f"{INDENT}{parameter}," for parameter in parameters), f"){returned}"]


def _expanded(parameter: Parameter, function: Any) -> list[Parameter]:
    """Return the options that stand behind `**options: Unpack[Options]`; any other parameter as it is."""
    if parameter.kind is not Parameter.VAR_KEYWORD or "Unpack[" not in str(parameter.annotation):
        return [parameter]
    [options] = get_args(eval(parameter.annotation, function.__globals__))
    types: dict[str, Any] = getattr(options, "__origin__", options).__annotations__
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=getattr(one, "__forward_arg__", one))
        for name, one in types.items()
    ]


def _parameter(parameter: Parameter) -> str:
    """Return a parameter as it is written in code, without the modules of its types."""
    stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    words = stars + parameter.name
    if parameter.annotation is not Parameter.empty:
        words += f": {_type(parameter.annotation)}"
    if parameter.default is not Parameter.empty:
        words += f" = {_default(parameter.default)}"
    return words


def _type(annotation: Any) -> str:
    words = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _OPTIONAL.sub(r"\1 | None", _MODULES.sub("", words))


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if value is ...:
        return "..."
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__name__
    return repr(value)
