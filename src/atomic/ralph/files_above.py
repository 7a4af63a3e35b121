"""Files in the folders above a project that decide what its checks do.

Test runners and build tools look for their configuration there too. A worker can write
to these folders, so a check does not count if such a file differs from the start of the
run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from atomic.ralph.file_copies import DELETED, LINK, content_of

FACT = "files_above"
# Known names, and the beginnings of names that have several endings.
_NAMES = (
    *("pytest.ini", ".pytest.ini", "conftest.py", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml", "pytest.toml"),
    *(".pytest.toml", ".coveragerc", "mypy.ini", ".mypy.ini", ".flake8", "ruff.toml", ".ruff.toml", ".pylintrc"),
    *("pyrightconfig.json", "uv.toml", ".python-version", ".tool-versions", "mise.toml", ".mise.toml", ".envrc"),
    *("package.json", "package-lock.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "node_modules"),
    *("pnpm-workspace.yaml", ".nvmrc", ".node-version", "bunfig.toml", "deno.json", "lerna.json", "nx.json"),
    *("turbo.json", ".eslintignore", ".swcrc", "biome.json", "tsconfig.json", "tsconfig.base.json"),
    *("Cargo.toml", ".cargo/config", ".cargo/config.toml", "rust-toolchain", "rust-toolchain.toml", "clippy.toml"),
    *("rustfmt.toml", ".rustfmt.toml", "go.work", "go.mod", "vendor/modules.txt"),
    *("settings.gradle", "settings.gradle.kts", "gradle.properties", "pom.xml", ".mvn/maven.config", ".mvn/jvm.config"),
    *("Directory.Build.props", "Directory.Build.targets", "Directory.Packages.props", "global.json", "nuget.config"),
    *("NuGet.Config", ".editorconfig", ".rspec", ".rubocop.yml", "Gemfile", ".ruby-version", ".bazelrc"),
    *("MODULE.bazel", "WORKSPACE", "mix.exs", "composer.json", "phpunit.xml", "deps.edn", "build.sbt"),
)
_PREFIXES = (
    *(".eslintrc", "eslint.config.", ".babelrc", "babel.config.", "jest.config.", "vitest.config.", "vite.config."),
    *(".mocharc", "ava.config.", "playwright.config.", "karma.conf.", ".nycrc", ".prettierrc"),
)
# Logins write these to the home folder, also in the middle of a night.
_OF_LOGINS = frozenset([".npmrc", ".yarnrc", ".yarnrc.yml", "nuget.config", "NuGet.Config", "gradle.properties"])


class FilesAbove(msgspec.Struct, frozen=True):
    """Folders, and the content of known files in them, by path."""

    folders: Sequence[str]
    files: Mapping[str, str]


def find_files_above(places: Iterable[Path]) -> FilesAbove:
    """Return the known files in all folders above some places."""
    folders: dict[str, None] = {}
    for place in places:
        folders.update(dict.fromkeys(str(folder) for folder in Path(os.path.realpath(place)).parents))
    return FilesAbove([*folders], _files_in(folders))


def changed_since(start: FilesAbove, places: Iterable[Path]) -> list[str]:
    """Return the known files above the places of the start, or above `places`, that are
    not as they were then.
    """
    now = _files_in([*start.folders, *find_files_above(places).folders])
    return sorted(path for path in {*start.files, *now} if start.files.get(path) != now.get(path))


def _files_in(folders: Iterable[str]) -> dict[str, str]:
    home = os.path.realpath(Path.home())
    found: dict[str, str] = {}
    for folder in folders:
        for name in (*_NAMES, *_with_prefix(folder)):
            path = Path(folder, name)
            if (folder == home and name in _OF_LOGINS) or not _is_ours(path):
                continue
            content = content_of(path)
            if content.startswith(f"{LINK}:"):
                content += f" {content_of(Path(os.path.realpath(path)))}"
            if content != DELETED:
                found[str(path)] = content
    return found


def _is_ours(path: Path) -> bool:
    """Return whether a file is the user's, as those are that a worker writes.

    Others may write to a folder above, such as the temporary one.
    """
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _with_prefix(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith(_PREFIXES)]
    except OSError:  # it may not be listed, or is gone: known names are still found
        return []
