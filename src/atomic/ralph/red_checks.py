"""Decide what checks mean that are red before the run: ignored, the goal, or a reason to
stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.terminal import one_line
from atomic.graph import RunStatus, Suspend
from atomic.questions import Option, Question
from atomic.ralph.checks import NOT_EXECUTABLE, NOT_FOUND
from atomic.ralph.evidence import CheckResult
from atomic.ralph.options import red_checks_of
from atomic.ralph.run_folder import Ralph, RunFolder

IGNORE = "Ignore it"
GOAL = "It is the goal"
STOP = "Stop"
_MEANINGS = {
    IGNORE.casefold(): "ignore",
    "ignore": "ignore",
    GOAL.casefold(): "goal",
    "goal": "goal",
    STOP.casefold(): "",
}
_ASKED = "asked"  # the number of questions about red checks
_CLOSED = "stops"  # how many of them led to no decision
_REFUSED = "refused"  # the last answer, if it was not one of the options
MAX_OUTPUT = 600  # characters of a red check's output


async def decide(ctx: Ralph, run: RunFolder, red: Sequence[CheckResult]) -> None:
    """Decide what red checks before the run mean.

    Raises Suspend if the run must stop.
    """
    said = red_checks_of(ctx.deps.config)
    missing = [check for check in red if check.exit_code in (NOT_FOUND, NOT_EXECUTABLE)]
    if not said and run.options.mode == "yolo" and not missing:  # a misspelled command never passes
        said = "goal"
    if not said and (ctx.deps.broker is not None or _is_asked(ctx)):
        said = await _ask_about(ctx, run, red)
    names = " and ".join(check.command for check in red)
    if not said:
        remedy = "" if missing else "--red-checks goal"
        raise Suspend(_stopped(run, red), status=RunStatus.BLOCKED, code="check_red", remedy=remedy)
    for check in missing:
        run.say(describe(check))
    if said == "ignore":
        run.checks.ignore(check.command for check in red)
        run.say(f"{names}: red before the run, and ignored until it passes once")
    else:
        run.say(f"{names}: red before the run; the run is completed only when it is green")


def _is_asked(ctx: Ralph) -> bool:
    """Return whether a question about red checks is open, or was answered while the run
    was paused.

    Older versions recorded only the answer.
    """
    closed = ctx.remembered(_CLOSED, 0)
    return ctx.remembered(_ASKED, 0) > closed or ctx.is_answered(_id_of(closed + 1))


async def _ask_about(ctx: Ralph, run: RunFolder, red: Sequence[CheckResult]) -> str:
    """Ask what red checks mean; an empty result means stop.

    Each question has its own id.
    """
    for check in red:
        if output := end_of_output(check):
            run.say(f"{check.command} printed: {output}")
    while True:
        number = ctx.remembered(_CLOSED, 0) + 1
        await ctx.remember(_ASKED, number)
        refused = ctx.remembered(_REFUSED, "")
        answer = str(await ctx.ask(_question(red, number, refused))).strip()
        said = _MEANINGS.get(answer.casefold())
        if said:
            return said
        await ctx.remember(_REFUSED, answer if said is None else "")
        await ctx.remember(_CLOSED, number)
        if said is not None:
            return ""


def _id_of(number: int) -> str:
    return f"red-check-{number}"


def _question(red: Sequence[CheckResult], number: int, refused: str) -> Question:
    """Return the question without the checks' output: a recorded answer is found by the
    question's text.
    """
    again = f'"{one_line(refused)[:60]}" is not one of the answers. Choose one. ' if refused else ""
    return Question(
        f"{again}{' '.join(describe(check) for check in red)} What should the run do?",
        id=_id_of(number),
        header="Red check",
        options=[
            Option(IGNORE, "work without it; the report mentions that"),
            Option(GOAL, "the run is completed only when it is green"),
            Option(STOP, "nothing has been paid yet"),
        ],
        default=STOP,
    )


def describe(check: CheckResult) -> str:
    """Return a sentence about a check that did not work before the run."""
    if check.timed_out:
        return f"Before the run, the check `{check.command}` took too long."
    if check.exit_code == NOT_FOUND:
        return (
            f"Before the run, the check `{check.command}` was not found (exit code {NOT_FOUND}): its name may be"
            " misspelled, or the program is not installed."
        )
    if check.exit_code == NOT_EXECUTABLE:
        return f"Before the run, the check `{check.command}` could not be executed (exit code {NOT_EXECUTABLE})."
    return f"Before the run, the check `{check.command}` is red (exit code {check.exit_code})."


def end_of_output(check: CheckResult) -> str:
    return " ".join(check.output_tail.split())[-MAX_OUTPUT:]


def _stopped(run: RunFolder, red: Sequence[CheckResult]) -> str:
    id = run.session.name
    sentences: list[str] = []
    for check in red:
        sentences.append(describe(check))
        if output := end_of_output(check):
            sentences.append(f'It printed: "{output}".')
    return (
        f"{' '.join(sentences)} Nothing was paid. Fix it and run `atomic resume {id}`, or decide what it means:"
        f" `atomic resume {id} --red-checks goal` (completed only when it is green) or `--red-checks ignore`"
        " (do not count it). For another command start a new run with --verify"
    )
