"""Functions of a workflow's author that take the state, and the item of a map if they ask for it.

`lambda state: …` gets the state. `lambda state, item: …` gets the item, too. The signature
decides, and it is read once: when the node is made, not at each call. A second parameter
with a default is not filled, so that `lambda state, name=name: …` keeps its value.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, signature
from typing import Any


class OfItem:
    """A function whose last argument is the item of the map or task loop around its node."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def call(function: Any, *given: Any, item: Any) -> Any:
    """Call an author's function with the state and what comes before it, and the item if it takes it."""
    return function.function(*given, item) if type(function) is OfItem else function(*given)


def value_of(given: Any, state: Any, item: Any) -> Any:
    """Return a value that an author gives directly or as a function."""
    if type(given) is OfItem or callable(given):
        return call(given, state, item=item)
    return given


class AuthorFunctions:
    """The functions that one node was made with: what is wrong with them, and which take the item."""

    def __init__(self, *problems: str) -> None:
        self._problems = list(problems)
        self._of_item: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    @property
    def of_item(self) -> tuple[str, ...]:
        return tuple(self._of_item)

    def read(self, name: str, given: Any, *, first: str = "") -> Any:
        """Return a value as it is, and a function as the engine calls it.

        `first` names the argument before the state, if there is one.
        """
        if not callable(given):
            return given
        if is_async(given):
            self._problems.append(f"{name} must be a plain function; it is async")
            return given
        plain = ("state",) if not first else (first, "state")
        if takes(given, len(plain)):
            return given
        if takes(given, len(plain) + 1):
            self._of_item.append(name)
            return OfItem(given)
        words = ", ".join(plain)
        self._problems.append(f"{name} takes ({words}) or ({words}, item), not {parameters_of(given)}")
        return given

    def require(self, name: str, given: Any, *, first: str = "") -> Any:
        """Return a function as the engine calls it. Any other value is a problem."""
        if not callable(given):
            self._problems.append(f"{name} must be a function, not {given!r:.60}")
        return self.read(name, given, first=first)


def is_async(function: Any) -> bool:
    """Return whether a call of this function must be awaited."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def takes(function: Any, count: int) -> bool:
    """Return whether a function can be called with this many arguments."""
    if not callable(function):
        return False
    try:
        signature(function).bind(*(None,) * count)
    except TypeError:
        return False
    except ValueError:  # some built-in functions have no signature
        return True
    return True


def parameters_of(function: Any) -> str:
    return str(signature(function).replace(return_annotation=signature(function).empty))
