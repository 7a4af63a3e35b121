"""Find the command with which a project checks itself. Nothing runs to find it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base.formats import parse_toml
from atomic.base.untrusted_files import Root

_MAX_FILES = 10_000  # files among which tests are searched


class CheckCommand(msgspec.Struct, frozen=True):
    """A command for `sh`, and its origin: `--verify`, or the name of a file of the
    project.
    """

    command: str
    origin: str


def find_check(project: Path) -> CheckCommand | None:
    """Return the command that runs the project's tests.

    Links out of the project are not followed.
    """
    root = Root.of_project(project)
    for finder in (_make_check, _python_check, _node_check):
        found = finder(root)
        if found is not None:
            return found
    if _read_text(root, "Cargo.toml") is not None:
        return CheckCommand("cargo test", "Cargo.toml")
    return None


def _make_check(root: Root) -> CheckCommand | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):  # the order in which make searches
        if root.read(name) is not None:
            targets = set(_targets(_read_text(root, name) or ""))
            target = next((target for target in ("test", "check") if target in targets), None)
            return None if target is None else CheckCommand(f"make {target}", name)
    return None


_VARIABLE = re.compile(r"\s*(?:(?:export|override|private)\s+)*[^\s:=]+\s*(?::{1,3}|[+?!])?=")


def _targets(text: str) -> Iterator[str]:
    """Yield the targets of a makefile that have a recipe or prerequisites."""
    joined = text.replace("\r\n", "\n").replace("\\\n", " ").split("\n")
    lines = [line for line in joined if line.strip() and not line.lstrip(" ").startswith("#")]
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


def _python_check(root: Root) -> CheckCommand | None:
    text = _read_text(root, "pyproject.toml")
    if text is None or not (_names_pytest(text) or _has_tests(root)):
        return None
    return CheckCommand(f"{_python(root)} -m pytest -q", "pyproject.toml")


def _names_pytest(text: str) -> bool:
    """Return whether pytest is configured, or among the dependencies of any kind."""
    try:
        data: Any = parse_toml(text)
    except (ValueError, RecursionError):  # pytest reports the error
        return False
    tools = _table(data, "tool")
    if "pytest" in tools:
        return True
    parts = (_table(data, "project"), _table(data, "dependency-groups"), *(_table(tools, name) for name in tools))
    return any(_depends_on_pytest(part) for part in parts)


_PYTEST = re.compile(r"\s*pytest(?![A-Za-z0-9])", re.IGNORECASE)


def _depends_on_pytest(part: Mapping[str, Any]) -> bool:
    """Return whether pytest or a plugin of it is in a list, or a key of a table, at any
    depth.
    """
    pending: list[Any] = [part]
    while pending:
        value: Any = pending.pop()
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            pending += table.values()
            if "pytest" in table:
                return True
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            pending += (item for item in items if not isinstance(item, str))
            if any(isinstance(item, str) and _PYTEST.match(item) for item in items):
                return True
    return False


def _has_tests(root: Root) -> bool:
    folders = [os.path.join(root.folder, name) for name in ("tests", "test")]
    walks = (os.walk(folder) for folder in folders if not os.path.islink(folder))  # links below are not entered
    names = (name for walk in walks for _, _, names in walk for name in names)
    return any(re.fullmatch(r"test_.*\.py", name) for name in islice(names, _MAX_FILES))


def _python(root: Root) -> str:
    for lock, program in (("uv.lock", "uv"), ("poetry.lock", "poetry")):
        if _has_file(root, lock) and _is_installed(program):
            return f"{program} run python"
    for own in (".venv/bin/python", "venv/bin/python"):
        if _has_file(root, own):
            return own
    return "python" if _is_installed("python") or not _is_installed("python3") else "python3"


def _node_check(root: Root) -> CheckCommand | None:
    try:
        data: Any = json.loads(_read_text(root, "package.json") or "null")
    except (ValueError, RecursionError):
        return None
    script = _table(data, "scripts").get("test")
    if not isinstance(script, str) or not script.strip() or "no test specified" in script:  # npm's placeholder
        return None
    managers = (
        ("pnpm-lock.yaml", "pnpm", "pnpm test"),
        ("yarn.lock", "yarn", "yarn test"),
        ("bun.lock", "bun", "bun run test"),  # `bun test` would not read the script
        ("bun.lockb", "bun", "bun run test"),
    )
    found = (command for lock, program, command in managers if _has_file(root, lock) and _is_installed(program))
    return CheckCommand(next(found, "npm test"), "package.json")


def _read_text(root: Root, name: str) -> str | None:
    """Return the text of a file; None if it does not exist or may not be read."""
    file = root.read(name)
    return None if file is None or file.reason else file.data.decode("utf-8-sig", "replace")


def _has_file(root: Root, name: str) -> bool:
    return os.path.isfile(os.path.join(root.folder, name))


def _is_installed(program: str) -> bool:
    from shutil import which

    return which(program) is not None


def _table(data: Any, name: str) -> Mapping[str, Any]:
    table: Any = cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}
