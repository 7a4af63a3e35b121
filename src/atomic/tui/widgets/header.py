"""First line of the screen: agent, project, context usage and cost."""

from __future__ import annotations

from textual.content import Content

from atomic.chat.protocol import StatusChanged
from atomic.tui.state.model import amount, spent
from atomic.tui.text import MUTED, bar, content, fit, one_line, spread
from atomic.tui.widgets.panel import Panel

_BAR_CELLS = 8
_NEARLY_FULL = 0.8
_FULL = 0.95


class Header(Panel):
    """One line. With less room it shows less."""

    DEFAULT_CSS = """
    Header { height: 1; width: 1fr; background: $panel; padding: 0 1; }
    """

    def rows(self, width: int, height: int) -> list[Content]:
        """Return the line."""
        return [header_line(self.state.status, width)]


def header_line(status: StatusChanged, width: int) -> Content:
    """Return the most detailed form of the line that fits."""
    branch = f" ({one_line(status.branch)})" if status.branch else ""
    project = content(one_line(status.project), (branch, MUTED)) if status.project else content()
    rights = _rights(status)
    for long, right in ((long, right) for long in (True, False) for right in rights):
        left = _left(status, long)
        middle = project if long else content()
        if left.cell_length + middle.cell_length + right.cell_length + 4 <= width:
            # The middle part is centred, unless a neighbour is in the way.
            begin = max(left.cell_length + 2, (width - middle.cell_length) // 2)
            begin = min(begin, width - right.cell_length - middle.cell_length - 2)
            head = content(fit(left, begin), middle)
            return content(fit(head, width - right.cell_length), right)
    left = _left(status, long=False)
    return spread(left, rights[-1], width) if rights[-1].cell_length * 2 < width else fit(left, width)


def _left(status: StatusChanged, long: bool) -> Content:
    if status.provider:
        agent = (one_line(status.provider), "" if long else "bold")
    else:
        agent = ("no agent", "$warning") if status.problem else ("starting …", MUTED)
    parts = [content(("atomic", "bold $primary"))] if long else []
    parts.append(content(agent))
    if status.model:
        parts.append(content(one_line(status.model)))
    return content((" · ", MUTED)).join(parts)


def _rights(status: StatusChanged) -> list[Content]:
    """Return forms from long to short: bar and numbers, bar, only percent."""
    words = spent(status.usage)
    cost = content(words if status.usage.cost is not None else (words, MUTED))
    if not status.context_limit:
        return [cost]
    share = status.context_used / status.context_limit
    colour = "$success"
    if share >= _NEARLY_FULL:
        colour = "$error" if share >= _FULL else "$warning"
    full, empty = bar(share, _BAR_CELLS)
    percent = content(("ctx ", MUTED), (f"{share:.0%}", colour if share >= _NEARLY_FULL else ""))
    with_bar = content(percent, " ", (full, colour), (empty, MUTED))
    numbers = content((f" {amount(status.context_used)}/{amount(status.context_limit)}", MUTED))
    gap = content((" · ", MUTED)) if cost.cell_length else content()
    return [content(form, gap, cost) for form in (content(with_bar, numbers), with_bar, percent)]
