"""A run as one HTML page, without scripts and external resources, all text escaped.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from atomic.base.text import duration
from atomic.base.usage import dollars
from atomic.sessions.history import History
from atomic.sessions.report import TimelineRow, facts_of, figures_of, rows_of, time_text

MOST_ROWS = 2000

_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}
dt{opacity:.7}dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.15rem .6rem .15rem 0;vertical-align:top;overflow-wrap:anywhere}th{font-weight:600}
.bar{position:relative;height:1rem;min-width:16rem;background:#8881}
.bar i{position:absolute;top:0;bottom:0;min-width:2px;background:#0969da}
.bad i{background:#cf222e}.figure{overflow-x:auto;background:#fff}pre{white-space:pre-wrap;overflow-wrap:anywhere}
""".strip()
_GOOD = ("completed", "done", "running")

# Characters that hide text or change its direction are shown as U+FFFD.
_HIDDEN = dict.fromkeys(
    (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F),
     *range(0x2066, 0x206A)),
    0xFFFD,
)  # fmt: skip


def page_of(history: History, *, svg: str = "", report: str = "", marks: Mapping[str, str] | None = None) -> str:
    """Return the page.

    `svg` is our own drawing of the graph, the only text that is not escaped.
    """
    record = history.record
    title = f"{record.workflow}: {record.status}"
    figures = [
        (_text(one.role), str(one.calls), duration(one.seconds), f"{one.tokens:,}", one.price)
        for one in figures_of(history)
    ]
    steps = [
        (_text(step.node), str(step.attempt), _text(step.status), duration(step.seconds), dollars(step.cost),
         _text(step.error or ""))
        for step in history.steps[-MOST_ROWS:]
    ]  # fmt: skip
    tasks = [(_text(task.id), _text(task.status), _text(task.title)) for task in history.tasks]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        f"<dl>{''.join(f'<dt>{_text(name)}</dt><dd>{_text(text)}</dd>' for name, text in facts_of(history))}</dl>",
        f'<h2>Graph</h2><div class="figure">{_marked(svg, marks or {})}</div>' if svg else "",
        _timeline(rows_of(history)),
        _section("By role", ("role", "calls", "took", "tokens", "cost"), figures),
        _section("Steps", ("node", "attempt", "status", "took", "cost", "error"), steps),
        _section("Tasks", ("task", "status", "title"), tasks),
        f"<h2>Report</h2><pre>{_text(report)}</pre>" if report else "",
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _timeline(rows: Sequence[TimelineRow]) -> str:
    shown = rows[-MOST_ROWS:]
    cells = [
        (_text(time_text(row.started)), _text(row.who), _text(row.what), _bar(row), duration(row.seconds),
         dollars(row.cost), _text(row.status))
        for row in shown
    ]  # fmt: skip
    left_out = f"<p>The first {len(rows) - len(shown):,} are left out.</p>" if len(rows) > len(shown) else ""
    head = ("began", "who", "agent", "", "took", "cost", "end")
    return _section("Timeline", head, cells, left_out)


def _bar(row: TimelineRow) -> str:
    kind = "bar" if row.status in _GOOD else "bar bad"
    return f'<div class="{kind}"><i style="left:{row.left * 100:.3f}%;width:{row.width * 100:.3f}%"></i></div>'


def _section(title: str, head: Iterable[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """Return a heading and a table of cells that are already escaped; empty without
    rows.
    """
    if not rows:
        return ""
    titles = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<h2>{title}</h2>{note}<table><tr>{titles}</tr>{lines}</table>"


def _marked(svg: str, marks: Mapping[str, str]) -> str:
    """Return the drawing with a mark after the id of each node that ran (`outer/inner`
    in a subgraph).
    """
    for path, mark in marks.items():
        name = re.escape(escape(path.rpartition("/")[2]))
        box = rf'(data-id="{re.escape(escape(path))}">(?:(?!</g>).)*?>{name})(?=</text>)'
        svg = re.sub(box, lambda found, mark=mark: f"{found[1]} {escape(mark)}", svg, count=1, flags=re.DOTALL)
    return svg


def _text(text: str) -> str:
    return escape(str(text).translate(_HIDDEN))
