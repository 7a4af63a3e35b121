"""A checksum of a function's code, to detect that it changed."""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Iterator, Sequence, Set
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

_HAS_DOCSTRING = 0x4000000  # inspect.CO_HAS_DOCSTRING, from Python 3.14 on
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def of_function(function: Any) -> str:
    """Return the Python version and a checksum of the function.

    The checksum covers code, constants, defaults and helpers of its own module, but not
    comments, docstrings, line numbers and names of local variables. Byte code differs
    between Python versions, so fingerprints of different versions cannot be compared.
    """
    text = "\n".join(_parts(function, set()))
    return f"{sys.version_info.major}.{sys.version_info.minor}:{zlib.crc32(text.encode('utf-8', 'replace')):08x}"


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield the parts of a value as texts that are equal in every process."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (tuple, list)):
        items = cast("Sequence[Any]", value)
        yield f"sequence of {len(items)}"
        for item in items:
            yield from _parts(item, seen)
    elif isinstance(value, (set, frozenset)):
        yield f"set {sorted(chr(10).join(_parts(item, seen)) for item in cast('Set[Any]', value))}"
    elif isinstance(value, dict):
        yield f"dict {sorted(chr(10).join(_parts(item, seen)) for item in cast('dict[Any, Any]', value).items())}"
    elif id(value) in seen:
        yield "again"
    else:
        seen.add(id(value))
        yield from _object_parts(value, seen)


def _object_parts(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, functools.partial):
        yield from _parts((value.func, value.args, value.keywords), seen)
    elif isinstance(value, MethodType):
        yield from _parts((value.__func__, type(value.__self__).__qualname__), seen)
    elif isinstance(value, FunctionType):
        yield from _function_parts(value, seen)
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        yield from _parts((value.co_names, _constants(value)), seen)
    elif isinstance(call := getattr(cast("Any", type(value)), "__call__", None), FunctionType):  # noqa: B004  # its code
        yield type(value).__qualname__
        yield from _parts((call, getattr(value, "__dict__", {})), seen)
    else:
        yield getattr(value, "__qualname__", type(value).__qualname__)


def _function_parts(function: FunctionType, seen: set[int]) -> Iterator[str]:
    code = function.__code__
    yield from _parts((code, function.__defaults__, function.__kwdefaults__), seen)
    for cell in function.__closure__ or ():
        try:
            yield from _parts(cell.cell_contents, seen)
        except ValueError:  # it has not been filled yet
            yield "empty"
    for name in code.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, _PLAIN) or (isinstance(used, FunctionType) and used.__module__ == function.__module__):
            yield name
            yield from _parts(used, seen)


def _constants(code: CodeType) -> tuple[Any, ...]:
    """The constants without a docstring."""
    constants = code.co_consts
    if sys.version_info >= (3, 14):
        has_docstring = bool(code.co_flags & _HAS_DOCSTRING)
    else:  # a text that comes first is one; comprehensions, which have none, may have any text there
        has_docstring = bool(constants) and isinstance(constants[0], str) and not code.co_name.startswith("<")
    return (None, *constants[1:]) if has_docstring else constants  # without one, None has its place
