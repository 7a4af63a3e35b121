"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_workflow_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    code = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "ship.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "ship.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = [line.partition("  # ")[2] for line in code.splitlines() if "print(" in line and "  # " in line]
    assert done.stdout.splitlines() == ["building 1.2", *said]


def test_the_short_recording_has_lines_of_the_whole_one_in_their_order() -> None:
    short, whole = (lines_of(ROOT / "docs" / name) for name in ("demo-short.svg", "demo.svg"))
    left = iter(whole)
    assert 15 < len(short) < 30
    assert all(line in left for line in short)


def lines_of(drawing: Path) -> list[str]:
    return re.findall(r"<text [^>]*>(.*?)</text>", drawing.read_text(encoding="utf-8"))
