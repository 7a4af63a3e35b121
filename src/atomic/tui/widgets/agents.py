"""Who is at work: each agent with its time and the last thing it did, sub-agents below the one that called them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content

from atomic.tui.harmless import one_line
from atomic.tui.protocol import RunKind
from atomic.tui.state.model import AgentEntry, Screen
from atomic.tui.widgets.panel import Panel
from atomic.tui.widgets.text import MUTED, clock, content, fit, heading, windowed

ICONS = {"running": "▶", "done": "✓", "failed": "✗", "interrupted": "⊘", "waiting": "?"}
COLOURS = {"running": "$primary", "done": "$success", "failed": "$error", "interrupted": MUTED, "waiting": "$warning"}
_LONGEST_NAME = 16


class AgentPanel(Panel):
    """The agents of what is at work, else of the last workflow."""

    DEFAULT_CSS = """
    AgentPanel { height: auto; max-height: 14; }
    """

    def has_something(self) -> bool:
        """Whether anybody is at work, or was in a workflow."""
        return bool(agents_shown(self.state))

    def rows(self, width: int, height: int) -> list[Content]:
        """A heading and a row for each."""
        return agent_lines(self.state, self.now, width, height, self.shift)


def agents_shown(screen: Screen) -> list[AgentEntry]:
    """Those of the runs that go on; else those of the last workflow or crew, as long as nothing came after it."""
    active = {run.id for run in screen.runs.values() if run.is_active}
    if not active and screen.runs:
        last = next(reversed(screen.runs.values()))
        active = {last.id} if last.kind in (RunKind.WORKFLOW, RunKind.CREW) else set[str]()
    return _as_tree({key: agent for key, agent in screen.agents.items() if agent.run in active})


def agent_lines(screen: Screen, now: float, width: int, height: int, shift: int = 0) -> list[Content]:
    """The panel in so much room."""
    agents = agents_shown(screen)
    name = min(_LONGEST_NAME, width // 2, max((len(_name(agent)) for agent in agents), default=0))
    rows = [_line(agent, now, width, name) for agent in agents]
    focus = next((at for at, agent in enumerate(agents) if agent.status == "running"), max(0, len(agents) - 1))
    shown = windowed(rows, height - 1, min(max(0, focus + shift), max(0, len(rows) - 1)))
    return [heading(content(("agents", "bold"), " ", agent_count(agents)), width), *shown]


def agent_count(agents: Iterable[AgentEntry]) -> Content:
    """How many there are of each kind: `5▶ 3✓`."""
    counts = dict.fromkeys(ICONS, 0)
    for agent in agents:
        counts[_status(agent)] += 1
    words = [(f"{count}{ICONS[status]} ", COLOURS[status]) for status, count in counts.items() if count]
    return content(*words).rstrip()


def _as_tree(agents: dict[str, AgentEntry]) -> list[AgentEntry]:
    """Each behind the one that called it; one whose caller is not here stays where it is."""
    below: dict[str, list[str]] = {}
    for key, agent in agents.items():
        below.setdefault(agent.parent if agent.parent in agents else "", []).append(key)
    ordered: list[AgentEntry] = []
    waiting = list(reversed(below.get("", [])))
    while waiting:
        key = waiting.pop()
        ordered.append(agents[key])
        waiting += reversed(below.get(key, []))
    return ordered if len(ordered) == len(agents) else list(agents.values())  # a circle: as they came


def _line(agent: AgentEntry, now: float, width: int, name: int) -> Content:
    status = _status(agent)
    seconds = clock((now if agent.ended is None else agent.ended) - agent.started)
    doing = one_line(agent.doing or agent.task) if agent.ended is None else one_line(agent.task or agent.doing)
    who = fit(content((_name(agent), "bold" if status == "running" else "")), name)
    row = content((f"{ICONS[status]} ", COLOURS[status]), who, (f" {seconds:>5}  ", MUTED), (doing, MUTED))
    return fit(row, width)


def _name(agent: AgentEntry) -> str:
    return ("  " * (agent.depth - 1) + "└ " if agent.depth else "") + one_line(agent.name or agent.id)


def _status(agent: AgentEntry) -> str:
    return agent.status if agent.status in ICONS else "running" if agent.ended is None else "done"


def agent_strip(agents: Sequence[AgentEntry]) -> Content:
    """The same in a few columns."""
    return content(("agents ", MUTED), agent_count(agents)) if agents else content()
