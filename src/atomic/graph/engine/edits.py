"""Names that changed since older runs were recorded: `renamed` and `removed`.

A journal identifies nodes by their ids. Code with other ids says here what became of
the old ones. Everything is checked when the graph is compiled, and used by
`Program.find` and `Replay` when a run resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import did_you_mean
from atomic.base.step_names import split_first
from atomic.graph.engine.node import SubgraphBody
from atomic.graph.engine.program import ForkOp, Program

if TYPE_CHECKING:
    from atomic.graph.engine.builder import GraphOptions

Report = Callable[[str, str], None]


class Edits(msgspec.Struct, frozen=True):
    """Old names with their new ones, and the names of removed nodes."""

    renamed: Mapping[str, str] = {}
    removed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, options: GraphOptions, report: Report) -> Edits:
        """Read the options. Report values of a wrong type and ignore them."""
        renamed = cast("Any", options.renamed)
        removed = cast("Any", options.removed)
        if not isinstance(renamed, Mapping) or not _are_texts([*renamed, *cast("Any", renamed).values()]):
            report("", f'renamed is {renamed!r:.60}; give a mapping from old to new ids: renamed={{"old": "new"}}')
            renamed = {}
        if isinstance(removed, str) or not isinstance(removed, Collection) or not _are_texts(removed):
            report("", f'removed is {removed!r:.60}; give a set of ids: removed={{"x"}}')
            removed = ()
        return cls(dict(cast("Mapping[str, str]", renamed)), frozenset(cast("Collection[str]", removed)))

    def check(self, program: Program, ids: Collection[str], name: str, report: Report) -> None:
        """Report old names that are still in use and new names that do not exist."""
        if not self.renamed and not self.removed:
            return
        known = {*ids, *_branches(program)}
        for old, new in self.renamed.items():
            if new == name:
                continue  # the graph itself
            if old in known:
                report("", f"renamed: '{old}' is still in the graph; only an id that it no longer has can be renamed")
            elif new not in known:
                hint = did_you_mean(new, known)
                report("", f"renamed: '{old}' became '{new}', which the graph does not have{hint}")
        for old in sorted(self.removed):
            if old in known:
                report("", f"removed: '{old}' is still in the graph; give the new node another id")
            if old in self.renamed:
                report("", f"'{old}' is in renamed and in removed; give one of them")

    def apply(self, program: Program, ids: frozenset[str]) -> None:
        """Make a graph and its scopes find what is recorded under old names."""
        program.graph_ids = ids
        program.renamed = self.renamed
        program.removed = self.removed
        for op in program.ops:
            if isinstance(op, ForkOp):
                for branch in op.branches.values():
                    self.apply(branch, ids)


def current_names(program: Program) -> Callable[[str], str] | None:
    """Return a function from a recorded public id to the node's current id.

    Return None if nothing was renamed.
    """
    children = dict(_subgraphs(program))
    inner = {id: names for id, child in children.items() if (names := current_names(child)) is not None}
    if not program.renamed and not inner:
        return None

    def current(recorded: str) -> str:
        id, items, rest = split_first(recorded)
        if id not in program.graph_ids:
            id = program.renamed.get(id, id)
        if not rest:
            return f"{id}{items}"
        if id in inner:
            rest = inner[id](rest)
        return f"{id}{items}/{rest}"

    return current


def _subgraphs(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield the graphs that nodes of this one run, except those given by name."""
    for op in program.ops:
        if isinstance(op, ForkOp):
            if isinstance(op.body, SubgraphBody) and not isinstance(op.body.graph, str):
                yield op.id, op.body.graph.program
            for branch in op.branches.values():
                yield from _subgraphs(branch)


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _branches(program: Program) -> set[str]:
    """Return the branches of all parallels below, as `fork:branch`."""
    found: set[str] = set()
    for op in program.ops:
        if isinstance(op, ForkOp):
            found.update(f"{op.id}:{name}" for name in op.branches if name)
            for branch in op.branches.values():
                found |= _branches(branch)
    return found
