"""A reviewer's answer: its format, how it is read, and what follows from several
reviews.

How a reviewer works is in its agent file, `entities/builtin/agents/reviewer.md`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from atomic.base.errors import AtomicError
from atomic.providers.base import CustomTool
from atomic.tasks import Task

SAME_BLOCKER = 3  # a finding in this many rounds needs the user
REPORTED_ONLY = 3  # the priority that does not block

Verdict = Literal["approve", "request_changes"]

# The format of an answer, for reviewers with any instructions.
ANSWER_FORMAT = (
    "Submit the review with the tool `submit_review` if you have it. Otherwise answer only with JSON: "
    '`{"verdict": "approve" or "request_changes", "findings": […], "summary": "…"}`. '
    "Findings of priority 0 to 2, or without one, stop the run; 3 is only reported."
)

_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": get_args(Verdict)},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "body": {"type": "string"},
                    "priority": {"type": ["integer", "null"], "minimum": 0, "maximum": 3},
                    "location": {"type": ["string", "null"], "description": "file:line"},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                },
                "required": ["title", "body"],
            },
        },
        "summary": {"type": "string"},
    },
    "required": ["verdict", "findings"],
}

_BEGIN = re.compile(r"""\{(?=\s{0,99}["}])|\[(?=\s{0,99}[\[{])""")  # an object, or a list of objects
_TOKENS = re.compile(r"""[{}\[\]]|"(?:[^"\\\n]|\\.)*"|".""", re.DOTALL)  # brackets; strings, in which none count
# Text before or after an object that is a part of another one.
_BEFORE_PART = re.compile(r"""["']\s{0,99}:\s{0,99}\Z""")
_AFTER_PART = re.compile(r"""\s*(?:["\]}]|,\s*["'{\[\]}])""")
_LIKE_A_REVIEW = re.compile(r"""["'\\]verdict["'\\]|request_changes""", re.IGNORECASE)


class Finding(msgspec.Struct, frozen=True):
    """A defect that a reviewer found."""

    title: str
    body: str = ""
    priority: int | None = None
    location: str | None = None
    confidence: float | None = None

    @property
    def blocks(self) -> bool:
        return self.priority is None or self.priority < REPORTED_ONLY

    @property
    def key(self) -> str:
        """Return what identifies it in a later round: its words and its file, without
        the line, which moves.
        """
        file = (self.location or "").partition(":")[0]
        words = re.findall(r"[^\W_]+", self.title.casefold())
        return f"{file}|{' '.join(words)}"


class Review(msgspec.Struct, frozen=True):
    """A review; `problem` is the reason why an answer could not be read as one."""

    verdict: Verdict = "request_changes"
    findings: tuple[Finding, ...] = ()
    summary: str = ""
    problem: str = ""

    @property
    def approved(self) -> bool:
        return not self.problem and self.verdict == "approve" and not self.blockers

    @property
    def blockers(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.blocks]


class ReviewError(AtomicError):
    """An answer is not a review."""


def read_review(source: object) -> Review:
    """Read a submitted review. Raises ReviewError."""
    if not isinstance(source, Mapping):
        raise ReviewError("a review is an object with verdict and findings")
    data = cast("Mapping[str, Any]", source)
    verdict = data.get("verdict")
    if verdict not in get_args(Verdict):
        what = "missing" if verdict is None else f"{verdict!r:.60}"
        raise ReviewError(f'verdict is {what}; give "approve" or "request_changes"')
    items = data.get("findings")
    if not isinstance(items, list):
        raise ReviewError('findings is not a list; without findings give "findings": []')
    findings = tuple(_finding(item, number) for number, item in enumerate(cast("list[Any]", items), 1))
    return Review(cast("Verdict", verdict), findings, str(data.get("summary") or ""))


def _finding(item: Any, number: int) -> Finding:
    if not isinstance(item, Mapping):
        raise ReviewError(f"finding {number} is not an object")
    data = cast("Mapping[str, Any]", item)
    title = str(data.get("title") or "").strip()
    if not title:
        raise ReviewError(f"finding {number} has no title")
    location = data.get("location")
    confidence = data.get("confidence")
    if not isinstance(confidence, int | float) or isinstance(confidence, bool) or not 0 <= confidence <= 1:
        confidence = None
    return Finding(
        title,
        str(data.get("body") or ""),
        _priority(data.get("priority"), number),
        None if location is None else str(location),
        None if confidence is None else float(confidence),
    )


def _priority(value: Any, number: int) -> int | None:
    """Return 0 to 3, also for "P1". Other text gives None, which blocks."""
    text = "" if value is None else str(value).strip().lower().removeprefix("p")
    if text in ("0", "1", "2", "3", "0.0", "1.0", "2.0", "3.0"):
        return int(float(text))
    if value is None or isinstance(value, str):
        return None
    raise ReviewError(f"finding {number} has the priority {value!r:.40}; give 0, 1, 2 or 3")


def review_in(text: str) -> Review:
    """Read the review in an answer: all of it, a fenced block, or JSON somewhere in it.

    Raises ReviewError.

    Of several reviews the strictest counts. An approval does not count if the answer
    also has an unreadable review: that may be the rejection that quotes it.
    """
    reviews: list[Review] = []
    problem = ReviewError("the answer has no JSON in it that can be read: look for a comma or a quote too many")
    rest: list[str] = []
    at = 0
    for start, end, data in _documents(text):
        try:
            reviews.append(read_review(data))
        except ReviewError as error:
            problem = error
            continue
        rest.append(text[at:start])
        at = end
    rest.append(text[at:])
    if not reviews:
        raise problem
    review = strictest(reviews)
    if review.approved and any(_LIKE_A_REVIEW.search(part) for part in rest):
        raise ReviewError("the answer approves, and also has a review in it that cannot be read; give one review")
    return review


def strictest(reviews: Sequence[Review]) -> Review:
    """Return the review that asks for most; of equal ones the last."""
    return max(reversed(reviews), key=lambda one: (not one.approved, len(one.blockers), len(one.findings)))


def _documents(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield start, end and data of the outermost JSON objects and lists.

    Nothing inside one that cannot be read is found.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    at = 0
    while start := _BEGIN.search(text, at):
        at = start.start()
        try:
            data, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = _end_of_unreadable(text, at)
            continue
        if _BEFORE_PART.search(text[max(0, at - 201) : at]) or _AFTER_PART.match(text, end):
            return
        yield at, end, data
        at = end


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key is repeated")  # one reader would take the first, another the last
    return data


def _end_of_unreadable(text: str, start: int) -> int:
    """Return where an object that is not JSON ends: at its bracket, or at the end of
    the text if that is in doubt.
    """
    depth = 0
    for token in _TOKENS.finditer(text, start):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth == 0:
                return len(text) if _AFTER_PART.match(text, token.end()) else token.end()
    return len(text)


def review_tool(submit: Callable[[Review], None]) -> CustomTool:
    """Return the tool with which a reviewer submits its review."""

    async def run(arguments: Mapping[str, Any]) -> str:
        submit(read_review(msgspec.to_builtins(arguments)))
        return "The review was accepted. End your turn now."

    return CustomTool(name="submit_review", description="Submit the review.", schema=_SCHEMA, run=run, replayed=True)


def blockers_of(reviews: Iterable[Review]) -> list[Finding]:
    """Return the blocking findings, each once, most urgent first, without a priority
    last.
    """
    found: dict[str, Finding] = {}
    for review in reviews:
        for finding in review.blockers:
            known = found.get(finding.key)
            if known is None or _urgency(finding) < _urgency(known):
                found[finding.key] = finding
    return sorted(found.values(), key=_urgency)


def _urgency(finding: Finding) -> int:
    return REPORTED_ONLY if finding.priority is None else finding.priority


def repeated_blockers(rounds: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Return the blockers of the last round that came back so often that the user must
    decide.
    """
    if not rounds:
        return []
    counts = Counter(key for findings in rounds for key in {finding.key for finding in findings})
    return [finding for finding in rounds[-1] if counts[finding.key] >= SAME_BLOCKER]


def fix_tasks(findings: Sequence[Finding], round: int) -> list[Task]:
    """Return a task for a fixer for each finding."""
    return [
        Task(
            id=f"fix-{round}-{number}",
            title=finding.title,
            description=finding.body,
            priority=_urgency(finding),
            metadata={"role": "fixer", "finding": msgspec.to_builtins(finding)},
        )
        for number, finding in enumerate(findings, 1)
    ]
