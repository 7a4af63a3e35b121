"""Find fields that several branches of a parallel certainly write.

Two branches that both write a field without a reducer can never join. Where the source
of their functions shows that, the graph does not compile. No function runs for this:
only its syntax tree is read, and only what holds for every path through it counts.
Anything uncertain counts as writing nothing; then the join reports the conflict.
"""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Callable, Iterator, Sequence
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, cast

from atomic.graph.engine.control import NodeResult
from atomic.graph.engine.node import Block, IfBody, LoopBody, Node, ParallelBody, SubgraphBody
from atomic.graph.engine.state import RESERVED


class Seen(NamedTuple):
    """The known facts about a function's return values."""

    fields: frozenset[str] = frozenset()  # every return value writes these
    goes_on: bool = False  # no return value has a goto


_UNKNOWN = Seen()
_NO_UPDATE = Seen(goes_on=True)

Look = Callable[[Any], Seen]
Clash = tuple[str, str, str]


class Writes:
    """The write analysis of one compilation."""

    def __init__(self, replaced: frozenset[str]) -> None:
        self._replaced = replaced - RESERVED
        self._sources = Sources()

    def clashes(self, branches: Sequence[Block]) -> list[Clash]:
        """Return (field, node, node) for each field that two branches certainly write."""
        if not self._compare(branches, _names_in):  # most branches do not share a single name
            return []
        return self._compare(branches, self._sources.read)

    def _compare(self, branches: Sequence[Block], look: Look) -> list[Clash]:
        writers: dict[str, tuple[int, str]] = {}
        found: dict[str, Clash] = {}
        for place, block in enumerate(branches):
            for node_id, fields in _Walk(look).branch(block):
                for field in sorted(self._replaced & fields):
                    first, other = writers.setdefault(field, (place, node_id))
                    if first != place:
                        found.setdefault(field, (field, other, node_id))
        return list(found.values())


class _Walk:
    """Collects the writes of nodes that run whenever a branch succeeds."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._found: list[tuple[str, frozenset[str]]] = []

    def branch(self, block: Block) -> list[tuple[str, frozenset[str]]]:
        if block.catcher is None:  # else a failure may skip writes
            self._passes(block.nodes)
        return self._found

    def _passes(self, nodes: Sequence[Node[Any, Any]]) -> bool:
        """Visit nodes up to the first that may jump. Return whether none does."""
        return all(self._passes_node(node) for node in nodes if not node.recovery)

    def _passes_node(self, node: Node[Any, Any]) -> bool:
        if node.on_error is not None:  # it may return Skip or Goto
            return False
        match node.body:
            case None:
                return self._passes_step(node)
            case IfBody(branches):
                return all(_Walk(self._look)._passes(block.nodes) for _, block in branches)
            case LoopBody(block, _, _, enter_at):  # the first iteration starts there and may be the only one
                first = block.nodes[enter_at:]
                later = block.nodes[:enter_at]
                return self._passes(first) and _Walk(self._look)._passes(later)
            case ParallelBody(branches, "all", None):
                for _, block in branches:
                    self.branch(block)
            case SubgraphBody(_, _, mapper):
                self._note(node, self._look(mapper))
            case _:
                pass
        return True  # a separate scope, which nothing can leave

    def _passes_step(self, node: Node[Any, Any]) -> bool:
        mapped = node.mapped
        if mapped is not None and mapped.run is node.run:
            self._note(node, self._look(mapped.mapper))
            return True
        seen = self._look(node.run)
        self._note(node, seen)
        return seen.goes_on

    def _note(self, node: Node[Any, Any], seen: Seen) -> None:
        self._found.append((node.id, seen.fields))


# functions -----------------------------------------------------------------------------------------------------


def _plain(function: Any) -> FunctionType | None:
    """Return the function itself. Do not unwrap it: a wrapper may do anything."""
    bare = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(bare, FunctionType) or bare.__code__.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
        return None
    return bare


def _names_in(function: Any) -> Seen:
    """Return all names that a function could write as a literal: fast, and a superset."""
    plain = _plain(function)
    names: set[Any] = set()
    for const in () if plain is None else plain.__code__.co_consts:
        together = isinstance(const, tuple)  # the keys of a literal may be a tuple
        names.update(cast("tuple[Any, ...]", const) if together else (const,))
    return Seen(frozenset(names), goes_on=True)


FunctionTree = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Sources:
    """Reads functions in their files and parses each file once."""

    def __init__(self) -> None:
        self._files: dict[str, _File | None] = {}

    def read(self, function: Any) -> Seen:
        """Return the certain facts about the function's return values."""
        plain = _plain(function)
        tree = None if plain is None else self._find(plain)
        return _UNKNOWN if plain is None or tree is None else _read(tree, plain)

    def _find(self, function: FunctionType) -> FunctionTree | None:
        name = function.__code__.co_filename
        if name not in self._files:
            self._files[name] = _parse(name, function.__globals__)
        file = self._files[name]
        return None if file is None else file.find(function.__code__)


def _parse(filename: str, module: dict[str, Any]) -> _File | None:
    linecache.checkcache(filename)
    text = "".join(linecache.getlines(filename, module))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reported when the file was loaded
            tree = ast.parse(text, filename)
            return _File(tree, compile(tree, filename, "exec", dont_inherit=True))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _File:
    """A source file: its functions by their first line, and its code objects."""

    def __init__(self, tree: ast.Module, code: CodeType) -> None:
        self._functions: dict[int, list[FunctionTree]] = {}
        for node in ast.walk(tree):
            if isinstance(node, FunctionTree):
                self._functions.setdefault(_first_line(node), []).append(node)
        self._codes = set(_codes_in(code))

    def find(self, code: CodeType) -> FunctionTree | None:
        """Return the tree of that code, or None if it is missing, ambiguous or changed."""
        if code not in self._codes:
            return None
        found = [tree for tree in self._functions.get(code.co_firstlineno, ()) if _name(tree) == code.co_name]
        if len(found) > 1:
            places = set(code.co_positions())
            found = [tree for tree in found if isinstance(tree, ast.Lambda) and _place(tree.body) in places]
        return found[0] if len(found) == 1 else None


def _first_line(tree: FunctionTree) -> int:
    decorators = [] if isinstance(tree, ast.Lambda) else tree.decorator_list
    return decorators[0].lineno if decorators else tree.lineno


def _name(tree: FunctionTree) -> str:
    return "<lambda>" if isinstance(tree, ast.Lambda) else tree.name


def _place(tree: ast.expr) -> tuple[int, int | None, int, int | None]:
    return tree.lineno, tree.end_lineno, tree.col_offset, tree.end_col_offset


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes_in(const)


# answers -------------------------------------------------------------------------------------------------------


def _read(tree: FunctionTree, function: FunctionType) -> Seen:
    if isinstance(tree, ast.Lambda):
        return _answer(tree.body, function)
    answers = [_answer(found.value, function) for found in _returns(tree)]
    if not _ends(tree.body):
        answers.append(_NO_UPDATE)
    fields = [answer.fields for answer in answers] or [frozenset[str]()]  # a function that only raises writes nothing
    return Seen(fields[0].intersection(*fields), all(answer.goes_on for answer in answers))


def _returns(tree: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Return]:
    """Yield the return statements of the function itself, not of nested ones."""
    left: list[ast.AST] = [*tree.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, FunctionTree | ast.ClassDef):
            left.extend(ast.iter_child_nodes(node))


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Return whether no path reaches the end. `with` and `try` may swallow an exception."""
    match statements[-1:]:
        case [ast.Return() | ast.Raise()]:
            return True
        case [ast.If(body=body, orelse=orelse)]:
            return _ends(body) and _ends(orelse)
        case _:
            return False


def _answer(value: ast.expr | None, function: FunctionType) -> Seen:
    match value:
        case None | ast.Constant(value=None):
            return _NO_UPDATE
        case ast.Dict():
            return Seen(_keys(value), goes_on=True)
        case ast.Call(func=ast.Name(id=name)) if _is_node_result(name, function):
            return _result(value)
        case _:
            return _UNKNOWN


def _is_node_result(name: str, function: FunctionType) -> bool:
    """Return whether the name refers to NodeResult, under any imported name."""
    code = function.__code__
    inside = name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return not inside and function.__globals__.get(name) is NodeResult


def _result(call: ast.Call) -> Seen:
    """Read a `NodeResult` with an update and signals. With more it may jump."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if len(call.args) > 1 or any(isinstance(arg, ast.Starred) for arg in call.args):
        return _UNKNOWN
    if not given.keys() <= {"update", "signals"}:
        return _UNKNOWN
    update = call.args[0] if call.args else given.get("update")
    return Seen(_keys(update), goes_on=True)


def _keys(update: ast.expr | None) -> frozenset[str]:
    """Return the keys of a literal if all are texts."""
    if not isinstance(update, ast.Dict):
        return frozenset()
    names = [key.value for key in update.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return frozenset(names) if len(names) == len(update.keys) else frozenset()
