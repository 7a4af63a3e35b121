import json
import os
import subprocess
from pathlib import Path

RECORDING = Path(__file__).with_name("changelog.jsonl")
WORKFLOW = Path(__file__).parents[1] / ".atomic" / "workflows" / "changelog.py"


def atomic(project: Path, *words: str) -> tuple[int, list[dict[str, str]]]:
    """Run `atomic` in a project; return its exit code and its events."""
    env = {**os.environ, "ATOMIC_HOME": str(project.parent / "atomic-home"), "ATOMIC_REPLAY_SPEED": "max"}
    done = subprocess.run(["atomic", *words], cwd=project, env=env, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_entries_are_written_after_a_yes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    workflows = project / ".atomic" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "changelog.py").write_text(WORKFLOW.read_text())
    subprocess.run(["git", "init", "--quiet", project], check=True)

    _, [found] = atomic(project, "trust", "--show", "--json")
    code, events = atomic(
        project, "run", "changelog", "--agent", f"replay:{RECORDING}", "--trust", found["hash"], "--json"
    )
    assert (code, events[-1]["reason"]) == (5, "question")
    assert not (project / "CHANGELOG.md").exists()

    code, events = atomic(project, "answer", events[-1]["run"], "yes", "--trust", found["hash"], "--json")
    assert (code, events[-1]["status"]) == (0, "completed")
    assert (project / "CHANGELOG.md").read_text() == "# Changelog\n\n* Add a login page\n"
