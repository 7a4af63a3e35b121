"""What the files of workflows say of themselves, read as text.

For a shell's Tab alone: to import the door of workflows takes longer than a person waits there. Nothing is run.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from atomic.base.flags import ConfigFlag, config_flags

if TYPE_CHECKING:
    import ast

_LONGEST_FILE = 1024 * 1024
_NAME = re.compile(r"^name\s*(?::\s*str\s*)?=\s*([\"'])([^\"'\n]{1,64})\1", re.MULTILINE)
_ALIASES = re.compile(r"^aliases\s*(?::[^=\n]*)?=\s*[\[(]([^\])]*)[\])]", re.MULTILINE)
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,64})\1")


class WrittenWorkflow:
    """A workflow as its file describes it."""

    def __init__(self, stem: str, text: str) -> None:
        named, called = _NAME.search(text), _ALIASES.search(text)
        self.name = named[2] if named else stem
        self.aliases: Sequence[str] = [name for _, name in _QUOTED.findall(called[1])] if called else []
        self._text = text

    def flags(self) -> list[ConfigFlag]:
        """The flags that its `default_config` makes, as far as that is a literal."""
        import ast

        try:
            tree = ast.parse(self._text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return []
        read = {"max_iterations": None} if _reads_iterations(tree) else {}
        config = read | _literal(tree, "default_config")
        return config_flags(config, _texts(_literal(tree, "config_descriptions")))


class BuiltinWorkflow(WrittenWorkflow):
    """A workflow that comes with Atomic: its table can be imported quickly."""

    def __init__(self, name: str, aliases: Sequence[str], flags: list[ConfigFlag]) -> None:
        super().__init__(name, "")
        self.aliases, self._flags = aliases, flags

    def flags(self) -> list[ConfigFlag]:
        """The flags of its table."""
        return self._flags


def written_workflows(project: Path | None, home: Path) -> Iterator[list[WrittenWorkflow]]:
    """The project's, the user's, those that come with Atomic: who wins first."""
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


def find_written(word: str, project: Path | None, home: Path) -> WrittenWorkflow | None:
    """The workflow of that name or alias."""
    wanted = word.removeprefix("/").casefold()
    for level in written_workflows(project, home):
        by_name = [one for one in level if one.name.casefold() == wanted]
        found = by_name or [one for one in level if wanted in map(str.casefold, one.aliases)]
        if found:
            return found[0]
    return None


def read_text(path: Path) -> str:
    """The text of a file; empty if it is none."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would keep us waiting
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


def _literal(tree: ast.Module, name: str) -> dict[str, Any]:
    """A table that a file assigns at its top level; empty if it is no literal."""
    import ast

    found: Any = {}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        if value is not None and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                found = ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                found = {}
    table = cast("dict[Any, Any]", found) if isinstance(found, dict) else {}
    return {key: value for key, value in table.items() if isinstance(key, str)}


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in table.items() if isinstance(value, str)}


def _reads_iterations(tree: ast.Module) -> bool:
    """Whether the file reads `params.max_iterations`, which gives it the flag; `metadata` says the same."""
    import ast

    taking = (one for one in tree.body if getattr(one, "name", "") in ("create_state", "check_start"))
    parts = (part for function in taking for part in ast.walk(function))
    return any(isinstance(part, ast.Attribute) and part.attr == "max_iterations" for part in parts)
