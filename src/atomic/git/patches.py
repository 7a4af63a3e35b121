"""A commit as text, in the form of `git format-patch`, that says all there is to make it again.

`git am` reads it too. Two lines of the head are ours (Committer, CommitDate): with them, and on the same parent, the
commit made again has the same id.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import msgspec

_PERSON = re.compile(r"(?P<name>.*?) ?<(?P<email>[^>]*)>(?: (?P<seconds>\d+) (?P<zone>[+-]\d{4}))?$")
_PREFIX = re.compile(r"\[PATCH[^\]]*\]\s?")
# The end of the message: a line of three dashes, behind it at most a diffstat, then the patch or nothing.
_END = re.compile(r"^---\n(?:[ ].*\n|\n)*(?=diff --git |--- |\Z)", re.MULTILINE)


class Person(msgspec.Struct, frozen=True):
    """Who made a commit, and when, in words that git reads."""

    name: str
    email: str
    date: str

    def environment(self, role: str) -> dict[str, str]:
        values = {"NAME": self.name or "nobody", "EMAIL": self.email, "DATE": self.date}
        return {f"GIT_{role}_{name}": value for name, value in values.items() if value}


class Commit(msgspec.Struct, frozen=True):
    """A commit: what it says and what it changes."""

    message: str
    patch: str
    author: Person | None = None
    committer: Person | None = None


def write_mail(raw: str, name: str, patch: str) -> str:
    """The text of a commit, from what `git cat-file commit` says of it."""
    head, _, message = raw.partition("\n\n")
    fields = dict(line.split(" ", 1) for line in head.splitlines() if " " in line)
    author, committer = _person(fields["author"]), _person(fields["committer"])
    subject, rest = _parted(message)
    return "".join(
        (
            f"From {name} Mon Sep 17 00:00:00 2001\n",  # the date that git writes, by which a file is known as mail
            f"From: {author.name} <{author.email}>\nDate: {author.date}\n",
            f"Committer: {committer.name} <{committer.email}>\nCommitDate: {committer.date}\n",
            f"Subject: [PATCH] {subject}\n\n{rest}---\n\n{patch}",
        )
    )


def read_mail(text: str) -> Commit:
    """The commit; a patch without a head is one too, with nothing known of who made it."""
    if not re.match(r"From |[A-Za-z-]+: ", text):
        return Commit("Changes from a recording\n", text)
    head, _, body = text.partition("\n\n")
    fields = _fields(head)
    end = _END.search(body)
    rest, patch = (body[: end.start()], body[end.end() :]) if end else _without_end(body)
    subject = _PREFIX.sub("", fields.get("subject", ""), count=1)
    return Commit(
        _joined(subject, rest),
        patch,
        _named(fields.get("from"), fields.get("date", "")),
        _named(fields.get("committer"), fields.get("commitdate", "")),
    )


def split_patch(patch: str) -> list[str]:
    """A patch in its parts, one for each file; the first has what stands before it too."""
    starts = [match.start() for match in re.finditer(r"^diff --git ", patch, re.MULTILINE)][1:]
    return [patch[start:end] for start, end in zip([0, *starts], [*starts, len(patch)], strict=True)]


def split_mail(text: str) -> tuple[str, str]:
    """What a commit says, and its patch; together they are the text."""
    commit = read_mail(text)
    return text[: len(text) - len(commit.patch)], commit.patch


def _parted(message: str) -> tuple[str, str]:
    """The first paragraph, as lines of a head, and the rest of a message."""
    subject, gap, rest = message.partition("\n\n")
    if not gap:
        subject = subject.removesuffix("\n")
    return subject.replace("\n", "\n "), rest


def _joined(subject: str, rest: str) -> str:
    return f"{subject}\n\n{rest}" if rest else f"{subject}\n"


def _without_end(body: str) -> tuple[str, str]:
    patch = re.search(r"^diff --git ", body, re.MULTILINE)
    return (body, "") if patch is None else (body[: patch.start()], body[patch.start() :])


def _fields(head: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in re.split(r"\n(?! )", head):
        name, _, value = line.partition(": ")
        fields.setdefault(name.lower(), _decoded(value.replace("\n ", "\n")))
    return fields


def _decoded(value: str) -> str:
    """A line of a head that git wrote for mail in ASCII (`=?UTF-8?q?...?=`), as it was meant."""
    if "=?" not in value:
        return value
    from email.header import decode_header, make_header

    return str(make_header(decode_header(value)))


def _person(line: str) -> Person:
    """From a line of a commit: name, address, seconds and time zone."""
    match = _PERSON.match(line)
    if match is None or match["seconds"] is None:
        return Person(line, "", "")
    hours, minutes = int(match["zone"][1:3]), int(match["zone"][3:5])
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if match["zone"][0] == "-" else 1)
    when = datetime.fromtimestamp(int(match["seconds"]), timezone(offset))
    return Person(match["name"], match["email"], _mail_date(when))


def _named(line: str | None, date: str) -> Person | None:
    match = None if line is None else _PERSON.match(line)
    return None if match is None else Person(match["name"], match["email"], date)


def _mail_date(when: datetime) -> str:
    from email.utils import format_datetime

    return format_datetime(when)
