"""The evidence of a task's work, as Atomic observed it: one fact of the run for each
task.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from atomic.git import FileChange
from atomic.sessions.facts import Facts

_FOLDER = "evidence/"  # the prefix of these facts: their copies are in one folder
_MAX_NAME = 180  # characters of a file's name; the name of its temporary file is longer


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one check ended."""

    command: str
    exit_code: int
    seconds: float
    timed_out: bool
    output_sha256: str
    output_tail: str
    baseline_exit_code: int | None
    blocking: bool
    flaky: bool = False  # it failed first and passed on the same files


class Diffstat(msgspec.Struct, frozen=True):
    """The size of a change."""

    files: int = 0
    insertions: int = 0
    deletions: int = 0


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes of the last attempt at a task, and the results of its checks."""

    task: str
    attempt: int
    status: Literal["passed", "failed"]
    checks: Sequence[CheckResult] = msgspec.field(name="gates")
    commit: str | None
    tree: str
    changed_files: Sequence[str]
    diffstat: Diffstat
    protected_files: Sequence[str]
    reason: str = ""
    uncommitted: Sequence[str] = ()  # changed files that are not in the new commit, if there is one


def diffstat(changes: Iterable[FileChange]) -> Diffstat:
    """Return the size of all changes together."""
    counted = list(changes)
    return Diffstat(
        len(counted), sum(change.insertions for change in counted), sum(change.deletions for change in counted)
    )


def evidence_name(facts: Mapping[str, Any], task_id: str) -> str:
    """Return the name of a task's fact, with a hash if another task has the same name."""
    *names, last = (f"{_FOLDER}{name}.json" for name in _names(task_id))
    for name in names:
        if name not in facts or facts[name]["task"] == task_id:
            return name
    return last


def write_evidence(facts: Facts, evidence: Evidence) -> None:
    """Replace the evidence of a task."""
    facts.set(evidence_name(facts, evidence.task), evidence)


def read_evidence(facts: Mapping[str, Any]) -> dict[str, Evidence]:
    """Return the evidence by task."""
    found = [msgspec.convert(facts[name], Evidence) for name in facts if name.startswith(_FOLDER)]
    return {evidence.task: evidence for evidence in found}


def _names(task_id: str) -> Iterator[str]:
    """Yield names for the file of a task, the plain one first."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", task_id)
    digest = sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
    if len(name) <= _MAX_NAME:
        yield name
    yield f"{name[:_MAX_NAME]}-{digest[:8]}"
    yield digest


_TEST_FOLDERS = {"test", "tests", "__tests__", "testdata", "__snapshots__", "spec", "specs", "e2e"}
_TEST_NAMES = (
    *("test_*.py", "*_test.py", "tests.py", "*_test.go", "*_test.rs", "test_*.rs", "tests.rs"),
    *("*.test.*", "*.spec.*", "*.snap", "*_spec.rb", "*_test.rb", "*_test.exs"),
    *("*Test.java", "*Tests.java", "Test*.java", "*IT.java", "*Test.kt", "*Tests.kt", "*Test.php", "*Tests.cs"),
)
_STEERING_FOLDERS = (".github/workflows", ".github/actions", ".circleci", ".buildkite", ".husky", ".cargo")
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
    .pre-commit-config.yaml
    *.lock *.lockb package-lock.json npm-shrinkwrap.json pnpm-lock.yaml go.sum requirements*.txt
    """.split()  # noqa: SIM905  # easier to read without quotes
)


def protected(changes: Iterable[FileChange], commands: Iterable[str]) -> list[str]:
    """Return the changed files that could make a worker's work pass.

    These are tests that existed before, and files that configure checks or CI, also new
    ones.
    """
    named = {word for command in commands for word in named_files(command)}
    return [change.path for change in changes if _is_protected(change, named)]


def _is_protected(change: FileChange, named: Collection[str]) -> bool:
    path = PurePosixPath(change.path)
    if change.status != "added" and _is_test(path):
        return True
    folders = f"/{path.parent}/"
    return (
        _matches(path.name, _STEERING_NAMES)
        or any(f"/{folder}/" in folders for folder in _STEERING_FOLDERS)
        or any(_is_named(change.path, word) for word in named)
    )


def _is_test(path: PurePosixPath) -> bool:
    return _matches(path.name, _TEST_NAMES) or not _TEST_FOLDERS.isdisjoint(part.lower() for part in path.parts[:-1])


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
