"""A commit as text in the form of `git format-patch`.

`git am` reads it too. Two lines of the head are ours, Committer and CommitDate: with
them, and on the same parent, the commit that is made again has the same id.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import msgspec

_PERSON = re.compile(r"(?P<name>.*?) ?<(?P<email>[^>]*)>(?: (?P<seconds>\d+) (?P<zone>[+-]\d{4}))?$")
_PREFIX = re.compile(r"\[PATCH[^\]]*\]\s?")
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
# The end of the message: three dashes, at most a diffstat, then the patch or nothing.
_END = re.compile(r"^---\n(?:[ ].*\n|\n)*(?=diff --git |--- |\Z)", re.MULTILINE)


class Identity(msgspec.Struct, frozen=True):
    """The author or committer of a commit, and the date in a form that git reads."""

    name: str
    email: str
    date: str

    def environment(self, role: str) -> dict[str, str]:
        """Return git's variables for a role: AUTHOR or COMMITTER."""
        values = {"NAME": self.name or "nobody", "EMAIL": self.email, "DATE": self.date}
        return {f"GIT_{role}_{name}": value for name, value in values.items() if value}


class Commit(msgspec.Struct, frozen=True):
    """Message, patch and people of a commit."""

    message: str
    patch: str
    author: Identity | None = None
    committer: Identity | None = None


def write_mail(raw: str, name: str, patch: str) -> str:
    """Return a commit as text; `raw` is the output of `git cat-file commit`."""
    head, _, message = raw.partition("\n\n")
    fields = dict(line.split(" ", 1) for line in head.splitlines() if " " in line)
    author = _read_person(fields["author"])
    committer = _read_person(fields["committer"])
    subject, gap, rest = message.partition("\n\n")
    if not gap:
        subject = subject.removesuffix("\n")
    subject = subject.replace("\n", "\n ")
    return (
        # The date that git writes, so that programs recognise the file as mail.
        f"From {name} Mon Sep 17 00:00:00 2001\n"
        f"From: {author.name} <{author.email}>\nDate: {author.date}\n"
        f"Committer: {committer.name} <{committer.email}>\nCommitDate: {committer.date}\n"
        f"Subject: [PATCH] {subject}\n\n{rest}---\n\n{patch}"
    )


def read_mail(text: str) -> Commit:
    """Return the commit; a patch without a head becomes one without people."""
    if not re.match(r"From |[A-Za-z-]+: ", text):
        return Commit("Changes from a recording\n", text)
    head, _, body = text.partition("\n\n")
    fields = _read_fields(head)
    end = _END.search(body)
    start = _FILE.search(body)
    if end is not None:
        rest = body[: end.start()]
        patch = body[end.end() :]
    elif start is not None:
        rest = body[: start.start()]
        patch = body[start.start() :]
    else:
        rest = body
        patch = ""
    subject = _PREFIX.sub("", fields.get("subject", ""), count=1)
    return Commit(
        f"{subject}\n\n{rest}" if rest else f"{subject}\n",
        patch,
        _find_person(fields.get("from", ""), fields.get("date", "")),
        _find_person(fields.get("committer", ""), fields.get("commitdate", "")),
    )


def split_patch(patch: str) -> list[str]:
    """Split a patch by files.

    The first part includes the text before the first file.
    """
    starts = [match.start() for match in _FILE.finditer(patch)][1:]
    return [patch[start:end] for start, end in zip([0, *starts], [*starts, len(patch)], strict=True)]


def split_mail(text: str) -> tuple[str, str]:
    """Split the text of a commit into its head with the message, and its patch."""
    commit = read_mail(text)
    return text[: len(text) - len(commit.patch)], commit.patch


def _read_fields(head: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in re.split(r"\n(?! )", head):
        name, _, value = line.partition(": ")
        fields.setdefault(name.lower(), _decode_field(value.replace("\n ", "\n")))
    return fields


def _decode_field(value: str) -> str:
    """Decode a field that git wrote in ASCII for mail (`=?UTF-8?q?...?=`)."""
    if "=?" not in value:
        return value
    from email.header import decode_header, make_header

    return str(make_header(decode_header(value)))


def _read_person(line: str) -> Identity:
    """Read a line of a commit: name, address, seconds and time zone."""
    from email.utils import format_datetime

    match = _PERSON.match(line)
    if match is None or match["seconds"] is None:
        return Identity(line, "", "")
    zone = match["zone"]
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
    if zone[0] == "-":
        offset = -offset
    when = datetime.fromtimestamp(int(match["seconds"]), timezone(offset))
    return Identity(match["name"], match["email"], format_datetime(when))


def _find_person(line: str, date: str) -> Identity | None:
    match = _PERSON.match(line)
    return None if match is None else Identity(match["name"], match["email"], date)
