"""Workflows of installed Python packages, which name them as entry points.

    [project.entry-points."atomic.workflows"]
    weekly-report = "my_package.weekly_report"

The value is a module that is written like a workflow file. The user has installed the
package, so it needs no approval, but nothing of it runs before the workflow is used:
entry points and modules are found by reading files. A package never hides a workflow of
the project, of the user or of Atomic.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import msgspec

from atomic.base.untrusted_files import read_bounded

GROUP = "atomic.workflows"
_LINE = re.compile(r"(?P<name>[^=\[\]#;\s][^=]*?)\s*=\s*(?P<module>[A-Za-z_][\w.]*)\s*")
_METADATA = (".dist-info", ".egg-info")


class PackageWorkflow(msgspec.Struct, frozen=True):
    """An entry point. `path` is None if there is no such module."""

    name: str
    module: str
    package: str  # with its version
    path: Path | None


def find_package_workflows() -> Iterator[PackageWorkflow]:
    """Yield the entry points of all installed packages, without importing them."""
    seen: set[str] = set()
    for folder in sys.path:
        if not os.path.isabs(folder):  # the current folder may be a stranger's
            continue
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(_METADATA))
        except OSError:
            continue
        for name in names:
            package = name.rpartition(".")[0].rpartition("-")
            if package[0] in seen:  # Python would import the first one
                continue
            seen.add(package[0])
            for entry, module in _entry_points(Path(folder, name)):
                shown = " ".join(part for part in (package[0].replace("_", "-"), package[2]) if part)
                yield PackageWorkflow(entry, module, shown, _find_module(module))


def _entry_points(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        text = read_bounded(folder / "entry_points.txt").decode("utf-8", "replace")
    except OSError:
        return
    is_ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            is_ours = line == f"[{GROUP}]"
        elif is_ours and (found := _LINE.fullmatch(line)):
            yield found["name"], found["module"]


def _find_module(dotted: str) -> Path | None:
    """Return the file of a module. `find_spec` of importlib would import its parents."""
    folders: list[str] | None = None
    origin: str | None = None
    done = ""
    for part in dotted.split("."):
        done = f"{done}.{part}" if done else part
        spec = PathFinder.find_spec(done, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
        origin = spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


class InstalledModule:
    """The code of an entry point, for `load_file`."""

    def __init__(self, module: str) -> None:
        self._module = module

    def run(self, path: str) -> ModuleType:
        """Import the module and return it. Raises whatever it raises."""
        from importlib import import_module

        with contextlib.redirect_stdout(sys.stderr):  # standard output may be JSON for a program
            return import_module(self._module)
