"""Arguments, results and exceptions of steps, as the journal keeps them.

A workflow function must see the same values in a live run and after a resume. So a
result is encoded and read again before the function gets it, and an exception that
cannot be made again from its record is raised as a `StepError` in the first place.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature, signature
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.control import Blocked, Failed
from atomic.graph.engine.errors import StateError, StepError
from atomic.graph.engine.state import describe_error, encode_value, pydantic_model_in

_MAX_SHOWN = 60  # characters of a step's arguments in a message
_MAX_INT = 2**63
_EXACT = (str, int, float, bool, type(None))  # values of these types are read as they were

_decode_plain = msgspec.msgpack.Decoder().decode


def plain_data(value: Any) -> Any:
    """Return a value that was converted before as the journal keeps it."""
    return _decode_plain(encode_value(value, ""))


class ResultType:
    """How results of one type are checked, and read again."""

    def __init__(self, annotation: Any, owner: str) -> None:
        self._owner = owner
        self.exact: Any = annotation if annotation in _EXACT else None
        if annotation is None:
            self.exact = type(None)
        self._is_any = annotation in (Any, object, Signature.empty)
        self._read = _reader_of(annotation, owner)

    def convert(self, value: Any) -> tuple[Any, bytes]:
        """Return a result as a resume will read it, and its encoded form.

        Raise AtomicError if it does not fit, or cannot be recorded.
        """
        packed = self.pack(value)
        if self._is_any:
            plain = _decode_plain(packed)
            if plain != value and encode_value(plain, "result") != packed:  # NaN is not equal to itself
                raise AtomicError(
                    f"{self._owner} returned {value!r:.60}, which a resume would read as {plain!r:.60}; "
                    "annotate the type that it returns"
                )
            return plain, packed
        return self.read(packed), packed

    def pack(self, value: Any) -> bytes:
        """Return the encoded form of a result. Raise AtomicError."""
        try:
            return encode_value(value, "result")
        except StateError as error:
            raise AtomicError(f"{self._owner}: {error}") from error

    def read(self, packed: bytes | msgspec.Raw) -> Any:
        """Return a recorded result. Raise AtomicError if it does not fit the type."""
        try:
            return self._read(packed)
        except msgspec.ValidationError as error:
            raise AtomicError(f"{self._owner}: its result does not fit its annotation: {error}") from error
        except ValueError as error:  # pydantic's
            reason = " ".join(str(error).split())
            raise AtomicError(f"{self._owner}: its result does not fit its annotation: {reason}") from error

    def is_exact(self, value: Any) -> bool:
        """Return whether a value needs no conversion."""
        if self.exact is None or type(value) is not self.exact:
            return False
        if self.exact is int:
            return -_MAX_INT <= value < _MAX_INT
        return self.exact is not str or value.isascii()


def _reader_of(annotation: Any, owner: str) -> Callable[[bytes | msgspec.Raw], Any]:
    if annotation in (Any, object, Signature.empty):
        return _decode_plain
    if pydantic_model_in(annotation) is not None:
        from pydantic import TypeAdapter  # the user's own: Atomic does not depend on it

        adapter: Any = TypeAdapter(annotation)
        return lambda packed: adapter.validate_python(_decode_plain(packed))
    try:
        return msgspec.msgpack.Decoder(annotation).decode
    except TypeError as error:
        raise AtomicError(f"{owner}: results of type {annotation!r} cannot be recorded: {error}") from error


class FunctionType:
    """The parameters and the result of an author's function.

    Annotations are read when they are first needed, so that they may name classes that
    the module defines later.
    """

    def __init__(self, function: Callable[..., Any], owner: str, *, skip: int = 0) -> None:
        self.owner = owner
        self._function = function
        parameters = list(signature(function).parameters.values())[skip:]
        self.parameters = {one.name: one for one in parameters}
        self._signature = Signature(parameters)
        self.counts = _counts_of(parameters)  # how many arguments without a name fit
        self._result: ResultType | None = None
        self._inputs: dict[str, ResultType] | None = None

    @property
    def result(self) -> ResultType:
        """Return the type of the function's results, without `Failed` and `Blocked`."""
        if self._result is None:
            self._result = ResultType(_without_ends(self._hints().get("return", Any)), self.owner)
        return self._result

    def _hints(self) -> Mapping[str, Any]:
        try:
            return get_type_hints(self._function, include_extras=True)
        except (NameError, TypeError) as error:
            raise AtomicError(
                f"{self.owner}: its annotations cannot be read: {error}; define classes at the top of the module"
            ) from error

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by parameter. Raise AtomicError."""
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise AtomicError(f"{self.owner}{self._signature}: {error}") from error

    def positional(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call in the order of the parameters, so that
        `f(1)` and `f(n=1)` are the same call, and after a gap with their names. Raise
        AtomicError.
        """
        left = self.bind(args, kwargs)
        given: list[Any] = []
        for name in self.parameters:
            if name not in left or self.parameters[name].kind is Parameter.KEYWORD_ONLY:
                break
            given.append(left.pop(name))
        return [*given, left] if left else given

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a workflow as a resume will read them.

        Raise AtomicError.
        """
        hints = self._hints()
        converted: dict[str, Any] = {}
        for name, value in arguments.items():
            owner = f"{self.owner}, {name}"
            annotation = hints.get(name, Any)
            kind = self.parameters[name].kind
            if kind is Parameter.VAR_POSITIONAL:
                annotation = list[annotation]
                value = list(value)
            elif kind is Parameter.VAR_KEYWORD:
                annotation = dict[str, annotation]
            try:
                packed = encode_value(value, name)
            except StateError as error:
                raise AtomicError(f"{self.owner}: {error}") from error
            try:
                converted[name] = _reader_of(annotation, owner)(packed)
            except (msgspec.ValidationError, ValueError) as error:
                raise AtomicError(f"{owner}: {' '.join(str(error).split())}") from error
        return converted

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as a resume will read them, with the defaults of
        the others: a resume must not get the defaults of newer code. Raise AtomicError.
        """
        bound = self.convert(self.bind(args, kwargs))
        given: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if name in bound:
                given[name] = bound[name]
            elif parameter.default is not Parameter.empty:
                try:
                    given.update(self.convert({name: parameter.default}))
                except AtomicError:  # not plain data, or not of the annotated type: it stays with the code
                    continue
        return given

    def call_with(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments by parameter as those of a call."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in arguments.items():
            kind = self.parameters[name].kind
            if kind is Parameter.VAR_POSITIONAL:
                args += value
            elif kind is Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is Parameter.POSITIONAL_ONLY:
                args.append(value)
            elif kind is Parameter.KEYWORD_ONLY or kwargs or self._has_default_before(name, arguments):
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    def _has_default_before(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether a parameter before this one has no argument."""
        for other in self.parameters:
            if other == name:
                return False
            if other not in arguments:
                return True
        return False


def _counts_of(parameters: Sequence[Parameter]) -> range:
    """Return with how many arguments a function can be called if none has a name."""
    required = [one for one in parameters if one.default is Parameter.empty]
    if any(one.kind is Parameter.KEYWORD_ONLY for one in required):
        return range(0)
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    most = sum(one.kind in by_place for one in parameters)
    if any(one.kind is Parameter.VAR_POSITIONAL for one in parameters):
        most = sys.maxsize - 1
    return range(sum(one.kind in by_place for one in required), most + 1)


def _without_ends(annotation: Any) -> Any:
    """Return a union without `Failed` and `Blocked`, which are no results."""
    ends = (Failed, Blocked)
    if annotation in ends:
        return Any
    if get_origin(annotation) is not Union and type(annotation).__name__ != "UnionType":
        return annotation
    left = [part for part in get_args(annotation) if part not in ends]
    return Union[tuple(left)] if left else Any  # noqa: UP007  # the members are only known here


def pack_arguments(owner: str, arguments: Sequence[Any]) -> bytes:
    """Return the encoded arguments of a step, the same for equal sets and mappings.

    Raise AtomicError.
    """
    try:
        return encode_value(arguments, "", is_sorted=True)
    except StateError as error:
        number, _, path = error.path.removeprefix("[").partition("]")
        where = f"argument {int(number) + 1}{path}" if number.isdigit() else "its arguments"
        raise AtomicError(f"{owner}: {where}: {error.reason}") from error


@cache
def _hasher() -> Callable[..., Any]:
    from hashlib import blake2b  # only a run with a journal needs it

    return blake2b


def hash_of(packed: bytes) -> int:
    return int.from_bytes(_hasher()(packed, digest_size=8).digest())


def shown(arguments: Sequence[Any]) -> str:
    """Return the start of a call's arguments for a message."""
    parts: list[str] = []
    left = _MAX_SHOWN
    for argument in arguments:
        text = repr(argument[:left]) if isinstance(argument, str) else _shown_value(argument)
        parts.append(text)
        left -= len(text) + 2
        if left <= 0:
            break
    return ", ".join(parts)[:_MAX_SHOWN]


def _shown_value(value: Any) -> str:
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    from reprlib import repr as short_repr  # repr() of a long list is long work

    return short_repr(value)


def raised_arguments(error: BaseException, namespace: Mapping[str, Any]) -> list[Any] | None:
    """Return the arguments with which an exception can be made again, or None."""
    if not isinstance(error, Exception) or class_of(type(error).__name__, namespace) is not type(error):
        return None
    try:
        plain: list[Any] = _decode_plain(encode_value(list(error.args), "args"))
    except StateError:
        return None
    again = made_again(type(error).__name__, plain, namespace)
    return None if again is None or describe_error(again) != describe_error(error) else plain


def class_of(kind: str, namespace: Mapping[str, Any]) -> type[Exception] | None:
    """Return the exception of that name among the names of a module and Python's own."""
    found = namespace.get(kind, getattr(builtins, kind, None))
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def made_again(kind: str, raised: list[Any] | None, namespace: Mapping[str, Any]) -> Exception | None:
    """Return a recorded exception, or None if its class is gone or takes other
    arguments.
    """
    made_of = class_of(kind, namespace)
    if made_of is None or raised is None:
        return None
    try:
        return made_of(*raised)
    except Exception:  # the author's class; whatever it raises, it cannot be made
        return None


def as_step_error(step: str, error: BaseException) -> StepError:
    """Return the exception that stands for one that cannot be made again."""
    made = StepError(step, type(error).__name__, describe_error(error))
    made.__cause__ = error
    return made
