"""A reviewer's answer -> findings and a verdict; and what follows from several of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from atomic.errors import AtomicError
from atomic.providers.base import CustomTool
from atomic.tasks import Task

_BEGIN = re.compile(r"""\{(?=\s{0,99}["}])|\[(?=\s{0,99}[\[{])""")  # an object, or a list of objects
_TOKENS = re.compile(r"""[{}\[\]]|"(?:[^"\\\n]|\\.)*"|".""", re.DOTALL)  # brackets; strings, in which none count
# What comes before or after an object only if that is a part of another one.
_BEFORE_PART = re.compile(r"""["']\s{0,99}:\s{0,99}\Z""")
_AFTER_PART = re.compile(r"""\s*(?:["\]}]|,\s*["'{\[\]}])""")
_LIKE_A_REVIEW = re.compile(r"""["'\\]verdict["'\\]|request_changes""", re.IGNORECASE)
SAME_BLOCKER = 3  # so often the same finding, and a person is needed
REPORTED_ONLY = 3  # the priority that does not block


class Finding(msgspec.Struct, frozen=True):
    """Something that a reviewer found."""

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
        """By which it is known again in a later round: its words and its file, not the line, which moves."""
        file, words = (self.location or "").partition(":")[0], re.findall(r"[^\W_]+", self.title.casefold())
        return f"{file}|{' '.join(words)}"


class Review(msgspec.Struct, frozen=True):
    """A review as it was read; `problem` says why it could not be."""

    verdict: Literal["approve", "request_changes"] = "request_changes"
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
    """An answer that is no review."""


_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["approve", "request_changes"]},
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


def read_review(source: object) -> Review:
    """A review that somebody handed in. Raises ReviewError."""
    if not isinstance(source, Mapping):
        raise ReviewError("a review is an object with verdict and findings")
    data = cast("Mapping[str, Any]", source)
    verdict, listed = data.get("verdict"), data.get("findings")
    if verdict not in ("approve", "request_changes"):
        raise ReviewError(f'verdict is {verdict!r:.60}; give "approve" or "request_changes"')
    if not isinstance(listed, list):
        raise ReviewError('findings is not a list; give "findings": [] if there are none')
    findings = tuple(_finding(item, at) for at, item in enumerate(cast("list[Any]", listed), 1))
    return Review(verdict, findings, str(data.get("summary") or ""))


def _finding(item: Any, at: int) -> Finding:
    if not isinstance(item, Mapping):
        raise ReviewError(f"finding {at} is no object")
    data = cast("Mapping[str, Any]", item)
    title = str(data.get("title") or "").strip()
    if not title:
        raise ReviewError(f"finding {at} has no title")
    location = data.get("location")
    return Finding(
        title,
        str(data.get("body") or ""),
        _priority(data.get("priority"), at),
        None if location is None else str(location),
        _confidence(data.get("confidence")),
    )


def _priority(value: Any, at: int) -> int | None:
    """0 to 3, also as "P1"; whatever else somebody writes must not make a finding harmless."""
    text = str(value).strip().lower().removeprefix("p") if value is not None else ""
    if text in ("0", "1", "2", "3", "0.0", "1.0", "2.0", "3.0"):
        return int(float(text))
    if value is None or isinstance(value, str):
        return None
    raise ReviewError(f"finding {at} has the priority {value!r:.40}; give 0, 1, 2 or 3")


def _confidence(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 else None


def review_in(text: str) -> Review:
    """Read the review in an answer: all of it, a fenced block, or JSON somewhere in it. Raises ReviewError.

    Of several reviews the strictest counts. An approval does not count beside something that looks like a review and
    cannot be read: that may be the rejection it was quoted in.
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
    """Return the one that asks for most; of equal ones the last."""
    return max(reversed(reviews), key=lambda one: (not one.approved, len(one.blockers), len(one.findings)))


def _documents(text: str) -> Iterator[tuple[int, int, Any]]:
    """Find the outermost JSON objects and lists: start, end and data of each.

    What is inside one that cannot be read is never found.
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
        raise ValueError("a key is there twice")  # one reader would take the first, another the last
    return data


def _end_of_unreadable(text: str, start: int) -> int:
    """Find where an object that is not JSON ends: at its own bracket, or with the text where that is in doubt."""
    depth = 0
    for token in _TOKENS.finditer(text, start):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth == 0:
                return len(text) if _AFTER_PART.match(text, token.end()) else token.end()
    return len(text)


def review_tool(hand_in: Callable[[Review], None]) -> CustomTool:
    """The tool with which a reviewer hands in its review."""

    async def run(arguments: Mapping[str, Any]) -> str:
        hand_in(read_review(msgspec.to_builtins(arguments)))
        return "The review is taken. End your turn now."

    return CustomTool(name="submit_review", description="Hand in the review.", schema=_SCHEMA, run=run, replayed=True)


# several reviews ---------------------------------------------------------------------------------------------------


def united(reviews: Iterable[Review]) -> list[Finding]:
    """What blocks, each once, most urgent first; what has no priority comes last of these."""
    found: dict[str, Finding] = {}
    for finding in (finding for review in reviews for finding in review.blockers):
        known = found.get(finding.key)
        if known is None or _urgency(finding) < _urgency(known):
            found[finding.key] = finding
    return sorted(found.values(), key=_urgency)


def _urgency(finding: Finding) -> int:
    return REPORTED_ONLY if finding.priority is None else finding.priority


def often_found(rounds: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The blockers of the last round that were there so often that a person is needed."""
    counts: dict[str, int] = {}
    for findings in rounds:
        for key in {finding.key for finding in findings}:
            counts[key] = counts.get(key, 0) + 1
    return [finding for finding in (rounds[-1] if rounds else ()) if counts[finding.key] >= SAME_BLOCKER]


def fix_tasks(findings: Sequence[Finding], round: int) -> list[Task]:
    """One task for each finding, for a fixer."""
    return [
        Task(
            id=f"fix-{round}-{at}",
            title=finding.title,
            description=finding.body,
            priority=_urgency(finding),
            metadata={"role": "fixer", "finding": msgspec.to_builtins(finding)},
        )
        for at, finding in enumerate(findings, 1)
    ]
