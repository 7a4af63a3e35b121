"""How an update of a field meets the value that is there.

A reducer is any function `(current, update) -> new`. Those here have a name, which goes into the journal,
so that a run recorded by older code can be folded without that code. `extend` is the same reducer for a
value that nobody else can see: it works in place, which keeps a step's cost independent of what is there,
and it must not be able to fail.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

from atomic.errors import closest

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
        self.name, self.function, self.takes_none = name, reduce, takes_none
        self.extends, self.extend = extends, extend

    def __call__(self, current: Any, update: Any) -> Any:
        return self.function(current, update)

    def __repr__(self) -> str:
        return f"reducers.{self.name}"


def merge_by_id(field: str) -> Reducer:
    """Items with the same `field` are one: dicts are merged, Structs replaced in place, new ones appended."""

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


def _extend_list(current: list[Any], update: list[Any]) -> None:
    current.extend(update)


def _update_dict(current: dict[Any, Any], update: dict[Any, Any]) -> None:
    current.update(update)


def _keep_defined(current: Any, update: Any) -> Any:
    return current if update is None else update


def _merge(current: dict[Any, Any], update: dict[Any, Any]) -> dict[Any, Any]:
    return {**current, **update}


replace = Reducer("replace", lambda current, update: update)
concat = Reducer("concat", operator.add, extends=list, extend=_extend_list)
merge = Reducer("merge", _merge, extends=dict, extend=_update_dict)
max = Reducer("max", builtins.max)
min = Reducer("min", builtins.min)
sum = Reducer("sum", operator.add)
or_ = Reducer("or_", lambda current, update: current or update)
and_ = Reducer("and_", lambda current, update: current and update)
if_defined = Reducer("if_defined", _keep_defined, takes_none=True)

_NAMED = {item.name: item for item in (replace, concat, merge, max, min, sum, or_, and_, if_defined)}


def find_reducer(name: str) -> Reducer | None:
    """The reducer of that name, or None for one that only its author has."""
    kind, _, field = name.partition(":")
    return merge_by_id(field) if kind == "merge_by_id" and field else _NAMED.get(name)


def name_of(reducer: ReducerFunction) -> str:
    """What messages call a reducer; a user's own function is `custom:<its name>`."""
    return reducer.name if isinstance(reducer, Reducer) else f"custom:{getattr(reducer, '__name__', 'reducer')}"


def identity_of(reducer: ReducerFunction) -> str:
    """What the journal writes for a reducer: its name and, of a user's own function, a fingerprint of its code."""
    name = name_of(reducer)
    if isinstance(reducer, Reducer):
        return name
    from atomic.graph.fingerprints import of_function  # few states have a reducer of their own

    return f"{name}@{of_function(reducer)}"


def is_same(recorded: str, current: str) -> bool:
    """Whether a recorded identity is that of today's reducer, as far as this can be told.

    Fingerprints of two Python versions cannot be compared, and older journals have none: then the name decides.
    """
    old_name, _, old_code = recorded.partition("@")
    new_name, _, new_code = current.partition("@")
    if old_code.partition(":")[0] == new_code.partition(":")[0]:
        return old_code == new_code and (old_name == new_name or bool(old_code))
    return old_name == new_name


def reducer_in(annotation_metadata: tuple[Any, ...]) -> ReducerFunction:
    """The reducer among an `Annotated` field's extras; `replace` where there is none.

    Raises ValueError for an extra that is meant as a reducer and cannot be one.
    """
    found: ReducerFunction | None = None
    for extra in annotation_metadata:
        if isinstance(extra, Reducer):
            reducer = extra
        elif callable(extra):
            reducer = _checked(extra)
        else:
            if isinstance(extra, str):
                _check_text(extra)
            continue
        if found is not None:
            raise ValueError(f"it has two reducers, {name_of(found)} and {name_of(reducer)}; give one")
        found = reducer
    return found or replace


def _checked(function: Any) -> ReducerFunction:
    """A function of an author's that can be called as a reducer. Raises ValueError."""
    from inspect import iscoroutinefunction, signature

    if isinstance(function, type):
        raise ValueError(f"{function.__name__} is a type, no reducer; give a function (current, update) -> new")
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
    except ValueError:  # some built-in functions tell nothing
        pass
    return function


def _check_text(text: str) -> None:
    """A text may be a remark; one that is a reducer's name is a mistake. Raises ValueError."""
    near = closest(text.removeprefix("reducers."), [*_NAMED, "merge_by_id"]) if len(text) < 30 else None
    if near is not None:
        raise ValueError(f'"{text}" is a text, no reducer; write reducers.{near}')
