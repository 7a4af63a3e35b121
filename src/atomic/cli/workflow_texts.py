"""What the files of workflows say of themselves, read as text.

For a shell's Tab alone: to import the door of workflows takes longer than a person waits there. Nothing is run.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import ast

_LONGEST_FILE = 1024 * 1024
_NAME = re.compile(r"^name\s*(?::\s*str\s*)?=\s*([\"'])([^\"'\n]{1,64})\1", re.MULTILINE)
_ALIASES = re.compile(r"^aliases\s*(?::[^=\n]*)?=\s*[\[(]([^\])]*)[\])]", re.MULTILINE)
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,64})\1")


class WrittenWorkflow:
    """A workflow as its file names it; our own do so in the call of WorkflowDefinition, so further in."""

    def __init__(self, stem: str, text: str, *, indent: str = "") -> None:
        outer = re.sub(f"^{indent}", "", text, flags=re.MULTILINE) if indent else text
        named, called = _NAME.search(outer), _ALIASES.search(outer)
        self.name = named[2] if named else stem
        self.aliases = [name for _, name in _QUOTED.findall(called[1])] if called else []
        self._text = text

    def default_config(self) -> Mapping[str, Any]:
        """Its `default_config`, as far as it is a literal."""
        import ast

        try:
            return _default_config(ast.parse(self._text))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return {}


def written_workflows(project: Path | None, home: Path) -> Iterator[list[WrittenWorkflow]]:
    """The project's, the user's, those that come with Atomic: who wins first."""
    for folder in (None if project is None else project / ".atomic", home):
        files = _files(folder / "workflows") if folder else ()
        yield [WrittenWorkflow(path.stem, read_text(path)) for path in files]
    ours = sorted((Path(__file__).parents[1] / "workflows").glob("*/definition.py"))
    yield [WrittenWorkflow(path.parent.name, read_text(path), indent="    ") for path in ours]


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


def _default_config(tree: ast.Module) -> Mapping[str, Any]:
    """As a file assigns it, or as our own give it to their WorkflowDefinition."""
    import ast

    assigned: dict[str, ast.expr] = {}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        assigned |= {target.id: value for target in targets if isinstance(target, ast.Name) and value is not None}
    calls = (value for value in assigned.values() if isinstance(value, ast.Call))
    given = (keyword.value for call in calls for keyword in call.keywords if keyword.arg == "default_config")
    config = assigned.get("default_config") or next(given, None)
    config = assigned.get(config.id) if isinstance(config, ast.Name) else config
    found: Any = {} if config is None else ast.literal_eval(config)
    table = cast("dict[Any, Any]", found) if isinstance(found, dict) else {}
    read = {"max_iterations": None} if _reads_iterations(tree) else {}
    return read | {key: value for key, value in table.items() if isinstance(key, str)}


def _reads_iterations(tree: ast.Module) -> bool:
    """Whether the file reads `params.max_iterations`, which gives it the flag; `metadata` says the same."""
    import ast

    taking = (one for one in tree.body if getattr(one, "name", "") in ("create_state", "check_start"))
    parts = (part for function in taking for part in ast.walk(function))
    return any(isinstance(part, ast.Attribute) and part.attr == "max_iterations" for part in parts)
