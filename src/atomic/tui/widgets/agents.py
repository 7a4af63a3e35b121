"""Agents panel: each agent with its time and last activity, sub-agents below their
caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from textual.content import Content

from atomic.chat.protocol import RunKind
from atomic.tui.state.model import AgentEntry, Screen
from atomic.tui.text import MUTED, clock, content, fit, heading, one_line, windowed
from atomic.tui.widgets.panel import Panel

ICONS = {"running": "▶", "done": "✓", "failed": "✗", "interrupted": "⊘", "waiting": "?"}
COLOURS = {"running": "$primary", "done": "$success", "failed": "$error", "interrupted": MUTED, "waiting": "$warning"}
_LONGEST_NAME = 16


class AgentPanel(Panel):
    """The agents of active runs, or of the last workflow."""

    DEFAULT_CSS = """
    AgentPanel { height: auto; max-height: 14; }
    """

    def wanted(self) -> int:
        """Return the wanted rows, limited to leave room for other panels."""
        return min(14, super().wanted())

    def has_something(self) -> bool:
        """Return whether there are agents to show."""
        return bool(agents_shown(self.state))

    def rows(self, width: int, height: int) -> list[Content]:
        """Return a heading and a row for each agent."""
        return agent_lines(self.state, self.now, width, height, self.shift)


def agents_shown(screen: Screen) -> list[tuple[AgentEntry, int]]:
    """Return the agents to show with their depth.

    They belong to active runs. If none is active, to the last run, if it is a workflow
    or a group of agents.
    """
    active = {run.id for run in screen.runs.values() if run.is_active}
    if not active and screen.runs:
        last = next(reversed(screen.runs.values()))
        active = {last.id} if last.kind in (RunKind.WORKFLOW, RunKind.AGENTS) else set[str]()
    agents = {key: agent for key, agent in screen.agents.items() if agent.run in active}
    if all(not agent.parent and screen.runs[agent.run].kind is RunKind.TURN for agent in agents.values()):
        return []  # the transcript shows the conversation's agent, and the panel would flicker
    return _as_tree(agents)


def agent_lines(screen: Screen, now: float, width: int, height: int, shift: int = 0) -> list[Content]:
    """Return the panel's lines for this size."""
    agents = agents_shown(screen)
    name = min(_LONGEST_NAME, width // 2, max((cell_len(_name(*agent)) for agent in agents), default=0))
    rows = [_line(agent, depth, now, width, name) for agent, depth in agents]
    focus = next((at for at, (agent, _) in enumerate(agents) if agent.status == "running"), max(0, len(agents) - 1))
    shown = windowed(rows, height - 1, min(max(0, focus + shift), max(0, len(rows) - 1)))
    return [heading(content(("agents", "bold"), " ", agent_count(agent for agent, _ in agents)), width), *shown]


def agent_count(agents: Iterable[AgentEntry]) -> Content:
    """Return the number of agents for each status: `5▶ 3✓`."""
    counts = dict.fromkeys(ICONS, 0)
    for agent in agents:
        counts[_status(agent)] += 1
    words = [(f"{count}{ICONS[status]} ", COLOURS[status]) for status, count in counts.items() if count]
    return content(*words).rstrip()


def _as_tree(agents: dict[str, AgentEntry]) -> list[tuple[AgentEntry, int]]:
    """Order agents below their callers.

    An agent without a known caller stays at the top.
    """
    below: dict[str, list[str]] = {}
    for key, agent in agents.items():
        below.setdefault(agent.parent if agent.parent in agents else "", []).append(key)
    ordered: list[tuple[AgentEntry, int]] = []
    waiting = [(key, 0) for key in reversed(below.get("", []))]
    while waiting:
        key, depth = waiting.pop()
        ordered.append((agents[key], depth))
        waiting += [(child, depth + 1) for child in reversed(below.get(key, []))]
    if len(ordered) != len(agents):  # a cycle: keep the original order
        return [(agent, agent.depth) for agent in agents.values()]
    return ordered


def _line(agent: AgentEntry, depth: int, now: float, width: int, name: int) -> Content:
    status = _status(agent)
    seconds = clock((now if agent.ended is None else agent.ended) - agent.started)
    doing = one_line(agent.doing or agent.task) if agent.ended is None else one_line(agent.task or agent.doing)
    who = fit(content((_name(agent, depth), "bold" if status == "running" else "")), name)
    row = content((f"{ICONS[status]} ", COLOURS[status]), who, (f" {seconds:>5}  ", MUTED), (doing, MUTED))
    return fit(row, width)


def _name(agent: AgentEntry, depth: int) -> str:
    return ("  " * (min(depth, 4) - 1) + "└ " if depth else "") + one_line(agent.name or agent.id)


def _status(agent: AgentEntry) -> str:
    if agent.status in ICONS:
        return agent.status
    return "running" if agent.ended is None else "interrupted"


def agent_strip(agents: Sequence[tuple[AgentEntry, int]]) -> Content:
    """Return the counts for a narrow screen."""
    return content(("agents ", MUTED), agent_count(agent for agent, _ in agents)) if agents else content()
