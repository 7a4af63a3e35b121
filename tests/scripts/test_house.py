from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import house

FILES = {
    "src/atomic/__init__.py": "",
    "src/atomic/wiring.py": "from atomic.cli import main\n",
    "src/atomic/cli/__init__.py": "from atomic.cli.main import Public\n",
    "src/atomic/cli/main.py": (
        '"""A module."""\n'
        "\n"
        "# A comment.\n"
        "from atomic.graph import Run, engine\n"
        "from atomic.graph.engine import Base\n"
        "\n"
        "class Public(Base):\n"
        '    """A class\n'
        '    of two lines.\n'
        '    """\n'
        "    text = '''two\n"
        "    lines'''  # a trailing comment\n"
    ),
    "src/atomic/graph/__init__.py": "from .engine import Exported, Run\n",
    "src/atomic/graph/engine.py": (
        "class Base: ...\n"
        "class Run: ...\n"
        "class Used: ...\n"
        "class Other(Run): ...\n"
        "class Exported: ...\n"
        "class Same: ...\n"
        "class Near(Same): ...\n"
        "class _Run: ...\n"
        "print(Used)\n"
    ),
    "src/atomic/graph/other.py": (
        "from atomic.graph import engine\n"
        "class Run(engine.Used): ...\n"
        "class More(engine.Exported): ...\n"
        "class _Run: ...\n"
    ),
    "tests/test_main.py": "a, b = 1, 2\n",
}  # fmt: skip

Finder = Callable[[list[house.Module]], Iterator[house.Finding]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


def found(root: Path, find: Finder) -> list[str]:
    findings = find(house.read_modules(root))
    return [f"{finding.path.name}:{finding.line}: {finding.text}" for finding in findings]


def found_in(source: str, folder: Path, find: Finder) -> list[str]:
    path = folder / "module.py"
    path.write_text(source, "utf-8")
    return [finding.text for finding in find([house.Module(path, "atomic.cli.module", "cli")])]


def test_the_table_counts_modules_and_lines_by_room(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main([], repository) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert last == "names: 1 public names of classes are defined in several modules"
    assert [line.split() for line in table] == [
        ["room", "modules", "lines", "code", "helpers", "nested", "packed", "doors", "split"],
        ["top", "level", "2", "1", "1", "0", "0", "0", "1", "0"],
        ["cli", "2", "13", "6", "0", "0", "0", "2", "0"],
        ["graph", "3", "14", "14", "0", "0", "0", "0", "1"],
        ["src", "7", "28", "21", "0", "0", "0", "3", "1"],
        ["tests", "1", "1", "1", "0", "0", "1", "0", "0"],
        [],
    ]


def test_an_import_of_a_module_in_another_room_bypasses_its_door(repository: Path) -> None:
    assert found(repository, house.find_doors) == [
        "main.py:4: atomic.graph.engine",
        "main.py:5: atomic.graph.engine",
        "wiring.py:1: atomic.cli.main",
    ]


def test_a_class_that_is_only_the_base_of_one_in_another_file_is_split(repository: Path) -> None:
    assert found(repository, house.find_split) == ["engine.py:1: Base, base of a class in atomic.cli.main"]


def test_a_public_name_of_two_classes_is_listed_with_both(repository: Path) -> None:
    assert found(repository, house.find_names) == ["engine.py:2: Run", "other.py:2: Run"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def _once(): ...\n_once()\n", ["_once, 1 lines"]),
        ("class A:\n    async def _once(self): ...\n    def b(self): self._once()\n", ["_once, 1 lines"]),
        ("def _twice(): ...\n_twice()\n_twice()\n", []),
        ("def public(): ...\npublic()\n", []),
        ("def __dir__(): ...\n__dir__()\n", []),
        ("def _unused(): ...\n", []),
        ("def _long():\n" + "    print()\n" * 6 + "_long()\n", []),
        ("def _short():\n" + "    print()\n" * 5 + "_short()\n", ["_short, 6 lines"]),
    ],
)
def test_a_short_private_function_with_one_use_is_a_helper(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert found_in(source, tmp_path, house.find_helpers) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a if b else c if d else e", ["a if b else c if d else e"]),
        ("(a if b else c) if d else e", ["(a if b else c) if d else e"]),
        ("a if (b if c else d) else e", ["a if (b if c else d) else e"]),
        ("[a if b else c, d if e else f]", []),
    ],
)
def test_a_conditional_expression_in_another_is_nested(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert found_in(source, tmp_path, house.find_nested) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a, b = 1, 2", ["a, b = (1, 2)"]),
        ("self.a, b = c, d", ["self.a, b = (c, d)"]),
        ("a, b = b, a", []),
        ("a, b = b, a + b", []),
        ("a, b = pair", []),
        ("a = 1, 2", []),
    ],
)
def test_two_values_in_one_assignment_are_packed(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert found_in(source, tmp_path, house.find_packed) == expected


def test_show_lists_the_places_of_one_kind(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house.main(["--show", "doors", "1"], repository)
    assert capsys.readouterr().out.splitlines()[-2:] == ["", "src/atomic/cli/main.py:4: atomic.graph.engine"]
    house.main(["--show", "doors", "9", "--room", "top level"], repository)
    assert capsys.readouterr().out.splitlines()[-2:] == ["", "src/atomic/wiring.py:1: atomic.cli.main"]


@pytest.mark.parametrize("show", [("windows", "5"), ("doors", "many")])
def test_an_unknown_kind_is_an_error_that_lists_the_kinds(
    repository: Path, show: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        house.main(["--show", *show], repository)
    assert raised.value.code == 2
    assert "(helpers, nested, packed, doors, split, names) and a number" in capsys.readouterr().err
