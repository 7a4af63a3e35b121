"""Who makes the commits of a run: the user, as git knows them.

As for git, the variables come first (`GIT_AUTHOR_NAME` and so on), then the settings
`user.name` and `user.email`.
"""

from __future__ import annotations

import os

import msgspec

from atomic.git import Repository

_UNKNOWN = {"name": "Atomic", "email": "atomic@localhost"}


class Author(msgspec.Struct, frozen=True):
    """The user's identity. The committer is the author, unless variables name another."""

    name: str
    email: str
    committer_name: str = ""
    committer_email: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables with which git commits as this author."""
        return {
            "GIT_AUTHOR_NAME": self.name,
            "GIT_AUTHOR_EMAIL": self.email,
            "GIT_COMMITTER_NAME": self.committer_name or self.name,
            "GIT_COMMITTER_EMAIL": self.committer_email or self.email,
        }


async def find_author(repository: Repository) -> Author:
    """Return the user's identity. Raises GitError."""
    settings = await repository.settings()
    found: list[str] = []
    for role in ("AUTHOR", "COMMITTER"):
        for key, otherwise in _UNKNOWN.items():
            named = os.environ.get(f"GIT_{role}_{key.upper()}", "").strip()
            found.append(named or settings.get(f"user.{key}", "") or otherwise)
    return Author(*found)
