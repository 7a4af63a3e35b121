"""Read names and flags of workflows from the text of their files, for completion in a
shell.

Names are found with patterns and `atomic.workflows` is not imported: both would take
too long for a Tab. No code of a file runs.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from atomic.base.flags import ConfigFlag, config_flags

_LONGEST_FILE = 1024 * 1024
_NAME = re.compile(r"^name\s*(?::\s*str\s*)?=\s*([\"'])([^\"'\n]{1,64})\1", re.MULTILINE)
_DECORATED = re.compile(r"^@(?:\w+\.)?workflow\([^)]*?\bname\s*=\s*([\"'])([^\"'\n]{1,64})\1", re.MULTILINE)
_ALIASES = re.compile(r"^aliases\s*(?::[^=\n]*)?=\s*[\[(]([^\])]*)[\])]", re.MULTILINE)
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,64})\1")


class WrittenWorkflow:
    """A workflow as its file describes it."""

    def __init__(self, stem: str, text: str) -> None:
        name = _NAME.search(text) or _DECORATED.search(text)
        aliases = _ALIASES.search(text)
        self.name = name[2] if name else stem
        self.aliases: Sequence[str] = [alias for _, alias in _QUOTED.findall(aliases[1])] if aliases else []
        self._text = text

    def flags(self) -> list[ConfigFlag]:
        """Return the flags of its `default_config`, if that is a literal, and of the
        parameters of its function.
        """
        from atomic.loading.metadata import read_metadata

        written = read_metadata(self._text.encode(), self.name)
        parameters = written.parameters or ()
        return config_flags(written.default_config, written.config_descriptions, parameters=parameters)


class BuiltinWorkflow(WrittenWorkflow):
    """A built-in workflow, whose flags can be imported quickly."""

    def __init__(self, name: str, aliases: Sequence[str], flags: list[ConfigFlag]) -> None:
        super().__init__(name, "")
        self.aliases = aliases
        self._flags = flags

    def flags(self) -> list[ConfigFlag]:
        return self._flags


def written_workflows(project: Path | None, home: Path) -> Iterator[list[WrittenWorkflow]]:
    """Yield the workflows of the project, of the user, built-in ones, and those of
    installed packages.

    Earlier ones take precedence.
    """
    from atomic.config import ralph_flags

    for folder in (None if project is None else project / ".atomic", home):
        files = _files(folder / "workflows") if folder else ()
        yield [WrittenWorkflow(path.stem, read_text(path)) for path in files]
    yield [
        BuiltinWorkflow(
            ralph_flags.NAME,
            ralph_flags.ALIASES,
            config_flags(ralph_flags.DEFAULTS, ralph_flags.DESCRIPTIONS, ralph_flags.ON_RESUME),
        )
    ]
    yield list(package_workflows())


def package_workflows() -> Iterator[WrittenWorkflow]:
    """Yield the workflows of installed packages."""
    from atomic.loading.packages import find_package_workflows

    for one in find_package_workflows():
        if one.path is not None:
            yield WrittenWorkflow(one.name, read_text(one.path))


def find_written(word: str, project: Path | None, home: Path) -> WrittenWorkflow | None:
    """Return the workflow of that name or alias, or in the file of that name."""
    if is_file_name(word):
        path = Path(word).expanduser()
        return WrittenWorkflow(path.stem, read_text(path)) if path.is_file() else None
    wanted = word.removeprefix("/").casefold()
    for level in written_workflows(project, home):
        by_name = [one for one in level if one.name.casefold() == wanted]
        found = by_name or [one for one in level if wanted in map(str.casefold, one.aliases)]
        if found:
            return found[0]
    return None


def is_file_name(word: str) -> bool:
    """Return whether a word names a workflow's file, not a workflow."""
    return word.endswith(".py")


def read_text(path: Path) -> str:
    """Return the text of a regular file; empty for anything else."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # never wait for a pipe
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        return os.read(number, _LONGEST_FILE).decode("utf-8", "replace") if is_file else ""
    finally:
        os.close(number)


def _files(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(".py") and not name.startswith((".", "_"))]
