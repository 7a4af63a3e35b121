"""Write a graph as Mermaid text: `flowchart TD`, with subgraphs for nested nodes.

Nodes are called n1, n2 …, so that no id can be mistaken for a Mermaid keyword. Labels
are quoted, and every character with a meaning in Mermaid or HTML is written as its
number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from atomic.graph.drawing.tree import Chain, Flow, Fork, Frame, Item, Step, Web, tree_of
from atomic.graph.drawing.words import clean, cut
from atomic.graph.engine.node import NodeKind

if TYPE_CHECKING:
    from atomic.graph.engine.compiled import CompiledGraph

LONGEST = 80
HARMLESS = frozenset(" .,-_=+*!?'()/")
SHAPES = {
    NodeKind.PLAIN: ("(", ")"),
    NodeKind.TOOL: ("[", "]"),
    NodeKind.AGENT: ("([", "])"),
    NodeKind.DECISION: ("{", "}"),
    NodeKind.ASK: ("[/", "/]"),
    NodeKind.WAIT: ("[/", "/]"),
    NodeKind.SUBGRAPH: ("[[", "]]"),
}
COLOURS = {
    "tool": "stroke:#0969da",
    "agent": "stroke:#8250df",
    "decision": "stroke:#bf8700",
    "ask": "stroke:#bf3989",
    "failure": "stroke:#cf222e,stroke-dasharray:5 4",
    "dot": "fill:#818b98,stroke:#818b98",
}
CLASSES = {NodeKind.TOOL: "tool", NodeKind.AGENT: "agent", NodeKind.DECISION: "decision", NodeKind.ASK: "ask"}


def to_mermaid(compiled: CompiledGraph[Any]) -> str:
    """Return the graph as a Mermaid flowchart."""
    return "\n".join(_Writer().write(compiled)) + "\n"


@dataclass(frozen=True)
class _Tail:
    """An edge that leaves a node, before its target is known."""

    node: str
    label: str = ""


class _Writer:
    """Writes line by line.

    Every item has one entry node and any number of leaving edges.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._nodes = self._groups = 0
        self._used: dict[str, None] = {}
        self._heads: dict[str, str] = {}
        self._jumps: list[tuple[str, str]] = []
        self._ends: list[_Tail] = []

    def write(self, compiled: CompiledGraph[Any]) -> list[str]:
        start = self._node('(("', '"))', ["start"])
        head, tails = self._scope(tree_of(compiled))
        self._connect([_Tail(start)], head)
        if tails:
            self._connect(tails, self._node('((("', '")))', ["end"]))
        for source, path in self._jumps:
            self._line(f"{source} --> {self._heads[path]}")
        for name in self._used:
            self._line(f"classDef {name} {COLOURS[name]},stroke-width:2px")
        title = ": ".join(text for text in (compiled.name, compiled.description) if text)
        return ["flowchart TD", *([f"    %% {_escaped(title)}"] if title else []), *self._lines]

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _node(self, opening: str, closing: str, words: Iterable[str], style: str = "") -> str:
        self._nodes += 1
        name = f"n{self._nodes}"
        if style:
            self._used[style] = None
        self._line(f"{name}{opening}{'<br/>'.join(map(_escaped, words))}{closing}{f':::{style}' if style else ''}")
        return name

    def _connect(self, tails: Iterable[_Tail], head: str, arrow: str = "-->") -> None:
        for tail in tails:
            label = f'|"{_escaped(tail.label)}"|' if tail.label else ""
            self._line(f"{tail.node} {arrow}{label} {head}")

    @contextmanager
    def _group(self, words: Iterable[str]) -> Generator[None]:
        self._groups += 1
        self._line(f'subgraph g{self._groups}["{_escaped(" · ".join(words))}"]')
        self._depth += 1
        yield
        self._depth -= 1
        self._line("end")

    def _scope(self, flow: Flow) -> tuple[str, list[_Tail]]:
        """Write a flow that no jump leaves: its jumps to the end lead out of it."""
        outer, self._ends = self._ends, []
        head, tails = self._web(flow) if isinstance(flow, Web) else self._chain(flow)
        tails, self._ends = tails + self._ends, outer
        return head, tails

    def _chain(self, chain: Chain) -> tuple[str, list[_Tail]]:
        first = ""
        tails = list[_Tail]()
        for item in chain.items:
            head, following = self._item(item)
            self._connect(tails, head)
            first, tails = first or head, following
        if chain.catcher is not None:
            head, _ = self._item(chain.catcher)
            self._connect([_Tail(self._node('("', '")', ["on failure"], "failure"))], head, "-.->")
        return first, tails

    def _web(self, web: Web) -> tuple[str, list[_Tail]]:
        parts = {name: self._item(item) for name, item in web.items.items()}
        tails: list[_Tail] = []
        for link in web.links:
            ends = parts[link.from_][1]
            leaving = [_Tail(end.node, " · ".join(filter(None, (end.label, link.label)))) for end in ends]
            if link.to is None:
                tails += leaving
            else:
                self._connect(leaving, parts[link.to][0], "==>" if link.at_once else "-->")
        reached = {link.to for link in web.links} | {web.start}
        for name in web.items:
            if name not in reached:
                self._connect([_Tail(self._node('("', '")', ["on error"], "failure"))], parts[name][0], "-.->")
        return parts[web.start][0], tails

    def _item(self, item: Item) -> tuple[str, list[_Tail]]:
        match item:
            case Step():
                head, tails = self._step(item)
            case Frame(kind=NodeKind.LOOP):
                head, tails = self._loop(item)
            case Frame():
                with self._group((item.title, *item.facts)):
                    head, tails = self._scope(item.body)
            case Fork():
                head, tails = self._parallel(item) if item.at_once else self._choice(item)
        self._heads[item.path] = head
        return head, tails

    def _step(self, step: Step) -> tuple[str, list[_Tail]]:
        opening, closing = SHAPES.get(step.kind, ("[", "]"))
        kind = NodeKind.ASK if step.kind is NodeKind.WAIT else step.kind
        name = self._node(f'{opening}"', f'"{closing}', [step.id, *step.notes], CLASSES.get(kind, ""))
        prefix = step.path.rpartition("/")[0]
        for target in step.jumps:
            if target is None:
                self._ends.append(_Tail(name))
            else:
                self._jumps.append((name, f"{prefix}/{target}" if prefix else target))
        return name, [_Tail(name)] if step.leaves else []

    def _loop(self, frame: Frame) -> tuple[str, list[_Tail]]:
        assert isinstance(frame.body, Chain)  # a loop has no graph of its own
        asked = frame.asked or len(frame.body.items)
        with self._group((frame.title, *frame.facts)):
            head, tails = self._chain(replace(frame.body, items=frame.body.items[:asked]))
            if not tails:
                return head, []
            question = self._node('{{"', '"}}', frame.facts[:1] or [frame.title], "decision")
            self._connect(tails, question)
            back = [_Tail(question, "again")]
            if frame.asked:
                rest, leaving = self._chain(Chain(frame.body.items[asked:]))
                self._connect(back, rest)
                back = leaving
            self._connect(back, head)
        return head, [_Tail(question, "done")]

    def _choice(self, fork: Fork) -> tuple[str, list[_Tail]]:
        name = self._node('{"', '"}', [fork.title, *fork.facts], "decision")
        tails: list[_Tail] = []
        for label, chain in fork.branches:
            if not chain.items:
                tails.append(_Tail(name, label))
                continue
            head, leaving = self._chain(chain)
            self._connect([_Tail(name, label)], head)
            tails += leaving
        return name, tails

    def _parallel(self, fork: Fork) -> tuple[str, list[_Tail]]:
        with self._group((fork.title, *fork.facts)):
            name = self._node('(("', '"))', [" "], "dot")
            tails: list[_Tail] = []
            for label, chain in fork.branches:
                head, leaving = self._scope(chain)
                self._connect([_Tail(name, label)], head)
                tails += leaving
            if not tails:
                return name, []
            meeting = self._node('(("', '"))', [" "], "dot")
            self._connect(tails, meeting)
        return name, [_Tail(meeting)]


def _escaped(text: str) -> str:
    """Return the text for a quoted label, with special characters as numbers."""
    short = cut(clean(text), LONGEST) or " "
    return "".join(c if c in HARMLESS or c.isalnum() or not c.isascii() else f"#{ord(c)};" for c in short)
