"""First line of the screen: agent, project, context usage and cost."""

from __future__ import annotations

from textual.content import Content

from atomic.chat.protocol import StatusChanged
from atomic.tui.state.text import amount, spent
from atomic.tui.text import one_line
from atomic.tui.widgets.panel import Panel
from atomic.tui.widgets.text import MUTED, bar, content, fit, spread

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
    forms = ((_left(status, long), _middle(status, long), right) for long in (True, False) for right in _rights(status))
    for left, middle, right in forms:
        gap = width - left.cell_length - middle.cell_length - right.cell_length
        if gap >= 4:
            return _three(left, middle, right, width)
    left = _left(status, long=False)
    right = _rights(status)[-1]
    return spread(left, right, width) if right.cell_length * 2 < width else fit(left, width)


def _three(left: Content, middle: Content, right: Content, width: int) -> Content:
    """Centre the middle part, unless a neighbour is in the way."""
    begin = max(left.cell_length + 2, (width - middle.cell_length) // 2)
    begin = min(begin, width - right.cell_length - middle.cell_length - 2)
    head = content(fit(left, begin), middle)
    return content(fit(head, width - right.cell_length), right)


def _left(status: StatusChanged, long: bool) -> Content:
    name: list[Content | str | tuple[str, str]] = [("atomic", "bold $primary")] if long else []
    if not status.provider:
        agent = content(("no agent", "$warning")) if status.problem else content(("starting …", MUTED))
    else:
        agent = content((one_line(status.provider), "bold" if not long else ""))
    if name:
        name.append((" · ", MUTED))
    name.append(agent)
    if status.model:
        name += [(" · ", MUTED), one_line(status.model)]
    return content(*name)


def _middle(status: StatusChanged, long: bool) -> Content:
    if not long or not status.project:
        return content()
    branch = f" ({one_line(status.branch)})" if status.branch else ""
    return content(one_line(status.project), (branch, MUTED))


def _rights(status: StatusChanged) -> list[Content]:
    """Return forms from long to short: bar and numbers, bar, only percent."""
    cost = _cost(status)
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


def _cost(status: StatusChanged) -> Content:
    words = spent(status.usage)
    return content(words if status.usage.cost is not None else (words, MUTED))
