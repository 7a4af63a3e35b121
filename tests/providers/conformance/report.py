"""Write docs/providers.md from the last runs of the suite; `make providers-doc` runs it and calls this.

python -m tests.providers.conformance.report .programs/conformance.xml .programs/interruptions.txt

Several XML files are read in order. An agent or a case that is in none of them keeps what the page says of it, so a
run of one agent is enough to write its column.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from atomic.providers import Capabilities, require_provider
from atomic.testing.conformance import Case
from atomic.testing.conformance.cases import GROUPS
from tests.providers.conformance.test_replay import LIVE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "providers.md"
REPLAY = "replay"
COLUMNS = {
    "claude": "Claude Code, the program in the wheel of its SDK or your own",
    "opencode": "OpenCode, through `opencode serve`",
    "copilot": "GitHub Copilot, the CLI as a server on its standard streams",
    "codex": "Codex, through its adapter `codex-acp`",
    "gemini": "Gemini CLI, over ACP",
    "acp:claude": "Claude Code over ACP, through its adapter `claude-agent-acp`",
    REPLAY: "a recording, made of the same case with Claude Code",
}
MODULES = {"acp_claude": "acp:claude"}  # test modules that are not named like their agent
PASSED = "yes"
FAILED = "**no**"
NOT_OFFERED = "–"
NOT_RUN = "not run"
WORDS = {
    "resume": "resume a session",
    "fork": "fork a session",
    "subagents": "sub-agents from Atomic",
    "custom_tools": "Python functions as tools",
    "mcp_servers": "MCP servers",
    "mcp_switching": "leave out its own MCP servers",
    "questions": "questions to the user",
    "multi_select": "several answers to one question",
    "system_prompt": "a system prompt",
    "tool_selection": "only some tools",
    "max_turns": "a limit of model calls",
    "models": "list and switch models",
    "thinking": "thinking is shown",
    "usage": "tokens",
    "cost": "dollars",
    "context_meter": "how full the context is",
    "compact": "summarise on request",
    "structured": "structured answers",
}


def read_results(file: Path) -> dict[tuple[str, str], str]:
    """Return the result of each agent and case."""
    results: dict[tuple[str, str], str] = {}
    for test in ElementTree.parse(file).getroot().iter("testcase"):
        name = test.get("name", "")
        agent = _agent_of(test.get("classname", ""))
        if "[" not in name or agent is None:
            continue
        failed = any(child.tag in ("failure", "error") for child in test)
        results[agent, name.partition("[")[2].rstrip("]")] = FAILED if failed else PASSED
    return results


def _agent_of(module: str) -> str | None:
    """Return the agent of a test module."""
    folder, _, name = module.rpartition(".test_")
    name = MODULES.get(name, name)
    return name if folder.endswith("conformance") and name in COLUMNS else None


def read_page(text: str) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the results and the notes of the page as it is."""
    names = {case.title: case.name for group in GROUPS for case in group.cases}
    results: dict[tuple[str, str], str] = {}
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|  |"):
            columns = cells[1:]
        elif line.startswith("| ") and cells[0] in names:
            cells_by_agent = zip(columns, cells[1:], strict=True)
            results |= {(agent, names[cells[0]]): cell for agent, cell in cells_by_agent if cell in (PASSED, FAILED)}
    _, _, notes = text.partition("## Turns with random interruptions")
    return results, [line.removeprefix("* ") for line in notes.splitlines() if line.startswith("* ")]


def page(results: Mapping[tuple[str, str], str], notes: Sequence[str]) -> str:
    capabilities = {name: _capabilities(name) for name in COLUMNS}
    lines = [
        "# What each agent can do",
        "",
        f"Written by `make providers-doc` on {datetime.now(UTC).date()}: the suite was run on the real programs,",
        "against a scripted model, in a network that has loopback and nothing else. Its cases are in",
        "`atomic.testing.conformance`; `–` means that an agent does not offer it or a recording cannot show it.",
        "",
        *(f"* `{name}`: {words}" for name, words in COLUMNS.items()),
        "",
        "## Capabilities",
        "",
        *_table(["", *COLUMNS], [_capability_row(word, capabilities) for word in WORDS]),
    ]
    for group in GROUPS:
        rows = [
            [case.title, *(_result(results, name, case, can) for name, can in capabilities.items())]
            for case in group.cases
        ]
        lines += ["", f"## {group.heading}", "", *_table(["", *COLUMNS], rows)]
    if notes:
        lines += ["", "## Turns with random interruptions", "", *(f"* {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _capability_row(word: str, capabilities: Mapping[str, Capabilities]) -> list[str]:
    return [WORDS[word], *(_capability(getattr(can, word)) for can in capabilities.values())]


def _capability(value: object) -> str:
    if isinstance(value, str):
        return value
    return PASSED if value else NOT_OFFERED


def _result(results: Mapping[tuple[str, str], str], agent: str, case: Case, can: Capabilities) -> str:
    offered = case.needs(can) and not (agent == REPLAY and case.name in LIVE)
    return results.get((agent, case.name), NOT_RUN) if offered else NOT_OFFERED


def _capabilities(name: str) -> Capabilities:
    return require_provider("replay:any" if name == REPLAY else name).capabilities


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    results, notes = read_page(PAGE.read_text())
    new: dict[tuple[str, str], str] = {}
    for file in map(Path, sys.argv[1:]):
        if file.suffix == ".xml":
            new |= read_results(file)
        else:
            notes = [line for line in file.read_text().splitlines() if line.strip()]
    PAGE.write_text(page({**results, **new}, notes))
    raise SystemExit(FAILED in new.values())


if __name__ == "__main__":
    main()
