"""Changed tests, and changed files that configure checks, are found by their paths."""

from __future__ import annotations

import msgspec
import pytest

from atomic.git import FileChange
from atomic.ralph.changed_tests import protected, steering


def changed(path: str, status: str = "modified") -> FileChange:
    return msgspec.convert({"path": path, "status": status}, FileChange)


TESTS = [
    *("test_a.py", "pkg/a_test.py", "tests/data/x.json", "src/__tests__/a.js", "a.test.ts", "lib/a.spec.js"),
    *("pkg/a_test.go", "tests/it.rs", "src/test/java/app/FooTest.java", "app/FooTest.java", "tests/größe\nx.py"),
]
STEERING = [
    *(
        "package-lock.json",
        "web/yarn.lock",
        "pnpm-lock.yaml",
        "uv.lock",
        "Cargo.lock",
        "go.sum",
        "requirements-dev.txt",
    ),
    *("conftest.py", "tests/conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "package.json"),
    *("Makefile", "sub/Makefile", "Cargo.toml", "noxfile.py", "jest.config.js", "vitest.config.ts", "tsconfig.json"),
    *("eslint.config.mjs", ".eslintrc.json", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".circleci/config.yml"),
    *(".pre-commit-config.yaml", "sitecustomize.py", "src/usercustomize.py"),
]
PLAIN = [
    "src/app.py",
    "latest.py",
    "contest.go",
    "attest/x.js",
    "README.md",
    "src/Latest.java",
    "testing.md",
    "Testimony",
]


@pytest.mark.parametrize("status", ["modified", "deleted"])
def test_tests_that_were_there_are_protected_and_new_ones_are_not(status: str) -> None:
    assert protected([changed(path, status) for path in [*TESTS, *PLAIN]], []) == TESTS
    assert protected([changed(path, "added") for path in [*TESTS, *PLAIN]], []) == []


@pytest.mark.parametrize("status", ["added", "modified", "deleted"])
def test_files_that_steer_checks_are_protected_new_or_not(status: str) -> None:
    assert protected([changed(path, status) for path in STEERING], []) == STEERING


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("./scripts/check.sh --all", "scripts/check.sh"),
        ("cd app && sh check.sh;", "app/check.sh"),
        ('bash -c "tools/verify.py && echo ok"', "tools/verify.py"),
        ("tool --config=ci/settings.yml", "ci/settings.yml"),
        ("sh 'my check.sh'", "my check.sh"),
        ("/home/me/project/check.sh", "check.sh"),
        ("python -m runner -q", "runner.py"),
        ("python -m checks.all", "checks/all.py"),
        ("sh 'unclosed.sh", "unclosed.sh"),
    ],
)
def test_a_file_that_a_gate_names_is_protected(command: str, path: str) -> None:
    assert protected([changed(path, "added"), changed("other/x.sh", "added")], [command]) == [path]
    assert protected([changed(path, "added")], ["make test"]) == []


@pytest.mark.parametrize(
    ("path", "is_seen"),
    [
        ("unittest.py", True),
        ("tests/pytest/__init__.py", True),
        ("src/json.py", True),
        ("src/app/json.py", False),
        ("test/__init__.py", False),
        ("jsonish.py", False),
    ],
)
def test_a_module_that_python_takes_for_a_library_is_protected(path: str, is_seen: bool) -> None:
    assert protected([changed(path, "added")], ["make test"]) == ([path] if is_seen else [])


@pytest.mark.parametrize("path", ["check.sh", "Makefile", "pyproject.toml", ".github/workflows/ci.yml", "tests/run.sh"])
def test_an_old_file_that_decides_what_a_check_does_is_steering(path: str) -> None:
    commands = ["sh check.sh && sh tests/run.sh"]
    assert steering([changed(path)], commands) == [path]
    assert steering([changed(path, "deleted")], commands) == [path]
    assert steering([changed(path, "added")], commands) == []
    assert steering([changed(path)], []) == []


@pytest.mark.parametrize("path", ["tests/test_game.py", "tests/data.json", "uv.lock", ".gitignore", "src/app.py"])
def test_tests_and_dependencies_are_not_steering(path: str) -> None:
    assert steering([changed(path)], ["python -m pytest tests/test_game.py"]) == []
