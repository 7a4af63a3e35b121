"""The state of a run: frozen for readers, folded from updates by the engine.

During a run the state is a plain dict of values. A `State` object is made only when it
is read. `StateSpec` knows for each field how a value is checked and merged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import (
    Annotated,
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import StructMeta

from atomic.base.errors import did_you_mean
from atomic.graph.engine import reducers
from atomic.graph.engine.errors import StateError
from atomic.graph.engine.reducers import ReducerFunction

Values = dict[str, Any]
FieldsP = ParamSpec("FieldsP")


def _copier(default: Any) -> Callable[[], Any]:
    def copied() -> Any:
        from copy import deepcopy

        return deepcopy(default)

    return copied


def _annotations_in(namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotations of a class that is being made.

    Python 3.14 keeps them as a function (PEP 649).
    """
    if sys.version_info >= (3, 14) and "__annotations__" not in namespace:
        from annotationlib import Format, call_annotate_function, get_annotate_from_class_namespace

        annotate = get_annotate_from_class_namespace(namespace)
        return {} if annotate is None else call_annotate_function(annotate, Format.FORWARDREF)
    return namespace.get("__annotations__", {})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class StateMeta(StructMeta):
    """Makes every subclass of `State` frozen and keyword-only, which msgspec does not
    inherit.

    Mutable defaults are copied for each state. msgspec does that only for empty lists
    and dicts.
    """

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> StateMeta:
        changeable: dict[str, Any] = {
            name: default
            for name, default in namespace.items()
            if isinstance(default, (msgspec.Struct, list, dict, set)) and default
        }
        fields: Mapping[str, Any] = _annotations_in(namespace) if changeable else {}
        for field in changeable.keys() & fields.keys():
            namespace[field] = msgspec.field(default_factory=_copier(changeable[field]))
        config["frozen"] = config["kw_only"] = True
        config["eq"] = False
        return super().__new__(mcls, name, bases, namespace, **config)


class State(msgspec.Struct, metaclass=StateMeta):
    """The data that a workflow's nodes share. Subclass it and add fields.

    `last_updated` is the time of the last finished step (ISO 8601, UTC). Comparisons
    ignore it.
    """

    execution_id: str = ""
    last_updated: str = ""
    outputs: Annotated[dict[str, Any], reducers.merge_latest_last] = {}

    @classmethod
    def update(cls: Callable[FieldsP, Any], *args: FieldsP.args, **fields: FieldsP.kwargs) -> dict[str, Any]:
        """Return an update of these fields, whose names and types a type checker sees.

        Fields without a default must all be given; else write a dict.
        """
        names = cast("type[State]", cls).__struct_fields__
        for name in fields:
            if name not in names:
                state = cast("type[State]", cls).__name__
                raise StateError(name, f"{state} has no such field{did_you_mean(name, names)}")
        if args:
            raise StateError("", "an update has named fields only")
        return dict(fields)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = [name for name in self.__struct_fields__ if name != "last_updated"]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __ne__(self, other: object) -> bool:
        """Negate `==`, because msgspec defines `!=` differently."""
        is_equal = self.__eq__(other)
        return is_equal if is_equal is NotImplemented else not is_equal


class Overwrite:
    """A value in an update that replaces a field, also one with a reducer."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Overwrite) and other.value == self.value

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # like the list that it usually holds

    def __repr__(self) -> str:
        return f"Overwrite({self.value!r})"


_OVERWRITTEN = "="  # after a field's name in a recorded update: the value replaces the field

RESERVED = frozenset({"execution_id", "last_updated"})
StateT = TypeVar("StateT", bound=State)

_decode_raw = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder(enc_hook=lambda value: _plain(value)).encode
_encode_sorted = msgspec.msgpack.Encoder(enc_hook=lambda value: _plain(value), order="deterministic").encode


def _plain(value: Any) -> Any:
    """Return data for common kinds of objects that msgspec does not know."""
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if hasattr(value, "model_dump"):  # pydantic
        return _model_data(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be recorded; return plain data or a msgspec Struct")


def _model_data(model: Any) -> Any:
    """Return the data of a pydantic model, from which the same model can be made.

    Raise TypeError if there is none.
    """
    kind: Any = type(model)  # pyright: ignore[reportUnknownVariableType]  # pydantic may not be installed
    for by_alias in (True, False):
        data = model.model_dump(by_alias=by_alias, round_trip=True)
        try:
            if kind.model_validate(data) == model:
                return data
        except ValueError:  # aliases that it writes, but does not read
            continue
    raise TypeError(
        f"{kind.__name__} cannot be made again from its model_dump(): look at its aliases, excluded fields and"
        " validators, or return plain data"
    )


def encode_value(value: Any, path: str, *, is_sorted: bool = False) -> bytes:
    """Encode a value like the journal.

    With `is_sorted` equal sets and mappings have the same form. Raise StateError with the
    path of the wrong part.
    """
    try:
        return _encode_sorted(value) if is_sorted else _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        where, reason = _find_culprit(value, path, 0) or (path, error)
        raise StateError(where, _reason_of(reason)) from error


def encode_changes(update: Values | None) -> bytes:
    """Encode an update of a state. Raise StateError."""
    update = update or {}
    for value in update.values():
        if type(value) is Overwrite:
            return encode_value(_marked(update), "update")
    return encode_value(update, "update")


def _marked(update: Values) -> Values:
    return {
        f"{name}{_OVERWRITTEN}" if type(value) is Overwrite else name: value.value
        if type(value) is Overwrite
        else value
        for name, value in update.items()
    }


def decode_changes(data: bytes | msgspec.Raw) -> Values:
    """Return a recorded update as plain data, without a state class."""
    update: Values = msgspec.msgpack.decode(data)
    return {
        name.removesuffix(_OVERWRITTEN): Overwrite(value) if name.endswith(_OVERWRITTEN) else value
        for name, value in update.items()
    }


def _reason_of(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "text with a lone surrogate cannot be recorded"
    if isinstance(error, RecursionError):
        return "data nested too deeply to be recorded"
    if "`order`" in str(error):  # of msgspec's encoder, which sorts the keys
        return "the keys of a dict are texts here, and one is not"
    return str(error)


def _find_culprit(value: Any, path: str, depth: int) -> tuple[str, Exception] | None:
    """Return the part of a value that cannot be encoded, after the whole has failed."""
    if depth > 50:
        return None
    parts: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        parts = [(f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]", item) for key, item in items]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{path}[{index}]", item) for index, item in enumerate(cast("list[Any]", value))]
    elif isinstance(value, msgspec.Struct):
        parts = [(f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__]
    for part_path, part in parts:
        try:
            _encode(part)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return _find_culprit(part, part_path, depth + 1) or (part_path, error)
    return None


_LEAST_INT = -(2**63)  # of what needs no conversion
_MOST_INT = 2**63 - 1


def _constrained(extras: tuple[Any, ...]) -> bool:
    """Return whether msgspec has to check more than the type."""
    return any(isinstance(extra, msgspec.Meta) for extra in extras)


def _on_a_copy(reducer: ReducerFunction) -> ReducerFunction:
    """Call an author's reducer with a copy, because it may change its argument."""

    def reduce(current: Any, update: Any) -> Any:
        return reducer(current.copy() if type(current) in (list, dict, set) else current, update)

    return reduce


class FieldSpec:
    """How one field checks and merges values."""

    __slots__ = ("_decode", "_own", "extend", "extends", "name", "path", "plain", "reduce", "reducer", "scalar")

    def __init__(self, name: str, annotation: Any, prefix: str = "") -> None:
        extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        self.name = name
        self.path = prefix + name
        if (model := pydantic_model_in(annotation)) is not None:
            reason = f"{model} is a pydantic model; use a msgspec.Struct or a dataclass, or dict and model_dump()"
            raise StateError(self.path, reason)
        try:
            self.reducer: ReducerFunction = reducers.reducer_in(extras)
        except ValueError as error:
            raise StateError(self.path, str(error)) from error
        named = self.reducer if isinstance(self.reducer, reducers.Reducer) else None
        self._own = named.function if named else _on_a_copy(self.reducer)
        self.extends = None
        self.extend = None
        self.reduce: ReducerFunction | None = self._reduce_checked
        if self.reducer is reducers.replace:
            self.reduce = None
        elif named is not None and not _constrained(extras):
            # The result of our own reducers has the type of its arguments, but may
            # exceed its limits.
            self.extends = named.extends
            self.extend = named.extend
            self.reduce = named.function
        takes_none = named is not None and named.takes_none
        plain = get_args(annotation)[0] if extras else annotation
        self.scalar = plain if plain in (int, float, bool) and not _constrained(extras) else None
        self.plain = self.scalar if self.reduce is None else None
        self._decode = msgspec.msgpack.Decoder(annotation | None if takes_none else annotation).decode

    def convert(self, value: Any) -> Any:
        """Return the value as a resume would read it.

        Raise StateError with the wrong path.
        """
        return self.decode(encode_value(value, self.path))

    def _reduce_checked(self, current: Any, update: Any) -> Any:
        """Reduce and check the result like an update. Raise StateError."""
        result = self._own(current, update)
        try:
            return self.convert(result)
        except StateError as error:
            name = reducers.name_of(self.reducer).removeprefix("custom:")
            reason = f"reducer {name} returned {result!r:.60}: {error.reason}"
            raise StateError(error.path, reason) from error

    def extends_like(self, other: FieldSpec) -> bool:
        """Return whether both fields have the same built-in, associative reducer."""
        return isinstance(self.reducer, reducers.Reducer) and reducers.name_of(self.reducer) == reducers.name_of(
            other.reducer
        )

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        try:
            return self._decode(data)
        except msgspec.ValidationError as error:
            # `Expected X, got Y - at $[0].a` becomes `path[0].a: Expected X, got Y`.
            reason, _, where = str(error).partition(" - at ")
            raise StateError(self.path + where.strip("`").removeprefix("$"), reason) from error


def _measure_owned() -> int:
    holder: Values = {"field": []}
    current = holder["field"]
    return sys.getrefcount(current)


# The reference count of a value that only the engine's dict and one local variable
# hold.
# Without CPython's counts, or with free threading, no value counts as unshared.
_OWNED = (
    _measure_owned() if sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)() else -1
)


class StateSpec(Generic[StateT]):
    """Facts about a State class, computed once."""

    __slots__ = ("_identities", "_stamp", "_stamp_time", "_writable", "fields", "overwrites", "replaced", "state_type")

    def __init__(self, state_type: type[StateT]) -> None:
        self.state_type = state_type
        try:
            hints = get_type_hints(state_type, include_extras=True)
        except (NameError, TypeError) as error:
            raise StateError(state_type.__name__, f"its annotations cannot be read: {error}") from error
        for name, hint in _base_hints().items():
            if hints[name] != hint:
                own = state_type.__name__
                raise StateError(
                    name, f"{own} declares it, but every state already has it; give the field another name"
                )
        self.fields = {name: FieldSpec(name, hints[name]) for name in state_type.__struct_fields__}
        self._writable = {name: field for name, field in self.fields.items() if name not in RESERVED}
        self.replaced = frozenset(name for name, field in self.fields.items() if field.reduce is None)
        self.overwrites = False  # whether any update so far has overwritten a field past its reducer
        self._stamp = ""
        self._stamp_time = -1
        self._identities: dict[str, str] | None = None

    def start(self, given: Mapping[str, Any] | State | None, execution_id: str) -> Values:
        """Return the values of a first state. Raise StateError."""
        values: dict[str, Any] = {}
        if isinstance(given, State):
            given = {name: getattr(given, name) for name in given.__struct_fields__}
        for name, value in (given or {}).items():
            values[name] = self._field(name).convert(value.value if type(value) is Overwrite else value)
        values["execution_id"] = execution_id
        values["last_updated"] = ""
        try:
            state = self.state_type(**values)
        except TypeError as error:
            raise StateError(self.state_type.__name__, str(error)) from error
        return {name: getattr(state, name) for name in self.fields}

    def _field(self, name: str) -> FieldSpec:
        field = self.fields.get(name)
        if field is None:
            hint = did_you_mean(name, self.fields, otherwise=f"it has {', '.join(self.fields)}")
            raise StateError(name, f"{self.state_type.__name__} has no such field{hint}")
        return field

    def convert(self, update: Mapping[str, Any]) -> Values:
        """Check an update field by field. Raise StateError; nothing is changed."""
        result: Values = {}
        fields = self._writable
        try:
            items = update.items()
        except AttributeError:
            raise StateError("", f"an update is a mapping of fields to values, not {update!r:.60}") from None
        for name, value in items:
            field = fields.get(name)
            if field is None:
                self._field(name)
                raise StateError(name, "is set by the engine; a node cannot write it")
            if type(value) is field.scalar and _LEAST_INT <= value <= _MOST_INT:
                result[name] = value  # numbers need no conversion; everything else goes through the codec
            elif type(value) is Overwrite:
                result[name] = self._overwriting(field, field.convert(value.value))
            else:
                result[name] = field.convert(value)
        return result

    def _overwriting(self, field: FieldSpec, value: Any) -> Any:
        """Return a value that replaces a field. A field without a reducer needs no mark."""
        if field.reduce is None:
            return value
        self.overwrites = True
        return Overwrite(value)

    def unreduced(self, trails: Iterable[Sequence[Any]]) -> frozenset[str]:
        """Return the fields that only one of several branches may write."""
        if not self.overwrites:
            return self.replaced
        entries = [entry for trail in trails for entry in trail]
        return self.replaced.union(
            name for entry in entries for name, value in entry.update.items() if type(value) is Overwrite
        )

    def fold(self, values: Values, update: Values) -> Values:
        """Check an update and merge it into values. Return it as it was checked.

        Raise StateError; then nothing is changed.
        """
        if len(update) == 1:  # a number that replaces another needs no conversion and no reducer
            for name, value in update.items():
                field = self.fields.get(name)
                if field is not None and type(value) is field.plain and _LEAST_INT <= value <= _MOST_INT:
                    values[name] = value
                    return {name: value}
        checked = self.convert(update)
        if checked:
            self.apply(values, checked)
        return checked

    def apply(self, values: Values, update: Values) -> None:
        """Merge a checked update into values completely or not at all.

        Raise StateError if a reducer fails.
        """
        if len(update) == 1:  # the most frequent case by far
            for name, value in update.items():
                field = self.fields[name]
                if field.reduce is None:
                    values[name] = value
                    return
                current = values[name]
                if type(current) is field.extends is type(value) and sys.getrefcount(current) <= _OWNED:
                    field.extend(current, value)  # pyright: ignore[reportOptionalCall]  # it extends that type
                    return
                if type(value) is Overwrite:
                    values[name] = value.value
                    return
                try:
                    values[name] = field.reduce(current, value)
                except StateError:
                    raise
                except Exception as error:  # a user's function: whatever it raises is this field's failure
                    raise reducer_error(field, error) from error
            return
        self._apply_several(values, update)

    def _apply_several(self, values: Values, update: Values) -> None:
        merged: Values = {}
        in_place: list[tuple[FieldSpec, Any, Any]] = []
        for name, value in update.items():
            field = self.fields[name]
            current = values[name]
            if type(current) is field.extends is type(value) and sys.getrefcount(current) <= _OWNED:
                in_place.append((field, current, value))
                continue
            if type(value) is Overwrite:
                merged[name] = value.value
                continue
            try:
                merged[name] = value if field.reduce is None else field.reduce(current, value)
            except StateError:
                raise
            except Exception as error:  # a user's function: whatever it raises is this field's failure
                raise reducer_error(field, error) from error
        for field, current, value in in_place:  # these cannot fail, so the update is atomic
            field.extend(current, value)  # pyright: ignore[reportOptionalCall]  # it extends that type
        values.update(merged)

    def build(self, values: Values, updated: float) -> StateT:
        """Return a state object, which never changes afterwards."""
        stamp = int(updated * 1000)  # many steps take less than a millisecond and share this text
        if stamp != self._stamp_time:
            self._stamp_time = stamp
            self._stamp = ""  # before the first step
            if stamp:
                moment = datetime.fromtimestamp(stamp / 1000, UTC)
                self._stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values["last_updated"] = self._stamp
        return self.state_type(**values)

    def reducer_identities(self) -> dict[str, str]:
        """Return the reducer of each field as the journal records it."""
        if self._identities is None:
            self._identities = {name: reducers.identity_of(field.reducer) for name, field in self.fields.items()}
        return self._identities

    def own_reducers(self) -> list[str]:
        """Return the fields whose reducer is an author's function."""
        return [name for name, field in self.fields.items() if not isinstance(field.reducer, reducers.Reducer)]

    def decode_update(self, data: bytes | msgspec.Raw) -> Values:
        """Return a recorded update.

        Raise StateError if it does not fit the State class.
        """
        result: Values = {}
        for name, raw in _decode_raw(data).items():
            field = self.fields.get(name)
            if field is not None:
                result[name] = field.decode(raw)
            elif name.endswith(_OVERWRITTEN):
                field = self._field(name.removesuffix(_OVERWRITTEN))
                result[field.name] = self._overwriting(field, field.decode(raw))
            else:
                self._field(name)
        return result


@cache
def _base_hints() -> dict[str, Any]:
    return get_type_hints(State, include_extras=True)


def pydantic_model_in(annotation: Any) -> str | None:
    """Return the name of a pydantic model in a type, or None."""
    if isinstance(annotation, type) and hasattr(annotation, "model_validate") and hasattr(annotation, "model_fields"):
        return annotation.__name__
    return next((name for part in get_args(annotation) if (name := pydantic_model_in(part)) is not None), None)


def reducer_error(field: FieldSpec, error: Exception) -> StateError:
    return StateError(field.name, f"reducer {reducers.name_of(field.reducer)} raised {describe_error(error)}")


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception in one line."""
    try:
        text = str(error)
    except Exception:  # a user's class whose __str__ fails
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
