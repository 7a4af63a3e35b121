"""The command by which a project checks itself, found in its files without running anything."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base.untrusted_files import Root

_MANY = 10_000  # files among which a test is looked for


class Gate(msgspec.Struct, frozen=True):
    """A command for `sh`, and where it comes from: `--verify`, or the name of the project's file."""

    command: str
    origin: str


def find_gate(project: Path) -> Gate | None:
    """The tests that the project itself has. Nothing is run to find them, and links out of it are not followed."""
    root = Root.of_project(project)
    finders = (_make_gate, _python_gate, _node_gate, _cargo_gate)
    return next((gate for finder in finders if (gate := finder(root)) is not None), None)


def _make_gate(root: Root) -> Gate | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):  # make itself looks for them in this order
        if root.read(name) is not None:
            targets = set(_targets(_text(root, name) or ""))
            target = next((target for target in ("test", "check") if target in targets), None)
            return None if target is None else Gate(f"make {target}", name)
    return None


_VARIABLE = re.compile(r"\s*(?:(?:export|override|private)\s+)*[^\s:=]+\s*(?::{1,3}|[+?!])?=")


def _targets(text: str) -> Iterator[str]:
    """The targets of a makefile that do something: they have a recipe, or others are made for them."""
    lines = [line for line in _joined_lines(text) if line.strip() and not line.lstrip(" ").startswith("#")]
    in_define = False
    for line, following in pairwise([*lines, ""]):
        in_define = not line.startswith("endef") and (in_define or line.startswith("define "))
        head, colon, rest = line.partition(":")
        rest = rest.removeprefix(":")
        is_rule = colon and not line.startswith("\t") and not {"=", "#"} & {*head} and not rest.startswith((":", "="))
        if not is_rule or in_define or _VARIABLE.match(rest):
            continue
        if rest.partition("#")[0].strip() or following.startswith("\t"):
            yield from head.split()


def _joined_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\\\n", " ").split("\n")


def _python_gate(root: Root) -> Gate | None:
    if (text := _text(root, "pyproject.toml")) is None:
        return None
    if not (_names_pytest(text) or _has_tests(root)):
        return None
    return Gate(f"{_python(root)} -m pytest -q", "pyproject.toml")


def _names_pytest(text: str) -> bool:
    """Whether pytest is configured, or among the dependencies of any kind."""
    from atomic.base.toml import load_toml  # most projects have no such file

    try:
        data: Any = load_toml(text)
    except (ValueError, RecursionError):  # pytest will say what is wrong with it
        return False
    tools = _table(data, "tool")
    if "pytest" in tools:
        return True
    parts = (_table(data, "project"), _table(data, "dependency-groups"), *(_table(tools, name) for name in tools))
    return any(_depends_on_pytest(part) for part in parts)


_PYTEST = re.compile(r"\s*pytest(?![A-Za-z0-9])", re.IGNORECASE)


def _depends_on_pytest(part: Mapping[str, Any]) -> bool:
    """Whether pytest, or a plugin of it, is a word of a list or a key of a table of dependencies."""
    waiting: list[Any] = [part]
    while waiting:
        value: Any = waiting.pop()
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            waiting += table.values()
            if "pytest" in table:
                return True
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            waiting += (item for item in items if not isinstance(item, str))
            if any(isinstance(item, str) and _PYTEST.match(item) for item in items):
                return True
    return False


def _has_tests(root: Root) -> bool:
    folders = [os.path.join(root.folder, name) for name in ("tests", "test")]
    walks = (os.walk(folder) for folder in folders if not os.path.islink(folder))  # links below are not entered
    names = (name for walk in walks for _, _, names in walk for name in names)
    return any(re.fullmatch(r"test_.*\.py", name) for name in islice(names, _MANY))


def _python(root: Root) -> str:
    for lock, program in (("uv.lock", "uv"), ("poetry.lock", "poetry")):
        if _is_there(root, lock) and _is_installed(program):
            return f"{program} run python"
    for own in (".venv/bin/python", "venv/bin/python"):
        if _is_there(root, own):
            return own
    return "python" if _is_installed("python") or not _is_installed("python3") else "python3"


def _node_gate(root: Root) -> Gate | None:
    if (text := _text(root, "package.json")) is None:
        return None
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    script = _table(data, "scripts").get("test")
    if not isinstance(script, str) or not script.strip() or "no test specified" in script:  # npm's placeholder
        return None
    return Gate(_node_command(root), "package.json")


def _node_command(root: Root) -> str:
    managers = (
        ("pnpm-lock.yaml", "pnpm", "pnpm test"),
        ("yarn.lock", "yarn", "yarn test"),
        ("bun.lock", "bun", "bun run test"),  # `bun test` would not read the script
        ("bun.lockb", "bun", "bun run test"),
    )
    found = (command for lock, program, command in managers if _is_there(root, lock) and _is_installed(program))
    return next(found, "npm test")


def _cargo_gate(root: Root) -> Gate | None:
    return None if _text(root, "Cargo.toml") is None else Gate("cargo test", "Cargo.toml")


def _text(root: Root, name: str) -> str | None:
    """The text of a file; None if there is none, or none that may be read."""
    file = root.read(name)
    return None if file is None or file.reason else file.data.decode("utf-8-sig", "replace")


def _is_there(root: Root, name: str) -> bool:
    return os.path.isfile(os.path.join(root.folder, name))


def _is_installed(program: str) -> bool:
    from shutil import which

    return which(program) is not None


def _table(data: Any, name: str) -> Mapping[str, Any]:
    table: Any = cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}
