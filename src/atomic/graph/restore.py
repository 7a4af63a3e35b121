"""Take up a run where its journal ends.

The rows of a scope tell which nodes were visited and what they did; the position behind the last visit follows
from them. User code is asked only for what was not decided yet: conditions behind the last record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atomic.graph.errors import NodeError
from atomic.graph.groups import Group, GroupBranching
from atomic.graph.past import Past
from atomic.graph.program import END_PC, Program
from atomic.graph.replay import Replay, Tip, targets_of
from atomic.graph.run import Entry, Place, Run
from atomic.graph.state import Values
from atomic.graph.token import Resumed, Token


def restore_token(
    past: Past,
    run: Run,
    place: Place,
    program: Program,
    values: Values,
    *,
    trail: list[Entry] | None,
    errors: Sequence[NodeError] = (),
) -> Token:
    """The token of a scope, where its rows end. Raises JournalError where the graph has no such node any more."""
    token = Token(run, place, program, values, pc=program.entry, trail=trail)
    token.errors = (*errors, *past.errors_of(place.path))
    token.updated = past.updated
    token.resumed = Resumed.WRITTEN if place.path else Resumed.IMPLIED
    if past.snapshot is not None and not place.path:
        token.last = past.snapshot.last
    replay = Replay(past, place, program)
    token.take(replay.trunk)
    token.caught = replay.caught
    tips = list(replay.tips.values())
    if len(tips) == 1 and tips[0].remaining is None:
        tips[0].position(token)
    else:
        _restore_group(token, tips)
    _restore_failure(past, token)
    return token


def look(past: Past, program: Program, values: Values) -> Any:
    """The state with all that is recorded, also in branches that are open."""
    for entry in Replay(past, Place(), program).all_entries():
        program.spec.apply(values, entry.update)
    return program.spec.build(values, past.updated)


def _restore_failure(past: Past, token: Token) -> None:
    """A node had failed for good, and the run was cut while the catching node looked after that."""
    failing = past.failing(token.place.path)
    catcher = token.program.catcher
    if failing is None or catcher < 0:
        return
    error, done = failing
    caught = token.place.public_id(token.program.ops[catcher].id)
    if token.caught or (done and done != [caught]):
        return
    token.failure, token.caught, token.branching = error, True, None
    token.pc = END_PC if done else catcher
    token.resumed = Resumed.IMPLIED


def _restore_group(token: Token, tips: Sequence[Tip]) -> None:
    """Several lines were open: they become the branches of a group again."""
    restored: list[Token] = []
    group = Group(token, [])
    for tip in sorted(tips, key=lambda tip: tip.order):
        for order, pc in _ways_of(token, tip):
            branch = Token(token.run, token.place, token.program, dict(token.values), pc=token.pc, trail=[])
            branch.take(tip.entries)
            branch.order, branch.group, branch.updated = order, group, token.updated
            branch.resumed = Resumed.IMPLIED
            if pc is None:
                tip.position(branch)
            else:
                tip.begin(branch, pc)
                branch.ways = (order[-1] + 1,)
            restored.append(branch)
    group.adopt(restored)
    token.branching = GroupBranching(group)


def _ways_of(token: Token, tip: Tip) -> list[tuple[tuple[int, ...], int | None]]:
    """The branches that a tip stands for: one behind its node, or one for each target that is still to be taken."""
    if tip.remaining is not None:
        return [((*tip.order, order), pc) for order, pc in tip.remaining]
    if tip.goto is not None and len(tip.goto) > 1:
        targets = [token.program.by_id.get(target, -1) for target in targets_of(token.program, tip.goto)]
        return [((*tip.order, order), pc) for order, pc in enumerate(dict.fromkeys(targets))]
    return [(tip.order, None)]
