"""Read the metadata of a workflow file from its syntax tree.

Pure: the file does not run.

Only literals count. Any other value is a problem with its line, and the default is
used.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

_NAME = re.compile(r"[\w][\w.+:-]{0,63}")
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,5}(?![\d.])", re.ASCII)
_TAKE_PARAMS = ("create_state", "check_start")  # functions that get WorkflowStateParams
_GRAPHS = frozenset({"workflow", "graph_config"})  # the names of a graph in a file
_MAX_TEXT = 2000  # characters of a description


class Remark(msgspec.Struct, frozen=True):
    """A problem of a file and its line. The file cannot be loaded if it is fatal."""

    line: int
    reason: str
    fatal: bool = False


class WrittenParameter(msgspec.Struct, frozen=True):
    """A parameter of a workflow function.

    `kind` is "text", "int", "number", "flag", "texts" or "json", by its annotation, else
    by its default. Without a literal default, `default` is None.
    """

    name: str
    kind: str
    has_default: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    is_prompt: bool = False  # the prompt of a command goes to it


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a workflow file, with defaults for missing values."""

    name: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    version: str = ""
    min_sdk_version: str = ""
    state_version: int = 1
    argument_hint: str = ""
    default_config: Mapping[str, Any] = {}
    node_descriptions: Mapping[str, str] = {}
    config_descriptions: Mapping[str, str] = {}
    parameters: tuple[WrittenParameter, ...] | None = None  # of a workflow function; None: there is none
    has_workflow: bool = False  # whether the file defines a graph or a workflow function
    remarks: tuple[Remark, ...] = ()


class WrittenTool(msgspec.Struct, frozen=True):
    """A public function with a docstring, whose first line is the description."""

    name: str
    description: str
    line: int


class SourceError(Exception):
    """The bytes are not a Python file."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"{line}: {reason}")


def read_metadata(source: bytes, stem: str) -> Metadata:
    """Return the metadata of a file. Does not raise, whatever the bytes are."""
    try:
        reading = _Reading(parse_source(source))
    except SourceError as error:
        return fallback_metadata(stem, Remark(error.line, error.reason, fatal=True))
    return reading.metadata(stem if is_name(stem) else "")


def fallback_metadata(stem: str, remark: Remark) -> Metadata:
    """Return the metadata of a file that cannot be read."""
    name = stem if is_name(stem) else ""
    return Metadata(name=name, description=f"Custom workflow: {name}", remarks=(remark,))


def read_tools(source: bytes) -> list[WrittenTool] | Remark:
    """Return the tools that a file defines, or the reason why it cannot be read."""
    try:
        tree = parse_source(source)
    except SourceError as error:
        return Remark(error.line, error.reason, fatal=True)
    found: list[WrittenTool] = []
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) or statement.name.startswith("_"):
            continue
        if docstring := ast.get_docstring(statement):
            found.append(WrittenTool(statement.name, docstring.partition("\n")[0], statement.lineno))
    return found


def is_name(word: str) -> bool:
    """Return whether a word can name a workflow: shells and prompts need no quotes for
    it.
    """
    return _NAME.fullmatch(word) is not None


def parse_source(source: bytes) -> ast.Module:
    """Return the syntax tree of a file. Raise SourceError."""
    text = decode_source(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file only matters if it runs
        try:
            return ast.parse(text)
        except SyntaxError as error:
            raise SourceError(error.lineno or 1, f"this is not Python: {error.msg}") from error
        except RecursionError as error:
            raise SourceError(1, "expressions are nested too deep") from error
        except MemoryError as error:  # memory, or the parser's own stack
            reason = "Python's parser runs out of memory here: make the expressions smaller and less nested"
            raise SourceError(1, reason) from error
        except ValueError as error:
            raise SourceError(1, f"this is not Python: {error}") from error


def decode_source(source: bytes) -> str:
    """Return the text of a file, which must be UTF-8. Raise SourceError.

    Python itself would obey a line such as `# coding: utf-7`, with which a comment can
    contain code.
    """
    if b"\0" in source:
        raise SourceError(source.count(b"\n", 0, source.index(b"\0")) + 1, "there is a NUL character")
    unknown = None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError as error:  # an unknown encoding, or a first line that is not text
        encoding = "utf-8"
        unknown = error
    if encoding not in ("utf-8", "utf-8-sig"):
        raise SourceError(1, f"this file declares the encoding {encoding}: code must be UTF-8")
    try:
        text = source.decode(encoding)
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise SourceError(line, f"this is not {error.encoding.upper()} text") from error
    if unknown is not None:
        raise SourceError(1, f"this cannot be read: {unknown}") from unknown
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text)


def is_newer(wanted: str, have: str) -> bool:
    """Return whether a version such as "1.2" is newer than another.

    "1.2" equals "1.2.0".
    """
    return _numbers(wanted) > _numbers(have)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without zeros at the end."""
    found = _VERSION.match(version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


class _Reading:
    """Collects the metadata of a file's top level, and the problems of it."""

    def __init__(self, tree: ast.Module) -> None:
        self._values = {name: value for name, value in _assignments(tree)}  # noqa: C416  # the last one holds
        self._remarks: list[Remark] = []
        self._reads_iterations = _reads_iterations(tree)
        self._function = _workflow_function(tree, self._values)
        self._decorated = {} if self._function is None else _options_of(self._function, tree)

    def metadata(self, stem: str) -> Metadata:
        name = self._take("name", _name, "") or self._take_option("name", _name)
        if not (name or stem):
            reason = "the name of the file cannot name a workflow: add name = …"
            self._remarks.append(Remark(1, reason, fatal=True))
        name = name or stem
        return Metadata(
            name=name,
            description=self._description() or f"Custom workflow: {name}",
            aliases=tuple(self._take("aliases", _names, ())),
            version=self._take("version", _text, ""),
            min_sdk_version=self._take("min_sdk_version", _version, ""),
            state_version=self._take("state_version", _count, 1),
            argument_hint=self._take("argument_hint", _text, ""),
            default_config=self._default_config(),
            node_descriptions=self._take("node_descriptions", _texts, {}),
            config_descriptions=self._take("config_descriptions", _texts, {}),
            parameters=None if self._function is None else tuple(_parameters(self._function)),
            has_workflow=self._function is not None or not _GRAPHS.isdisjoint(self._values),
            remarks=tuple(self._remarks),
        )

    def _description(self) -> str:
        """Return the description of the file, else of the function: of its decorator, or
        the first line of its docstring.
        """
        written = self._take("description", _text, "") or self._take_option("description", _text)
        if written or self._function is None:
            return written
        return _text((ast.get_docstring(self._function) or "").partition("\n")[0])

    def _take_option(self, key: str, read: Callable[[Any], str]) -> str:
        """Return a literal argument of the function's decorator."""
        node = self._decorated.get(key)
        if node is None:
            return ""
        try:
            return read(_literal(node))
        except ValueError as error:
            self._remarks.append(Remark(node.lineno, f"{key} {error}"))
            return ""

    def _default_config(self) -> Mapping[str, Any]:
        """Return the config.

        With a key, and so a flag, for `params.max_iterations` if the file reads it.
        """
        config: Mapping[str, Any] = self._take("default_config", _table, {})
        return {"max_iterations": None, **config} if self._reads_iterations else config

    def _take(self, key: str, read: Callable[[Any], Any], default: Any) -> Any:
        node = self._values.get(key)
        if node is None:
            return default
        try:
            return read(_literal(node))
        except ValueError as error:
            self._remarks.append(Remark(node.lineno, f"{key} {error}"))
            return default


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case _:
                pass


_MODULES = ("atomic.workflows", "atomic.workflows.flow")


def _decorators(tree: ast.Module) -> set[str]:
    """Return the names under which a file has imported `workflow`."""
    found: set[str] = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.module in _MODULES and not statement.level:
            found |= {one.asname or "workflow" for one in statement.names if one.name in ("workflow", "*")}
    return found


def _is_decorator(node: ast.expr, names: set[str]) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute):
        return called.attr == "workflow"
    return isinstance(called, ast.Name) and called.id in names


def _workflow_function(tree: ast.Module, values: Mapping[str, ast.expr]) -> ast.AsyncFunctionDef | None:
    """Return the function that is the workflow of a file: the one that `workflow` names,
    else the only one with the decorator.
    """
    names = _decorators(tree)
    decorated = {
        one.name: one
        for one in tree.body
        if isinstance(one, ast.AsyncFunctionDef) and any(_is_decorator(each, names) for each in one.decorator_list)
    }
    named = values.get("workflow")
    if named is not None:
        return decorated.get(named.id) if isinstance(named, ast.Name) else None
    if "workflow" in decorated:
        return decorated["workflow"]
    is_only = len(decorated) == 1 and "graph_config" not in values
    return next(iter(decorated.values())) if is_only else None


def _options_of(function: ast.AsyncFunctionDef, tree: ast.Module) -> dict[str, ast.expr]:
    """Return the keyword arguments of a workflow function's decorator."""
    names = _decorators(tree)
    calls = (one for one in function.decorator_list if isinstance(one, ast.Call) and _is_decorator(one, names))
    return {word.arg: word.value for call in calls for word in call.keywords if word.arg is not None}


def _parameters(function: ast.AsyncFunctionDef) -> Sequence[WrittenParameter]:
    """Return the parameters of a workflow function, without the flow.

    The prompt goes to `prompt`, else to the only positional one without a default.
    """
    takes = function.args
    positional = [*takes.posonlyargs, *takes.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(takes.defaults))
    pairs = list(zip(positional, [*missing, *takes.defaults], strict=True))[1:]
    keywords = list(zip(takes.kwonlyargs, takes.kw_defaults, strict=True))
    names = {one.arg for one, _ in (*pairs, *keywords)}
    needed = [one.arg for one, default in pairs if default is None]
    prompt = ""
    if "prompt" in names:
        prompt = "prompt"
    elif len(needed) == 1:
        prompt = needed[0]
    return [_parameter(one, default, is_prompt=one.arg == prompt) for one, default in (*pairs, *keywords)]


def _parameter(one: ast.arg, default: ast.expr | None, *, is_prompt: bool) -> WrittenParameter:
    value: Any = None
    if default is not None:
        try:
            value = _table({"value": _literal(default)})["value"]
        except ValueError:
            value = None
    kind, choices = _kind_of(one.annotation)
    if one.annotation is None:
        kind = _kind_of_default(value)
    return WrittenParameter(one.arg, kind, default is not None, value, choices, is_prompt)


_KINDS = {"str": "text", "int": "int", "float": "number", "bool": "flag", "Path": "text", "Any": "text"}


def _kind_of(annotation: ast.expr | None) -> tuple[str, tuple[str, ...]]:
    """Return how a flag of an annotated parameter is read, and its choices."""
    match annotation:
        case ast.Constant(value=str(text)):
            try:
                return _kind_of(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return "json", ()
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _KINDS.get(name, "json"), ()
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _kind_of_union([left, right])
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return _kind_of(inner)
        case ast.Subscript(
            value=ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=parts)
        ):
            return _kind_of(parts[0])
        case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal"), slice=inner):
            return _kind_of_choices(inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case ast.Subscript(
            value=ast.Name(id="list" | "Sequence" | "List") | ast.Attribute(attr="Sequence"), slice=inner
        ):
            return ("texts" if _kind_of(inner)[0] == "text" else "json"), ()
        case _:
            return "json", ()


def _kind_of_union(parts: Sequence[ast.expr]) -> tuple[str, tuple[str, ...]]:
    """Return the kind of `X | None`; other unions are JSON."""
    others = [one for one in parts if not (isinstance(one, ast.Constant) and one.value is None)]
    return _kind_of(others[0]) if len(others) == 1 else ("json", ())


def _kind_of_choices(parts: Sequence[ast.expr]) -> tuple[str, tuple[str, ...]]:
    texts = [one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return ("text", tuple(texts)) if len(texts) == len(parts) else ("json", ())


def _kind_of_default(value: Any) -> str:
    """Return how a flag is read by its default. Texts, if that says nothing."""
    match value:
        case bool():
            return "flag"
        case int():
            return "int"
        case float():
            return "number"
        case list() | tuple():
            return "texts"
        case dict():
            return "json"
        case _:
            return "text"


def _reads_iterations(tree: ast.Module) -> bool:
    """Return whether `create_state` or `check_start` reads an attribute
    `max_iterations`.
    """
    functions = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name in _TAKE_PARAMS)
    parts = (part for function in functions for part in ast.walk(function))
    return any(isinstance(part, ast.Attribute) and part.attr == "max_iterations" for part in parts)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError("is not a literal: the file does not run to read it, so the default is used") from None


def _name(value: Any) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise ValueError('must be one word such as "my-flow"')
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    whole = value.encode("utf-8", "replace").decode()  # lone surrogates cannot be written
    return whole if len(whole) <= _MAX_TEXT else f"{whole[:_MAX_TEXT]}…"


def _names(value: Any) -> Sequence[str]:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of words")
    return [_name(item) for item in cast("Sequence[Any]", value)]


def _version(value: Any) -> str:
    if not isinstance(value, str) or not _VERSION.match(value):
        raise ValueError('must be a version such as "0.1"')
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a whole number above 0")
    return value


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in cast("dict[Any, Any]", value)):
        raise ValueError("must be a table whose keys are texts")
    try:
        msgspec.json.encode(value)  # it is stored in the session
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise ValueError("must hold only texts, numbers, lists and tables") from None
    return cast("dict[str, Any]", value)


def _texts(value: Any) -> Mapping[str, str]:
    table = _table(value)
    if not all(isinstance(item, str) for item in table.values()):
        raise ValueError("must be a table of texts")
    return table
