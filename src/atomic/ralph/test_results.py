"""Read which tests failed from the output of a check, or say that it cannot be read.

The output may come from `make test` and contain anything else. The result is exact, or
there is none: the names of failed tests must be as many as the runner's own summary
counts, and the runner must have run all tests. Pure.

There is no result if a run stopped early or broke (`-x`, `--bail`, a panic, an internal
error, a coverage limit), if two different runners report, or if a summary appears where
the runner would not print one. Several runs of one runner are added; names of the second
run begin with `run 2: `, because other tests may have the same names.

Tests can print lines that look like a runner's. Such a line can add a name, and can make
the output unreadable. It cannot remove a name. What remains, and what a caller must know:

* The output must be complete. Without its beginning, names may be missing.
* A runner that the project's code controls can lie: a `conftest.py` that changes
  reports, a test that prints a whole run and ends the process.
* A printed run that looks complete adds its tests to the total.
* Only tests are read, and the targets that make says failed. A command that also fails
  for another reason, such as a linter, looks the same: the caller compares the exit code,
  and must not say that the command was proven.
* `go test -failfast` prints nothing that shows it. `unittest -f` prints nothing either,
  but its last test has failed, and that is unreadable unless two tests failed.
* A run that dies before it prints its first line is not seen if another one follows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")  # within a line: a longer sequence could swallow real lines
_NUMBER = "([0-9]{1,9})"
_COUNT = re.compile(rf"{_NUMBER} ([a-z ]+)")
# A runner fails for another reason than a test.
_OTHER_FAILURE = re.compile(
    r"^(?:INTERNALERROR> |Fatal Python error: |FAIL Required test coverage |(?:ERROR: )?Coverage failure: "
    r"|Jest: .* coverage threshold |ERROR: Coverage for )",
    re.MULTILINE,
)


class RunnerResults(msgspec.Struct, frozen=True):
    """The results of all tests that a test runner ran."""

    runner: str  # "pytest", "unittest", "jest", "vitest", "cargo" or "go"
    # Tests that passed or failed, without those that are skipped or expected to fail. A
    # pytest test that passes and whose teardown fails counts twice. 0: unknown, because
    # go lists tests only with -v.
    total: int
    failed: tuple[str, ...]  # sorted names of tests, and of files and packages that could not be loaded
    # What make says failed, such as `[test] Error 1`, sorted. None: read by an older version.
    failed_targets: tuple[str, ...] | None = None


class _Run(msgspec.Struct, frozen=True):
    """One run of a test runner."""

    total: int
    failed: set[str]


class _UnreadableError(Exception):
    """The output of a runner is incomplete, ambiguous or contradicts itself."""


def read_results(output: str) -> RunnerResults | None:
    """Return the results of the tests, or None if they cannot be read with certainty."""
    text = _COLOUR.sub("", output).replace("\r\n", "\n").replace("\r", "\n")
    if _OTHER_FAILURE.search(text) is not None:
        return None
    lines = text.split("\n")
    readers: dict[str, Callable[[list[str]], list[_Run]]] = {
        "pytest": _read_pytest,
        "unittest": _read_unittest,
        "jest": _read_jest,
        "vitest": _read_vitest,
        "cargo": _read_cargo,
        "go": _read_go,
    }
    try:
        found = {runner: runs for runner, read in readers.items() if (runs := read(lines))}
    except _UnreadableError:
        return None
    if len(found) != 1:
        return None
    [(runner, runs)] = found.items()
    failed = {
        name if number == 1 else f"run {number}: {name}" for number, run in enumerate(runs, 1) for name in run.failed
    }
    return RunnerResults(runner, sum(run.total for run in runs), tuple(sorted(failed)), _failed_targets(text))


# make

# Not only at the beginning of a line: a recipe may print text without a new line.
_MAKE_FAILED = re.compile(r"make(?:\[[0-9]{1,4}\])?: \*\*\* (?!Waiting for unfinished jobs)(.+)")
_MAKE_PLACE = re.compile(r"\A\[[^\]\n]*:[0-9]+: ")  # `[Makefile:4: test] Error 1`: the line may move


def _failed_targets(text: str) -> tuple[str, ...]:
    """Return what make says failed, without the lines of the makefile."""
    return tuple(sorted({_MAKE_PLACE.sub("[", said.rstrip()) for said in _MAKE_FAILED.findall(text)}))


def _require(condition: bool) -> None:
    """Raise _UnreadableError unless the condition holds."""
    if not condition:
        raise _UnreadableError


def _counts(parts: Iterable[str]) -> Counter[str]:
    """Return numbers by their words: `2 failed` is `{"failed": 2}`."""
    counts: Counter[str] = Counter()
    for part in parts:
        match = _COUNT.fullmatch(part)
        if match is None:
            raise _UnreadableError
        counts[match[2]] += int(match[1])
    return counts


# pytest

_PYTEST_START = re.compile(r"=+ test session starts =+")
_PYTEST_END = re.compile(r"(?:=+ )?([a-z0-9 ,]+) in [0-9]+\.[0-9]+s(?: \([0-9a-z:, ]+\))?(?: =+)?")
_PYTEST_FAILED = re.compile(r"(FAILED|ERROR) (.+)|(SUBFAIL)(?:ED)?(.+)")
_PYTEST_OUTCOMES = {"passed", "failed", "error", "errors", "skipped", "xfailed", "xpassed", "deselected"}
_PYTEST_OTHERS = {"warning", "warnings", "rerun", "subtests passed", "subtests skipped", "subtests xfailed"}
_PYTEST_HEADING = re.compile(r"ERROR (?:at setup of|at teardown of|collecting) ")
_MAX_DASHES = 100  # " - " in a line with a name; each one may be the end of the name


def _read_pytest(lines: Sequence[str]) -> list[_Run]:
    """Return the runs of pytest.

    Each run must begin with its header. Only a single run may lack it, as with -q.
    """
    starts = [number for number, line in enumerate(lines) if _PYTEST_START.fullmatch(line)]
    ends = [number for number, line in enumerate(lines) if _is_pytest_end(line)]
    if not starts and len(ends) == 1:
        starts = [0]
    pairs = list(zip(starts, ends, strict=False))
    _require(sorted(starts + ends) == [number for pair in pairs for number in pair])
    return [_pytest_run(lines[start : end + 1]) for start, end in pairs]


def _is_pytest_end(line: str) -> bool:
    """Return whether a line is the last one of a run, such as `1 failed in 0.10s`."""
    match = _PYTEST_END.fullmatch(line)
    if match is None:
        return False
    words = {part.strip().partition(" ")[2] for part in match[1].split(",")}
    return "tests ran" in match[1] or not words.isdisjoint(_PYTEST_OUTCOMES)


def _pytest_run(lines: Sequence[str]) -> _Run:
    """Return the results of one run, whose last line counts them."""
    end = _PYTEST_END.fullmatch(lines[-1])
    assert end is not None  # `_is_pytest_end` has matched it
    counts = _counts(end[1].split(", "))
    _require(counts.keys() <= _PYTEST_OUTCOMES | _PYTEST_OTHERS)
    errors = counts["error"] + counts["errors"]
    titles = Counter(line.strip("= ") for line in lines if line.startswith("="))
    # A second section, or one that the counts do not need, belongs to another run.
    _require(titles["FAILURES"] <= min(1, counts["failed"]))
    _require(titles["ERRORS"] <= min(1, errors))
    _require(titles["short test summary info"] <= 1)
    _require(not any(_shows_part_of_run(line) for line in lines))

    headings = {_PYTEST_HEADING.sub("", line.strip("_")[1:-1], count=1) for line in lines if line.startswith("_")}
    names: dict[str, set[str]] = {"FAILED": set(), "ERROR": set(), "SUBFAIL": set()}
    is_listed = False
    for line in lines:
        if line.startswith("=") and line.strip("= ") == "short test summary info":
            is_listed = True
        match = _PYTEST_FAILED.fullmatch(line) if is_listed else None
        if match is not None:
            names[match[1] or match[3]].add(_pytest_name(match[2] or match[4], headings))
    _require(len(names["FAILED"]) + len(names["SUBFAIL"]) == counts["failed"])
    _require(len(names["ERROR"]) == errors)
    tests = names["FAILED"] | names["ERROR"]
    return _Run(counts["passed"] + len(tests), tests | names["SUBFAIL"])


def _shows_part_of_run(line: str) -> bool:
    """Return whether a line says that pytest stopped early, or ran only what failed last."""
    if line.startswith("!"):
        return line.lstrip("!").startswith(" ")
    return line.startswith("run-last-failure: ") and not line.endswith(" first")


def _pytest_name(text: str, headings: set[str]) -> str:
    """Return the name in `name - message`.

    Both may contain ` - `. If a parameter or the message contains `]`, there may be
    several ways to read it. The heading of the test's failure decides then.
    """
    _require(text.count(" - ") <= _MAX_DASHES)
    parts = text.split(" - ")
    found = [name for end in range(1, len(parts) + 1) if _is_node(name := " - ".join(parts[:end]))]
    if len(found) > 1:
        found = [name for name in found if _heading(name) in headings]
    _require(len(found) == 1)
    return found[0]


def _is_node(text: str) -> bool:
    """Return whether a text can be the id of a test, or the path of a test file."""
    path, colons, rest = text.partition("::")
    if not colons:
        return re.search(r"\.\w+\Z", path[-10:]) is not None
    name, bracket, parameters = rest.partition("[")
    has_name = bool(name) and not re.search(r"\s", name)
    return has_name and (not bracket or parameters.endswith("]"))


def _heading(name: str) -> str:
    """Return the title of a test's failure."""
    path, colons, rest = name.partition("::")
    if not colons:
        return path
    name, bracket, parameters = rest.partition("[")
    return name.replace("::", ".") + bracket + parameters


# unittest

_UNITTEST_RAN = re.compile(rf"Ran {_NUMBER} tests? in [0-9.]+s")
_UNITTEST_END = re.compile(r"(?:OK|FAILED)(?: \((.+)\))?")
_UNITTEST_COUNT = re.compile(rf"([a-z ]+)={_NUMBER}")
_UNITTEST_FAILED = re.compile(r"(ERROR|FAIL|UNEXPECTED SUCCESS): (\S+ \([^\s()]+\)(?: .*[\])])?)")
_UNITTEST_KINDS = {"FAIL": "failures", "ERROR": "errors", "UNEXPECTED SUCCESS": "unexpected successes"}
_UNITTEST_PASSED = re.compile(r"[.FEsxu]*[.sx]|.* \.\.\. (?:ok|expected failure|skipped .*)")
_UNITTEST_LINE = "=" * 70


def _read_unittest(lines: Sequence[str]) -> list[_Run]:
    """Return the runs of unittest."""
    runs: list[_Run] = []
    start = 0
    for number, line in enumerate(lines):
        ran = _UNITTEST_RAN.fullmatch(line)
        if ran is not None:
            result = next((line for line in lines[number + 1 : number + 3] if line), "")
            runs.append(_unittest_run(lines[start:number], int(ran[1]), result))
            start = number
    return runs


def _unittest_run(lines: Sequence[str], ran: int, result: str) -> _Run:
    """Return the results of one run.

    `lines`: its output up to the number of tests. `result`: the line after it.
    """
    end = _UNITTEST_END.fullmatch(result)
    if end is None:
        raise _UnreadableError
    counts: Counter[str] = Counter()
    for part in (end[1] or "").split(", "):
        count = _UNITTEST_COUNT.fullmatch(part)
        _require(count is not None or end[1] is None)
        if count is not None:
            counts[count[1]] = int(count[2])
    _require(counts.keys() <= {*_UNITTEST_KINDS.values(), "skipped", "expected failures"})

    titles = [number for number, line in enumerate(lines[:-1], 1) if line == _UNITTEST_LINE]
    names: dict[str, set[str]] = {kind: set() for kind in _UNITTEST_KINDS}
    for title in titles:
        match = _UNITTEST_FAILED.fullmatch(lines[title])
        # The line below may be the test's docstring.
        if match is None or not any(line == "-" * 70 for line in lines[title + 1 : title + 3]):
            raise _UnreadableError
        names[match[1]].add(match[2])
    _require(all(len(names[kind]) == counts[word] for kind, word in _UNITTEST_KINDS.items()))
    failed = set[str]().union(*names.values())
    if titles:
        _require(not _may_be_failfast(lines[: titles[0] - 1], failed))
    total = ran - counts["skipped"] - counts["expected failures"]
    return _Run(max(total, 0), failed)


def _may_be_failfast(progress: Sequence[str], failed: set[str]) -> bool:
    """Return whether unittest may have stopped at the first failed test.

    It does not say so. Then one test has failed, and it is the last one; what clears up
    after it may have failed too.
    """
    tests = {name.partition(")")[0] for name in failed if not name.startswith("tearDown")}
    last = next((line for line in reversed(progress) if line), "")
    return len(tests) == 1 and _UNITTEST_PASSED.fullmatch(last) is None


# jest

_JEST_FILE = re.compile(r"(FAIL|PASS) (\S.*?)(?: \([^()]*\))?")
_JEST_BULLET = "  ● "
_JEST_NOT_RUN = "Test suite failed to run"


def _read_jest(lines: Sequence[str]) -> list[_Run]:
    """Return the runs of jest."""
    runs: list[_Run] = []
    start = 0
    for number, line in enumerate(lines):
        if line.startswith("Test Suites: "):
            tests = next(iter(lines[number + 1 : number + 2]), "")
            runs.append(_jest_run(lines[start:number], line, tests))
            start = number
    return runs


def _jest_run(lines: Sequence[str], suites_line: str, tests_line: str) -> _Run:
    """Return the results of one run.

    `lines`: its output up to the two lines that count files and tests. After --bail the
    first one says `1 of 3 total`, which is not a count.
    """
    _require(tests_line.startswith("Tests: "))
    suites = _counts(suites_line.partition(":")[2].strip().split(", "))
    tests = _counts(tests_line.partition(":")[2].strip().split(", "))
    file = ""
    failed_files: set[str] = set()
    broken_files: set[str] = set()
    failed_tests: set[str] = set()
    for line in lines:
        match = _JEST_FILE.fullmatch(line)
        title = line.removeprefix(_JEST_BULLET)
        if match is not None:
            file = match[2]
        if match is not None and match[1] == "FAIL":
            failed_files.add(file)
        if title == _JEST_NOT_RUN:
            broken_files.add(file)
        elif title != line and title != "Console":  # what the file's tests printed
            failed_tests.add(f"{file} › {title}")
    files_with_names = broken_files | {name.partition(" › ")[0] for name in failed_tests}
    _require(files_with_names == failed_files)
    _require(len(failed_files) == suites["failed"])
    _require(len(failed_tests) == tests["failed"])
    return _Run(tests["passed"] + tests["failed"], failed_tests | broken_files)


# vitest

_VITEST_FILES = re.compile(rf" Test Files  (.+) \({_NUMBER}\)")
_VITEST_TESTS = re.compile(rf"      Tests  (.+) \({_NUMBER}\)")
_VITEST_SECTION = re.compile(rf"⎯+ Failed (Suites|Tests) {_NUMBER} ⎯+")
_VITEST_ERRORS = re.compile(r" +(?:Type )?Errors  .*")
_VITEST_NAME = " FAIL  "


def _read_vitest(lines: Sequence[str]) -> list[_Run]:
    """Return the run of vitest.

    It prints names to stderr and counts to stdout, whose order may be lost. So only one
    run can be read. After --bail the counts do not add up to the total.
    """
    summaries = [number for number, line in enumerate(lines) if line.startswith(" Test Files  ")]
    if not summaries:
        return []
    _require(len(summaries) == 1)
    _require(not any(_VITEST_ERRORS.fullmatch(line) for line in lines))
    [summary] = summaries
    files = _vitest_counts(_VITEST_FILES.fullmatch(lines[summary]))
    tests = _vitest_counts(_VITEST_TESTS.fullmatch("".join(lines[summary + 1 : summary + 2])))
    sections: Counter[str] = Counter()
    for line in lines:
        section = _VITEST_SECTION.fullmatch(line)
        if section is not None:
            sections[section[1]] += int(section[2])
    names = {line.removeprefix(_VITEST_NAME) for line in lines if line.startswith(_VITEST_NAME)}
    _require(sections["Tests"] == tests["failed"])
    _require(len(names) == sections["Tests"] + sections["Suites"])
    failed_files = {re.split(r" > | \[ ", name, maxsplit=1)[0] for name in names}
    _require(len(failed_files) == files["failed"])
    return [_Run(tests["passed"] + tests["failed"], names)]


def _vitest_counts(match: re.Match[str] | None) -> Counter[str]:
    """Return the numbers of a line such as `1 failed | 2 passed (3)`."""
    if match is None:
        raise _UnreadableError
    counts = _counts(match[1].split(" | "))
    _require(counts.total() == int(match[2]))
    return counts


# cargo

_CARGO_LABEL = re.compile(r" +(?:Running|Doc-tests) (.+)")
_CARGO_PATH = re.compile(r"\((?:[^()]*[/\\])?([^()/\\]+)-[0-9a-f]{16}(?:\.exe)?\)\Z")
_CARGO_START = re.compile(rf"running {_NUMBER} tests?")
_CARGO_RESULT = re.compile(
    rf"test result: (?:ok|FAILED)\. {_NUMBER} passed; {_NUMBER} failed; {_NUMBER} ignored; {_NUMBER} measured; .*"
)
_CARGO_TARGETS = re.compile(rf"error: {_NUMBER} targets? failed:")
_CARGO_ERRORS = ("error: test failed", "error: doctest failed", "error: could not compile")


def _read_cargo(lines: Sequence[str]) -> list[_Run]:
    """Return the results of all binaries as one run.

    Without --no-fail-fast, cargo stops after the first binary with a failed test. Only
    with it does cargo count the failed targets at the end.
    """
    if not any(line.startswith("test result: ") for line in lines):
        return []
    label = ""
    is_new = False  # no binary has run since the last label
    start: int | None = None  # of the tests of a binary
    labels: Counter[str] = Counter()
    runs: list[_Run] = []
    failed_targets = 0
    has_error = False
    for number, line in enumerate(lines):
        named = _CARGO_LABEL.fullmatch(line)
        if line.startswith("test result: "):
            _require(start is not None and label != "")
            labels[label] += 1
            # Crates of a workspace may have binaries of the same name.
            prefix = label if labels[label] == 1 else f"{label} #{labels[label]}"
            runs.append(_cargo_binary(lines[start : number + 1], prefix))
            start = None
        elif _CARGO_START.fullmatch(line) is not None:
            _require(start is None)
            start = number
            is_new = False
        elif named is not None:
            _require(start is None and not is_new)
            label = _CARGO_PATH.sub(r"(\1)", named[1])
            is_new = True
        elif start is None and (targets := _CARGO_TARGETS.fullmatch(line)) is not None:
            failed_targets += int(targets[1])
        elif start is None and line.startswith(_CARGO_ERRORS):
            has_error = True
    _require(start is None and not is_new)
    _require(failed_targets == sum(1 for run in runs if run.failed))
    _require(failed_targets > 0 or not has_error)
    return [_Run(sum(run.total for run in runs), set[str]().union(*(run.failed for run in runs)))]


def _cargo_binary(lines: Sequence[str], label: str) -> _Run:
    """Return the results of one binary, from `running 2 tests` to `test result: …`."""
    start = _CARGO_START.fullmatch(lines[0])
    result = _CARGO_RESULT.fullmatch(lines[-1])
    if start is None or result is None:
        raise _UnreadableError
    passed, failed, ignored, measured = (int(count) for count in result.groups())
    _require(int(start[1]) == passed + failed + ignored + measured)
    # The first list has the output of the tests, the second one the names.
    lists = [number for number, line in enumerate(lines) if line == "failures:"]
    _require(len(lists) == min(failed, 1) * 2)
    names = [line for line in lines[lists[-1] + 1 : -1] if line] if lists else []
    _require(all(line.startswith("    ") for line in names))
    distinct = {f"{label}: {line.strip()}" for line in names}
    _require(len(distinct) == failed)
    return _Run(passed + failed, distinct)


# go

_GO_PACKAGE = re.compile(r"(ok  |FAIL|\?   )\t(\S+)(.*)")
# Not only at the beginning of a line: a test may print text without a new line.
_GO_TEST = re.compile(r"--- (FAIL|PASS): (?=(\S+))")
_GO_BROKEN = re.compile(r"panic: .*|exit status (?!1\Z).*|signal: .*|fatal error: .*")
_GO_NOT_BUILT = ("[build failed]", "[setup failed]")


def _read_go(lines: Sequence[str]) -> list[_Run]:
    """Return the results of all packages as one run. Its total is 0 without -v."""
    ends = [(number, match) for number, line in enumerate(lines) if (match := _GO_PACKAGE.fullmatch(line))]
    if all(match[1] == "?   " for _, match in ends):
        return []
    _require(len(ends) == len({match[2] for _, match in ends}))
    failed: set[str] = set()
    total = 0
    is_verbose = True
    start = 0
    for number, match in ends:
        word, package, note = match.groups()
        part = lines[start:number]
        start = number + 1
        names = _go_names(part)
        failed |= {f"{package}.{name}" for name in names["FAIL"]}
        total += len(names["FAIL"] | names["PASS"])
        if note.strip() in _GO_NOT_BUILT:
            failed.add(f"{package} {note.strip()}")
        elif word == "FAIL":
            _require(_is_whole_go_package(part))
            is_verbose = is_verbose and _lists_go_tests(part)
        else:
            _require(not names["FAIL"])
            is_verbose = is_verbose and (word != "ok  " or "[no tests to run]" in note or _lists_go_tests(part))
    _require(not _go_names(lines[start:])["FAIL"])
    return [_Run(total if is_verbose else 0, failed)]


def _go_names(lines: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of tests by `FAIL` and `PASS`."""
    names: dict[str, set[str]] = {"FAIL": set(), "PASS": set()}
    for line in lines:
        for match in _GO_TEST.finditer(line):
            names[match[1]].add(match[2])
    return names


def _is_whole_go_package(lines: Sequence[str]) -> bool:
    """Return whether a failed package ran all its tests.

    It names the failed ones and then says FAIL. A package that panics or exits does
    not. A FAIL before the names is the end of an earlier command.
    """
    first = next((number for number, line in enumerate(lines) if "--- FAIL: " in line), len(lines))
    return "FAIL" in lines[first:] and not any(_GO_BROKEN.fullmatch(line) for line in lines)


def _lists_go_tests(lines: Sequence[str]) -> bool:
    """Return whether a package's tests are listed, as with -v."""
    return any(line.startswith("=== RUN ") for line in lines)
