"""The source keeps the shape that `scripts/house.py` measures: doors, lines, classes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from scripts import house

pytestmark = pytest.mark.ci  # a linter: `make check` runs it too

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def modules() -> list[house.Module]:
    return house.read_modules(ROOT)


def source_of(modules: list[house.Module]) -> list[house.Module]:
    return [module for module in modules if module.room != "tests"]


def places(findings: Iterable[house.Finding]) -> list[str]:
    return [f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.text}" for finding in findings]


def test_no_room_imports_a_private_module_of_another(modules: list[house.Module]) -> None:
    assert places(house.find_doors(source_of(modules))) == []


def test_a_statement_assigns_one_value_and_no_conditional_is_inside_another(modules: list[house.Module]) -> None:
    assert places([*house.find_packed(modules), *house.find_nested(modules)]) == []


def test_no_class_is_split_over_two_files(modules: list[house.Module]) -> None:
    assert places(house.find_split(source_of(modules))) == []


def test_every_public_module_exists_and_another_room_imports_it(modules: list[house.Module]) -> None:
    source = source_of(modules)
    public = {name for module in source for name in house.public_modules(module)}
    imported: set[str] = set()
    for module in source:
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                origin = module.target_of(node)
                targets = {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
                imported.update(name for name in targets if name.split(".")[1:2] != [module.room])
    assert public - imported == set()
