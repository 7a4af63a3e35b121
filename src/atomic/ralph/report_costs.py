"""The sections of a report about the choices that Atomic made, and about cost and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atomic.base.text import duration
from atomic.loading.project_check import Gate
from atomic.ralph.calls import Call
from atomic.ralph.markdown import bullets, cell, code, codes, paragraphs
from atomic.ralph.options import PLAN, PROJECT_SETTINGS, SETTINGS
from atomic.ralph.report_data import ReportData
from atomic.runs.spending import KILLED, Amount
from atomic.sessions.report import dollars

# choices -------------------------------------------------------------------------------------------------------------


def choices_section(data: ReportData) -> str:
    """Return the checks, review, workers and agents, and who chose them."""
    workers = "one at a time, in your checkout"
    if data.is_shared:
        workers = (
            f"{data.options.workers} at once in one checkout: a check may have failed, or passed, because of another's"
            " work"
        )
    lines = [*check_lines(data), f"Review: {_review(data)}", f"Workers: {workers}", *_agents(data)]
    return paragraphs("## Choices, and who made them", bullets(lines))


def check_lines(data: ReportData) -> list[str]:
    """Return the checks, who chose them, and their results before the run."""
    if data.checks.gates:
        return [_check(data, check) for check in data.checks.gates]
    if data.checks.refused:
        names = codes(data.checks.refused)
        return [f"Check: {names} was found and not run: the project is not approved (`atomic trust`)"]
    return ["Check: none was given and none was found: **not verified by a check**. `--verify COMMAND` gives one."]


_ORIGINS = {
    PLAN: "named by the plan",
    "--verify": "given by `--verify`",
    SETTINGS: "given by `verify` in your own configuration",
    PROJECT_SETTINGS: "given by `verify` in the project's `.atomic/config.toml`",
}


def _check(data: ReportData, check: Gate) -> str:
    origin = _ORIGINS.get(check.origin) or f"found in {code(check.origin)} by Atomic, none was given"
    return f"Check: {code(check.command)} ({origin}); {_check_result(data, check.command)}"


def _check_result(data: ReportData, command: str) -> str:
    has_passed = command in data.checks.passed_once
    before = data.checks.baseline.get(command)
    if before is None and command in data.checks.late:
        return f"there was none before the run: it has {'' if has_passed else 'not '}passed"
    if before is None:
        return "it has not been run"
    if before == 0:
        return "green before the run"
    red = f"**red before the run** (exit code {before}): "
    if has_passed:
        return f"{red}it has passed since, and blocks from then on"
    ignored = "; it is ignored" if command in data.checks.ignored else ""
    return f"{red}it has not passed since, so it proves nothing{ignored}"


def _review(data: ReportData) -> str:
    if data.is_yolo:
        return "**not reviewed**, as with every `--yolo`"
    if not data.options.review_rounds:
        return "**not reviewed**: `--review-rounds` is 0"
    if data.state is None:
        verdict = "whether it was approved is not known"
    elif not data.state.reviews:
        return "**not reviewed**: the run ended before the review"
    else:
        verdict = "approved" if data.is_reviewed else "**not approved**"
    return f"{verdict} (reviewers: {data.options.reviewers}, at most {data.options.review_rounds} rounds)"


def _agents(data: ReportData) -> list[str]:
    lines: list[str] = []
    for role, calls in data.by_role():
        agents: set[str] = set()
        for call in calls:
            model = f"model {code(call.model)}" if call.model else "its own default model"
            agents.add(f"{code(call.provider or 'unknown')} with {model}")
        instructions = {code(call.file) if call.file else "built in" for call in calls}
        flags = "" if _has_flag(data, role) else " (no flag named one)"
        names = ", ".join(sorted(agents))
        lines.append(f"Agent of the {cell(role)}: {names}{flags}; its instructions: {', '.join(sorted(instructions))}")
    return lines


def _has_flag(data: ReportData, role: str) -> bool:
    """Return whether `--agent` or `--model` chose the agent of a role."""
    choices = (data.record.options.get(kind) for kind in ("agents", "models"))
    return any(isinstance(choice, Mapping) and ("" in choice or role in choice) for choice in choices)


# cost ----------------------------------------------------------------------------------------------------------------


def cost_section(data: ReportData) -> str:
    """Return what each role cost, and the total."""
    title = "## Cost and time by role"
    rows = [_row(role, calls) for role, calls in data.by_role()]
    if not rows:
        return paragraphs(title, "No agent was called to the end of a turn.")
    table = [
        "| role | calls | tokens read | tokens written | cost | time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *rows,
        _row("all", data.calls),
    ]
    time = f"The run took {duration(data.spent.seconds)}, not counting time spent waiting for people and for limits."
    return paragraphs(title, "\n".join(table), time, *_notes(data))


def _row(role: str, calls: Sequence[Call]) -> str:
    total = _total(calls)
    unpriced = _unpriced(calls)
    cost = "unknown"
    if unpriced < len(calls):
        cost = ("about " if _guessed(calls) else "") + dollars(total.usd) + (" and more" if unpriced else "")
    read = written = "unknown"
    if total.tokens > 0:  # every turn takes tokens: zero means that the agent reports none
        about = "about " if any(call.estimated for call in calls) else ""
        read = f"{about}{total.input_tokens:,}"
        written = f"{about}{total.output_tokens:,}"
    seconds = sum(call.seconds for call in calls)
    return f"| {cell(role)} | {len(calls)} | {read} | {written} | {cost} | {duration(seconds)} |"


def _total(calls: Sequence[Call]) -> Amount:
    return sum((call.amount for call in calls), Amount())


def _unpriced(calls: Sequence[Call]) -> int:
    """Count the calls without a price, not even an estimate."""
    return sum(call.usage.cost is None and not call.amount.usd for call in calls)


def _guessed(calls: Sequence[Call]) -> int:
    """Count the calls that ended before their agents reported a price."""
    return sum(call.usage.cost is None and call.amount.usd > 0 for call in calls)


def _notes(data: ReportData) -> list[str]:
    """Say which numbers are unknown or estimates, and which tasks needed several attempts."""
    calls = data.calls
    notes: list[str] = []
    if unpriced := _unpriced(calls):
        notes.append(f"The price of {unpriced} of {len(calls)} calls is unknown: their agents do not report it.")
    if guessed := _guessed(calls):
        notes.append(
            f"The price of {guessed} of {len(calls)} calls is an estimate: they were interrupted before their agents"
            " reported it."
        )
    if killed := sum(call.reason == KILLED for call in calls):
        were = "was" if killed == 1 else "were"
        notes.append(
            f"{killed} of {len(calls)} calls {were} cut off when Atomic was killed: they count with what their agents"
            " had reported by then, else with an estimate. The real price may be higher."
        )
    if estimated := sum(call.estimated for call in calls):
        notes.append(
            f"The tokens of {estimated} of {len(calls)} calls are an estimate from the characters that went in and came"
            " out: their agents report no numbers."
        )
    if data.spent.amount.tokens > _total(calls).tokens:
        notes.append(f"With turns that a kill has cut off it is {data.spent.amount.tokens:,} tokens in all.")
    repeated = [evidence for evidence in data.all_evidence if evidence.attempt > 1 and not data.is_yolo]
    if repeated:
        listed = ", ".join(f"{code(evidence.task)} ({evidence.attempt})" for evidence in repeated)
        notes.append(f"More than one attempt was needed for {listed}.")
    return notes
