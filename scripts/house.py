"""Count what makes the code hard to read, room by room.

A room is a package of `src/atomic`; modules next to the packages are the room "top level".

    scripts/house.py                   the table
    scripts/house.py --show doors 20   and 20 of the places that one column counts

The columns:

    modules   Python files
    lines     all lines
    code      lines without blank lines, comments and docstrings
    helpers   private functions of at most six lines that are used in one place only
    nested    conditional expressions with another one in them, `a if b else c if d else e`
    packed    assignments of several values in one statement, `a, b = x, y`
    doors     imports of a module of another room that the room does not name as public
    split     classes cut in two files: one subclass, elsewhere, and no other use

The last line counts `names`: public names of classes that several modules define.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "atomic"
LONGEST_HELPER = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """A place that is counted."""

    room: str
    path: Path
    line: int
    text: str


@dataclass
class Module:
    """A Python file and its syntax tree."""

    path: Path
    name: str  # as it is imported: "atomic.cli.main"; a package has the name without __init__
    room: str

    @cached_property
    def source(self) -> str:
        """The text of the file."""
        return self.path.read_text("utf-8")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(ast.parse(self.source)))

    @property
    def is_package(self) -> bool:
        """Whether this is the `__init__.py` of a package."""
        return self.path.name == "__init__.py"

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """The module and the name that each imported name comes from."""
        found: dict[str, tuple[str, str]] = {}
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = (self.target_of(node), alias.name)
        return found

    def target_of(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that a `from` imports from."""
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        up = node.level - 1 if self.is_package else node.level
        return ".".join([*package[: len(package) - up], *filter(None, [node.module])])

    def find(self, node: ast.AST, text: str) -> Finding:
        """Return a finding at a node."""
        return Finding(self.room, self.path, getattr(node, "lineno", 1), text)


def read_modules(root: Path) -> list[Module]:
    """Return the modules of the package, and the modules of the tests as the room "tests"."""
    modules: list[Module] = []
    source = root / "src"
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        room = parts[1] if path.parent != source / PACKAGE else "top level"
        name = ".".join(parts).removesuffix(".__init__")
        modules.append(Module(path, name, room))
    for path in sorted((root / "tests").rglob("*.py")):
        modules.append(Module(path, ".".join(path.relative_to(root).with_suffix("").parts), "tests"))
    return modules


# Lines


def count_code(module: Module) -> int:
    """Return the number of lines that hold code."""
    layout = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in module.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


# Helpers


def find_helpers(modules: list[Module]) -> Iterator[Finding]:
    """Yield short private functions and methods that their module uses once.

    Names are compared, not resolved: an attribute of the same name counts as a use. A use
    without a call counts too, so some of these are callbacks and cannot be inlined.
    """
    for module in modules:
        uses = Counter(used_name(node) for node in module.nodes)
        for node in module.nodes:
            if not isinstance(node, Function) or not node.name.startswith("_"):
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length <= LONGEST_HELPER and not node.name.startswith("__") and uses[node.name] == 1:
                yield module.find(node, f"{node.name}, {length} lines")


def used_name(node: ast.AST) -> str:
    """Return the name that a node reads, or nothing."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return node.attr
    return ""


# Expressions and statements


def find_nested(modules: list[Module]) -> Iterator[Finding]:
    """Yield conditional expressions with another one as condition or as one of the two values."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.IfExp):
                parts = (node.test, node.body, node.orelse)
                if any(isinstance(part, ast.IfExp) for part in parts):
                    yield module.find(node, ast.unparse(node))


def find_packed(modules: list[Module]) -> Iterator[Finding]:
    """Yield `a, b = x, y`, but not `a, b = b, a`: two statements would do something else."""
    for module in modules:
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
                continue
            target = node.targets[0]
            if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.value.elts):
                continue
            written = {ast.unparse(part) for part in target.elts}
            read = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, ast.expr)}
            if not written & read:
                yield module.find(node, ast.unparse(node))


# Between modules


def find_names(modules: list[Module]) -> Iterator[Finding]:
    """Yield the definitions of public names of classes that several modules define."""
    definitions: defaultdict[str, list[Finding]] = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                definitions[node.name].append(module.find(node, node.name))
    for _, found in sorted(definitions.items(), key=lambda item: (-len(item[1]), item[0])):
        if len({finding.path for finding in found}) > 1:
            yield from found


def find_doors(modules: list[Module]) -> Iterator[Finding]:
    """Yield imports of private modules of another room.

    Public are the room itself and the modules that its docstring names after "Public
    modules:". `from atomic.room import module` is such an import too. Imports inside
    functions and for types count.
    """
    names = {module.name for module in modules}
    public: set[str] = set()
    for module in modules:
        public.update(public_modules(module))
        if module.is_package:
            # A function may have the name of its module.
            public.update(f"{module.name}.{name}" for name in module.imports)
    rooms = {module.name for module in modules if module.is_package and module.name.count(".") == 1}
    for module in modules:
        for node in module.nodes:
            targets: set[str] = set()
            if isinstance(node, ast.Import):
                targets = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                origin = module.target_of(node)
                submodules = {f"{origin}.{alias.name}" for alias in node.names} & names
                targets = submodules if origin in rooms else {origin}
            for target in sorted(targets):
                room = ".".join(target.split(".")[:2])
                is_other = room in rooms and room != f"{PACKAGE}.{module.room}"
                if is_other and target != room and target not in public:
                    yield module.find(node, target)


def public_modules(room: Module) -> set[str]:
    """Return the modules of a room that other rooms may import, from its docstring."""
    if not room.is_package:
        return set()
    text = ast.get_docstring(ast.parse(room.source)) or ""
    _, _, listed = text.partition("Public modules:")
    paragraph = listed.partition("\n\n")[0]
    return {f"{room.name}.{name}" for name in re.findall(r"`([a-z_.]+)`", paragraph)}


Key = tuple[str, str]  # the module and the name of a class


def find_split(modules: list[Module]) -> Iterator[Finding]:
    """Yield classes that exist only to be the base of one class in another file.

    A class that a package exports is public and left out.
    """
    by_name = {module.name: module for module in modules}
    classes: dict[Key, tuple[Module, ast.ClassDef]] = {}
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                classes[module.name, node.name] = (module, node)
    subclasses: defaultdict[Key, list[Module]] = defaultdict(list)
    uses: Counter[Key] = Counter()
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                uses[origin_of(node, module, by_name)] += 1
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    named = base.value if isinstance(base, ast.Subscript) else base
                    subclasses[origin_of(named, module, by_name)].append(module)
        if module.is_package:
            for name in module.imports:
                uses[follow(module.name, name, by_name)] += 1
    for key, (module, node) in classes.items():
        found = subclasses[key]
        if uses[key] == 1 and found and found[0] is not module:
            yield module.find(node, f"{node.name}, base of a class in {found[0].name}")


def origin_of(node: ast.expr, module: Module, by_name: dict[str, Module]) -> Key:
    """Return where the class that a node names is defined: `Name` or `module.Name`."""
    if isinstance(node, ast.Name):
        return follow(module.name, node.id, by_name)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        package, name = module.imports.get(node.value.id, ("", ""))
        return follow(f"{package}.{name}", node.attr, by_name)
    return ("", "")


def follow(module: str, name: str, by_name: dict[str, Module]) -> Key:
    """Follow imports of a name to the module that defines it."""
    seen: set[Key] = set()
    while module in by_name and name in by_name[module].imports and (module, name) not in seen:
        seen.add((module, name))
        module, name = by_name[module].imports[name]
    return (module, name)


# Report

EVERYWHERE = {"helpers": find_helpers, "nested": find_nested, "packed": find_packed}
SOURCE_ONLY = {"doors": find_doors, "split": find_split, "names": find_names}
COLUMNS = ("helpers", "nested", "packed", "doors", "split")


def find_all(modules: list[Module]) -> dict[str, list[Finding]]:
    """Return the findings of every kind."""
    source = [module for module in modules if module.room != "tests"]
    tests = [module for module in modules if module.room == "tests"]
    findings: dict[str, list[Finding]] = {}
    for kind, find in EVERYWHERE.items():
        findings[kind] = [*find(source), *find(tests)]
    for kind, find in SOURCE_ONLY.items():
        findings[kind] = list(find(source))
    return findings


def print_table(modules: list[Module], findings: dict[str, list[Finding]]) -> None:
    """Print a row for every room, their sum, and a row for the tests."""
    rows: dict[str, list[int]] = {}
    for module in modules:
        row = rows.setdefault(module.room, [0] * (3 + len(COLUMNS)))
        row[0] += 1
        row[1] += len(module.source.splitlines())
        row[2] += count_code(module)
    for column, kind in enumerate(COLUMNS, 3):
        for finding in findings[kind]:
            rows[finding.room][column] += 1
    tests = rows.pop("tests", None)
    rows["src"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    if tests:
        rows["tests"] = tests
    print(f"{'room':<12}" + "".join(f"{head:>9}" for head in ("modules", "lines", "code", *COLUMNS)))
    for room, counts in rows.items():
        print(f"{room:<12}" + "".join(f"{count:>9,}" for count in counts))
    names = Counter(finding.text for finding in findings["names"])
    print(f"\nnames: {len(names)} public names of classes are defined in several modules")


def print_findings(findings: list[Finding], count: int, root: Path) -> None:
    """Print findings with file and line."""
    print()
    for finding in findings[:count]:
        print(f"{finding.path.relative_to(root)}:{finding.line}: {finding.text}")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the report and return the exit code."""
    kinds = [*EVERYWHERE, *SOURCE_ONLY]
    parser = argparse.ArgumentParser(description="Count what makes the code hard to read, room by room.")
    parser.add_argument("--show", nargs=2, metavar=("KIND", "N"), help=f"list N places; KIND: {', '.join(kinds)}")
    parser.add_argument("--room", help="list places of this room only")
    options = parser.parse_args(arguments)
    if options.show and (options.show[0] not in kinds or not options.show[1].isdecimal()):
        parser.error(f"--show takes a kind ({', '.join(kinds)}) and a number")
    modules = read_modules(root)
    findings = find_all(modules)
    print_table(modules, findings)
    if options.show:
        kind, count = options.show
        chosen = [finding for finding in findings[kind] if options.room in (None, finding.room)]
        print_findings(chosen, int(count), root)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
