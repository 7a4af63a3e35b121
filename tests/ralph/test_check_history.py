"""Checks are found without running code; they run without credentials or leftovers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
from functools import cache
from pathlib import Path

import pytest

from atomic.loading.project_check import CheckCommand, find_check
from atomic.processes import ExecError
from atomic.ralph.checks import TAIL, CheckHistory
from atomic.sessions.facts import Facts
from tests.processes.test_processes import pids_in
from tests.ralph.sandbox import facts_in
from tests.support.processes import is_alive
from tests.support.repositories import write
from tests.support.waits import eventually

LIMIT = 60.0  # seconds; no gate here takes a small part of it


# -- finding


def found(folder: Path, files: dict[str, str]) -> str | None:
    write(folder, {"readme": "", **files})
    gate = find_check(folder)
    return None if gate is None else f"{gate.origin}: {gate.command}"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch(0o755)


@pytest.mark.parametrize(
    ("makefile", "command"),
    [
        ("test:\n\tpytest\n", "make test"),
        ("check:\n\truff\n\ntest: check\n", "make test"),
        ("check :: lint\n", "make check"),
        ("lint test: ; true\n", "make test"),
        ("build \\\n  test: dep\n", "make test"),
        (".PHONY: test\n\ntest: # all of them\n\n\t@pytest\n", "make test"),
        ("  test: dep\n", "make test"),
        (".PHONY: test check\n", None),
        ("test := 1\ncheck ::= 2\ntest = test: x\n", None),
        ("test: CFLAGS += -g\n", None),
        ("all: test\n\ttest: x\n", None),
        ("# test: x\nfoo: # test: y\n", None),
        ("test:\n", None),  # it does nothing and would always pass
        ("tests: x\nunit-test: y\n", None),
        ("define test\ntest: x\nendef\n", None),
        ("", None),
        (" " * 500_000 + "test\n" + "a" + " " * 400_000 + "=", None),
    ],
)
def test_a_target_of_the_makefile(tmp_path: Path, makefile: str, command: str | None) -> None:
    assert found(tmp_path, {"Makefile": makefile}) == (None if command is None else f"Makefile: {command}")


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[tool.pytest.ini_options]\n"},
        {"pyproject.toml": '[project]\ndependencies = ["pytest>=8"]\n'},
        {"pyproject.toml": '[project.optional-dependencies]\ndev = ["x", "pytest-asyncio"]\n'},
        {"pyproject.toml": '[dependency-groups]\ntest = [{include-group = "x"}, "pytest"]\n'},
        {"pyproject.toml": '[tool.poetry.group.dev.dependencies]\npytest = "^8"\n'},
        {"pyproject.toml": "", "tests/deep/test_a.py": ""},
        {"pyproject.toml": "this is [no toml", "tests/test_a.py": ""},
    ],
)
def test_pytest_of_a_python_project(tmp_path: Path, programs: Path, files: dict[str, str]) -> None:
    install(programs, "python", "python3", "uv")
    assert found(tmp_path / "one", files) == "pyproject.toml: python -m pytest -q"
    (programs / "python").unlink()
    assert found(tmp_path / "one", files) == "pyproject.toml: python3 -m pytest -q"
    assert found(tmp_path / "two", {**files, ".venv/bin/python": ""}) == "pyproject.toml: .venv/bin/python -m pytest -q"
    assert found(tmp_path / "one", {"uv.lock": ""}) == "pyproject.toml: uv run python -m pytest -q"
    (programs / "uv").unlink()
    install(programs, "poetry")
    assert found(tmp_path / "one", {"poetry.lock": ""}) == "pyproject.toml: poetry run python -m pytest -q"


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": '[project]\nname = "pytest-like"\ndependencies = ["pytestx"]\n'},
        {"pyproject.toml": "a = " + "[" * 5000},
        {"tests/test_a.py": ""},
    ],
)
def test_a_python_project_without_tests(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) is None


def test_the_script_of_a_package(tmp_path: Path, programs: Path) -> None:
    package = json.dumps({"scripts": {"test": "vitest run"}})
    assert found(tmp_path / "one", {"package.json": package}) == "package.json: npm test"
    assert found(tmp_path / "one", {"pnpm-lock.yaml": ""}) == "package.json: npm test"
    install(programs, "bun", "yarn", "pnpm")
    assert found(tmp_path / "one", {}) == "package.json: pnpm test"
    assert found(tmp_path / "two", {"package.json": package, "yarn.lock": ""}) == "package.json: yarn test"
    assert found(tmp_path / "three", {"package.json": package, "bun.lock": ""}) == "package.json: bun run test"


@pytest.mark.parametrize(
    "package",
    [
        json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}}),
        json.dumps({"scripts": {"test": ["x"]}}),
        json.dumps({"scripts": "test"}),
        "[1]",
        "{no json",
        "[" * 100_000,
        '{"a": ' + "1" * 10_000 + "}",
    ],
)
def test_a_package_without_tests(tmp_path: Path, package: str) -> None:
    assert found(tmp_path, {"package.json": package}) is None


def test_the_order_is_make_python_node_rust(tmp_path: Path) -> None:
    assert found(tmp_path, {"Cargo.toml": "[package]\n"}) == "Cargo.toml: cargo test"
    assert found(tmp_path, {"package.json": '{"scripts": {"test": "x"}}'}) == "package.json: npm test"
    assert (found(tmp_path, {"pyproject.toml": "[tool.pytest.ini_options]\n"}) or "").startswith("pyproject.toml: ")
    assert found(tmp_path, {"Makefile": "all: x\n"}) != "Makefile: make test"
    assert found(tmp_path, {"Makefile": "test: x\n"}) == "Makefile: make test"


def test_files_of_another_program_are_not_trusted(tmp_path: Path) -> None:
    write(tmp_path / "outside", {"Makefile": "test: x\n", "tests/test_a.py": "", "pyproject.toml": "[tool.pytest]"})
    project = tmp_path / "project"
    write(project, {"GNUmakefile": "x" * 2_000_000 + "\ntest: x\n", "pyproject.toml": "\0\xff"})
    (project / "Makefile").symlink_to(tmp_path / "outside" / "Makefile")
    (project / "tests").symlink_to(tmp_path / "outside" / "tests")
    os.mkfifo(project / "package.json")
    (project / "Cargo.toml").mkdir()
    assert find_check(project) is None
    assert find_check(tmp_path / "nowhere") is None


# -- running


@cache
def facts_of(folder: Path) -> Facts:
    return facts_in(folder)


def book_of(folder: Path, *commands: str) -> CheckHistory:
    book = CheckHistory(facts_of(folder))
    book.choose(CheckCommand(command, "--verify") for command in commands)
    return book


async def test_a_check_reports_its_end_and_its_output_in_order(tmp_path: Path) -> None:
    command = "echo out; echo err >&2; echo out again; read line || echo no input; exit 3"
    (result,) = await book_of(tmp_path, command).check(tmp_path, LIMIT)
    said = "out\nerr\nout again\nno input\n"
    assert (result.command, result.exit_code, result.output_tail) == (command, 3, said)
    assert result.output_sha256 == hashlib.sha256(said.encode()).hexdigest()
    assert (result.timed_out, result.flaky, result.baseline_exit_code, result.blocking) == (False, False, None, True)
    assert 0 < result.seconds < LIMIT


async def test_a_check_gets_the_users_variables_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASS"):
        monkeypatch.setenv(name, "planted")
    for name in ("RUSTUP_HOME", "JAVA_HOME", "NVM_DIR"):
        monkeypatch.setenv(name, "/somewhere")
    (result,) = await book_of(tmp_path, "tr '\\0' '\\n' < /proc/self/environ; pwd").check(tmp_path, LIMIT)
    *variables, folder = result.output_tail.splitlines()
    assert {"RUSTUP_HOME=/somewhere", "JAVA_HOME=/somewhere", "NVM_DIR=/somewhere"} <= {*variables}
    assert {"PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1"} <= {*variables}
    assert "planted" not in result.output_tail
    assert folder == str(tmp_path)


async def test_children_that_leave_the_group_of_a_check_are_ended(tmp_path: Path) -> None:
    command = "setsid sh -c 'echo $$ > new; mv new pid; exec sleep 1000' & while [ ! -f pid ]; do sleep 0.01; done"
    (result,) = await book_of(tmp_path, command).check(tmp_path, LIMIT)
    assert result.exit_code == 0
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_gate_that_hangs_has_failed_and_is_not_run_again(tmp_path: Path) -> None:
    command = "echo began >> runs; echo $$ > pid; sleep 1000 & sleep 1000"
    (result,) = await book_of(tmp_path, command).check(tmp_path, 0.5)
    assert (result.exit_code, result.timed_out, result.flaky) == (-9, True, False)
    assert (tmp_path / "runs").read_text() == "began\n"
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert result.seconds < LIMIT


async def test_a_gate_that_is_cancelled_leaves_no_process_and_the_next_one_may_run(tmp_path: Path) -> None:
    book = book_of(tmp_path, "sleep 1000 & echo $$ $! > new; mv new pids; wait")
    checking = asyncio.create_task(book.check(tmp_path, LIMIT))
    pids = await pids_in(tmp_path / "pids")
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert [pid for pid in pids if is_alive(pid)] == []
    book.choose([CheckCommand("true", "--verify")])
    assert (await book.check(tmp_path, LIMIT))[0].exit_code == 0


async def test_100_megabytes_are_hashed_and_not_kept(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    command = "head -c 104857600 /dev/zero | tr '\\0' x; echo; echo the end >&2"
    (result,) = await book_of(tmp_path, command).check(tmp_path, LIMIT)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # kilobytes
    assert result.exit_code == 0
    assert result.output_tail == "the end\n"
    expected = hashlib.sha256()
    for _ in range(100):
        expected.update(b"x" * 1024 * 1024)
    expected.update(b"\nthe end\n")
    assert result.output_sha256 == expected.hexdigest()


async def test_the_tail_is_harmless_text(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\xff\x00\x08 na\xc3\xafve\r\n"
        b"50%\r100%\tok \x9b2J" + "\u202egnp\x9b".encode() + b"\n\x1b"
    )
    (result,) = await book_of(tmp_path, "cat words").check(tmp_path, LIMIT)
    text = result.output_tail
    assert text.startswith("red link\ufffd\ufffd\ufffd naïve\n50%\n100%\tok \ufffd2J\ufffdgnp")
    assert not {character for character in text if ord(character) < 32} - {"\n", "\t"}
    (result,) = await book_of(tmp_path, "seq 100000").check(tmp_path, LIMIT)
    assert TAIL - 10 < len(result.output_tail) <= TAIL
    assert set(result.output_tail.split()) <= set(map(str, range(1, 100_001)))
    assert result.output_tail.endswith("100000\n")


async def test_a_missing_folder_is_not_a_red_check(tmp_path: Path) -> None:
    with pytest.raises(ExecError, match="Folder not found"):
        await book_of(tmp_path, "true").check(tmp_path / "gone", LIMIT)


async def test_gates_run_one_at_a_time(tmp_path: Path) -> None:
    command = "test ! -e busy && touch busy && sleep 0.1 && rm busy"
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    checks = (book_of(tmp_path / folder, command).check(tmp_path, LIMIT) for folder in ("one", "two", "three"))
    results = [result for results in await asyncio.gather(*checks) for result in results]
    assert [(result.exit_code, result.flaky) for result in results] == [(0, False)] * 3


# -- the book


async def test_a_flaky_gate_passes_and_is_named(tmp_path: Path) -> None:
    command = "test -e second || { touch second; echo first; exit 1; }; echo fine"
    (result,) = await book_of(tmp_path, command).check(tmp_path, LIMIT)
    assert (result.exit_code, result.flaky, result.output_tail) == (0, True, "fine\n")
    (result,) = await book_of(tmp_path, command).check(tmp_path, LIMIT)
    assert (result.exit_code, result.flaky) == (0, False)


async def test_a_gate_that_was_red_blocks_only_after_it_has_passed_once(tmp_path: Path) -> None:
    command = "echo run >> runs; exit $(cat code)"
    (tmp_path / "code").write_text("7")
    await book_of(tmp_path, command).take_baseline(tmp_path, LIMIT)
    assert (tmp_path / "runs").read_text() == "run\n"  # a baseline is run once, red or not

    async def check(code: int) -> tuple[int, int | None, bool]:
        (tmp_path / "code").write_text(str(code))
        (result,) = await CheckHistory(facts_of(tmp_path)).check(tmp_path, LIMIT)
        return result.exit_code, result.baseline_exit_code, result.blocking

    assert await check(2) == (2, 7, False)
    assert await check(0) == (0, 7, True)
    assert await check(2) == (2, 7, True)
    assert CheckHistory(facts_of(tmp_path)).passed_once == {command}
    assert CheckHistory(facts_of(tmp_path)).is_blocking(command)


async def test_a_baseline_is_taken_once_whatever_happens_then(tmp_path: Path) -> None:
    commands = ("echo a >> runs", "echo b >> runs; exit 1", "echo c >> runs; sleep 1000")
    book = book_of(tmp_path, *commands[:2])
    await book.take_baseline(tmp_path, LIMIT)
    again = book_of(tmp_path, *commands, commands[0])  # a resume, with one gate more
    assert again.commands == [*commands]
    await again.take_baseline(tmp_path, 0.3)
    assert (tmp_path / "runs").read_text() == "a\nb\nc\n"
    assert book.baseline == dict(zip(commands, (0, 1, -9), strict=True))
    assert [book.is_blocking(command) for command in commands] == [True, False, False]
    assert book.is_blocking("an unknown command")
    assert (tmp_path / "gates.json").stat().st_mode & 0o777 == 0o600


async def test_an_interrupted_baseline_continues(tmp_path: Path) -> None:
    book = book_of(tmp_path, "echo a >> runs", "echo b >> runs; sleep 1000")
    taking = asyncio.create_task(book.take_baseline(tmp_path, LIMIT))
    await eventually(lambda: (tmp_path / "runs").exists() and "b" in (tmp_path / "runs").read_text())
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert dict(book.baseline) == {"echo a >> runs": 0}
    await CheckHistory(facts_of(tmp_path)).take_baseline(tmp_path, 0.3)
    assert (tmp_path / "runs").read_text() == "a\nb\nb\n"


async def test_a_run_without_checks_reports_none(tmp_path: Path) -> None:
    book = CheckHistory(facts_of(tmp_path))
    await book.take_baseline(tmp_path, LIMIT)
    assert (await book.check(tmp_path, LIMIT), list(book.chosen), dict(book.baseline)) == ([], [], {})
