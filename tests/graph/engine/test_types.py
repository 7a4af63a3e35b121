"""Run pyright on small files that an author could write, all in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci

CASES = Path(__file__).parent / "typing_cases"
ROOT = Path(__file__).parents[3]
FILES = sorted(CASES.glob("*.txt"))


def expected_errors(case: Path) -> dict[int, str]:
    """Return the expected errors: the text after `# E:`, by line."""
    lines = case.read_text().splitlines()
    return {number: line.partition("# E:")[2].strip() for number, line in enumerate(lines) if "# E:" in line}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """Return the messages of pyright (strict) by case and line."""
    folder = tmp_path_factory.mktemp("typing")
    for case in FILES:
        (folder / f"{case.stem}.py").write_text(case.read_text())
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src")],
        "reportUnusedExpression": "none",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "--project",
        str(folder),
    ]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # no network requests
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder, env=quiet)
    found: dict[str, dict[int, str]] = {case.stem: {} for case in FILES}
    for message in json.loads(done.stdout)["generalDiagnostics"]:
        lines = found[Path(message["file"]).stem]
        place = message["range"]["start"]["line"]
        lines[place] = f"{lines.get(place, '')} {message['message']}".strip()
    return found


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.stem)
def test_pyright_reports_the_mistakes_of_an_author(case: Path, reported: dict[str, dict[int, str]]) -> None:
    expected = expected_errors(case)
    actual = reported[case.stem]
    missing = {number + 1: words for number, words in expected.items() if words not in actual.get(number, "")}
    assert missing == {}, actual
    surplus = {number + 1: text for number, text in actual.items() if number not in expected}
    assert surplus == {}
