"""A room is entered by its door or by a module that the door names as public."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts import house

ROOT = Path(__file__).resolve().parents[2]


def test_no_room_imports_a_private_module_of_another() -> None:
    modules = [module for module in house.read_modules(ROOT) if module.room != "tests"]
    found = [
        f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.text}" for finding in house.find_doors(modules)
    ]
    assert found == []


def test_every_public_module_exists_and_another_room_imports_it() -> None:
    modules = [module for module in house.read_modules(ROOT) if module.room != "tests"]
    public = {name for module in modules for name in house.public_modules(module)}
    imported: set[str] = set()
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                origin = module.target_of(node)
                targets = {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
                imported.update(name for name in targets if name.split(".")[1:2] != [module.room])
    assert public - imported == set()
