"""What the README shows is what happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_first_workflow_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    code = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "story.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "story.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "paused ['What shall it be called?']", "Three lines", "Line 1.", "Line 2.", "Line 3.",
    ]  # fmt: skip


def test_the_drawing_of_the_readme_is_the_drawing_of_its_workflow(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0].replace("asyncio.run(main())", "print(story.draw())")
    (tmp_path / "story.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "story.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    shown = text.split("are other formats:\n\n```\n")[1].split("```")[0]
    assert done.stdout.rstrip("\n") == shown.rstrip("\n"), done.stderr
