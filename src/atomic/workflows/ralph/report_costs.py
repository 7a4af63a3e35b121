"""The part of a report about what Atomic chose where nothing was given, and about what the run took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atomic.sessions.report import dollars, duration
from atomic.workflows.ledger import KILLED, Amount
from atomic.workflows.project_gate import Gate
from atomic.workflows.ralph.account import Account
from atomic.workflows.ralph.calls import Call
from atomic.workflows.ralph.markdown import cell, code
from atomic.workflows.ralph.options import PLAN, PROJECT_SETTINGS, SETTINGS

# choices -------------------------------------------------------------------------------------------------------------


def chosen_section(account: Account) -> str:
    """Gates, review, workers and agents, and who chose them."""
    lines = [*gate_lines(account), _review_line(account), _workers_line(account), *_agent_lines(account)]
    return "## Choices, and who made them\n\n" + "\n".join(f"- {line}" for line in lines)


def gate_lines(account: Account) -> list[str]:
    """The gates, where they come from and how they were before the run."""
    if not account.book.gates and (refused := account.book.refused):
        names = ", ".join(code(command) for command in refused)
        return [f"Check: {names} was found and not run: the project is not approved (`atomic trust`)"]
    if not account.book.gates:
        return ["Check: none was given and none was found: **not verified by a check**. `--verify COMMAND` gives one."]
    return [_gate_line(account, gate) for gate in account.book.gates]


_ORIGINS = {
    PLAN: "named by the plan",
    "--verify": "given by `--verify`",
    SETTINGS: "given by `verify` in your own configuration",
    PROJECT_SETTINGS: "given by `verify` in the project's `.atomic/config.toml`",
}


def _gate_line(account: Account, gate: Gate) -> str:
    origin = _ORIGINS.get(gate.origin) or f"found in {code(gate.origin)} by Atomic, none was given"
    before = account.book.baseline.get(gate.command)
    if before is None and gate.command in account.book.late:
        since = "it has passed" if gate.command in account.book.passed_once else "it has not passed"
        return f"Check: {code(gate.command)} ({origin}); there was none before the run: {since}"
    if before is None:
        return f"Check: {code(gate.command)} ({origin}); it has not been run"
    if before == 0:
        return f"Check: {code(gate.command)} ({origin}); green before the run"
    since = (
        "it has passed since, and blocks from then on"
        if gate.command in account.book.passed_once
        else "it has not passed since, so it proves nothing"
        + ("; it is ignored" if gate.command in account.book.ignored else "")
    )
    return f"Check: {code(gate.command)} ({origin}); **red before the run** (exit code {before}): {since}"


def _review_line(account: Account) -> str:
    options = account.options
    if account.is_yolo:
        return "Review: **not reviewed**, as with every `--yolo`"
    if not options.review_rounds:
        return "Review: **not reviewed**: `--review-rounds` is 0"
    if account.state is not None and not account.state.reviews:
        return "Review: **not reviewed**: the run ended before the review"
    told = {None: "whether it was approved is not known", True: "approved"}.get(account.is_reviewed, "**not approved**")
    return f"Review: {told} (reviewers: {options.reviewers}, at most {options.review_rounds} rounds)"


def _workers_line(account: Account) -> str:
    count = account.options.workers
    if count == 1:
        return "Workers: one at a time, in your checkout"
    return f"Workers: {count} at once in one checkout: a check may have failed, or passed, because of another's work"


def _agent_lines(account: Account) -> list[str]:
    options = account.record.options
    lines: list[str] = []
    for role, calls in account.by_role():
        used = sorted({_agent(call) for call in calls})
        given = any(_is_given(options.get(kind), role) for kind in ("agents", "models"))
        words = ", ".join(sorted({code(call.file) if call.file else "built in" for call in calls}))
        flags = "" if given else " (no flag named one)"
        lines.append(f"Agent of the {cell(role)}: {', '.join(used)}{flags}; its instructions: {words}")
    return lines


def _agent(call: Call) -> str:
    model = f"model {code(call.model)}" if call.model else "its own default model"
    return f"{code(call.provider or 'unknown')} with {model}"


def _is_given(choices: object, role: str) -> bool:
    return isinstance(choices, Mapping) and ("" in choices or role in choices)


# cost ----------------------------------------------------------------------------------------------------------------


def cost_section(account: Account) -> str:
    """What each role took, and all together."""
    spent = account.spent
    rows = [_row(role, calls) for role, calls in account.by_role()]
    if not rows:
        return "## Cost and time by role\n\nNo agent was called to the end of a turn."
    table = [
        "| role | calls | tokens read | tokens written | cost | time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    notes = [
        f"The run took {duration(spent.seconds)}, not counting time spent waiting for people and for limits.",
        *_notes(account, spent.amount),
    ]
    return "\n".join(["## Cost and time by role", "", *table, *rows, _row("all", account.calls), "", *_spaced(notes)])


def _row(role: str, calls: Sequence[Call]) -> str:
    total, seconds = _total(calls), sum(call.seconds for call in calls)
    unknown, guessed = _unpriced(calls), _guessed(calls)
    price = "unknown"
    if unknown < len(calls):
        price = ("about " if guessed else "") + dollars(total.usd) + (" and more" if unknown else "")
    about = "about " if any(call.estimated for call in calls) else ""
    read, written = "unknown", "unknown"
    if _told(calls):
        read, written = f"{about}{total.input_tokens:,}", f"{about}{total.output_tokens:,}"
    return f"| {cell(role)} | {len(calls)} | {read} | {written} | {price} | {duration(seconds)} |"


def _total(calls: Sequence[Call]) -> Amount:
    return sum((call.amount for call in calls), Amount())


def _told(calls: Sequence[Call]) -> bool:
    """Whether anybody told a figure: an agent that tells none is logged with noughts, and no turn is free of tokens."""
    return _total(calls).tokens > 0


def _unpriced(calls: Sequence[Call]) -> int:
    """How many calls have no price, not even an estimate."""
    return sum(call.usage.cost is None and not call.amount.usd for call in calls)


def _guessed(calls: Sequence[Call]) -> int:
    """How many calls ended before their agents told a price that they tell otherwise."""
    return sum(call.usage.cost is None and call.amount.usd > 0 for call in calls)


def _notes(account: Account, spent: Amount) -> list[str]:
    calls, notes = account.calls, list[str]()
    if missing := _unpriced(calls):
        notes.append(f"The price of {missing} of {len(calls)} calls is unknown: their agents do not report it.")
    if guessed := _guessed(calls):
        notes.append(
            f"The price of {guessed} of {len(calls)} calls is an estimate: they were interrupted before their agents"
            " told it."
        )
    if killed := sum(call.reason == KILLED for call in calls):
        were = "was" if killed == 1 else "were"
        notes.append(
            f"{killed} of {len(calls)} calls {were} cut off when Atomic was killed: they count with what their agents"
            " had told by then, else with an estimate. The real price may be higher."
        )
    if estimated := sum(call.estimated for call in calls):
        notes.append(
            f"The tokens of {estimated} of {len(calls)} calls are an estimate from the characters that went in and came"
            " out: their agents tell no figures."
        )
    if spent.tokens > _total(calls).tokens:
        notes.append(f"With turns that a kill has cut off it is {spent.tokens:,} tokens in all.")
    tried = [proof for task in account.tasks if (proof := account.evidence.get(task.id)) and proof.attempt > 1]
    if tried:
        listed = ", ".join(f"{code(proof.task)} ({proof.attempt})" for proof in tried)
        notes.append(f"More than one attempt was needed for {listed}.")
    return notes


def _spaced(notes: Sequence[str]) -> list[str]:
    return ["\n\n".join(notes)]
