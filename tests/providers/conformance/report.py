"""Write docs/providers.md from the last runs of the suite.

python -m pytest tests/providers/conformance --junitxml=.programs/conformance.xml
python -m tests.providers.conformance.report .programs/conformance.xml [interruptions.txt ...]
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from atomic.providers import Capabilities, require_provider
from atomic.testing.conformance import AGENTS
from atomic.testing.conformance.cases import GROUPS
from tests.providers.conformance.playing import PROJECT

PASSED, FAILED, NOT_OFFERED, NOT_RUN = "yes", "**no**", "–", "not run"
WORDS = {
    "resume": "takes a session up again",
    "fork": "copies a session",
    "subagents": "sub-agents from Atomic",
    "custom_tools": "Python functions as tools",
    "mcp_servers": "MCP servers",
    "questions": "questions to a person",
    "multi_select": "several answers to one question",
    "system_prompt": "a system prompt",
    "tool_selection": "only some tools",
    "max_turns": "a bound of model calls",
    "models": "a list of models, and a switch",
    "thinking": "thinking is shown",
    "usage": "tokens",
    "cost": "dollars",
    "context_meter": "how full the context is",
    "compact": "summarises on request",
    "structured": "structured answers",
}


def read_results(file: Path) -> dict[tuple[str, str], str]:
    """(agent, case) to what came of it."""
    results: dict[tuple[str, str], str] = {}
    for test in ElementTree.parse(file).getroot().iter("testcase"):
        module, name = test.get("classname", ""), test.get("name", "")
        agent = _agent_of(module)
        if "[" not in name or agent is None:
            continue
        failed = any(child.tag in ("failure", "error") for child in test)
        results[agent, name.partition("[")[2].rstrip("]")] = FAILED if failed else PASSED
    return results


def _agent_of(module: str) -> str | None:
    """The agent that a test module plays the suite on."""
    room, _, name = module.rpartition(".test_")
    if room.endswith("acp") and name.endswith("_contract"):
        return f"acp:{name.removesuffix('_contract')}"
    return name if room.endswith("conformance") and name in AGENTS else None


def page(results: Mapping[tuple[str, str], str], notes: Sequence[str]) -> str:
    capabilities = {name: require_provider(name).capabilities for name in AGENTS}
    lines = [
        "# What each agent can do",
        "",
        f"Written by `make providers-doc` from a run of the suite on the real programs, {datetime.now(UTC).date()}.",
        "",
        "## Capabilities",
        "",
        *_table(["", *AGENTS], [_capability_row(word, capabilities) for word in WORDS]),
    ]
    for group in GROUPS:
        rows = [
            [case.title, *(_result(results, name, case.name, case.needs(can)) for name, can in capabilities.items())]
            for case in group.cases.cases
        ]
        lines += ["", f"## {group.cases.heading}", "", *_table(["", *AGENTS], rows)]
    if notes:
        lines += ["", "## Turns with random interruptions", "", *(f"* {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _capability_row(word: str, capabilities: Mapping[str, Capabilities]) -> list[str]:
    return [WORDS[word], *(_capability(getattr(can, word)) for can in capabilities.values())]


def _capability(value: object) -> str:
    return value if isinstance(value, str) else PASSED if value else NOT_OFFERED


def _result(results: Mapping[tuple[str, str], str], agent: str, case: str, offered: bool) -> str:
    return results.get((agent, case), NOT_RUN) if offered else NOT_OFFERED


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    results = read_results(Path(sys.argv[1]))
    notes = [line for file in sys.argv[2:] for line in Path(file).read_text().splitlines() if line.strip()]
    (PROJECT / "docs" / "providers.md").write_text(page(results, notes))


if __name__ == "__main__":
    main()
