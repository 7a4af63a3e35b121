"""Resume a run where its journal ends.

The rows of a scope record which nodes ran and their updates. The position after the
last visit follows from them. User code runs only for open decisions: conditions after
the last record.
"""

from __future__ import annotations

from collections.abc import Sequence

from atomic.graph.engine.control import END
from atomic.graph.engine.edge_forks import Group
from atomic.graph.engine.edges_taken import leave, take_way
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.history import RunHistory
from atomic.graph.engine.program import END_PC, Op, Program
from atomic.graph.engine.replay import Replay, Tip, first_values, targets_of
from atomic.graph.engine.run import Entry, Run, Scope
from atomic.graph.engine.state import Values
from atomic.graph.engine.token import Resumed, Token


def restore_token(
    history: RunHistory,
    run: Run,
    scope: Scope,
    program: Program,
    values: Values,
    *,
    trail: list[Entry] | None,
    errors: Sequence[NodeError] = (),
) -> Token:
    """Return the token of a scope where its rows end.

    Raise JournalError for a missing node.
    """
    token = Token(run, scope, program, values, pc=program.entry, trail=trail)
    token.errors = (*errors, *history.errors_of(scope.path))
    token.updated = history.updated
    token.resumed = Resumed.WRITTEN if scope.path else Resumed.IMPLIED
    if not scope.path and history.begins_again:
        token.resumed = None
    if history.snapshot is not None and history.has_current_snapshot and not scope.path:
        token.last = history.snapshot.last
    replay = Replay(history, scope, program)
    token.take(replay.trunk)
    token.caught = replay.caught
    tips = list(replay.tips.values())
    if len(tips) == 1 and tips[0].remaining is None:
        _place_after(token, tips[0])
    else:
        _restore_group(token, tips)
    _restore_failure(history, token)
    return token


def _place_after(token: Token, tip: Tip) -> None:
    """Put a token where a line of visits ends."""
    token.last = tip.key or token.last
    if tip.op is None:
        if tip.goto is not None:  # the first node was removed
            target = targets_of(token.program, tip.goto)[0]
            token.pc = END_PC if target == END else token.program.by_id[target]
        return
    if token.scope.path:
        token.resumed = Resumed.IMPLIED  # it is recorded, so the next step began
    _set_counters(token, tip, tip.op)
    if tip.opened is not None:
        token.pc = tip.op.pc
        return
    if tip.asks is not None and tip.asks.asks is not None:
        token.pending = (tip.asks.asks, token.run.step_id(tip.asks.node_id, tip.asks.n))
    leave(token, tip.op, None if tip.goto is None else targets_of(token.program, tip.goto))


def _place_on_edge(token: Token, tip: Tip, pc: int) -> None:
    """Put a token on one of several edges that start where a line of visits ends."""
    token.last = tip.key
    token.pc = pc
    if tip.op is not None:
        _set_counters(token, tip, tip.op)
        take_way(token, tip.op, pc)


def _set_counters(token: Token, tip: Tip, op: Op) -> None:
    for slot, count in zip(op.loops, tip.loops, strict=False):
        token.counters[slot] = count


def recorded_values(history: RunHistory, program: Program, execution_id: str) -> Values:
    """Return the values with everything recorded, including open branches."""
    values = program.spec.start(first_values(history, program), execution_id)
    for entry in Replay(history, Scope(), program).all_entries():
        program.spec.apply(values, entry.update)
    return values


def _restore_failure(history: RunHistory, token: Token) -> None:
    """Continue at the catch node if the run stopped while a failure was being handled."""
    failing = history.failing(token.scope.path)
    catcher = token.program.catcher
    if failing is None or catcher < 0:
        return
    error, done = failing
    caught = token.scope.public_id(token.program.ops[catcher].id)
    if token.caught or (done and done != [caught]):
        return
    token.failure = error
    token.caught = True
    token.open_branches = None
    token.pc = END_PC if done else catcher
    token.resumed = Resumed.IMPLIED


def _restore_group(token: Token, tips: Sequence[Tip]) -> None:
    """Turn several open lines into the branches of a group."""
    restored: list[Token] = []
    group = Group(token, [])
    for tip in sorted(tips, key=lambda tip: tip.order):
        for order, pc in _ways_of(token, tip):
            branch = Token(token.run, token.scope, token.program, dict(token.values), pc=token.pc, trail=[])
            branch.take(tip.entries)
            branch.order = order
            branch.group = group
            branch.updated = token.updated
            branch.resumed = Resumed.IMPLIED
            if pc is None:
                _place_after(branch, tip)
            else:
                _place_on_edge(branch, tip, pc)
                branch.ways = (order[-1] + 1,)
            restored.append(branch)
    group.adopt(restored)
    token.open_branches = group


def _ways_of(token: Token, tip: Tip) -> list[tuple[tuple[int, ...], int | None]]:
    """Return the branches of a tip: one after its node, or one for each remaining
    target.
    """
    if tip.remaining is not None:
        return [((*tip.order, order), pc) for order, pc in tip.remaining]
    if tip.goto is not None and len(tip.goto) > 1:
        targets = [token.program.by_id.get(target, -1) for target in targets_of(token.program, tip.goto)]
        return [((*tip.order, order), pc) for order, pc in enumerate(dict.fromkeys(targets))]
    return [(tip.order, None)]
