"""Which changed files could make a worker's work pass: tests, and files that configure
checks.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from atomic.git import FileChange

_TEST_FOLDERS = {"test", "tests", "__tests__", "testdata", "__snapshots__", "spec", "specs", "e2e"}
_TEST_NAMES = (
    *("test_*.py", "*_test.py", "tests.py", "*_test.go", "*_test.rs", "test_*.rs", "tests.rs"),
    *("*.test.*", "*.spec.*", "*.snap", "*_spec.rb", "*_test.rb", "*_test.exs"),
    *("*Test.java", "*Tests.java", "Test*.java", "*IT.java", "*Test.kt", "*Tests.kt", "*Test.php", "*Tests.cs"),
)
_STEERING_FOLDERS = (
    *(".github/workflows", ".github/actions", ".circleci", ".buildkite", ".husky", ".cargo"),
    *("node_modules", ".venv", "site-packages"),  # tools that checks use, which are not committed as a rule
)
# Lock files have the versions of the tools that run the tests: another tool of the same
# name could report anything. Ignore rules can hide changes.
_STEERING_NAMES = tuple(
    """
    .gitignore .gitattributes conftest.py pytest.ini .pytest.ini pytest.toml tox.ini setup.cfg setup.py
    pyproject.toml noxfile.py sitecustomize.py usercustomize.py *.pth .coveragerc mypy.ini ruff.toml
    .ruff.toml package.json .npmrc .yarnrc* .pnpmfile.* bunfig.toml tsconfig*.json jest.config.* vitest.*
    vite.config.* babel.config.* .babelrc* .mocharc* karma.conf.* playwright.config.* cypress.config.*
    eslint.config.* .eslintrc* .eslintignore biome.json* Cargo.toml build.rs clippy.toml nextest.toml go.mod
    pom.xml build.gradle* settings.gradle* Makefile makefile GNUmakefile *.mk justfile Justfile
    Taskfile.y*ml Rakefile .gitlab-ci.yml .travis.yml azure-pipelines*.yml Jenkinsfile
    .pre-commit-config.yaml .env .env.* .envrc .tool-versions .python-version .node-version .nvmrc
    .ruby-version rust-toolchain rust-toolchain.toml
    *.lock *.lockb package-lock.json npm-shrinkwrap.json pnpm-lock.yaml go.sum requirements*.txt
    """.split()  # noqa: SIM905  # easier to read without quotes
)

# A module of such a name in a folder of the import path replaces the library of that
# name, the test runner included.
_LIBRARIES = {*sys.stdlib_module_names, "pytest", "_pytest", "pluggy", "coverage", "nose2", "hypothesis"}
_IMPORT_FOLDERS = ("", "src", "lib", "test", "tests")

# Files whose only or main subject is what checks do, or that have the command of the
# tests. Manifests and lock files that mostly have dependencies are not here.
_CHECK_FOLDERS = (".github/workflows", ".github/actions", ".circleci", ".buildkite")
_CHECK_NAMES = tuple(
    """
    conftest.py pytest.ini .pytest.ini pytest.toml tox.ini setup.cfg pyproject.toml noxfile.py .coveragerc
    package.json jest.config.* vitest.* .mocharc* karma.conf.* playwright.config.* cypress.config.* nextest.toml
    Makefile makefile GNUmakefile *.mk justfile Justfile Taskfile.y*ml Rakefile
    .gitlab-ci.yml .travis.yml azure-pipelines*.yml Jenkinsfile
    """.split()  # noqa: SIM905  # easier to read without quotes
)


def protected(changes: Iterable[FileChange], commands: Iterable[str]) -> list[str]:
    """Return the changed files that could make a worker's work pass.

    These are tests that existed before, and files that configure checks or CI, also new
    ones.
    """
    named = {word for command in commands for word in named_files(command)}
    return [change.path for change in changes if _is_protected(change, named)]


def steering(changes: Iterable[FileChange], commands: Collection[str]) -> list[str]:
    """Return the changed files that decide what the checks do: files that a command
    names, and the configuration of tests and CI.

    Neither tests nor new files: in the title of a report they would hide the others.
    """
    named = {word for command in commands for word in named_files(command)}
    old = [change.path for change in changes if change.status != "added"]
    return [path for path in old if named and _is_steering(path, named)]


def _is_steering(path: str, named: Collection[str]) -> bool:
    name = PurePosixPath(path).name
    if _matches(name, _CHECK_NAMES) or _is_below(path, _CHECK_FOLDERS):
        return True
    return not _matches(name, _TEST_NAMES) and any(_is_named(path, word) for word in named)


def _is_protected(change: FileChange, named: Collection[str]) -> bool:
    path = PurePosixPath(change.path)
    if change.status != "added" and _is_test(path):
        return True
    return (
        _matches(path.name, _STEERING_NAMES)
        or _is_below(change.path, _STEERING_FOLDERS)
        or any(_is_named(change.path, word) for word in named)
        or _replaces_library(path)
    )


def _replaces_library(path: PurePosixPath) -> bool:
    """Return whether Python may import a file in place of a library."""
    module = path.parent if path.name == "__init__.py" else path.with_suffix("")
    folder = str(module.parent)
    return path.suffix == ".py" and module.name in _LIBRARIES and folder.replace(".", "", 1) in _IMPORT_FOLDERS


def _is_test(path: PurePosixPath) -> bool:
    return _matches(path.name, _TEST_NAMES) or not _TEST_FOLDERS.isdisjoint(part.lower() for part in path.parts[:-1])


def _is_below(path: str, folders: Iterable[str]) -> bool:
    parent = f"/{PurePosixPath(path).parent}/"
    return any(f"/{folder}/" in parent for folder in folders)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_named(path: str, word: str) -> bool:
    """Return whether a word of a command means a file: the check may run in a
    subfolder, or use an absolute path.
    """
    return path == word or path.endswith(f"/{word}") or (word.startswith(("/", "~", "$")) and word.endswith(f"/{path}"))


def named_files(command: str) -> Iterator[str]:
    """Yield the words of a command that could be files, also in quotes, after a sign,
    or run as modules.
    """
    pieces = re.split(r"[\s;|&()<>\"'`=,:]+", command)
    with suppress(ValueError):  # a quote is not closed: sh reports that
        pieces += shlex.split(command)
    for module in re.findall(r"-m\s*([\w.]+)", command):
        pieces += (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py")
        pieces.append(f"{module.replace('.', '/')}/__main__.py")
    yield from {piece.removeprefix("./") for piece in pieces} - {""}
