"""What users of other tools mean by words that are no commands here."""

from __future__ import annotations

OTHER_WORDS = {
    "begin": 'atomic run WORKFLOW "…" starts a run, atomic ralph "GOAL" works on a goal',
    "cancel": "atomic stop ID --cancel ends a run for good",
    "claude": 'an agent is a flag: atomic --agent claude, or atomic -p "…" --agent claude',
    "codex": 'an agent is a flag: atomic --agent codex, or atomic -p "…" --agent codex',
    "continue": "atomic resume continues a run, atomic -c a conversation",
    "copilot": 'an agent is a flag: atomic --agent copilot, or atomic -p "…" --agent copilot',
    "cost": "atomic ps lists what each run has cost, atomic sessions show ID its parts",
    "delete": "atomic sessions prune deletes old runs, atomic discard ID a run's branch",
    "gemini": 'an agent is a flag: atomic --agent gemini, or atomic -p "…" --agent gemini',
    "history": "atomic ps lists runs",
    "install": "atomic doctor names the command that installs what is missing, atomic workflows add adds a workflow",
    "kill": "atomic stop ID pauses a run, with --cancel it ends for good",
    "list": "atomic ps lists runs, atomic workflows list lists workflows",
    "ls": "atomic ps lists runs, atomic workflows list lists workflows",
    "merge": "atomic accept ID merges a run's branch into yours",
    "opencode": 'an agent is a flag: atomic --agent opencode, or atomic -p "…" --agent opencode',
    "pause": "atomic stop ID pauses a run",
    "pr": 'atomic ralph --pr "GOAL" opens a pull request at its end',
    "remove": "atomic sessions prune deletes old runs, atomic discard ID a run's branch",
    "report": "atomic sessions report ID prints the report of a run",
    "runs": "atomic ps lists runs",
    "show": "atomic status ID shows a run, atomic workflows show NAME a workflow",
    "start": 'atomic run WORKFLOW "…" starts a run, atomic ralph "GOAL" works on a goal',
    "uninstall": "uv tool uninstall atomic-workflows, or pipx uninstall atomic-workflows",
    "update": "uv tool upgrade atomic-workflows, or pipx upgrade atomic-workflows",
    "upgrade": "uv tool upgrade atomic-workflows, or pipx upgrade atomic-workflows",
    "web": "atomic chat --web shows the screen in a browser",
}
