"""Reducers: how an update of a field is combined with its value.

A reducer is any function `(current, update) -> new`. The reducers here have a name,
which goes into the journal, so that newer code can fold older runs. `extend` is the
same reducer for a value that only the engine holds. It works in place, so that the cost
of a step does not depend on the size of the value, and it must not be able to fail.
"""

from __future__ import annotations

import builtins
import functools
import operator
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

from atomic.base.errors import closest

ReducerFunction = Callable[[Any, Any], Any]


class Reducer:
    """A reducer that the journal can name."""

    __slots__ = ("extend", "extends", "function", "name", "takes_none")

    def __init__(
        self,
        name: str,
        reduce: ReducerFunction,
        *,
        extends: type | None = None,
        extend: Callable[[Any, Any], None] | None = None,
        takes_none: bool = False,
    ) -> None:
        self.name = name
        self.function = reduce
        self.takes_none = takes_none
        self.extends = extends
        self.extend = extend

    def __call__(self, current: Any, update: Any) -> Any:
        return self.function(current, update)

    def __repr__(self) -> str:
        return f"reducers.{self.name}"


def merge_by_id(field: str) -> Reducer:
    """Return a reducer for lists whose items are identified by `field`.

    It merges dicts with the same id, replaces Structs in place, and appends new items.
    """

    def key_of(item: Any) -> Any:
        return cast("Mapping[str, Any]", item)[field] if isinstance(item, Mapping) else getattr(item, field)

    def reduce(current: list[Any], update: list[Any]) -> list[Any]:
        result = list(current)
        places = {key_of(item): place for place, item in enumerate(result)}
        for item in update:
            place = places.setdefault(key_of(item), len(result))
            if place == len(result):
                result.append(item)
            elif isinstance(item, Mapping):
                result[place] = {**result[place], **item}
            else:
                result[place] = item
        return result

    return Reducer(f"merge_by_id:{field}", reduce)


replace = Reducer("replace", lambda current, update: update)
concat = Reducer("concat", operator.add, extends=list, extend=lambda current, update: current.extend(update))
merge = Reducer(
    "merge",
    lambda current, update: {**current, **update},
    extends=dict,
    extend=lambda current, update: current.update(update),
)
max = Reducer("max", builtins.max)
min = Reducer("min", builtins.min)
sum = Reducer("sum", operator.add)
or_ = Reducer("or_", lambda current, update: current or update)
and_ = Reducer("and_", lambda current, update: current and update)
if_defined = Reducer("if_defined", lambda current, update: current if update is None else update, takes_none=True)

_NAMED = {item.name: item for item in (replace, concat, merge, max, min, sum, or_, and_, if_defined)}


def _merge_latest_last(current: dict[Any, Any], update: dict[Any, Any]) -> dict[Any, Any]:
    return {**{key: value for key, value in current.items() if key not in update}, **update}


def _extend_latest_last(current: dict[Any, Any], update: dict[Any, Any]) -> None:
    for key in update:
        current.pop(key, None)
    current.update(update)


# As `merge`, and the keys of the last update come last: the last output of a run.
merge_latest_last = Reducer("merge", _merge_latest_last, extends=dict, extend=_extend_latest_last)


def find_reducer(name: str) -> Reducer | None:
    """Return the reducer with that name, or None for an author's own."""
    kind, _, field = name.partition(":")
    return merge_by_id(field) if kind == "merge_by_id" and field else _NAMED.get(name)


def name_of(reducer: ReducerFunction) -> str:
    """Return the name of a reducer for messages.

    An author's own is `custom:<its name>`.
    """
    return reducer.name if isinstance(reducer, Reducer) else f"custom:{getattr(reducer, '__name__', 'reducer')}"


def identity_of(reducer: ReducerFunction) -> str:
    """Return the identity of a reducer for the journal.

    This is its name and, for an author's own function, a fingerprint of its code.
    """
    name = name_of(reducer)
    if isinstance(reducer, Reducer):
        return name

    return f"{name}@{_fingerprint_of(reducer)}"


def is_same(recorded: str, current: str) -> bool:
    """Return whether a recorded identity matches the current reducer, as far as known.

    Fingerprints of different Python versions cannot be compared, and older journals
    have none. Then the name decides.
    """
    old_name, _, old_code = recorded.partition("@")
    new_name, _, new_code = current.partition("@")
    if old_code.partition(":")[0] == new_code.partition(":")[0]:
        return old_code == new_code and (old_name == new_name or bool(old_code))
    return old_name == new_name


def reducer_in(annotation_metadata: tuple[Any, ...]) -> ReducerFunction:
    """Return the reducer in the metadata of an `Annotated` field, or `replace`.

    Raise ValueError for metadata that is meant as a reducer but cannot be one.
    """
    found: ReducerFunction | None = None
    for extra in annotation_metadata:
        if isinstance(extra, Reducer):
            reducer = extra
        elif callable(extra):
            reducer = _checked(extra)
        else:
            # A text that is the name of a reducer is a mistake; other texts are remarks.
            if isinstance(extra, str) and len(extra) < 30:
                near = closest(extra.removeprefix("reducers."), [*_NAMED, "merge_by_id"])
                if near is not None:
                    raise ValueError(f'"{extra}" is a text, not a reducer; write reducers.{near}')
            continue
        if found is not None:
            raise ValueError(f"it has two reducers, {name_of(found)} and {name_of(reducer)}; give one")
        found = reducer
    return found or replace


def _checked(function: Any) -> ReducerFunction:
    """Return an author's function if it can be a reducer. Raise ValueError."""
    from inspect import iscoroutinefunction, signature

    if isinstance(function, type):
        raise ValueError(f"{function.__name__} is a type, not a reducer; give a function (current, update) -> new")
    if function is merge_by_id:
        raise ValueError('reducers.merge_by_id needs the name of the id: merge_by_id("id")')
    if iscoroutinefunction(function):
        raise ValueError(f"its reducer {name_of(function)} is async; give a plain function (current, update) -> new")
    try:
        signature(function).bind(None, None)
    except TypeError:
        raise ValueError(
            f"its reducer {name_of(function)} does not take two arguments; give a function (current, update) -> new"
        ) from None
    except ValueError:  # some built-in functions have no signature
        pass
    return function


_HAS_DOCSTRING = 0x4000000  # inspect.CO_HAS_DOCSTRING, from Python 3.14 on
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def _fingerprint_of(function: Any) -> str:
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
    """Return the constants without a docstring."""
    constants = code.co_consts
    if sys.version_info >= (3, 14):
        has_docstring = bool(code.co_flags & _HAS_DOCSTRING)
    else:  # a text that comes first is one; comprehensions, which have none, may have any text there
        has_docstring = bool(constants) and isinstance(constants[0], str) and not code.co_name.startswith("<")
    return (None, *constants[1:]) if has_docstring else constants  # without one, None has its place
