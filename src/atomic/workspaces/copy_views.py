"""Start programs in a copy of a project, at another path than the project's own.

Where private views work, the user's checkout and its git folders are read-only for
these programs, and they see no other workspace. Elsewhere they can write to the
checkout by its absolute path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from atomic.git import find_repository
from atomic.workspaces.isolation import Isolation
from atomic.workspaces.views import View, open_folder, open_guarded


def open_copy(
    copy: Path,
    root: Path,
    isolation: Isolation,
    *,
    hidden: Sequence[Path] = (),
    visible: Mapping[Path, bool] | None = None,
    mark: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[View]:
    """Open a view of a copy of the checkout `root`.

    `hidden` folders are empty in a guarded view, except for the copy and the `visible`
    folders, each of which is read-only or not. Programs get the variable `mark`. Raises
    WorkspaceError.
    """
    if not isolation.guarded:
        return open_folder(copy, root, mark=mark)
    return open_guarded(
        copy,
        root,
        own_user=isolation.own_user,
        read_only=[root, *git_folders_outside(root)],
        hidden=hidden,
        visible={copy: False, **(visible or {})},
        mark=mark,
    )


def git_folders_outside(root: Path) -> list[Path]:
    """Return the git folders of a checkout that are not below it."""
    repository = find_repository(root)
    if repository is None:
        return []
    found = [repository.common_dir]
    if not repository.git_dir.is_relative_to(repository.common_dir):
        found.append(repository.git_dir)
    return [folder for folder in found if not folder.is_relative_to(root)]
